package upstream

import (
	"errors"
	"io"
	"iter"
	"net/http"
	"sync"
)

// An outgoing is the body of a request while it is sent. The transport may read it in another goroutine for a moment
// after it has returned, so end makes sure that it does not.
type outgoing struct {
	mu      sync.Mutex       // guards the fields below
	content iter.Seq[[]byte] // nil: end was called
}

// inOnePiece returns a body that is held in one piece.
func inOnePiece(body []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if len(body) > 0 {
			yield(body)
		}
	}
}

// sizeOf returns how many bytes a body has.
func sizeOf(content iter.Seq[[]byte]) (n int) {
	for piece := range content {
		n += len(piece)
	}
	return n
}

// attach makes it the body of a request, with its length.
func (o *outgoing) attach(r *http.Request) {
	if r.ContentLength = int64(sizeOf(o.content)); r.ContentLength == 0 {
		r.Body = http.NoBody
		return
	}
	r.GetBody = func() (io.ReadCloser, error) { // a closed connection was reused: nothing was sent
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.content == nil {
			return nil, errEnded
		}
		next, stop := iter.Pull(o.content)
		return &outgoingReader{o: o, next: next, stop: stop}, nil
	}
	r.Body, _ = r.GetBody() // cannot fail: it has not ended
}

// end lets nothing more be read, and frees the body.
func (o *outgoing) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.content = nil
}

var errEnded = errors.New("the request has ended")

// An outgoingReader reads the body once.
type outgoingReader struct {
	o    *outgoing
	next func() ([]byte, bool)
	stop func()
	rest []byte // of the current piece
}

func (r *outgoingReader) Read(p []byte) (n int, err error) {
	r.o.mu.Lock()
	defer r.o.mu.Unlock()
	if r.o.content == nil {
		return 0, errEnded
	}
	for len(r.rest) == 0 {
		var more bool
		if r.rest, more = r.next(); !more {
			return 0, io.EOF
		}
	}
	n = copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// Close ends the reading of the pieces.
func (r *outgoingReader) Close() error {
	r.o.mu.Lock()
	defer r.o.mu.Unlock()
	r.stop()
	r.rest = nil
	return nil
}
