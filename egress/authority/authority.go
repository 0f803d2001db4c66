// Package authority signs certificates for hosts that secrets go to. The proxy shows them to containers. The daemon
// keeps the authority's key.
package authority

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"sync"
	"time"

	"berth/egress"
)

// An Authority signs certificates for hosts that secrets go to. Only containers with such secrets accept the proxy in
// place of the host. The authority's key never leaves the daemon.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte

	mu     sync.Mutex // guards leaves
	leaves map[string]*tls.Certificate
}

// Lifetimes of certificates, and how many are cached.
const (
	authorityFor = 10 * 366 * 24 * time.Hour
	leafFor      = 48 * time.Hour
	leafLeft     = 24 * time.Hour // a certificate with less time left is replaced
	backdated    = time.Hour      // for clocks that are behind
	maxLeaves    = 1024
)

// New makes an authority and returns its certificate and key in PEM, for ReadAuthority.
func New() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t, err := template("berth: puts secrets into requests", authorityFor)
	if err != nil {
		return nil, err
	}
	t.KeyUsage, t.BasicConstraintsValid, t.IsCA, t.MaxPathLenZero = x509.KeyUsageCertSign, true, true, true
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, err
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return append(cert, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret})...), nil
}

// Read reads the output of NewAuthority. It refuses an authority that expires within a year.
func Read(text []byte) (*Authority, error) {
	first, rest := pem.Decode(text)
	second, _ := pem.Decode(rest)
	if first == nil || second == nil {
		return nil, errors.New("this is not a certificate and its key, in PEM")
	}
	cert, err := x509.ParseCertificate(first.Bytes)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParseECPrivateKey(second.Bytes)
	if err != nil {
		return nil, err
	}
	switch {
	case !key.PublicKey.Equal(cert.PublicKey):
		return nil, errors.New("the key is not the certificate's")
	case time.Now().Add(366 * 24 * time.Hour).After(cert.NotAfter):
		return nil, fmt.Errorf("the certificate ends at %s", cert.NotAfter.Format(time.DateOnly))
	}
	return &Authority{cert: cert, key: key, pem: pem.EncodeToMemory(first), leaves: map[string]*tls.Certificate{}}, nil
}

// PEM returns its certificate, for containers to trust.
func (a *Authority) PEM() []byte { return bytes.Clone(a.pem) }

func template(name string, d time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	now := time.Now()
	return &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-backdated),
		NotAfter: now.Add(d)}, err
}

// Leaf returns a certificate for a host, made on the first request. All certificates use the authority's key, which
// is in the same memory anyway.
func (a *Authority) Leaf(t egress.Target) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	host := t.Host()
	if c := a.leaves[host]; c != nil && time.Until(c.Leaf.NotAfter) > leafLeft {
		return c, nil
	}
	asked, err := template("", leafFor)
	if err != nil {
		return nil, err
	}
	asked.KeyUsage, asked.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	if t.Name != "" {
		asked.DNSNames = []string{t.Name}
	} else {
		asked.IPAddresses = append(asked.IPAddresses, t.Addr.AsSlice())
	}
	der, err := x509.CreateCertificate(rand.Reader, asked, a.cert, a.key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	made := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.key}
	if made.Leaf, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	if len(a.leaves) >= maxLeaves {
		clear(a.leaves)
	}
	a.leaves[host] = made
	return made, nil
}
