package certs

import (
	"berth/state/durable"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// The daemon's own certificate is valid for a year and is renewed a month before it expires, with the same key. It is
// signed by a CA that the daemon creates. Clients trust the CA, which stays the same for years.
const (
	validFor    = 366 * 24 * time.Hour
	caValidFor  = 10 * validFor
	renewBefore = 30 * 24 * time.Hour
	backdated   = time.Hour // for clients with a slow clock
)

// ownFiles returns the paths of the daemon's own certificate and key.
func ownFiles(dir string) (cert, key string) {
	return filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
}

// CAFile returns the path of the CA certificate in dir.
func CAFile(dir string) string { return filepath.Join(dir, "ca.pem") }

// renew creates a certificate if it is missing, expires soon or is for other hosts. It creates the key only once. It
// runs at every check by a handshake, so it must be cheap if nothing is to do: it reads one small file and stats two.
func (c Config) renew() error {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return err
	}
	if c.current() {
		return nil
	}
	key, err := c.ownKey()
	if err != nil {
		return err
	}
	ca, err := c.ownCA(key)
	if err != nil {
		return err
	}
	der, err := c.sign(ca, key)
	if err != nil {
		return err
	}
	return writeFile(c.CertFile, "CERTIFICATE", 0o644, der, ca.Raw)
}

// current reports whether the certificate exists and stays valid long enough.
func (c Config) current() bool {
	cert, err := readCert(c.CertFile)
	if err != nil || !c.holds(cert, renewBefore) {
		return false
	}
	for _, h := range c.hosts() {
		if !names(cert, h) {
			return false
		}
	}
	for _, file := range []string{c.KeyFile, CAFile(c.Dir)} {
		if _, err := os.Stat(file); err != nil {
			return false
		}
	}
	return true
}

// holds reports whether a certificate is valid now and for a while. If the clock is before its start, it is not valid
// either, and a new one is created for the current time.
func (c Config) holds(cert *x509.Certificate, while time.Duration) bool {
	now := c.Now()
	return !now.Before(cert.NotBefore) && now.Add(while).Before(cert.NotAfter)
}

// readCert reads the first certificate of a file.
func readCert(path string) (*x509.Certificate, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("%s holds no certificate", path)
	}
	return x509.ParseCertificate(block.Bytes)
}

// ownCA reads the CA. It creates a CA if there is none, or if the CA expires before the certificate that it would
// sign. The new CA has the name and the key of the old one, so clients can trust the old one until it expires.
func (c Config) ownCA(key *ecdsa.PrivateKey) (*x509.Certificate, error) {
	path := CAFile(c.Dir)
	if ca, err := readCert(path); err == nil && c.holds(ca, validFor) && key.PublicKey.Equal(ca.PublicKey) {
		return ca, nil
	}
	t, err := c.template("berth's own authority", caValidFor)
	if err != nil {
		return nil, err
	}
	t.KeyUsage, t.BasicConstraintsValid, t.IsCA, t.MaxPathLenZero = x509.KeyUsageCertSign, true, true, true
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, err
	}
	if err := writeFile(path, "CERTIFICATE", 0o644, der); err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// template returns the fields that all certificates share. The serial number is random and has 127 bits: RFC 5280
// requires a positive, unique number of at most 20 bytes.
func (c Config) template(name string, d time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	now := c.Now()
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-backdated), NotAfter: now.Add(
			d),
	}, err
}

// names reports whether a certificate is for a host, under exactly the name that sign writes.
func names(cert *x509.Certificate, host string) bool {
	if ip := net.ParseIP(host); ip != nil {
		return slices.ContainsFunc(cert.IPAddresses, ip.Equal)
	}
	return slices.Contains(cert.DNSNames, host)
}

// ownKey reads or creates the private key. An existing key that cannot be read is an error and is never replaced,
// because clients may have pinned it.
func (c Config) ownKey() (*ecdsa.PrivateKey, error) {
	data, err := readKey(c.KeyFile)
	if errors.Is(err, fs.ErrNotExist) {
		return c.newKey()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.KeyFile, err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("%s holds no key; remove it, and the next start makes one", c.KeyFile)
	}
	return x509.ParseECPrivateKey(block.Bytes)
}

// newKey creates a P-256 key, which every TLS client of the last decade accepts.
func (c Config) newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, writeFile(c.KeyFile, "EC PRIVATE KEY", 0o600, der)
}

// sign creates the daemon's certificate. An address becomes an IP name, not a DNS name, because clients compare an
// address only with IP names.
func (c Config) sign(ca *x509.Certificate, key *ecdsa.PrivateKey) ([]byte, error) {
	t, err := c.template("berth", validFor)
	if err != nil {
		return nil, err
	}
	t.KeyUsage, t.ExtKeyUsage, t.BasicConstraintsValid = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{
		x509.ExtKeyUsageServerAuth}, true
	for _, h := range c.hosts() {
		if ip := net.ParseIP(h); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, h)
		}
	}
	return x509.CreateCertificate(rand.Reader, t, ca, key.Public(), key)
}

// writeFile writes PEM blocks of one kind. If the daemon is killed meanwhile, no partial key is left.
func writeFile(path, kind string, mode os.FileMode, ders ...[]byte) error {
	return durable.WriteFile(path, mode, func(w io.Writer) (err error) {
		for _, der := range ders {
			err = errors.Join(err, pem.Encode(w, &pem.Block{Type: kind, Bytes: der}))
		}
		return err
	})
}
