package egress

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"berth/proto"
)

// http answers the requests of a connection, one after the other, each judged by itself.
func (v *visitor) http(ctx context.Context) {
	defer func() {
		if v.ready != nil {
			_ = v.ready.Close()
		}
	}()
	for first := true; ; first = false {
		if !first {
			v.calm() // it may keep the connection for later
			if _, err := v.r.Peek(1); err != nil {
				return
			}
		}
		if !v.request(ctx) {
			return
		}
	}
}

// request answers one, and reports whether another may follow.
func (v *visitor) request(ctx context.Context) bool {
	v.hurry()
	h, err := v.readHead()
	v.calm()
	var r *http.Request
	if err == nil {
		r, err = v.parse()
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
		err = badRequest("a request for a websocket has no body")
	}
	p, err := v.passageTo(ctx, r.Method, t, err)
	if err != nil {
		v.say(err)
		return false
	}
	defer p.Close()
	return v.forward(ctx, r, t, p)
}

// parse has net/http read the request that readHead found whole.
func (v *visitor) parse() (*http.Request, error) {
	r, err := http.ReadRequest(v.r)
	if err != nil {
		return nil, badRequest("the request is not HTTP: %s", strings.TrimPrefix(err.Error(), "net/http: "))
	}
	return r, nil
}

// refuseHead answers what could not be read as a request. Who says nothing gets no answer.
func (v *visitor) refuseHead(ctx context.Context, err error) {
	var timeout net.Error
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		err = refuse(proto.TimedOut, "head_timeout", "the head of the request did not come in time")
	case !errors.As(err, new(*refusal)):
		return // the client has gone
	}
	t := Target{}
	if v.within != nil {
		t = *v.within
	}
	_, err = v.open(ctx, "", t, err)
	v.say(err)
}

// lingerBytes and lingerTime bound what is still taken from a client that was refused: a connection that is closed
// over unread bytes takes the answer with it.
const (
	lingerBytes = 1 << 20
	lingerTime  = time.Second
)

// say answers with a refusal, which is the last word. There is nobody to tell if it does not arrive.
func (v *visitor) say(err error) {
	if _, err := v.conn.Write(refusalOf(err).answer()); err != nil || v.conn.CloseWrite() != nil {
		return
	}
	_ = v.conn.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.CopyN(io.Discard, v.r, lingerBytes)
}

// destination is where a plain request goes. Its Host header must say the same.
func (v *visitor) destination(r *http.Request, h head) (t Target, err error) {
	authority, absolute := strings.CutPrefix(strings.ToLower(r.RequestURI), "http://")
	switch {
	case absolute:
		if i := strings.IndexAny(authority, "/?#"); i >= 0 {
			authority = authority[:i]
		}
		if t, err = parseTarget(authority, 80); err != nil {
			return t, err
		}
	case v.within != nil && strings.HasPrefix(r.RequestURI, "/") || r.RequestURI == "*" && v.within != nil:
		t = *v.within
	default:
		return t, badRequest("this is a proxy for http:// URLs, and for CONNECT; %+.100q is neither", r.RequestURI)
	}
	if v.within != nil && t != *v.within {
		return t, refuse(proto.PermissionDenied, "host_mismatch", "the connection is to %s and the request to %s",
			v.within, t)
	}
	return t, h.checkHost(t, !r.ProtoAtLeast(1, 1))
}

// passageTo opens a passage, or takes the one that a CONNECT opened.
func (v *visitor) passageTo(ctx context.Context, method string, t Target, err error) (*passage, error) {
	if v.ready == nil {
		return v.open(ctx, method, t, err)
	}
	p := v.ready
	v.ready = nil
	if err != nil {
		p.cut(err)
		return nil, err
	}
	return p, nil
}

// forward sends a request through p and its answer back, and reports whether the connection can take another.
func (v *visitor) forward(ctx context.Context, r *http.Request, t Target, p *passage) bool {
	out := r.Clone(ctx)
	out.URL.Scheme, out.URL.Host, out.Host, out.RequestURI, out.Close = "http", t.String(), t.hostHeader(v.opened), "",
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
		out.Header.Set("User-Agent", "") // or net/http says who it is
	}
	if r.Body != http.NoBody {
		out.Body = body
	}
	hidden, err := v.gate.swaps.at(t, v.opened).putIn(out, p)
	if err != nil {
		p.cut(err)
		v.say(err)
		return false
	}
	host := Conn(p)
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (_ net.Conn, err error) {
			if v.opened {
				host, err = v.gate.proxy.encrypt(ctx, t, p)
			}
			return host, err
		},
		DisableKeepAlives:  !upgrade, // else it would take the upgrade back
		DisableCompression: true, MaxResponseHeaderBytes: 256 << 10,
	}
	res, err := transport.RoundTrip(out)
	body.stop()
	if err == nil {
		defer res.Body.Close()
	}
	if err != nil || res.StatusCode == http.StatusSwitchingProtocols && !upgrade {
		body.end()
		v.say(distrust(t, err))
		return false
	}
	hidden.takeOut(res)
	if res.StatusCode == http.StatusSwitchingProtocols {
		v.switched(res, host)
		return false
	}
	whole := r.Body == http.NoBody || body.whole.Load()
	return v.answer(r, res, whole && !r.Close && r.ProtoAtLeast(1, 1))
}

// hostHeader is the target as a Host header has it, which leaves the usual port out.
func (t Target) hostHeader(encrypted bool) string {
	if encrypted && t.Port != 443 || !encrypted && t.Port != 80 {
		return t.String()
	}
	if t.Addr.Is6() {
		return "[" + t.Host() + "]"
	}
	return t.Host()
}

// answer sends the host's answer to the client, piece by piece as it comes, and reports whether both can go on. One
// that breaks off is followed by nothing: no last chunk, and in TLS no word that the connection ends as it should.
func (v *visitor) answer(r *http.Request, res *http.Response, keep bool) bool {
	w := bufio.NewWriterSize(v.conn, 16<<10)
	clean(res.Header)
	res.Proto, res.ProtoMajor, res.ProtoMinor, res.Close = "HTTP/1.1", 1, 1, !keep
	delimit(r, res)
	res.Body = promptBody{res.Body, w}
	err := res.Write(writerOnly{w}) // whose ReadFrom cannot be flushed in between
	if err == nil {
		err = w.Flush()
	}
	if err == nil && !keep {
		_ = v.conn.CloseWrite() // it is whole; there is nobody to tell if that does not arrive
	}
	return err == nil && keep
}

// delimit has the client know where an answer ends. One of unknown length goes in chunks even where the connection
// ends with it, so that half of it is not taken for the whole. A client older than HTTP/1.1 is sent no chunks (RFC
// 9112, 6.1): there the end of the connection is the answer's, and only TLS tells whether it broke off. In clear text
// nothing can: the client's own connection ends in the guest, which closes it and cannot be told to reset it.
func delimit(r *http.Request, res *http.Response) {
	if res.StatusCode == http.StatusNoContent || res.StatusCode == http.StatusNotModified {
		res.ContentLength = max(res.ContentLength, 0) // known for HEAD, too: nothing follows
	}
	switch {
	case res.ContentLength >= 0 || !r.ProtoAtLeast(1, 1):
		res.TransferEncoding = nil
	case !res.Close || r.Method != http.MethodHead: // where nothing follows and nothing is kept, it is as the host says
		res.TransferEncoding = []string{"chunked"}
	}
}

// A promptBody has what was read of it sent before it waits for more.
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

// A clientBody is a request's body on its way out. The client is asked for it where it waits to be.
type clientBody struct {
	from     io.ReadCloser
	v        *visitor
	whole    atomic.Bool // it was read to its end
	reading  sync.Mutex  // held by who reads
	ended    bool        // nothing more is read; under reading
	mu       sync.Mutex  // guards what follows
	expected bool        // the client waits for a word
	stopped  bool        // the answer is on its way
}

func (b *clientBody) Read(p []byte) (n int, err error) {
	b.reading.Lock()
	defer b.reading.Unlock()
	err = net.ErrClosed // after a panic, too
	defer b.v.survive()
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

// stop keeps words to the client from coming into the middle of the answer.
func (b *clientBody) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = true
}

// end takes the client back: net/http may go on to send its body after it has given an answer or given up, and the
// client has one reader at a time. A read that waits fails.
func (b *clientBody) end() {
	_ = b.v.conn.SetReadDeadline(time.Unix(1, 0))
	b.reading.Lock()
	defer b.reading.Unlock()
	b.ended = true
}

// Close leaves the rest where it is: the connection is closed if there is any.
func (b *clientBody) Close() error { return nil }

// isWebsocket reports whether the client asks for the one other protocol that may follow a plain request.
func isWebsocket(h http.Header) bool {
	if !strings.EqualFold(h.Get("Upgrade"), "websocket") {
		return false
	}
	for _, line := range h.Values("Connection") {
		for word := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(word), "upgrade") {
				return true
			}
		}
	}
	return false
}

// hops are headers that are between two neighbours alone.
var hops = []string{"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te",
	"Trailer", "Transfer-Encoding", "Upgrade"}

// clean removes what is not for the other end.
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
func (v *visitor) switched(res *http.Response, to Conn) {
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
