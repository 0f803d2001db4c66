package connectrpc

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"berth/api"
	"berth/proto"
)

// usualPing is after how long without a message a stream sends one, if the client does not say.
const usualPing = 90 * time.Second

// A Stream sends messages of the server. Its methods may be called by several goroutines.
type Stream struct {
	w    http.ResponseWriter
	ping any // the message that says that the stream lives

	mu     sync.Mutex
	timer  *time.Timer
	err    error
	over   bool
	opened bool
}

// Send sends a message now.
func (s *Stream) Send(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.write(AppendFrame(nil, 0, data))
}

// write sends a frame and begins to wait for the next one. Called with mu held.
func (s *Stream) write(frame []byte) error {
	if s.over || s.err != nil {
		return s.err
	}
	if !s.opened {
		s.opened = true
		s.w.Header().Set("Content-Type", streamType)
	}
	if _, s.err = s.w.Write(frame); s.err == nil {
		s.err = http.NewResponseController(s.w).Flush()
	}
	return s.err
}

// keepAlive sends pings until the stream is over.
func (s *Stream) keepAlive(every time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = time.AfterFunc(every, func() {
		_ = s.Send(s.ping) // a client that has gone is noticed elsewhere
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.over {
			s.timer.Reset(every)
		}
	})
}

// stop ends the pings.
func (s *Stream) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	if s.timer != nil {
		s.timer.Stop()
	}
}

// pingEvery returns how often a client wants to hear something.
func pingEvery(r *http.Request) time.Duration {
	seconds, err := strconv.ParseInt(r.Header.Get("Keepalive-Ping-Interval"), 10, 32)
	if err != nil || seconds < 1 {
		return usualPing
	}
	return time.Duration(seconds) * time.Second
}

// ServerStream serves a call whose answer is a stream. fn sends its messages; ping is sent when it is silent. An error
// of fn ends the stream as the protocol says; one of Abort breaks it off.
func ServerStream[In any](w http.ResponseWriter, r *http.Request, ping any,
	fn func(context.Context, In, *Stream) error) error {
	s := &Stream{w: w, ping: ping}
	var in In
	err := ReadFrame(r.Body, &in)
	if err == nil {
		s.keepAlive(pingEvery(r))
		err = fn(r.Context(), in, s)
		s.stop()
	}
	var broken abort
	switch {
	case errors.As(err, &broken):
		return err
	case api.IsDraining(r.Context()):
		return abort{proto.Errorf(proto.Unavailable, "", "", "the daemon is shutting down")}
	case r.Context().Err() != nil:
		return abort{context.Cause(r.Context())}
	}
	if !s.opened {
		w.Header().Set("Content-Type", streamType)
	}
	_, failed := w.Write(endFrame(err))
	return failed
}
