// Package certs provides the daemon's TLS certificate: the operator's, read again when its files change, or one that
// the daemon creates. Beside its own, the daemon may have one that an authority issues for some of its names.
//
// A renewal needs neither a signal nor a restart. A handshake checks the files, at most once a second. The daemon
// renews its own certificate before it expires, with the same private key.
package certs

import (
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// lookEvery is the minimum time between two checks of the certificate by handshakes. One second is short for an
// operator who renews a certificate. It spares a busy server a stat call at every handshake.
const lookEvery = time.Second

// A Config names the source of the certificate.
type Config struct {
	CertFile, KeyFile string           // the operator's, in PEM; "" for both creates a certificate in Dir
	Dir               string           // directory of the daemon's own cert.pem, key.pem and ca.pem; created if missing
	Issued            string           // file of an issued certificate and its key, which may come later; "": none
	Hosts             []string         // hosts for the daemon's own certificate, beside those of this machine
	Log               *slog.Logger     // nil: no logging
	Now               func() time.Time // nil: time.Now
}

// A Source returns the certificate for each handshake. It is safe for concurrent use.
type Source struct {
	cfg  Config
	made bool // the daemon creates the certificate

	issued *Source // for clients that ask for one of its names; nil: none

	mu     sync.Mutex // guards the fields below
	cert   *tls.Certificate
	seen   string // stamp of the files when cert was read
	looked time.Time
}

// Open reads or creates the certificate. It refuses a private key that all users of this machine can read. Such a key
// may have been copied already, so the error recommends a new certificate too.
func Open(cfg Config) (*Source, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Source{cfg: cfg}
	switch {
	case cfg.CertFile != "" && cfg.KeyFile != "":
	case cfg.CertFile != "" || cfg.KeyFile != "":
		return nil, errors.New("a TLS certificate and its key go together; give both")
	default:
		s.made = true
		s.cfg.CertFile, s.cfg.KeyFile = ownFiles(cfg.Dir)
		if err := s.cfg.renew(); err != nil {
			return nil, fmt.Errorf("making a TLS certificate: %w", err)
		}
	}
	cert, err := s.read()
	if err != nil {
		return nil, err
	}
	s.cert, s.seen, s.looked = cert, s.stamp(), s.cfg.Now()
	if cfg.Issued != "" {
		s.issued = &Source{cfg: Config{CertFile: cfg.Issued, KeyFile: cfg.Issued, Log: cfg.Log, Now: cfg.Now}}
	}
	return s, nil
}

// CAFile returns the CA file that clients must trust if the certificate is the daemon's own, else "".
func (s *Source) CAFile() string {
	if s.made {
		return CAFile(s.cfg.Dir)
	}
	return ""
}

// Fingerprint returns the SHA-256 of the current certificate, as browsers and openssl show it. It covers the whole
// DER of the leaf, so a renewal changes it although the key stays.
func (s *Source) Fingerprint() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := sha256.Sum256(s.cert.Certificate[0])
	return strings.ReplaceAll(fmt.Sprintf("% X", sum), " ", ":")
}

// TLS returns the daemon's TLS configuration: version 1.2 or newer, with authenticated encryption alone. It
// excludes HTTP/2:
// a websocket needs HTTP/1.1, and a single protocol needs fewer tests.
func (s *Source) TLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, CipherSuites: suites, NextProtos: []string{"http/1.1"},
		GetCertificate: s.certificate}
}

// certificate returns the certificate for a handshake: the issued one if it is for the name that the client asks for.
func (s *Source) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if s.issued != nil && hello.ServerName != "" {
		if cert := s.issued.latest(); cert != nil && cert.Leaf.VerifyHostname(hello.ServerName) == nil {
			return cert, nil
		}
	}
	return s.latest(), nil
}

// Expiry returns when the certificates expire, by where they come from: given, own or issued.
func (s *Source) Expiry() map[string]time.Time {
	from := "given"
	if s.made {
		from = "own"
	}
	ends := map[string]time.Time{from: s.latest().Leaf.NotAfter}
	if s.issued != nil {
		if cert := s.issued.latest(); cert != nil {
			ends["issued"] = cert.Leaf.NotAfter
		}
	}
	return ends
}

// latest returns the certificate, after a look at its files if the last look is long ago. If they cannot be read now,
// it returns the last one read. It returns nil for an issued certificate that has not come yet.
func (s *Source) latest() *tls.Certificate {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	// A negative time means that the clock was set back. It must not stop the checks.
	if d := now.Sub(s.looked); d >= 0 && d < lookEvery {
		return s.cert
	}
	s.looked = now
	if err := s.refresh(); err != nil {
		s.cfg.Log.Error("the TLS certificate could not be renewed; the old one stays in use", "error", err)
	}
	return s.cert
}

// refresh reads the files again if they changed. The caller holds mu: concurrent handshakes need the same result.
func (s *Source) refresh() error {
	if s.made {
		if err := s.cfg.renew(); err != nil {
			return err
		}
	}
	stamp := s.stamp()
	if stamp == s.seen {
		return nil
	}
	s.seen = stamp // wrong files are logged once, until they change again
	cert, err := s.read()
	if err != nil {
		return err
	}
	s.cert = cert
	s.cfg.Log.Info("the TLS certificate changed", "until", cert.Leaf.NotAfter)
	return nil
}

// stamp returns a string that changes when the files change. Sizes and times are enough, because renewal tools write
// new files. Nanoseconds distinguish two renewals within one second. A missing file adds nothing, which also changes
// the stamp.
func (s *Source) stamp() string {
	var b strings.Builder
	for _, name := range []string{s.cfg.CertFile, s.cfg.KeyFile} {
		if fi, err := os.Stat(name); err == nil {
			fmt.Fprintf(&b, "%d %d;", fi.ModTime().UnixNano(), fi.Size())
		}
	}
	return b.String()
}

// read loads the key and the certificate. It refuses a pair that does not match, such as when only one of the two is
// replaced yet. Both are read again when the other one changes.
func (s *Source) read() (*tls.Certificate, error) {
	key, err := readKey(s.cfg.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("the TLS key file %s: %w", s.cfg.KeyFile, err)
	}
	chain, err := os.ReadFile(s.cfg.CertFile)
	if err != nil {
		return nil, fmt.Errorf("the TLS certificate file: %w", err)
	}
	cert, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return nil, fmt.Errorf("the TLS certificate %s and key %s: %w", s.cfg.CertFile, s.cfg.KeyFile, err)
	}
	// Serve an expired certificate anyway: clients that pin it continue to work. The warning names the file.
	if now := s.cfg.Now(); now.After(cert.Leaf.NotAfter) {
		s.cfg.Log.Warn("the TLS certificate has expired; clients will refuse it", "file", s.cfg.CertFile, "since",
			cert.Leaf.NotAfter)
	}
	return &cert, nil
}

// readKey reads a private key. Its group may read it, which is common for keys that several servers share. Other
// users may not.
func readKey(path string) ([]byte, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	// Writing by the group is refused too: a user who can replace the key can impersonate the daemon.
	if perm := fi.Mode().Perm(); perm&0o027 != 0 {
		return nil, fmt.Errorf("others may use it (mode %04o); run chmod 600 on it, and if somebody may have read "+
			"it, get a new certificate", perm)
	}
	return os.ReadFile(path)
}

// hosts returns all hosts for the daemon's own certificate. It always includes the loopback names: a client on this
// machine can then verify the certificate at any listening address.
func (c Config) hosts() []string {
	own, _ := os.Hostname() // without a name, clients use an address
	list := []string{"localhost", "127.0.0.1", "::1"}
	for _, h := range append([]string{own}, c.Hosts...) {
		h = cmp.Or(strings.Trim(h, "[]"), "localhost")
		if !slices.ContainsFunc(list, func(x string) bool { return strings.EqualFold(x, h) }) { // as DNS compares
			list = append(list, h)
		}
	}
	return list
}
