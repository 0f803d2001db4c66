package client

import (
	"crypto/tls"
	"crypto/x509"

	"berth/proto"
)

// tls is whom the client trusts.
func (c Config) tls() (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	switch {
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
		roots.AppendCertsFromPEM(c.CAToo)
		t.RootCAs = roots
	}
	return t, nil
}
