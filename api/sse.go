package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// heartbeat is shorter than the idle limits of common proxies.
const heartbeat = 15 * time.Second

// An EventStream is an answer of server-sent events. Send blocks while the client is slow, so nothing
// ever queues here.
type EventStream struct {
	w          http.ResponseWriter
	rc         *http.ResponseController
	writeToken chan struct{} // holds one token: the right to write
	ctx        context.Context
	cancel     context.CancelFunc
	heartbeats sync.WaitGroup
}

// NewEventStream begins the answer. The handler closes it before it returns.
func NewEventStream(w http.ResponseWriter, r *http.Request) *EventStream {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // nginx would gather events otherwise
	s := &EventStream{w: w, rc: http.NewResponseController(w), writeToken: make(chan struct{}, 1)}
	s.ctx, s.cancel = context.WithCancel(r.Context())
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodGet { // it looks on, and does nothing that could fail later
		NoteStarted(r.Context())
	}
	// the first event may be long in coming, and a client waits for the header; who has gone is found out below
	_ = s.rc.Flush()
	s.heartbeats.Go(s.sendHeartbeats)
	return s
}

// Context ends when the client has gone, a write failed, the server drains, or at Close.
func (s *EventStream) Context() context.Context { return s.ctx }

// Send writes one event, data as JSON, and flushes it. An empty name leaves the event line out.
func (s *EventStream) Send(name string, data any) error { return s.SendID("", name, data) }

// SendID is Send with an ID, which a client that comes back sends as Last-Event-ID. Neither may
// hold a line end.
func (s *EventStream) SendID(id, name string, data any) error {
	body, err := json.Marshal(data)
	if err != nil {
		return err
	}
	return s.SendRaw(id, name, body)
}

// SendRaw is SendID for data that is text already, byte for byte. It may not hold a line end either.
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

// sendHeartbeats writes comments, which keep proxies from closing a silent stream and find out clients that are gone.
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
