package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"berth/proto"
)

// connect answers a CONNECT.
func (v *clientConn) connect(ctx context.Context, r *http.Request, h head) {
	t, err := parseTarget(r.RequestURI, 0)
	if err == nil && h.bodied {
		err = badRequest("a CONNECT has no body")
	}
	if err == nil {
		err = h.checkHost(t, true)
	}
	p, err := v.open(ctx, r.Method, t, err)
	if err != nil {
		v.sendRefusal(err)
		return
	}
	defer p.Close()
	if _, err := io.WriteString(v.conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err == nil {
		v.tunnel(ctx, t, p)
	}
}

// tunnel carries traffic between client and host. With a list, the client's first bytes must fit the target: one
// address may serve many hosts, and the list names one.
func (v *clientConn) tunnel(ctx context.Context, t Target, p *tunnel) {
	if len(v.gate.swaps.at(t, true)) > 0 {
		v.inspect(ctx, t, p)
		return
	}
	if v.gate.policy.Mode == proto.NetworkOpen {
		v.pump(p, v.r, p)
		return
	}
	client, host := v.listen(p)
	p.in = host
	if isWeb(t.Port) { // in other protocols either side may pause
		v.setHeadDeadline()
	}
	if !speaksFirst(client, host) {
		v.clearDeadline()
		if isWeb(t.Port) {
			v.abort(p, notWeb(t))
			return
		}
		v.pump(p, client, p)
		return
	}
	v.setHeadDeadline()
	said, err := v.protocol()
	switch {
	case err == nil && said == spokenTLS:
		v.tls(ctx, t, p)
	case err == nil && said == spokenHTTP:
		v.within, v.ready = &t, p
		v.http(ctx)
	case err == nil && !isWeb(t.Port):
		v.clearDeadline()
		v.pump(p, v.r, p)
	case err == nil:
		v.abort(p, notWeb(t))
	}
}

func notWeb(t Target) error {
	return refuse(proto.PermissionDenied, "not_web", "over %s neither TLS nor HTTP was spoken", t)
}

// abort ends a tunnel and its connection.
func (v *clientConn) abort(p *tunnel, err error) {
	p.abort(err)
	v.cancel()
}

// A lateReader can be read once its first byte has arrived.
type lateReader struct {
	r     *bufio.Reader // not embedded: io.Copy would find its WriteTo
	first chan struct{} // closed at the first byte
}

func (r lateReader) Read(p []byte) (int, error) {
	<-r.first
	return r.r.Read(p)
}

// wait starts to wait for the first byte of r.
func (v *clientConn) wait(r *bufio.Reader) lateReader {
	l := lateReader{r, make(chan struct{})}
	go func() {
		defer close(l.first)
		defer v.recoverPanic()
		_, _ = r.Peek(1) // the next read repeats an error
	}()
	return l
}

// listen waits for both sides at once: in some protocols the host speaks first.
func (v *clientConn) listen(p *tunnel) (client, host lateReader) {
	return v.wait(v.r), v.wait(bufio.NewReader(readerFunc(p.take)))
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// speaksFirst waits for either side and reports whether the client was first.
func speaksFirst(client, host lateReader) bool {
	select {
	case <-client.first:
		return true
	case <-host.first:
	}
	select {
	case <-client.first:
		return true
	default:
		return false
	}
}

// A spoken is the protocol of a client in a tunnel.
type spoken int

const (
	spokenOther spoken = iota
	spokenTLS
	spokenHTTP
)

// Bounds for telling protocols apart.
const (
	tlsHandshake = 0x16    // first byte of a TLS record that begins a connection
	longestVerb  = 32      // of an HTTP request, in bytes
	longestLine  = 8 << 10 // first line of an HTTP request, in bytes; longer lines are refused
)

// protocol determines the protocol from the client's first bytes. Anything that a lenient server might read as an
// HTTP request counts as HTTP.
func (v *clientConn) protocol() (spoken, error) {
	for n := 1; ; {
		if _, err := v.r.Peek(n); err != nil {
			return spokenOther, err
		}
		b, _ := v.r.Peek(v.r.Buffered())
		if b[0] == tlsHandshake {
			return spokenTLS, nil
		}
		if said, known := guess(bytes.TrimLeft(b, "\r\n"), len(b) >= longestLine); known {
			return said, nil
		}
		n = len(b) + 1
	}
}

// guess tells HTTP from other protocols by the beginning of a line. full means that no more bytes will come.
func guess(b []byte, full bool) (said spoken, known bool) {
	verb := bytes.IndexFunc(b, func(r rune) bool { return !isToken(r) })
	switch {
	case verb == 0 || verb > 0 && b[verb] != ' ' || verb < 0 && len(b) > longestVerb || verb > longestVerb:
		return spokenOther, true
	case verb < 0:
		return spokenOther, full
	}
	line, _, ended := bytes.Cut(b, []byte("\n"))
	switch {
	case ended && !bytes.Contains(line, []byte("HTTP/")):
		return spokenOther, true
	case ended || full:
		return spokenHTTP, true
	}
	return spokenOther, false
}

// isToken reports whether r may stand in the name of an HTTP method.
func isToken(r rune) bool {
	return r > ' ' && r < 0x7f && !strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
}

// tls passes a TLS connection on if its first message names the target.
func (v *clientConn) tls(ctx context.Context, t Target, p *tunnel) {
	said, ok := v.readClientHello(ctx, t, p)
	v.clearDeadline()
	if ok {
		v.pump(p, said, p)
	}
}

// readClientHello reads the first message and returns everything read so far. A message that does not name the target
// ends the tunnel.
func (v *clientConn) readClientHello(ctx context.Context, t Target, p *tunnel) (said io.Reader, ok bool) {
	var first bytes.Buffer
	hello, err := readHello(ctx, io.TeeReader(v.r, &first))
	if err == nil {
		err = checkHello(hello, t)
	}
	if err != nil {
		_, _ = v.conn.Write(accessDenied)
		v.abort(p, err)
		return nil, false
	}
	return io.MultiReader(&first, v.r), true
}

// accessDenied is a TLS alert.
var accessDenied = []byte{0x15, 3, 1, 0, 2, 2, 49}

// echExtension is the number of a TLS extension: an encrypted second hello whose name cannot be read.
const echExtension = 0xfe0d

// checkHello compares the name in a hello with the target's.
func checkHello(hello *tls.ClientHelloInfo, t Target) error {
	for _, x := range hello.Extensions {
		if x == echExtension {
			return refuse(proto.PermissionDenied, "encrypted_hello", "the TLS hello to %s has an encrypted part; "+
				"turn Encrypted Client Hello off in the client", t)
		}
	}
	switch name := strings.ToLower(hello.ServerName); {
	case name == t.Name: // both empty for an address
		return nil
	case name == "":
		return refuse(proto.PermissionDenied, "no_sni", "the TLS hello to %s does not say which host it is for", t)
	default:
		return refuse(proto.PermissionDenied, "sni_mismatch", "the connection is to %s and the TLS hello says %+.260q",
			t, name)
	}
}

var errSeen = errors.New("seen")

// readHello reads the first message of a TLS client and nothing after it.
func readHello(ctx context.Context, r io.Reader) (hello *tls.ClientHelloInfo, err error) {
	err = tls.Server(deaf{r: r}, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		hello = h
		return nil, errSeen
	}}).HandshakeContext(ctx)
	if hello == nil {
		return nil, refuse(proto.InvalidArgument, "bad_hello", "what begins like TLS is not: %s", strings.TrimPrefix(
			err.Error(), "tls: "))
	}
	return hello, nil
}

// A deaf connection can only be read.
type deaf struct{ r io.Reader }

func (d deaf) Read(b []byte) (int, error)       { return d.r.Read(b) }
func (d deaf) Write(b []byte) (int, error)      { return len(b), nil }
func (d deaf) Close() error                     { return nil }
func (d deaf) LocalAddr() net.Addr              { return nil }
func (d deaf) RemoteAddr() net.Addr             { return nil }
func (d deaf) SetDeadline(time.Time) error      { return nil }
func (d deaf) SetReadDeadline(time.Time) error  { return nil }
func (d deaf) SetWriteDeadline(time.Time) error { return nil }
