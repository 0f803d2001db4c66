// Package certs keeps the certificate that the daemon shows: one that the operator gives, read again when its files
// change, or one that the daemon makes for itself.
//
// Neither needs a signal or a restart to be renewed: a handshake looks at the files, at most once a second, and a
// certificate of the daemon's own is made anew, with the same private key, before it ends.
package certs

import (
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
)

// lookEvery is how often a handshake looks whether the certificate is still the right one.
// A second is short for a person who renews a certificate and long for a busy server, which would else
// call stat for every handshake.
const lookEvery = time.Second

// A Config says where the certificate comes from.
type Config struct {
	CertFile, KeyFile string           // PEM, of the operator's; "" for both makes one in Dir
	Dir               string           // for a certificate of the daemon's own: cert.pem, key.pem and ca.pem; made if missing
	Hosts             []string         // names and addresses that such a certificate is for, beside those of this machine
	Log               *slog.Logger     // nil: silence
	Now               func() time.Time // nil: time.Now
}

// A Source gives the certificate to each handshake. It is safe for concurrent use.
type Source struct {
	cfg  Config
	made bool // by the daemon

	mu     sync.Mutex // guards what follows
	cert   *tls.Certificate
	seen   string // what the files were when cert was read
	looked time.Time
}

// Open reads the certificate, or makes it. It refuses a private key that anybody on this machine can read.
// A key with such a mode may have been copied already, so the fix it names includes a new certificate.
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
	return s, nil
}

// CAFile is the file that clients are to trust, where the certificate is the daemon's own; else it is empty.
func (s *Source) CAFile() string {
	if s.made {
		return CAFile(s.cfg.Dir)
	}
	return ""
}

// Fingerprint is the SHA-256 of the present certificate, as browsers and openssl show it.
// It is of the leaf's whole DER, not of its public key: a renewal changes it, although the key stays.
func (s *Source) Fingerprint() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := sha256.Sum256(s.cert.Certificate[0])
	return strings.ReplaceAll(fmt.Sprintf("% X", sum), " ", ":")
}

// TLS is how the daemon speaks it: version 1.2 or newer, with Go's choice of ciphers. HTTP/2 is left out: a websocket
// needs HTTP/1.1, and one protocol means one behaviour to test.
func (s *Source) TLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, GetCertificate: s.certificate}
}

// certificate is the one for a handshake. What cannot be read now does not take away what was read before.
func (s *Source) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	// A clock that was set back must not stop the looking, so a negative time counts as long enough.
	if d := now.Sub(s.looked); d >= 0 && d < lookEvery {
		return s.cert, nil
	}
	s.looked = now
	if err := s.refresh(); err != nil {
		s.cfg.Log.Error("the TLS certificate could not be renewed; the old one stays in use", "error", err)
	}
	return s.cert, nil
}

// refresh reads the files again if they changed. Called with mu held: a handshake that comes meanwhile wants the same.
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
	s.seen = stamp // files that are wrong are told of once, until they change again
	cert, err := s.read()
	if err != nil {
		return err
	}
	s.cert = cert
	s.cfg.Log.Info("the TLS certificate changed", "until", cert.Leaf.NotAfter)
	return nil
}

// stamp changes when the files do.
// Size and time are enough: tools that renew write new files. Nanoseconds tell two renewals in one second
// apart. A file that is missing has no part in it, and so changes it too.
func (s *Source) stamp() string {
	var b strings.Builder
	for _, name := range []string{s.cfg.CertFile, s.cfg.KeyFile} {
		if fi, err := os.Stat(name); err == nil {
			fmt.Fprintf(&b, "%d %d;", fi.ModTime().UnixNano(), fi.Size())
		}
	}
	return b.String()
}

// read loads key and certificate together and refuses a pair that does not fit, as in the moment in which
// only one of the two was replaced. They are read again once the other one has changed too.
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
	// An expired certificate is served all the same: clients that pin it go on, and the warning names the
	// file.
	if now := s.cfg.Now(); now.After(cert.Leaf.NotAfter) {
		s.cfg.Log.Warn("the TLS certificate has expired; clients will refuse it", "file", s.cfg.CertFile, "since",
			cert.Leaf.NotAfter)
	}
	return &cert, nil
}

// readKey reads a private key. A group may read it, as is common for keys that several servers share; others may not.
func readKey(path string) ([]byte, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	// Writing by the group is refused too: who can replace the key can pose as the daemon.
	if perm := fi.Mode().Perm(); perm&0o027 != 0 {
		return nil, fmt.Errorf("others may use it (mode %04o); run chmod 600 on it, and if somebody may have read "+
			"it, get a new certificate", perm)
	}
	return os.ReadFile(path)
}

// hosts are all names that a certificate of the daemon's own is for.
// Loopback names are always among them, so that a client on this machine can check the certificate
// whatever the daemon listens on.
func (c Config) hosts() []string {
	own, _ := os.Hostname() // a machine without a name is reached by address
	list := []string{"localhost", "127.0.0.1", "::1"}
	for _, h := range append([]string{own}, c.Hosts...) {
		if h = cmp.Or(strings.Trim(h, "[]"), "localhost"); !has(list, h) {
			list = append(list, h)
		}
	}
	return list
}

// has compares as DNS does, without regard to case.
func has(list []string, s string) bool {
	for _, x := range list {
		if strings.EqualFold(x, s) {
			return true
		}
	}
	return false
}
