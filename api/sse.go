package api

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"berth/proto/sse"
)

// heartbeat is shorter than the idle timeouts of common proxies.
const heartbeat = 15 * time.Second

// An EventStream is an answer of server-sent events. Send blocks while the client is slow; nothing is queued.
type EventStream struct {
	w          *sse.Writer
	writeToken chan struct{} // holds one token: the right to write
	ctx        context.Context
	cancel     context.CancelFunc
	heartbeats sync.WaitGroup
}

// NewEventStream starts the answer. The handler closes the stream before it returns.
func NewEventStream(w http.ResponseWriter, r *http.Request) *EventStream {
	s := &EventStream{w: sse.NewWriter(w), writeToken: make(chan struct{}, 1)}
	s.ctx, s.cancel = context.WithCancel(r.Context())
	s.w.WriteHeader(sse.ContentType)
	if r.Method == http.MethodGet { // a GET only reads, so nothing can fail later
		NoteStarted(r.Context())
	}
	// the client waits for the header, and the first event may take long; a client that has gone is noticed below
	_ = s.w.Flush()
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
	return s.write(func() error { return s.w.Write(sse.Event{ID: id, Name: name, Data: body}) })
}

// Close ends the stream.
func (s *EventStream) Close() {
	s.cancel()
	s.heartbeats.Wait()
}

func (s *EventStream) write(fn func() error) error {
	select {
	case s.writeToken <- struct{}{}:
		defer func() { <-s.writeToken }()
	case <-s.ctx.Done():
	}
	if err := s.ctx.Err(); err != nil {
		return err
	}
	err := fn()
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
			_ = s.write(s.w.WriteComment) // a failure ends ctx
		case <-Draining(s.ctx):
			s.cancel()
			return
		case <-s.ctx.Done():
			return
		}
	}
}
