package upstream

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"syscall"
	"time"

	"berth/proto"
)

// send makes one HTTP request and sends it once. net/http repeats it only if a reused connection was already closed
// and no byte of the request was written.
func (u *Upstream) send(ctx context.Context, path string, query url.Values, h http.Header, body []byte) (*http.Response,
	error) {
	to := *u.base
	to.Path += path
	to.RawQuery = query.Encode()
	ctx, cancel := context.WithCancelCause(ctx)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), bytes.NewReader(body))
	if err != nil {
		cancel(nil)
		return nil, invalid("the request to %s cannot be made", u.cfg.Name)
	}
	req.Header = h
	timer := time.AfterFunc(u.cfg.Timeout, func() {
		cancel(u.errorf(proto.TimedOut, "did not begin to answer within %v", u.cfg.Timeout))
	})
	res, err := u.transport.RoundTrip(req)
	timer.Stop()
	if err != nil {
		err = u.explain(ctx, err, "gave no answer")
		cancel(nil)
		return nil, err
	}
	res.Body = u.newBody(ctx, cancel, res.Body)
	if res.StatusCode >= 300 && res.StatusCode < 400 {
		_ = res.Body.Close()
		return nil, u.errorf(proto.Unavailable, "answers with a redirect (%d), which is not followed; the operator "+
			"of the daemon has to give --upstream the URL that it leads to", res.StatusCode)
	}
	cleanAnswer(res.Header)
	u.decompress(res)
	return res, nil
}

func (u *Upstream) errorf(code proto.Code, format string, args ...any) *proto.Error {
	return proto.Errorf(code, "", "upstream", "The upstream "+u.cfg.Name+" "+format+".", args...)
}

// explain converts a failure to the error that the caller gets. The log gets the original error.
func (u *Upstream) explain(ctx context.Context, err error, what string) error {
	var own *proto.Error
	switch cause := context.Cause(ctx); {
	case errors.As(err, &own), errors.As(cause, &own):
		return own
	case errors.Is(cause, context.DeadlineExceeded):
		return u.errorf(proto.TimedOut, "%s in time", what)
	case cause != nil:
		return proto.Errorf(proto.Canceled, "", "upstream",
			"The request was canceled before the upstream %s had answered.", u.cfg.Name)
	}
	u.log.Warn("an upstream failed", "upstream", u.cfg.Name, "host", u.base.Host, "error", err)
	return u.errorf(proto.Unavailable, "%s: %s", what, reason(err))
}

// reason describes a failed connection without revealing details of the internal network.
func reason(err error) string {
	var dns *net.DNSError
	var cert *tls.CertificateVerificationError
	var timeout net.Error
	switch {
	case errors.As(err, &dns):
		return "its name cannot be resolved"
	case errors.As(err, &cert):
		return "its certificate is not trusted"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the connection was refused"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "it cannot be connected to in time"
	}
	return "the connection broke"
}

// A body is the body of an answer. It limits the time of each read.
type body struct {
	u      *Upstream
	ctx    context.Context
	cancel context.CancelCauseFunc
	src    io.ReadCloser
	closed atomic.Bool
}

func (u *Upstream) newBody(ctx context.Context, cancel context.CancelCauseFunc, src io.ReadCloser) *body {
	return &body{u: u, ctx: ctx, cancel: cancel, src: src}
}

// Read returns a *proto.Error if the answer breaks off.
func (b *body) Read(p []byte) (int, error) {
	timer := time.AfterFunc(b.u.cfg.IdleTimeout, func() {
		b.cancel(b.u.errorf(proto.TimedOut, "broke off: nothing came for %v", b.u.cfg.IdleTimeout))
	})
	n, err := b.src.Read(p)
	timer.Stop()
	if err == nil || err == io.EOF || b.closed.Load() {
		return n, err
	}
	return n, b.u.explain(b.ctx, err, "broke off its answer")
}

// endTime and endSize limit how long, and for how many bytes, Close waits for the end of the body. The end of a
// stream may come a moment after its last event.
const (
	endTime = 100 * time.Millisecond
	endSize = 4 << 10
)

// Close makes the connection reusable if the body ends soon, and closes the connection otherwise.
func (b *body) Close() error {
	b.closed.Store(true)
	timer := time.AfterFunc(endTime, func() { b.cancel(nil) })
	_, _ = io.CopyN(io.Discard, b.src, endSize) // if the body has not ended by then, src.Close closes the connection
	timer.Stop()
	err := b.src.Close()
	b.cancel(nil)
	return err
}
