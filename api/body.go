package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"berth/proto"
)

// A body is a request's, under a limit and with a deadline for each read. Its errors are *proto.Error.
type body struct {
	io.ReadCloser
	rc    *http.ResponseController
	stall time.Duration
	limit int64 // negative: none
	ctx   context.Context
	read  int64
	ended bool // read to its end, or to where it broke
	err   error
}

// limitBody puts a route's limit on a request. What announces itself as too large is refused unread.
func (s *Server) limitBody(x *exchange, route Route) error {
	limit := route.MaxBodyBytes
	if limit == 0 {
		limit = s.cfg.MaxBodyBytes
	}
	if limit >= 0 && x.r.ContentLength > limit {
		return tooLarge(limit)
	}
	x.body = &body{ReadCloser: x.r.Body, rc: http.NewResponseController(x.ResponseWriter), stall: x.stall, limit: limit,
		ctx: x.r.Context()}
	x.r.Body = x.body
	return nil
}

// What is still read of a body whose request was answered before all of it had come.
const (
	drainTime  = 500 * time.Millisecond
	drainBytes = 64 << 20
)

// drainBody reads on after the answer for a moment. Closing a connection that has unread bytes resets it, and a client
// that is still sending then never sees why it was refused. (net/http does this too, but not where it was asked for
// 100-continue.)
func (x *exchange) drainBody() {
	b := x.body
	if b == nil || b.read == 0 || b.ended || x.hijacked || x.cut || x.err == nil {
		return
	}
	if b.rc.Flush() != nil || b.rc.SetReadDeadline(time.Now().Add(drainTime)) != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, b.ReadCloser, drainBytes)
}

func tooLarge(limit int64) error {
	return proto.Errorf(proto.TooLarge, "", "", "The request body is larger than the limit of %d bytes.", limit)
}

func (b *body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if b.limit >= 0 && int64(len(p)) > b.limit-b.read+1 {
		p = p[:b.limit-b.read+1] // one more than allowed, to see it come
	}
	// The deadline must not outlive the read: while a handler works, the server reads on to see
	// whether the client is there, and would take its passing for a client that went away.
	_ = b.rc.SetReadDeadline(time.Now().Add(b.stall))
	// One that has passed stays, or the server would wait for the rest before it answers.
	n, err := b.ReadCloser.Read(p)
	if err == nil || errors.Is(err, io.EOF) {
		_ = b.rc.SetReadDeadline(time.Time{})
	}
	b.read += int64(n)
	b.ended = b.ended || err != nil
	if b.limit >= 0 && b.read > b.limit {
		b.err = tooLarge(b.limit)
		return 0, b.err
	}
	if b.err = keyEnded(b.ctx); b.err != nil {
		return 0, b.err
	}
	b.err = b.explain(err)
	return n, b.err
}

// explain says what went wrong in words for the client, if it can still hear them.
func (b *body) explain(err error) error {
	switch {
	case err == nil || errors.Is(err, io.EOF):
		return err
	case errors.Is(err, io.ErrUnexpectedEOF):
		return proto.Errorf(proto.InvalidArgument, "", "", "The request body ended early.")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return proto.Errorf(proto.TimedOut, "", "", "The request body stalled for %s.", b.stall)
	}
	return proto.Errorf(proto.Canceled, "", "", "The request body could not be read to its end.")
}
