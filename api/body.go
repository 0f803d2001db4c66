package api

import (
	"context"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"berth/proto"
)

// A body is the body of a request with a size limit and a deadline for each read. Its errors are *proto.Error.
type body struct {
	io.ReadCloser
	rc    *http.ResponseController
	stall time.Duration
	limit int64 // negative: none
	// it is sent in chunks
	chunked bool
	ctx     context.Context
	read    int64
	ended   bool      // read to its end, or to an error
	until   time.Time // when it must be read; zero: no limit
	err     error
}

// limitBody applies the limit of a route. A larger Content-Length is refused before any byte is read.
func (s *Server) limitBody(x *exchange, route Route) error {
	limit := route.MaxBodyBytes
	if limit == 0 {
		limit = s.cfg.MaxBodyBytes
	}
	if limit >= 0 && x.r.ContentLength > limit {
		return tooLarge(limit)
	}
	x.body = &body{ReadCloser: x.r.Body, rc: http.NewResponseController(x.ResponseWriter), stall: x.stall, limit: limit,
		chunked: len(x.r.TransferEncoding) > 0, ctx: x.r.Context()}
	x.r.Body = x.body
	return nil
}

// skip reads the body of a request to a route that takes none. A body that is malformed or cut off is refused before
// the route does anything. The whole body must come as fast as one read of others.
func (b *body) skip(length int64) error {
	if length == 0 {
		return nil
	}
	b.until = time.Now().Add(b.stall)
	_, err := io.Copy(io.Discard, b)
	return err
}

// anyMedia is what curl sends unless told otherwise.
const anyMedia = "application/x-www-form-urlencoded"

// checkMedia refuses a body of another media type than the route takes, with 415. A body without a type is accepted.
// Compressed bodies are refused, too: the compressed bytes would be stored.
func checkMedia(r *http.Request, takes []string) error {
	if len(takes) == 0 || r.ContentLength == 0 {
		return nil
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return unsupportedMedia("Content-Encoding",
			"Compressed request bodies are not supported; send the body as it is.")
	}
	said := r.Header.Get("Content-Type")
	if said == "" || slices.Contains(takes, "*/*") {
		return nil
	}
	media, _, err := mime.ParseMediaType(said)
	ok := media == anyMedia || slices.Contains(takes, media) || strings.HasSuffix(media, "+json") &&
		slices.Contains(takes, "application/json")
	if err != nil || !ok {
		return unsupportedMedia("Content-Type", "This endpoint takes %s, not %.80q.", strings.Join(takes, " or "), said)
	}
	return nil
}

func unsupportedMedia(header, format string, args ...any) error {
	return WithStatus(http.StatusUnsupportedMediaType, proto.Errorf(proto.InvalidArgument, "", header, format, args...))
}

// How much drainBody reads.
const (
	drainPause = 500 * time.Millisecond // longest pause of a client that is still sending
	drainTime  = 10 * time.Second
	drainBytes = 64 << 20
)

// drainBody reads the rest of a body for a moment after an error. Closing a connection with unread bytes resets it, and
// a client that is still sending would never see the answer. net/http does this too, but for 256 KiB alone, and not
// after 100-continue. A client that waits for 100-continue sends nothing after an error.
func (x *exchange) drainBody() {
	if x.hijacked || x.cut || x.err == nil {
		return
	}
	rest, begun := x.r.Body, false
	if x.body != nil {
		if x.body.ended {
			return
		}
		rest, begun = x.body.ReadCloser, x.body.read > 0
	}
	if !begun && x.r.Header.Get("Expect") != "" {
		return
	}
	rc := http.NewResponseController(x.ResponseWriter)
	if rc.Flush() != nil {
		return
	}
	end := time.Now().Add(drainTime)
	piece := make([]byte, 64<<10)
	for left := drainBytes; left > 0; {
		now := time.Now()
		if now.After(end) || rc.SetReadDeadline(now.Add(drainPause)) != nil {
			return
		}
		n, err := rest.Read(piece)
		if err != nil {
			return
		}
		left -= n
	}
}

func tooLarge(limit int64) error {
	return proto.Errorf(proto.TooLarge, "", "", "The request body is larger than the limit of %d bytes.", limit)
}

func (b *body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if b.limit >= 0 && int64(len(p)) > b.limit-b.read+1 {
		p = p[:b.limit-b.read+1] // one byte more than allowed, to detect the excess
	}
	// The deadline must not outlive the read. While a handler works, the server reads on to notice a client that goes
	// away, and would mistake an expired deadline for that.
	deadline := time.Now().Add(b.stall)
	if !b.until.IsZero() && b.until.Before(deadline) {
		deadline = b.until
	}
	_ = b.rc.SetReadDeadline(deadline)
	// An expired deadline stays set, otherwise the server would wait for the rest before it answers.
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

// explain turns an error of the connection into one that the client can understand.
func (b *body) explain(err error) error {
	switch {
	case err == nil || errors.Is(err, io.EOF):
		return err
	case errors.Is(err, io.ErrUnexpectedEOF):
		return proto.Errorf(proto.InvalidArgument, "", "", "The request body ended early.")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return proto.Errorf(proto.TimedOut, "", "", "The request body stalled for %s.", b.stall)
	}
	var broken net.Error
	if b.chunked && !errors.As(err, &broken) { // the connection works, so it is the client's encoding
		return proto.Errorf(proto.InvalidArgument, "", "Transfer-Encoding", "The chunks of the request body are "+
			"malformed.")
	}
	return proto.Errorf(proto.Canceled, "", "", "The request body could not be read to its end.")
}
