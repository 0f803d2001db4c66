package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"

	"berth/proto"
)

// lookInto carries what goes to a host that a secret goes to: HTTP, and inside of TLS too, which ends here and begins
// anew towards the host.
func (v *visitor) lookInto(ctx context.Context, t Target, p *passage) {
	v.hurry()
	said, err := v.protocol()
	switch {
	case err != nil:
	case said == spokenTLS:
		v.openTLS(ctx, t, p)
	case said == spokenHTTP:
		v.within, v.ready = &t, p
		v.http(ctx)
	default:
		v.cut(p, notWeb(t))
	}
}

// openTLS is the host for a client in the container, which takes our certificate, and reads its requests.
func (v *visitor) openTLS(ctx context.Context, t Target, p *passage) {
	said, ok := v.greeted(ctx, t, p)
	if !ok {
		return
	}
	inner := tls.Server(&replayed{v.conn, said}, &tls.Config{
		NextProtos:     []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return v.gate.proxy.leaf(t) },
	})
	if err := inner.HandshakeContext(ctx); err != nil {
		v.cut(p, refuse(proto.PermissionDenied, "client_tls", "the client did not take the daemon's certificate for "+
			"%s, to which a secret goes; it must trust the authorities in $SSL_CERT_FILE", t))
		return
	}
	v.calm()
	w := &visitor{gate: v.gate, conn: inner, r: bufio.NewReaderSize(inner, headBytes), cancel: v.cancel, timer: v.timer,
		within: &t, ready: p, opened: true}
	w.http(ctx)
}

// A replayed connection has what was read of it already read again.
type replayed struct {
	Conn
	r io.Reader
}

func (c *replayed) Read(p []byte) (int, error) { return c.r.Read(p) }

// leaf is a certificate for a host.
func (p *Proxy) leaf(t Target) (*tls.Certificate, error) {
	a, err := p.cfg.Authority()
	if err != nil {
		p.cfg.Log.Error("there is no authority to sign for hosts that secrets go to", "error", err)
		return nil, err
	}
	return a.leaf(t)
}

// TrustedPEM is what containers with secrets trust: the certificate of the proxy's authority.
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

// encrypt speaks TLS to the host, whose certificate must be good.
func (p *Proxy) encrypt(ctx context.Context, t Target, to *passage) (Conn, error) {
	c := tls.Client(to, &tls.Config{ServerName: t.Host(), RootCAs: p.cfg.Roots, NextProtos: []string{"http/1.1"}})
	ctx, cancel := context.WithTimeout(ctx, p.cfg.DialTimeout)
	defer cancel()
	return c, c.HandshakeContext(ctx)
}

// distrust is why a host gave no answer.
func distrust(t Target, err error) error {
	var bad *tls.CertificateVerificationError
	if errors.As(err, &bad) {
		return refuse(proto.Unavailable, "untrusted",
			"the certificate of %s is not good, so no secret is sent there: %v", t, bad.Err)
	}
	return refuse(proto.Unavailable, "failed", "%s did not answer as it should", t)
}
