// Package acme gets the daemon's certificate from an authority by ACME (RFC 8555) and renews it.
//
// The certificate and its key are one file, which appears whole. Package certs serves it, so a renewal needs nothing of
// this package's: neither a restart nor the end of a connection. What the daemon does next is in a second file, so that
// a daemon that starts over and over does not ask the authority each time.
package acme

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"berth/daemon/acme/records"

	"github.com/mholt/acmez/v3"
	"github.com/mholt/acmez/v3/acme"
)

// authorities are the names that stand for URLs of directories.
var authorities = map[string]string{
	"letsencrypt":         "https://acme-v02.api.letsencrypt.org/directory",
	"letsencrypt-staging": "https://acme-staging-v02.api.letsencrypt.org/directory",
}

// A Config says which authority certifies which domain, and how the authority checks that the domain is ours.
type Config struct {
	Authority string            // URL of the directory, or a name of authorities
	Email     string            // the authority may write to it; "": none
	Domain    string            // in lower case
	DNS       string            // provider of TXT records, see package records; "": the authority asks over HTTP
	HTTP      string            // HOST:PORT that answers the authority, if DNS is ""
	Settings  map[string]string // the operator's file: those of IsSetting
	Dir       string            // directory of the files; created if missing
	Agent     string            // name and version of this program, for the authority
	Log       *slog.Logger
}

// own are the settings that are not of a DNS provider.
var own = map[string]bool{"eab_kid": true, "eab_hmac": true, "profile": true, "ca": true}

// CheckSetting refuses a line of the operator's file whose name is none of a setting.
func CheckSetting(name, _ string) error {
	if own[name] || records.IsSetting(name) {
		return nil
	}
	return fmt.Errorf("its name is none of a setting")
}

// A Manager keeps the certificate current. Status and Close are safe for concurrent use.
type Manager struct {
	cfg    Config
	client acmez.Client
	setter *records.Setter // nil: HTTP-01
	asked  *answers        // nil: DNS-01

	mu    sync.Mutex // guards state
	state state

	stop context.CancelFunc // nil: not started
	done chan struct{}
}

// Open checks the configuration, and listens where the authority asks. It does not ask the authority: a daemon must
// start while that is down.
func Open(cfg Config) (*Manager, error) {
	if name, ok := authorities[cfg.Authority]; ok {
		cfg.Authority = name
	}
	if u, err := url.Parse(cfg.Authority); err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil {
		return nil, fmt.Errorf("%q is no ACME authority; give letsencrypt, letsencrypt-staging, or the URL of a "+
			"directory, with https", cfg.Authority)
	}
	if strings.ContainsAny(cfg.Email, " ,\r\n") || cfg.Email != "" && !strings.Contains(cfg.Email, "@") {
		return nil, fmt.Errorf("%q is no mail address", cfg.Email)
	}
	if (cfg.Settings["eab_kid"] == "") != (cfg.Settings["eab_hmac"] == "") {
		return nil, errors.New("eab_kid and eab_hmac go together; give both")
	}
	roots, err := readRoots(cfg.Settings["ca"])
	if err != nil {
		return nil, err
	}
	m := &Manager{cfg: cfg, done: make(chan struct{})}
	m.client = acmez.Client{Client: &acme.Client{Directory: cfg.Authority, HTTPClient: httpClient(roots),
		UserAgent: cfg.Agent}}
	if cfg.Log.Enabled(context.Background(), slog.LevelDebug) {
		m.client.Logger = cfg.Log
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, err
	}
	m.state = readState(cfg.Dir)
	return m, m.openChallenge()
}

// openChallenge prepares the one kind of challenge that is configured. A wildcard needs DNS.
func (m *Manager) openChallenge() (err error) {
	settings := maps.Clone(m.cfg.Settings)
	maps.DeleteFunc(settings, func(name, _ string) bool { return own[name] })
	if m.cfg.DNS != "" {
		m.setter, err = records.New(m.cfg.DNS, settings)
		m.client.ChallengeSolvers = map[string]acmez.Solver{acme.ChallengeTypeDNS01: dnsSolver{m.setter}}
		return err
	}
	for name := range settings {
		return fmt.Errorf("%s is a setting of a DNS provider, and none is chosen", name)
	}
	m.asked, err = answer(m.cfg.HTTP, m.cfg.Domain)
	m.client.ChallengeSolvers = map[string]acmez.Solver{acme.ChallengeTypeHTTP01: m.asked}
	return err
}

// names are the names of the certificate.
func (m *Manager) names() []string {
	if m.setter == nil {
		return []string{m.cfg.Domain}
	}
	return []string{m.cfg.Domain, "*." + m.cfg.Domain}
}

// Start begins to get and renew the certificate. It returns at once.
func (m *Manager) Start() {
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	go func() {
		defer close(m.done)
		m.run(ctx)
	}()
}

// Close ends what Start began, and stops answering the authority. A record that was set is removed first.
func (m *Manager) Close() error {
	if m.stop != nil {
		m.stop()
		<-m.done
	}
	if m.asked != nil {
		return m.asked.close()
	}
	return nil
}

// Limits of one request to the authority, and of one answer. A chain of certificates has some 10 KiB.
const (
	requestLimit   = time.Minute
	maxAnswerBytes = 1 << 20
)

// httpClient returns the client for requests to the authority.
func httpClient(roots *x509.CertPool) *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig.RootCAs = roots
	return &http.Client{Timeout: requestLimit, Transport: bounded{t}}
}

// A bounded transport cuts answers that are too long. What is cut is no JSON.
type bounded struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := b.next.RoundTrip(req)
	if err == nil {
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(res.Body, maxAnswerBytes), res.Body}
	}
	return res, err
}

// readRoots returns the authorities that may certify the ACME server itself; nil means the system's.
func readRoots(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("ca: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("ca: %s holds no certificate in PEM", file)
	}
	return roots, nil
}

// CertFile returns the file of the certificate and its key below a directory.
func CertFile(dir string) string { return filepath.Join(dir, "certificate.pem") }
