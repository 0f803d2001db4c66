package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"berth/egress"
	"berth/egress/sniff"
	"berth/proto"

	"golang.org/x/net/http/httpguts"
)

// http answers the requests of a connection in turn. Each is checked separately.
func (v *clientConn) http(ctx context.Context) {
	defer func() {
		if v.ready != nil {
			_ = v.ready.Close()
		}
	}()
	for first := true; ; first = false {
		if !first {
			v.clearDeadline() // it may keep the connection for later
			if _, err := v.r.Peek(1); err != nil {
				return
			}
		}
		if !v.request(ctx) {
			return
		}
	}
}

// request answers one request and reports whether another may follow.
func (v *clientConn) request(ctx context.Context) bool {
	v.setHeadDeadline()
	h, err := sniff.ReadHead(v.r)
	v.clearDeadline()
	var r *http.Request
	if err == nil {
		if r, err = http.ReadRequest(v.r); err != nil {
			err = sniff.BadRequest("the request is not HTTP: %s", strings.TrimPrefix(err.Error(), "net/http: "))
		}
	}
	if r == nil {
		v.refuseHead(ctx, err)
		return false
	}
	if r.Method == http.MethodConnect && v.within == nil {
		v.connect(ctx, r, h)
		return false
	}
	t, err := v.destination(r, h)
	if err == nil && isWebsocket(r.Header) && r.Body != http.NoBody {
		err = sniff.BadRequest("a request for a websocket has no body")
	}
	p := v.ready // the tunnel that a CONNECT opened
	v.ready = nil
	switch {
	case p == nil:
		p, err = v.openHost(ctx, r.Method, t, err)
	case err != nil:
		p.abort(err)
	}
	if err != nil {
		v.sendRefusal(err)
		return false
	}
	defer p.Close()
	return v.forward(ctx, r, t, p)
}

// refuseHead answers bytes that are no valid request. A silent client gets no answer.
func (v *clientConn) refuseHead(ctx context.Context, err error) {
	var timeout net.Error
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		err = egress.Refuse(proto.TimedOut, "head_timeout", "the head of the request did not come in time")
	case !errors.As(err, new(*egress.Refusal)):
		return // the client has gone
	}
	t := egress.Target{}
	if v.within != nil {
		t = *v.within
	}
	_, err = v.openHost(ctx, "", t, err)
	v.sendRefusal(err)
}

// lingerBytes and lingerTime bound what is still read from a refused client: closing a connection with unread bytes
// would destroy the answer.
const (
	lingerBytes = 1 << 20
	lingerTime  = time.Second
)

// sendRefusal answers with a refusal and ends the connection. A failed write is ignored: the client is gone.
func (v *clientConn) sendRefusal(err error) { v.sendLast(egress.RefusalOf(err).Answer()) }

// sendLast sends an answer and ends the connection.
func (v *clientConn) sendLast(answer []byte) {
	if _, err := v.conn.Write(answer); err != nil || v.conn.CloseWrite() != nil {
		return
	}
	_ = v.conn.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.CopyN(io.Discard, v.r, lingerBytes)
}

// destination returns the target of a plain request. Its Host header must name the same host.
func (v *clientConn) destination(r *http.Request, h sniff.Head) (t egress.Target, err error) {
	authority, absolute := strings.CutPrefix(strings.ToLower(r.RequestURI), "http://")
	switch {
	case absolute:
		if i := strings.IndexAny(authority, "/?#"); i >= 0 {
			authority = authority[:i]
		}
		if t, err = egress.ParseTarget(authority, 80); err != nil {
			return t, err
		}
	case v.within != nil && strings.HasPrefix(r.RequestURI, "/") || r.RequestURI == "*" && v.within != nil:
		t = *v.within
	default:
		return t, sniff.BadRequest("this is a proxy for http:// URLs, and for CONNECT; %+.100q is neither",
			r.RequestURI)
	}
	if v.within != nil && t != *v.within {
		return t, egress.Refuse(proto.PermissionDenied, "host_mismatch", "the connection is to %s and the request to "+
			"%s", v.within, t)
	}
	return t, h.CheckHost(t, !r.ProtoAtLeast(1, 1))
}

// forward sends a request through p and the answer back. It reports whether the connection can take another request.
func (v *clientConn) forward(ctx context.Context, r *http.Request, t egress.Target, p *hostConn) bool {
	out := r.Clone(ctx)
	out.URL.Scheme, out.URL.Host, out.Host, out.RequestURI, out.Close = "http", t.String(), t.HostHeader(v.opened), "",
		false
	upgrade := isWebsocket(r.Header)
	clean(out.Header)
	if upgrade {
		out.Header.Set("Connection", "Upgrade")
		out.Header.Set("Upgrade", "websocket")
	}
	body := &clientBody{from: r.Body, v: v, expected: strings.EqualFold(r.Header.Get("Expect"), "100-continue")}
	out.Header.Del("Expect")
	if out.Header.Values("User-Agent") == nil {
		out.Header.Set("User-Agent", "") // otherwise net/http sets its own
	}
	if r.Body != http.NoBody {
		out.Body = body
	}
	used, hidden, err := v.gate.secrets.Insert(out, t, v.opened)
	p.used.Store(&used)
	if err != nil {
		p.abort(err)
		v.sendRefusal(err)
		return false
	}
	host := egress.Conn(p)
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if !v.opened {
				return host, nil
			}
			cfg := v.gate.proxy.cfg
			c := tls.Client(p, &tls.Config{ServerName: t.Host(), RootCAs: cfg.Roots, NextProtos: []string{"http/1.1"}})
			ctx, cancel := context.WithTimeout(ctx, cfg.DialTimeout)
			defer cancel()
			host = c
			return host, c.HandshakeContext(ctx)
		},
		DisableKeepAlives:  !upgrade, // otherwise it would undo the upgrade
		DisableCompression: true, MaxResponseHeaderBytes: 256 << 10,
	}
	res, err := transport.RoundTrip(out)
	body.stop()
	if err == nil {
		defer res.Body.Close()
	}
	if err != nil || res.StatusCode == http.StatusSwitchingProtocols && !upgrade {
		body.end()
		v.sendRefusal(distrust(t, err))
		return false
	}
	hidden.Redact(res)
	if res.StatusCode == http.StatusSwitchingProtocols {
		v.switched(res, host)
		return false
	}
	whole := r.Body == http.NoBody || body.whole.Load()
	return v.answer(r, res, whole && !r.Close && r.ProtoAtLeast(1, 1))
}

// distrust returns the refusal for a host that gave no answer.
func distrust(t egress.Target, err error) error {
	var bad *tls.CertificateVerificationError
	if errors.As(err, &bad) {
		return egress.Refuse(proto.Unavailable, "untrusted",
			"the certificate of %s cannot be verified, so no secret is sent there: %v", t, bad.Err)
	}
	return egress.Refuse(proto.Unavailable, "failed", "%s gave no valid answer", t)
}

// answer sends the host's answer to the client as it arrives, and reports whether the connection stays usable. If the
// answer breaks off, the client gets no final chunk and, in TLS, no closing alert.
func (v *clientConn) answer(r *http.Request, res *http.Response, keep bool) bool {
	w := bufio.NewWriterSize(v.conn, 16<<10)
	clean(res.Header)
	res.Proto, res.ProtoMajor, res.ProtoMinor, res.Close = "HTTP/1.1", 1, 1, !keep
	delimit(r, res)
	res.Body = promptBody{res.Body, w}
	err := res.Write(writerOnly{w}) // its ReadFrom could not be flushed in between
	if err == nil {
		err = w.Flush()
	}
	if err == nil && !keep {
		_ = v.conn.CloseWrite() // the answer is complete; a failed close is ignored
	}
	return err == nil && keep
}

// delimit lets the client see where an answer ends. An answer of unknown length is sent in chunks even if the
// connection ends with it, so that half of it is not taken for the whole. Clients older than HTTP/1.1 get no chunks
// (RFC 9112, 6.1): for them the end of the connection ends the answer, and only TLS shows a break. In clear text
// nothing can show it: the client's own connection ends in the guest, which cannot be told to reset it.
func delimit(r *http.Request, res *http.Response) {
	if res.StatusCode == http.StatusNoContent || res.StatusCode == http.StatusNotModified {
		res.ContentLength = max(res.ContentLength, 0) // known for HEAD as well: no body follows
	}
	switch {
	case res.ContentLength >= 0 || !r.ProtoAtLeast(1, 1):
		res.TransferEncoding = nil
	case !res.Close || r.Method != http.MethodHead: // without a body and without keep-alive, the host's header stays
		res.TransferEncoding = []string{"chunked"}
	}
}

// A promptBody flushes what was read before it waits for more.
type promptBody struct {
	io.ReadCloser
	w *bufio.Writer
}

func (b promptBody) Read(p []byte) (int, error) {
	if err := b.w.Flush(); err != nil {
		return 0, err
	}
	return b.ReadCloser.Read(p)
}

// A clientBody is a request's body on its way out. It sends "100 Continue" when a client waits for it.
type clientBody struct {
	from     io.ReadCloser
	v        *clientConn
	whole    atomic.Bool // it was read to its end
	reading  sync.Mutex  // held while reading
	ended    bool        // nothing more is read; guarded by reading
	mu       sync.Mutex  // guards what follows
	expected bool        // the client waits for "100 Continue"
	stopped  bool        // the answer is on its way
}

func (b *clientBody) Read(p []byte) (n int, err error) {
	b.reading.Lock()
	defer b.reading.Unlock()
	err = net.ErrClosed // also after a panic
	defer b.v.recoverPanic()
	if b.ended {
		return 0, err
	}
	if err := b.invite(); err != nil {
		return 0, err
	}
	n, err = b.from.Read(p)
	b.whole.CompareAndSwap(false, errors.Is(err, io.EOF))
	b.v.alive()
	return n, err
}

func (b *clientBody) invite() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.expected || b.stopped {
		return nil
	}
	b.expected = false
	_, err := io.WriteString(b.v.conn, "HTTP/1.1 100 Continue\r\n\r\n")
	return err
}

// stop prevents a "100 Continue" in the middle of the answer.
func (b *clientBody) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = true
}

// end takes the client's reader back: net/http may still send the body after it has returned an answer or failed, and
// a connection has one reader at a time. A waiting read fails.
func (b *clientBody) end() {
	_ = b.v.conn.SetReadDeadline(time.Unix(1, 0))
	b.reading.Lock()
	defer b.reading.Unlock()
	b.ended = true
}

// Close leaves the rest unread: if there is any, the connection is closed.
func (b *clientBody) Close() error { return nil }

// isWebsocket reports whether the client asks for a websocket, the only protocol that may follow a plain request.
func isWebsocket(h http.Header) bool {
	return strings.EqualFold(h.Get("Upgrade"), "websocket") &&
		httpguts.HeaderValuesContainsToken(h["Connection"], "upgrade")
}

// hops are headers that concern one connection only.
var hops = []string{"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te",
	"Trailer", "Transfer-Encoding", "Upgrade"}

// clean removes headers that are not for the other end.
func clean(h http.Header) {
	for _, line := range h.Values("Connection") {
		for word := range strings.SplitSeq(line, ",") {
			h.Del(strings.TrimSpace(word))
		}
	}
	for _, name := range hops {
		h.Del(name)
	}
}

// switched carries a websocket.
func (v *clientConn) switched(res *http.Response, to egress.Conn) {
	host, ok := res.Body.(io.ReadWriteCloser)
	if !ok {
		return
	}
	w := bufio.NewWriter(v.conn)
	_, _ = io.WriteString(w, "HTTP/1.1 101 Switching Protocols\r\n")
	_ = res.Header.Write(w)
	_, _ = io.WriteString(w, "\r\n")
	if w.Flush() == nil {
		v.pump(to, v.r, host)
	}
}
