package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// pingEvery is how often a stream says that it is alive. Clients and proxies may count on ten seconds.
const pingEvery = 5 * time.Second

// A stream is a streamed answer. Its methods may be called by many at once; after a write that failed they do nothing.
type stream struct {
	w  http.ResponseWriter
	rc *http.ResponseController

	mu    sync.Mutex // guards what follows
	began bool       // the client has got message_start
	blind bool       // the header is sent
	next  int        // index of the next block
	err   error      // of the first write that failed
}

func newStream(w http.ResponseWriter) *stream {
	return &stream{w: w, rc: http.NewResponseController(w)}
}

// send writes one event.
func (s *stream) send(name string, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.write(name, data)
}

// oneLine takes the ends of lines out of JSON, where they are white space alone: in a stream they would end the data.
var oneLine = strings.NewReplacer("\r", "", "\n", "")

// write is send with mu held. Writes have the server's deadline, so nobody is held up for long.
func (s *stream) write(name string, data []byte) error {
	if s.err != nil {
		return s.err
	}
	if !s.blind {
		h := s.w.Header()
		h.Set("Content-Type", "text/event-stream; charset=utf-8")
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no") // nginx would gather events otherwise
		s.w.WriteHeader(http.StatusOK)
		s.blind = true
	}
	if name == "message_start" {
		s.began = true
	}
	if _, s.err = fmt.Fprintf(s.w, "event: %s\ndata: %s\n\n", name, oneLine.Replace(string(data))); s.err == nil {
		s.err = s.rc.Flush()
	}
	return s.err
}

// sent reports whether the answer has begun.
func (s *stream) sent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.blind
}

// ping tells that there is nothing to tell, once the message has begun.
func (s *stream) ping() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.began {
		_ = s.write("ping", []byte(`{"type":"ping"}`)) // whoever writes next is told
	}
}

// beat pings until stop is called.
func (s *stream) beat() (stop func()) {
	done, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
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
	}()
	return func() { close(done); <-over }
}

// start begins the message.
func (s *stream) start(message object) error {
	return s.send("message_start", object{}.with("type", "message_start").with("message", message.raw()).raw())
}

// open begins a block and gives its index.
func (s *stream) open(block json.RawMessage) (index int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	index = s.next
	s.next++
	return index, s.write("content_block_start", object{}.with("type", "content_block_start").with("index", index).with(
		"content_block", block).raw())
}

// delta goes on with a block.
func (s *stream) delta(index int, delta object) error {
	return s.send("content_block_delta", object{}.with("type", "content_block_delta").with("index", index).with(
		"delta", delta.raw()).raw())
}

// shut ends a block.
func (s *stream) shut(index int) error {
	return s.send("content_block_stop", object{}.with("type", "content_block_stop").with("index", index).raw())
}

// block sends a block that is there already. What grows in a stream comes as one delta; a result comes whole.
func (s *stream) block(raw json.RawMessage) error {
	o, err := parseObject(raw)
	if err != nil {
		return err
	}
	first, deltas := unfold(o)
	index, err := s.open(first.raw())
	for _, d := range deltas {
		if err == nil {
			err = s.delta(index, d)
		}
	}
	if err != nil {
		return err
	}
	return s.shut(index)
}

// unfold is a block as a stream begins it, and the deltas that make the rest of it.
func unfold(o object) (first object, deltas []object) {
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

// finish ends the message.
func (s *stream) finish(delta object) error {
	if err := s.send("message_delta", delta.raw()); err != nil {
		return err
	}
	return s.send("message_stop", []byte(`{"type":"message_stop"}`))
}
