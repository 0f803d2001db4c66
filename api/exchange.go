package api

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"berth/proto"
	"berth/proto/span"
)

// pieceBytes is how much of an answer is sent under one deadline. A client that takes less than this, minus kernel
// buffers, in Config.Stall is cut off.
const pieceBytes = 4 << 20

// An exchange is one request and its answer. It is the http.ResponseWriter of the handlers: it counts what they
// write, and gives every write a deadline.
type exchange struct {
	http.ResponseWriter
	r     *http.Request
	id    string
	table *table // of the request's host
	edge  *Edge  // nil until a route is found
	// the ID of the container that the path names, or empty
	container     string
	start         time.Time
	stall         time.Duration
	owner         string
	releaseCaller func()         // releases the caller's key
	body          *body          // nil until its limit is known
	action        *auditedAction // nil: not audited
	span          span.Span
	writeAudit    func() // writes the audit entry

	status   int // 0 until something is written
	bytes    int64
	hijacked bool
	shared   bool  // a page of an allowed origin reads the answer
	unrouted bool  // no route serves the path and method
	probe    bool  // see Route.Probe
	over     bool  // the key has ended; only the error is still to be written
	lost     bool  // a write failed because of the client
	cut      bool  // the answer failed after it had started
	err      error // for the log
}

type contextKey int

const (
	drainingKey contextKey = iota
)

// requestID is a header of every answer.
const requestID = "Request-Id"

func newExchange(w http.ResponseWriter, r *http.Request, stall time.Duration) *exchange {
	id := proto.NewID(proto.RequestPrefix)
	w.Header().Set(requestID, id)
	if len(r.TransferEncoding) > 0 {
		// net/http hides a Content-Length beside it. A proxy in front may believe that one, and would take the rest of
		// the body for the next request.
		w.Header().Set("Connection", "close")
	}
	ctx, sp := span.StartServer(span.FromHeader(r.Context(), r.Header), r.Method)
	r = r.WithContext(proto.WithRequestID(ctx, id))
	x := &exchange{ResponseWriter: w, r: r, id: id, start: time.Now(), stall: stall, releaseCaller: func() {}, span: sp}
	x.extendDeadline() // the deadline of the previous request on this connection may have passed
	return x
}

// RequestID returns the ID of the request of ctx, or "".
func RequestID(ctx context.Context) string {
	return proto.RequestIDOf(ctx)
}

// Draining returns a channel that is closed when the server begins to shut down. Endless streams then end. Outside a
// request it is nil.
func Draining(ctx context.Context) <-chan struct{} {
	ch, _ := ctx.Value(drainingKey).(<-chan struct{})
	return ch
}

// IsDraining reports whether the server of ctx's request shuts down.
func IsDraining(ctx context.Context) bool {
	select {
	case <-Draining(ctx):
		return true
	default:
		return false
	}
}

// UntilDraining returns a context that also ends when the server begins to shut down. It is for answers that may take
// hours, which would delay the shutdown. The caller must cancel it to end its goroutine.
func UntilDraining(ctx context.Context) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-Draining(ctx):
			cancel()
		case <-out.Done():
		}
	}()
	return out, cancel
}

// WaitUntilDraining returns what wait returns. If the server begins to shut down before, it says that what is waited
// for goes on, and how to come back to it.
func WaitUntilDraining[T any](ctx context.Context, how string, wait func(context.Context) (T, error)) (T, error) {
	until, cancel := UntilDraining(ctx)
	defer cancel()
	res, err := wait(until)
	if err != nil && ctx.Err() == nil && IsDraining(ctx) {
		err = proto.Errorf(proto.Unavailable, "", "", "the daemon is shutting down; what was asked for goes on: %s",
			how)
	}
	return res, err
}

// Unwrap is for http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

func (x *exchange) WriteHeader(status int) {
	if x.status == 0 && status >= 200 {
		x.status = status
		x.exposeHeaders()
	}
	x.extendDeadline()
	x.ResponseWriter.WriteHeader(status)
}

// Write sends p in pieces with a deadline each, so that a slow but steady client gets all of a large answer.
func (x *exchange) Write(p []byte) (n int, err error) {
	for {
		if err := x.keyEndedError(); err != nil {
			return n, err
		}
		x.startAnswer()
		sent, err := x.ResponseWriter.Write(p[n:min(len(p), n+pieceBytes)])
		n += sent
		x.bytes += int64(sent)
		x.lost = x.lost || err != nil
		if err != nil || n == len(p) {
			return n, err
		}
	}
}

// ReadFrom lets the kernel send files, piece by piece. It unwraps a limited reader, since the kernel cannot send
// through two of them.
func (x *exchange) ReadFrom(src io.Reader) (int64, error) {
	left := int64(1<<63 - 1)
	limited, ok := src.(*io.LimitedReader)
	if ok {
		src, left = limited.R, limited.N
	}
	var total int64
	var failed error
	for left > 0 {
		if failed = x.keyEndedError(); failed != nil {
			break
		}
		x.startAnswer()
		want := min(left, pieceBytes)
		n, err := io.Copy(x.ResponseWriter, &io.LimitedReader{R: src, N: want})
		total, left = total+n, left-n
		if err != nil || n < want {
			var op *net.OpError // the connection failed, not the source
			x.lost = x.lost || errors.As(err, &op)
			failed = err
			break
		}
	}
	x.bytes += total
	if ok {
		limited.N = left
	}
	return total, failed
}

// keyEndedError fails the writes of a handler after the key of the request has ended.
func (x *exchange) keyEndedError() error {
	if x.over {
		return nil
	}
	return keyEnded(x.r.Context())
}

// route returns the pattern of the route. Unlike the path it is never secret and one of few.
func (x *exchange) route() string {
	if x.r.Pattern == "" {
		return "none"
	}
	return x.r.Pattern
}

// startAnswer notes that the answer has started and sets the deadline of its next part.
func (x *exchange) startAnswer() {
	if x.status == 0 {
		x.status = http.StatusOK
		x.exposeHeaders()
	}
	x.extendDeadline()
}

// extendDeadline sets the deadline of the next write, if the connection has deadlines.
func (x *exchange) extendDeadline() {
	_ = http.NewResponseController(x.ResponseWriter).SetWriteDeadline(time.Now().Add(x.stall))
}

// flushAnswer sets deadlines for what the server does after the handler: it reads the rest of the body, which the
// client may never send, and then sends what is still buffered.
func (x *exchange) flushAnswer() {
	if x.hijacked {
		return
	}
	rc := http.NewResponseController(x.ResponseWriter)
	if x.body == nil || x.body.err == nil {
		_ = rc.SetReadDeadline(time.Now().Add(x.stall))
	}
	_ = rc.SetWriteDeadline(time.Now().Add(2 * x.stall))
	// Send now, before logging. An answer of unknown length would be split into chunks by this.
	if x.Header().Get("Content-Length") != "" && x.status != 0 {
		_ = rc.Flush() // a client that has gone is noticed elsewhere
	}
}

// Hijack hands the connection over to a websocket.
func (x *exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(x.ResponseWriter).Hijack()
	if err == nil {
		x.hijacked, x.status = true, http.StatusSwitchingProtocols
		x.writeAudit() // a websocket may be open for days
	}
	return conn, rw, err
}
