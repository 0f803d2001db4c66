package client

import (
	"crypto/tls"
	"crypto/x509"

	"berth/proto"
)

// tls is whom the client trusts.
// There is no way to turn verification off: whoever has a certificate of their own names it as CA.
func (c Config) tls() (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	switch {
	// Whoever names a CA trusts it alone; a public authority could sign for the same host.
	case c.CA != nil:
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(c.CA) {
			return nil, proto.Errorf(proto.InvalidArgument, "", "ca", "the CA file holds no PEM certificate")
		}
	case c.CAToo != nil:
		roots, err := x509.SystemCertPool()
		if err != nil {
			roots = x509.NewCertPool()
		}
		// A file without a certificate is no error here: it is only tried beside the system's, and
		// the handshake tells what is missing.
		roots.AppendCertsFromPEM(c.CAToo)
		t.RootCAs = roots
	}
	return t, nil
}
