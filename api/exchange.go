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

	"github.com/google/uuid"
)

// stall is how long a peer may take for one read of a body or one write of an answer.
const stall = time.Minute

// pieceBytes is how much of a file the kernel sends under one deadline: 70 kB/s are needed to keep it.
const pieceBytes = 4 << 20

// An exchange is one request and its answer. It is the http.ResponseWriter that handlers get: it
// counts what they write, and gives every write a deadline.
type exchange struct {
	http.ResponseWriter
	r     *http.Request
	id    string
	edge  *Edge // nil until a route is found
	start time.Time
	owner string

	status   int // 0 until something is written
	bytes    int64
	hijacked bool
	lost     bool  // the client did not take what was written
	cut      bool  // the answer failed half way
	err      error // for the log
}

type contextKey int

const (
	requestIDKey contextKey = iota
	drainingKey
)

func newExchange(w http.ResponseWriter, r *http.Request) *exchange {
	id := proto.ID(proto.RequestPrefix, uuid.Must(uuid.NewV7())) // fails only if the kernel has no random numbers
	w.Header().Set("Request-Id", id)
	r = r.WithContext(context.WithValue(r.Context(), requestIDKey, id))
	return &exchange{ResponseWriter: w, r: r, id: id, start: time.Now()}
}

// RequestID is the ID of the request that ctx belongs to, or empty.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey).(string)
	return id
}

// Draining is closed when the server begins to shut down; what streams for as long as it likes should
// then end. Outside a request it is nil.
func Draining(ctx context.Context) <-chan struct{} {
	ch, _ := ctx.Value(drainingKey).(<-chan struct{})
	return ch
}

// Unwrap is for http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

func (x *exchange) WriteHeader(status int) {
	if x.status == 0 && status >= 200 {
		x.status = status
	}
	x.ResponseWriter.WriteHeader(status)
}

func (x *exchange) Write(p []byte) (int, error) {
	x.begin()
	n, err := x.ResponseWriter.Write(p)
	x.bytes += int64(n)
	x.lost = x.lost || err != nil
	return n, err
}

// ReadFrom lets the kernel send files, piece by piece. A piece of a limited reader must be cut from
// what it limits, since the kernel's way is not taken through two limits.
func (x *exchange) ReadFrom(src io.Reader) (int64, error) {
	left := int64(1<<63 - 1)
	limited, ok := src.(*io.LimitedReader)
	if ok {
		src, left = limited.R, limited.N
	}
	var total int64
	var failed error
	for left > 0 {
		x.begin()
		want := min(left, pieceBytes)
		n, err := io.Copy(x.ResponseWriter, &io.LimitedReader{R: src, N: want})
		total, left = total+n, left-n
		if err != nil || n < want {
			var op *net.OpError // rather than one of the source
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

// route is the pattern that was found, which unlike the path is never secret and one of few.
func (x *exchange) route() string {
	if x.r.Pattern == "" {
		return "none"
	}
	return x.r.Pattern
}

// begin notes that an answer goes out and sets the deadline of its next part.
func (x *exchange) begin() {
	if x.status == 0 {
		x.status = http.StatusOK
	}
	_ = http.NewResponseController(x.ResponseWriter).SetWriteDeadline(time.Now().Add(stall))
}

// Hijack hands the connection over, to a websocket.
func (x *exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(x.ResponseWriter).Hijack()
	if err == nil {
		x.hijacked, x.status = true, http.StatusSwitchingProtocols
	}
	return conn, rw, err
}
