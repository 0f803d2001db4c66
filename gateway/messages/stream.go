package messages

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"berth/gateway"
	"berth/proto/sse"
)

// pingEvery is the interval of pings in a stream. Clients and proxies may rely on ten seconds.
const pingEvery = 5 * time.Second

// A stream is a streamed answer. It is safe for concurrent use. After a failed write it ignores all further calls.
type stream struct {
	mu     sync.Mutex // guards the fields below
	w      *sse.Writer
	header bool  // the HTTP header is sent
	begun  bool  // message_start is sent
	next   int   // index of the next block
	err    error // of the first failed write
}

func newStream(w http.ResponseWriter) *stream { return &stream{w: sse.NewWriter(w)} }

// send writes one event.
func (s *stream) send(name string, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sendLocked(name, data)
}

// oneLine removes line breaks from JSON, where they are only white space.
var oneLine = strings.NewReplacer("\r", "", "\n", "")

// sendLocked is send with mu held. The server sets a write deadline, which limits the time.
func (s *stream) sendLocked(name string, data []byte) error {
	if s.err != nil {
		return s.err
	}
	if !s.header {
		s.w.WriteHeader(sse.ContentType + "; charset=utf-8")
		s.header = true
	}
	if name == "message_start" {
		s.begun = true
	}
	s.err = s.w.Write(sse.Event{Name: name, Data: []byte(oneLine.Replace(string(data)))})
	return s.err
}

// sent reports whether the client has received anything.
func (s *stream) sent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.header
}

// started reports whether the message has begun.
func (s *stream) started() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.begun
}

// ping sends a ping if the message has begun.
func (s *stream) ping() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun {
		_ = s.sendLocked("ping", []byte(`{"type":"ping"}`)) // the next write returns the error
	}
}

// keepAlive sends pings until stop is called.
func (s *stream) keepAlive() (stop func()) {
	done := make(chan struct{})
	var pings sync.WaitGroup
	pings.Go(func() {
		tick := time.NewTicker(pingEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				s.ping()
			case <-done:
				return
			}
		}
	})
	return func() { close(done); pings.Wait() }
}

// start begins the message.
func (s *stream) start(message json.RawMessage) error {
	return s.send("message_start", object{}.with("type", "message_start").with("message", message).raw())
}

// startBlock begins a block and returns its index.
func (s *stream) startBlock(block json.RawMessage) (index int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	index = s.next
	s.next++
	return index, s.sendLocked("content_block_start", object{}.with("type", "content_block_start").with("index",
		index).with("content_block", block).raw())
}

// delta sends a delta of a block.
func (s *stream) delta(index int, delta object) error {
	return s.send("content_block_delta", object{}.with("type", "content_block_delta").with("index", index).with(
		"delta", delta.raw()).raw())
}

// endBlock ends a block.
func (s *stream) endBlock(index int) error {
	return s.send("content_block_stop", object{}.with("type", "content_block_stop").with("index", index).raw())
}

// block sends a whole block. It sends members that grow in a stream as one delta, and a result as a whole.
func (s *stream) block(raw json.RawMessage) error {
	o, err := parseObject(raw)
	if err != nil {
		return err
	}
	first, deltas := splitBlock(o)
	index, err := s.startBlock(first.raw())
	for _, d := range deltas {
		if err == nil {
			err = s.delta(index, d)
		}
	}
	if err != nil {
		return err
	}
	return s.endBlock(index)
}

// splitBlock splits a block into the form that begins it in a stream, and the deltas that follow.
func splitBlock(o object) (first object, deltas []object) {
	delta := func(kind, name string, value json.RawMessage) {
		deltas = append(deltas, object{}.with("type", kind).with(name, value))
	}
	switch o.text("type") {
	case "text":
		if o.text("text") != "" {
			delta("text_delta", "text", o.get("text"))
		}
		return o.with("text", ""), deltas
	case "thinking":
		delta("thinking_delta", "thinking", o.get("thinking"))
		if o.has("signature") {
			delta("signature_delta", "signature", o.get("signature"))
		}
		return o.with("thinking", "").with("signature", ""), deltas
	case "tool_use", "server_tool_use":
		delta("input_json_delta", "partial_json", mustJSON(string(o.get("input"))))
		return o.with("input", json.RawMessage("{}")), deltas
	}
	return o, nil
}

// output sends the output of a running call, as an event that only berth defines.
func (s *stream) output(c gateway.Call, out gateway.Output) error {
	o := object{}.with("type", "berth_output").with("tool_use_id", c.ID).with("stream", out.Stream)
	if out.Bytes != nil {
		return s.send("berth_output", o.with("data_base64", out.Bytes).raw())
	}
	return s.send("berth_output", o.with("text", out.Text).raw())
}

// finish ends the message.
func (s *stream) finish(delta object) error {
	if err := s.send("message_delta", delta.raw()); err != nil {
		return err
	}
	return s.send("message_stop", []byte(`{"type":"message_stop"}`))
}
