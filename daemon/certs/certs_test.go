package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A clock is a Source's clock.
type clock struct{ t time.Time }

func (c *clock) now() time.Time { return c.t }

func open(t *testing.T, cfg Config) *Source {
	t.Helper()
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// shake does a TLS handshake with the source as a client with this configuration. It returns the certificate shown.
func shake(s *Source, client *tls.Config) (*x509.Certificate, error) {
	l, err := tls.Listen("tcp", "127.0.0.1:0", s.TLS())
	if err != nil {
		return nil, err
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			c.(*tls.Conn).Handshake()
			c.Close()
		}
	}()
	raw, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	c := tls.Client(raw, client)
	if err := c.Handshake(); err != nil {
		return nil, err
	}
	return c.ConnectionState().PeerCertificates[0], nil
}

func trusting(t *testing.T, file string, at *clock) *tls.Config {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(data)
	return &tls.Config{RootCAs: roots, ServerName: "localhost", Time: at.now}
}

func TestOwnCertificate(t *testing.T) {
	at := &clock{time.Now()}
	dir := filepath.Join(t.TempDir(), "tls")
	cfg := Config{Dir: dir, Hosts: []string{"berth.example", "192.0.2.7"}, Now: at.now}
	s := open(t, cfg)
	fi, err := os.Stat(filepath.Join(dir, "key.pem"))
	if err != nil || fi.Mode().Perm() != 0o600 {
		t.Fatalf("the key: %v %v", fi, err)
	}
	own, _ := os.Hostname()
	for _, name := range []string{"localhost", "127.0.0.1", "::1", "berth.example", "192.0.2.7", own} {
		client := trusting(t, s.CAFile(), at)
		client.ServerName = name
		if _, err := shake(s, client); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	client := trusting(t, s.CAFile(), at)
	client.ServerName = "other.example"
	if _, err := shake(s, client); err == nil {
		t.Error("the certificate is good for a name that it is not for")
	}
	if _, err := shake(s, &tls.Config{ServerName: "localhost"}); err == nil {
		t.Error("a client that was not told to trusts it")
	}
	old := trusting(t, s.CAFile(), at)
	old.MaxVersion, old.MinVersion = tls.VersionTLS11, tls.VersionTLS10
	if _, err := shake(s, old); err == nil || !strings.Contains(err.Error(), "protocol version") {
		t.Errorf("TLS 1.1: %v", err)
	}
	weak := trusting(t, s.CAFile(), at)
	weak.MaxVersion = tls.VersionTLS12
	weak.CipherSuites = []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA, tls.TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA}
	if _, err := shake(s, weak); err == nil {
		t.Error("a suite with CBC is taken")
	}
	if again := open(t, cfg); again.Fingerprint() != s.Fingerprint() {
		t.Error("the second start made another certificate")
	}
	cfg.Hosts = append(cfg.Hosts, "more.example")
	if more := open(t, cfg); more.Fingerprint() == s.Fingerprint() {
		t.Error("a new name did not make a new certificate")
	}
}

// TestRenewal checks that a running daemon renews its certificate before it expires, and that clients need no change.
func TestRenewal(t *testing.T) {
	at := &clock{time.Now()}
	s := open(t, Config{Dir: t.TempDir(), Now: at.now})
	first := trusting(t, s.CAFile(), at)
	one, err := shake(s, first)
	if err != nil {
		t.Fatal(err)
	}
	at.t = one.NotAfter.Add(-renewBefore - time.Minute)
	if two, err := shake(s, first); err != nil || !two.Equal(one) {
		t.Fatalf("renewed too early, or not good any more: %v", err)
	}
	at.t = one.NotAfter.Add(-renewBefore + time.Minute)
	two, err := shake(s, first)
	if err != nil {
		t.Fatalf("who trusts the authority does not trust the new certificate: %v", err)
	}
	if two.Equal(one) || !two.NotAfter.After(one.NotAfter) {
		t.Fatalf("not renewed: until %v", two.NotAfter)
	}
	for range 12 { // beyond the end of the CA, which is replaced a year before it
		at.t = at.t.Add(validFor - time.Hour)
		if _, err := shake(s, first); err != nil {
			t.Fatalf("at %v, with the authority of a year before: %v", at.t, err)
		}
		first = trusting(t, s.CAFile(), at)
	}
}

// give writes a certificate and key of another source to the operator's paths.
func give(t *testing.T, from *Source, dir string) {
	t.Helper()
	for _, name := range []string{"cert.pem", "key.pem"} {
		data, err := os.ReadFile(filepath.Join(from.cfg.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestGivenCertificate(t *testing.T) {
	at := &clock{time.Now()}
	one, two := open(t, Config{Dir: t.TempDir(), Now: at.now}), open(t, Config{Dir: t.TempDir(), Now: at.now})
	dir := t.TempDir()
	give(t, one, dir)
	var log bytes.Buffer
	cert, key := ownFiles(dir)
	s := open(t, Config{CertFile: cert, KeyFile: key, Now: at.now, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if s.CAFile() != "" {
		t.Error("an operator's certificate is called the daemon's own")
	}
	ask := func() *x509.Certificate {
		at.t = at.t.Add(2 * lookEvery)
		c, err := shake(s, &tls.Config{InsecureSkipVerify: true, Time: at.now})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	before := ask()
	if err := os.WriteFile(cert, []byte("half a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !ask().Equal(before) || !strings.Contains(log.String(), "could not be renewed") {
		t.Fatalf("a broken file took the certificate away, or nobody was told: %s", log.String())
	}
	give(t, two, dir)
	if after := ask(); after.Equal(before) || s.Fingerprint() != two.Fingerprint() {
		t.Fatal("the new files were not taken")
	}
}

func TestRefusals(t *testing.T) {
	own := open(t, Config{Dir: t.TempDir()})
	dir := t.TempDir()
	cert, key := ownFiles(dir)
	other := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")})
	tests := map[string]struct {
		spoil     func()
		cert, key string
		says      string
	}{
		"half":       {func() {}, cert, "", "give both"},
		"missing":    {func() { os.Remove(key) }, cert, key, "no such file"},
		"world":      {func() { os.Chmod(key, 0o604) }, cert, key, "chmod 600"},
		"group":      {func() { os.Chmod(key, 0o660) }, cert, key, "chmod 600"},
		"no key":     {func() { os.WriteFile(key, []byte("x"), 0o600) }, cert, key, "key.pem"},
		"other cert": {func() { os.WriteFile(cert, other, 0o600) }, cert, key, "cert.pem"},
	}
	for name, tt := range tests {
		give(t, own, dir)
		os.Chmod(key, 0o600)
		tt.spoil()
		if _, err := Open(Config{CertFile: tt.cert, KeyFile: tt.key}); err == nil ||
			!strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	give(t, own, dir)
	os.Chmod(key, 0o640) // a group of servers may share the key
	if _, err := Open(Config{CertFile: cert, KeyFile: key}); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(filepath.Join(own.cfg.Dir, "key.pem"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Dir: own.cfg.Dir}); err == nil {
		t.Error("the daemon's own key may be read by all, and it starts")
	}
}

// TestIssuedCertificate checks that a certificate that comes later is shown to those who ask for its names, and the
// daemon's own to all others.
func TestIssuedCertificate(t *testing.T) {
	at := &clock{time.Now()}
	other := open(t, Config{Dir: t.TempDir(), Hosts: []string{"apps.example", "*.apps.example"}, Now: at.now})
	file := filepath.Join(t.TempDir(), "certificate.pem")
	s := open(t, Config{Dir: t.TempDir(), Hosts: []string{"apps.example", "*.apps.example"}, Issued: file, Now: at.now})
	asking := func(name string, source *Source) *tls.Config {
		at.t = at.t.Add(2 * lookEvery)
		client := trusting(t, source.CAFile(), at)
		client.ServerName = name
		return client
	}
	for _, name := range []string{"apps.example", "api.apps.example", "8000-i0abc.apps.example"} {
		if _, err := shake(s, asking(name, s)); err != nil {
			t.Errorf("%s, before a certificate was issued: %v", name, err)
		}
	}
	if ends := s.Expiry(); len(ends) != 1 || ends["own"].IsZero() {
		t.Errorf("the certificates end at %v", ends)
	}
	var text []byte
	for _, name := range []string{"cert.pem", "key.pem"} {
		data, err := os.ReadFile(filepath.Join(other.cfg.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, data...)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"apps.example", "api.apps.example", "8000-i0abc.apps.example"} {
		if _, err := shake(s, asking(name, other)); err != nil {
			t.Errorf("%s, with an issued certificate: %v", name, err)
		}
	}
	if _, err := shake(s, asking("127.0.0.1", s)); err != nil { // a client of this machine
		t.Errorf("an address, beside an issued certificate: %v", err)
	}
	if ends := s.Expiry(); len(ends) != 2 || ends["issued"].IsZero() {
		t.Errorf("the certificates end at %v", ends)
	}
}
