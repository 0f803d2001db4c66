package messages

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"berth/gateway"
	"berth/gateway/messages/rawjson"
	"berth/proto/sse"
)

// pingEvery is the interval of pings in a stream. Clients and proxies may rely on ten seconds.
const pingEvery = 5 * time.Second

// A stream is a streamed answer. It is safe for concurrent use. After a failed write it ignores all further calls. A
// nil stream ignores all calls: the answer is one JSON body.
type stream struct {
	mu     sync.Mutex // guards the fields below
	w      *sse.Writer
	header bool  // the HTTP header is sent
	begun  bool  // message_start is sent
	next   int   // index of the next block
	err    error // of the first failed write
}

// send writes one event.
func (s *stream) send(name string, data []byte) error {
	if s == nil {
		return nil
	}
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
	if err := s.w.Write(sse.Event{Name: name, Data: []byte(oneLine.Replace(string(data)))}); err != nil {
		s.err = fmt.Errorf("%w: %w", gateway.ErrClientGone, err)
	}
	return s.err
}

// sent reports whether the client has received anything.
func (s *stream) sent() bool {
	if s == nil {
		return false
	}
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
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun {
		_ = s.sendLocked("ping", []byte(`{"type":"ping"}`)) // the next write returns the error
	}
}

// keepAlive sends pings until stop is called.
func (s *stream) keepAlive() (stop func()) {
	if s == nil {
		return func() {}
	}
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
	return s.send("message_start", rawjson.Object{}.With("type", "message_start").With("message", message).Raw())
}

// startBlock begins a block and returns its index.
func (s *stream) startBlock(block json.RawMessage) (index int, err error) {
	if s == nil {
		return 0, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	index = s.next
	s.next++
	return index, s.sendLocked("content_block_start", rawjson.Object{}.With("type", "content_block_start").With("index",
		index).With("content_block", block).Raw())
}

// delta sends a delta of a block.
func (s *stream) delta(index int, delta rawjson.Object) error {
	return s.send("content_block_delta", rawjson.Object{}.With("type", "content_block_delta").With("index", index).With(
		"delta", delta.Raw()).Raw())
}

// endBlock ends a block.
func (s *stream) endBlock(index int) error {
	return s.send("content_block_stop", rawjson.Object{}.With("type", "content_block_stop").With("index", index).Raw())
}

// block sends a whole block. It sends members that grow in a stream as one delta, and a result as a whole.
func (s *stream) block(raw json.RawMessage) error {
	o, err := rawjson.Parse(raw)
	if err != nil {
		return err
	}
	first, deltas := splitBlock(o)
	index, err := s.startBlock(first.Raw())
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
func splitBlock(o rawjson.Object) (first rawjson.Object, deltas []rawjson.Object) {
	delta := func(kind, name string, value json.RawMessage) {
		deltas = append(deltas, rawjson.Object{}.With("type", kind).With(name, value))
	}
	switch o.Text("type") {
	case "text":
		if o.Text("text") != "" {
			delta("text_delta", "text", o.Get("text"))
		}
		return o.With("text", ""), deltas
	case "thinking":
		delta("thinking_delta", "thinking", o.Get("thinking"))
		if o.Has("signature") {
			delta("signature_delta", "signature", o.Get("signature"))
		}
		return o.With("thinking", "").With("signature", ""), deltas
	case "tool_use", "server_tool_use":
		delta("input_json_delta", "partial_json", rawjson.Marshal(string(o.Get("input"))))
		return o.With("input", json.RawMessage("{}")), deltas
	}
	return o, nil
}

// output sends the output of a running call, as an event that only berth defines.
func (s *stream) output(c gateway.Call, out gateway.Output) error {
	o := rawjson.Object{}.With("type", "berth_output").With("tool_use_id", c.ID).With("stream", out.Stream)
	if out.Bytes != nil {
		return s.send("berth_output", o.With("data_base64", out.Bytes).Raw())
	}
	return s.send("berth_output", o.With("text", out.Text).Raw())
}

// finish ends the message.
func (s *stream) finish(delta rawjson.Object) error {
	if err := s.send("message_delta", delta.Raw()); err != nil {
		return err
	}
	return s.send("message_stop", []byte(`{"type":"message_stop"}`))
}
