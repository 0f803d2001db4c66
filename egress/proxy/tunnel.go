package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"

	"berth/egress"
	"berth/egress/sniff"
	"berth/proto"
)

// connect answers a CONNECT.
func (v *clientConn) connect(ctx context.Context, r *http.Request, h sniff.Head) {
	t, err := egress.ParseTarget(r.RequestURI, 0)
	if err == nil && h.Bodied {
		err = sniff.BadRequest("a CONNECT has no body")
	}
	if err == nil {
		err = h.CheckHost(t, true)
	}
	p, err := v.openHost(ctx, r.Method, t, err)
	if err != nil {
		v.sendRefusal(err)
		return
	}
	defer p.Close()
	if _, err := io.WriteString(v.conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err == nil {
		v.carryTunnel(ctx, t, p)
	}
}

// carryTunnel carries traffic between client and host. With a list, the client's first bytes must fit the target: one
// address may serve many hosts, and the list names one. Traffic to a host that secrets go to must be HTTP, also inside
// TLS, which the proxy ends and starts anew towards the host.
func (v *clientConn) carryTunnel(ctx context.Context, t egress.Target, p *hostConn) {
	secret := v.gate.secrets.GoTo(t)
	if !secret && v.gate.policy.Load().Mode == proto.NetworkOpen {
		v.pump(p, v.r, p)
		return
	}
	if !secret {
		// In some protocols the host speaks first, so both sides are awaited at once.
		client, host := v.wait(v.r), v.wait(bufio.NewReader(readerFunc(p.take)))
		p.in = host
		if egress.IsWeb(t.Port) { // in other protocols either side may pause
			v.setHeadDeadline()
		}
		if !speaksFirst(client, host) {
			v.clearDeadline()
			if egress.IsWeb(t.Port) {
				v.abort(p, notWeb(t))
				return
			}
			v.pump(p, client, p)
			return
		}
	}
	v.setHeadDeadline()
	said, err := sniff.ReadProtocol(v.r)
	switch {
	case err != nil:
	case said == sniff.TLS && secret:
		v.openTLS(ctx, t, p)
	case said == sniff.TLS:
		said, ok := v.readClientHello(ctx, t, p, v.gate.proxy.fronts.check)
		v.clearDeadline()
		if ok {
			v.pump(p, said, p)
		}
	case said == sniff.HTTP:
		v.within, v.ready = &t, p
		v.http(ctx)
	case !secret && !egress.IsWeb(t.Port):
		v.clearDeadline()
		v.pump(p, v.r, p)
	default:
		v.abort(p, notWeb(t))
	}
}

func notWeb(t egress.Target) error {
	return egress.Refuse(proto.PermissionDenied, "not_web", "the traffic to %s is neither TLS nor HTTP", t)
}

// abort ends a tunnel and its connection.
func (v *clientConn) abort(p *hostConn, err error) {
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

// readClientHello reads the first message and returns everything read so far. A message that does not name the target
// ends the tunnel. hidden judges one that may name another host, encrypted.
func (v *clientConn) readClientHello(ctx context.Context, t egress.Target, p *hostConn,
	hidden func(context.Context, egress.Target, net.Addr) error) (said io.Reader, ok bool) {
	var first bytes.Buffer
	encrypted, err := sniff.CheckHello(ctx, io.TeeReader(v.r, &first), t)
	if err == nil && encrypted {
		err = hidden(ctx, t, p.RemoteAddr())
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

// openTLS plays the host for a client in the container, which accepts our certificate, and reads its requests.
func (v *clientConn) openTLS(ctx context.Context, t egress.Target, p *hostConn) {
	readable := func(context.Context, egress.Target, net.Addr) error { return nil } // the daemon gets what is inside
	said, ok := v.readClientHello(ctx, t, p, readable)
	if !ok {
		return
	}
	inner := tls.Server(&replayed{v.conn, said}, &tls.Config{
		NextProtos: []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			a, err := v.gate.proxy.cfg.Authority()
			if err != nil {
				v.gate.proxy.cfg.Log.Error("opening the authority for hosts that secrets go to", "error", err)
				return nil, err
			}
			return a.Leaf(t)
		},
	})
	if err := inner.HandshakeContext(ctx); err != nil {
		v.abort(p, egress.Refuse(proto.PermissionDenied, "client_tls", "the client did not accept the daemon's "+
			"certificate for %s, to which a secret goes; it must trust the authorities in $SSL_CERT_FILE", t))
		return
	}
	v.clearDeadline()
	w := &clientConn{gate: v.gate, conn: inner, r: bufio.NewReaderSize(inner, sniff.HeadBytes), cancel: v.cancel,
		timer:  v.timer,
		within: &t, ready: p, opened: true}
	w.http(ctx)
}

// A replayed connection delivers bytes again that were read from it.
type replayed struct {
	egress.Conn
	r io.Reader
}

func (c *replayed) Read(p []byte) (int, error) { return c.r.Read(p) }
