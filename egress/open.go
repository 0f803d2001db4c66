package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"

	"berth/proto"
)

// inspect carries traffic to a host that secrets go to: HTTP, also inside TLS, which the proxy ends and starts anew
// towards the host.
func (v *clientConn) inspect(ctx context.Context, t Target, p *tunnel) {
	v.setHeadDeadline()
	said, err := v.protocol()
	switch {
	case err != nil:
	case said == spokenTLS:
		v.openTLS(ctx, t, p)
	case said == spokenHTTP:
		v.within, v.ready = &t, p
		v.http(ctx)
	default:
		v.abort(p, notWeb(t))
	}
}

// openTLS plays the host for a client in the container, which accepts our certificate, and reads its requests.
func (v *clientConn) openTLS(ctx context.Context, t Target, p *tunnel) {
	said, ok := v.readClientHello(ctx, t, p)
	if !ok {
		return
	}
	inner := tls.Server(&replayed{v.conn, said}, &tls.Config{
		NextProtos:     []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return v.gate.proxy.leaf(t) },
	})
	if err := inner.HandshakeContext(ctx); err != nil {
		v.abort(p, refuse(proto.PermissionDenied, "client_tls", "the client did not take the daemon's certificate for "+
			"%s, to which a secret goes; it must trust the authorities in $SSL_CERT_FILE", t))
		return
	}
	v.clearDeadline()
	w := &clientConn{gate: v.gate, conn: inner, r: bufio.NewReaderSize(inner, headBytes), cancel: v.cancel,
		timer:  v.timer,
		within: &t, ready: p, opened: true}
	w.http(ctx)
}

// A replayed connection delivers bytes again that were read from it.
type replayed struct {
	Conn
	r io.Reader
}

func (c *replayed) Read(p []byte) (int, error) { return c.r.Read(p) }

// leaf returns a certificate for a host.
func (p *Proxy) leaf(t Target) (*tls.Certificate, error) {
	a, err := p.cfg.Authority()
	if err != nil {
		p.cfg.Log.Error("there is no authority to sign for hosts that secrets go to", "error", err)
		return nil, err
	}
	return a.leaf(t)
}

// TrustedPEM is the certificate of the proxy's authority, which containers with secrets trust.
func (p *Proxy) TrustedPEM() ([]byte, error) {
	if p.cfg.Authority == nil {
		return nil, errors.New("there is no authority")
	}
	a, err := p.cfg.Authority()
	if err != nil {
		return nil, err
	}
	return a.PEM(), nil
}

// encrypt opens TLS to the host and verifies its certificate.
func (p *Proxy) encrypt(ctx context.Context, t Target, to *tunnel) (Conn, error) {
	c := tls.Client(to, &tls.Config{ServerName: t.Host(), RootCAs: p.cfg.Roots, NextProtos: []string{"http/1.1"}})
	ctx, cancel := context.WithTimeout(ctx, p.cfg.DialTimeout)
	defer cancel()
	return c, c.HandshakeContext(ctx)
}

// distrust is the refusal for a host that gave no answer.
func distrust(t Target, err error) error {
	var bad *tls.CertificateVerificationError
	if errors.As(err, &bad) {
		return refuse(proto.Unavailable, "untrusted",
			"the certificate of %s is not good, so no secret is sent there: %v", t, bad.Err)
	}
	return refuse(proto.Unavailable, "failed", "%s did not answer as it should", t)
}
