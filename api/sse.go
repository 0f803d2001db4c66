package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// heartbeat is shorter than the idle timeouts of common proxies.
const heartbeat = 15 * time.Second

// An EventStream is an answer of server-sent events. Send blocks while the client is slow; nothing is queued.
type EventStream struct {
	w          http.ResponseWriter
	rc         *http.ResponseController
	writeToken chan struct{} // holds one token: the right to write
	ctx        context.Context
	cancel     context.CancelFunc
	heartbeats sync.WaitGroup
}

// NewEventStream starts the answer. The handler closes the stream before it returns.
func NewEventStream(w http.ResponseWriter, r *http.Request) *EventStream {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // nginx would buffer events otherwise
	s := &EventStream{w: w, rc: http.NewResponseController(w), writeToken: make(chan struct{}, 1)}
	s.ctx, s.cancel = context.WithCancel(r.Context())
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodGet { // a GET only reads, so nothing can fail later
		NoteStarted(r.Context())
	}
	// the client waits for the header, and the first event may take long; a client that has gone is noticed below
	_ = s.rc.Flush()
	s.heartbeats.Go(s.sendHeartbeats)
	return s
}

// Context ends when the client goes away, a write fails, the server drains, or the stream is closed.
func (s *EventStream) Context() context.Context { return s.ctx }

// Send writes one event with data as JSON. An empty name omits the event line.
func (s *EventStream) Send(name string, data any) error { return s.SendID("", name, data) }

// SendID is Send with an ID, which a client that reconnects sends as Last-Event-ID. ID and name must not contain line
// ends.
func (s *EventStream) SendID(id, name string, data any) error {
	body, err := json.Marshal(data)
	if err != nil {
		return err
	}
	return s.SendRaw(id, name, body)
}

// SendRaw is SendID for data that is already text. The text must not contain line ends.
func (s *EventStream) SendRaw(id, name string, body []byte) error {
	var p []byte
	if id != "" {
		p = fmt.Appendf(p, "id: %s\n", id)
	}
	if name != "" {
		p = fmt.Appendf(p, "event: %s\n", name)
	}
	return s.write(fmt.Appendf(p, "data: %s\n\n", body))
}

// Close ends the stream.
func (s *EventStream) Close() {
	s.cancel()
	s.heartbeats.Wait()
}

func (s *EventStream) write(p []byte) error {
	select {
	case s.writeToken <- struct{}{}:
		defer func() { <-s.writeToken }()
	case <-s.ctx.Done():
	}
	if err := s.ctx.Err(); err != nil {
		return err
	}
	_, err := s.w.Write(p)
	if err == nil {
		err = s.rc.Flush()
	}
	if err != nil {
		s.cancel()
	}
	return err
}

// sendHeartbeats writes comments. They keep proxies from closing an idle stream, and reveal clients that have gone.
func (s *EventStream) sendHeartbeats() {
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_ = s.write([]byte(":\n\n")) // a failure ends ctx
		case <-Draining(s.ctx):
			s.cancel()
			return
		case <-s.ctx.Done():
			return
		}
	}
}
