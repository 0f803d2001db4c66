package client

import (
	"crypto/tls"
	"crypto/x509"

	"berth/proto"
)

// tls returns the TLS configuration with the CAs that the client trusts. Verification cannot be turned off: use CA
// for a private certificate.
func (c Config) tls() (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	switch {
	// With CA, no other CA is trusted: a public CA could sign a certificate for the same host.
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
		// A file without a certificate is no error here. It is used in addition to the system's CAs, and the
		// handshake reports a missing one.
		roots.AppendCertsFromPEM(c.CAToo)
		t.RootCAs = roots
	}
	return t, nil
}
