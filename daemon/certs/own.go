package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// A certificate of the daemon's own holds for a year and is made anew a month before its end. It is signed by an
// authority of the daemon's own, with the same key, which clients trust and which stays the same for years.
const (
	validFor    = 366 * 24 * time.Hour
	caValidFor  = 10 * validFor
	renewBefore = 30 * 24 * time.Hour
	backdated   = time.Hour // for clients whose clock is behind
)

// ownFiles are the files of a certificate of the daemon's own.
func ownFiles(dir string) (cert, key string) {
	return filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
}

// CAFile is what clients of a certificate in dir are to trust.
func CAFile(dir string) string { return filepath.Join(dir, "ca.pem") }

// renew makes what is missing, ends soon or is for other hosts. The key is made once. It runs at every look of a
// handshake, so it must cost little when there is nothing to do: one small file is read, and two are looked for.
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

// current reports whether there is a certificate that will do for a while.
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

// holds reports whether a certificate is good now and for a while.
// A clock that stands before the beginning makes a certificate no good either, and a new one is made for
// the time that it is now.
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

// ownCA reads the authority, or makes it where there is none, or none that outlives what it is to sign. A new one has
// the name and key of the old one, so who trusts that goes on to its end.
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

// template is what all certificates have.
// The serial number is random, of 127 bits: RFC 5280 wants it positive, unique and of at most 20 bytes.
func (c Config) template(name string, d time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	now := c.Now()
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-backdated), NotAfter: now.Add(
			d),
	}, err
}

// names reports whether a certificate is for a host, by the very name that sign would write.
func names(cert *x509.Certificate, host string) bool {
	if ip := net.ParseIP(host); ip != nil {
		return slices.ContainsFunc(cert.IPAddresses, ip.Equal)
	}
	return slices.Contains(cert.DNSNames, host)
}

// ownKey reads the private key, or makes it.
// A key that is there but cannot be read is an error, never a reason to make another one: clients may have
// pinned it.
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

// newKey makes a key on P-256, which every TLS client of the last decade takes.
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

// sign makes the certificate that is shown.
// An address goes into the IP names and not into the DNS names, since clients compare an address with the
// former alone.
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

// writeFile has the file appear whole or not at all.
// A daemon that is killed meanwhile must not leave half a key. The mode is set before the rename, so that
// a private key is at no time readable by others under its name.
func writeFile(path, kind string, mode os.FileMode, ders ...[]byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	for _, der := range ders {
		if err := pem.Encode(f, &pem.Block{Type: kind, Bytes: der}); err != nil {
			return err
		}
	}
	if err := errors.Join(f.Chmod(mode), f.Sync()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
