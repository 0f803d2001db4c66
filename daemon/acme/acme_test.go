package acme

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/daemon/acme/records"
	"berth/test/acmetest"
	"berth/test/logtest"
	"berth/test/needs"

	"github.com/mholt/acmez/v3/acme"
)

func TestMain(m *testing.M) {
	acmetest.Hook()
	pauses[0] = 300 * time.Millisecond // of the first failure
	os.Exit(m.Run())
}

const domain = "apps.zone.test"

// site is a name server, an authority and the configuration of a Manager that uses both.
type site struct {
	t         *testing.T
	names     *acmetest.NameServer
	authority *acmetest.Authority
	cfg       Config
	log       *logtest.Buffer
}

func newSite(t *testing.T, c acmetest.Config) *site {
	s := &site{t: t, names: acmetest.StartNameServer(t), log: &logtest.Buffer{}}
	if c.Resolver == "" {
		c.Resolver = s.names.Address
	}
	s.authority = acmetest.New(t, c)
	s.cfg = Config{Authority: s.authority.URL, Domain: domain, DNS: "rfc2136", Dir: filepath.Join(t.TempDir(), "acme"),
		Log: slog.New(slog.NewTextHandler(s.log, nil)), Settings: map[string]string{"ca": s.authority.CAFile,
			"server": s.names.Address, "key": acmetest.Key, "secret": acmetest.Secret, "check": s.names.Address}}
	return s
}

// start starts a Manager that ends with the test.
func (s *site) start() *Manager {
	s.t.Helper()
	m, err := Open(s.cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	m.Start()
	s.t.Cleanup(func() { m.Close() })
	return m
}

// await waits until the status is as a test wants it.
func (s *site) await(m *Manager, what string, good func(Status) bool) Status {
	s.t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if st := m.Status(); good(st) {
			return st
		}
	}
	s.t.Fatalf("%s did not come: %+v\n%s", what, m.Status(), s.log)
	return Status{}
}

func issued(s Status) bool { return !s.Expires.IsZero() }
func failed(s Status) bool { return s.Tries > 0 }

// cert returns the certificate on disk, after it was verified for names.
func (s *site) cert(names ...string) *x509.Certificate {
	s.t.Helper()
	data, err := os.ReadFile(CertFile(s.cfg.Dir))
	if err != nil {
		s.t.Fatal(err)
	}
	cert, err := readCert(CertFile(s.cfg.Dir))
	if err != nil {
		s.t.Fatal(err)
	}
	between := x509.NewCertPool()
	between.AppendCertsFromPEM(data)
	for _, name := range names {
		if _, err := cert.Verify(x509.VerifyOptions{DNSName: name, Roots: s.authority.Roots,
			Intermediates: between}); err != nil {
			s.t.Errorf("%s: %v", name, err)
		}
	}
	return cert
}

// TestWildcardByUpdate checks the way to a certificate by dynamic updates, what it leaves, and that the next daemon
// uses what it finds.
func TestWildcardByUpdate(t *testing.T) {
	s := newSite(t, acmetest.Config{Accounts: map[string]string{"customer-1": "bWFjLWtleS1vZi10aGUtdGVzdC0wMTIzNDU2Nzg5YWI"}})
	s.cfg.Email = "operator@zone.test"
	s.cfg.Settings["eab_kid"], s.cfg.Settings["eab_hmac"] = "customer-1", "bWFjLWtleS1vZi10aGUtdGVzdC0wMTIzNDU2Nzg5YWI"
	m := s.start()
	s.await(m, "a certificate", issued)
	cert := s.cert(domain, "api."+domain, "8000-i0123456789abcdefghjkmnpqr."+domain)
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if left, added := s.names.Texts("_acme-challenge." + domain); len(left) != 0 || added != 2 {
		t.Errorf("%d records were made, and %q are left", added, left)
	}
	files, err := os.ReadDir(s.cfg.Dir)
	if err != nil || len(files) != 3 {
		t.Errorf("the files are %v, %v", files, err)
	}
	for _, f := range files {
		if fi, err := f.Info(); err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", f.Name(), fi.Mode(), err)
		}
	}
	again, err := Open(s.cfg)
	if err != nil {
		t.Fatal(err)
	}
	if at := again.next(t.Context(), again.current()); at.Before(cert.NotBefore.AddDate(0, 0, 50)) {
		t.Errorf("after a second start, the certificate of 90 days is to be renewed at %v", at)
	}
	other := newSite(t, acmetest.Config{})
	other.cfg.Dir = s.cfg.Dir
	m = other.start()
	other.await(m, "a certificate of another authority", func(Status) bool { return other.authority.Orders() == 1 })
	other.await(m, "its file", func(Status) bool { c, err := readCert(CertFile(s.cfg.Dir)); return err == nil && !c.Equal(cert) })
	other.cert("x." + domain)
	if text := s.log.String(); strings.Contains(text, acmetest.Secret) || strings.Contains(text, "bWFjLWtle") {
		t.Errorf("the log has a secret: %s", text)
	}
}

// TestRenewal checks that a certificate is renewed while time is left, each time with another key.
func TestRenewal(t *testing.T) {
	const valid = 9 * time.Second
	s := newSite(t, acmetest.Config{Valid: valid})
	m := s.start()
	first := s.await(m, "a certificate", issued).Expires
	one := s.cert(domain)
	second := s.await(m, "a renewal", func(st Status) bool { return st.Expires.After(first) }).Expires
	two := s.cert(domain)
	// It comes after a third of the lifetime, however soon the authority asks for it, and before its end. Times of
	// certificates are in seconds.
	if at := second.Add(-valid); at.Before(first.Add(-valid*2/3-time.Second)) || !at.Before(first) {
		t.Errorf("a certificate until %v was renewed at %v", first, at)
	}
	if bytes.Equal(one.RawSubjectPublicKeyInfo, two.RawSubjectPublicKeyInfo) {
		t.Error("the renewed certificate has the key of the old one")
	}
}

// TestWildcardByProgram checks an operator's program.
func TestWildcardByProgram(t *testing.T) {
	s := newSite(t, acmetest.Config{})
	s.cfg.DNS, s.cfg.Settings = "exec", s.names.HookSettings()
	s.cfg.Settings["ca"] = s.authority.CAFile
	s.await(s.start(), "a certificate", issued)
	s.cert(domain, "x."+domain)
	if left, _ := s.names.Texts("_acme-challenge." + domain); len(left) != 0 {
		t.Errorf("%q are left", left)
	}
}

// TestOverHTTP checks HTTP-01, and what else its port answers.
func TestOverHTTP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	s := newSite(t, acmetest.Config{HTTPPort: l.Addr().(*net.TCPAddr).Port})
	s.cfg.DNS, s.cfg.HTTP, s.cfg.Settings = "", address, map[string]string{"ca": s.authority.CAFile}
	if _, err := Open(s.cfg); err == nil || !strings.Contains(err.Error(), "stop what has the port") {
		t.Errorf("with a port that is taken: %v", err)
	}
	l.Close()
	s.await(s.start(), "a certificate", issued)
	if cert := s.cert(domain); cert.VerifyHostname("x."+domain) == nil {
		t.Error("a wildcard without DNS")
	}
	for _, path := range []string{"/", "/v1/info", "/.well-known/acme-challenge/", "/.well-known/acme-challenge/x"} {
		res, err := http.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != 404 || !strings.Contains(string(text), "https://"+domain) {
			t.Errorf("%s: %d %s", path, res.StatusCode, text)
		}
	}
}

// TestFailures checks that each failure leaves nothing half-done, and says what it is and what to do.
func TestFailures(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*site)
		says  []string
	}{
		"wrong TSIG key": {func(s *site) { s.cfg.Settings["secret"] = "bm90IHRoZSBrZXk=" },
			[]string{"setting the TXT record _acme-challenge." + domain + ".", "key, secret and algorithm"}},
		"not seen": {func(s *site) { s.names.Drop(true); s.cfg.Settings["wait"] = "1s" },
			[]string{"is not seen after 1s", "has 0 other values"}},
		"wrong name server": {func(s *site) {
			other := acmetest.StartNameServer(s.t)
			s.cfg.Settings["server"], s.cfg.Settings["check"] = other.Address, other.Address
		}, []string{"No TXT records found", "name servers of --domain are those"}},
		"rate limited": {func(s *site) { s.authority.Limited.Store(true) },
			[]string{"too many orders", "letsencrypt-staging"}},
		"no account": {func(s *site) {
			s.authority = acmetest.New(s.t, acmetest.Config{Resolver: s.names.Address,
				Accounts: map[string]string{"c": "bWFjLWtleS1vZi10aGUtdGVzdC0wMTIzNDU2Nzg5YWI"}})
			s.cfg.Authority, s.cfg.Settings["ca"] = s.authority.URL, s.authority.CAFile
		}, []string{"opening the account", "eab_kid and eab_hmac"}},
		"authority unknown": {func(s *site) { delete(s.cfg.Settings, "ca") },
			[]string{"unknown authority", "setting ca"}},
		"program": {func(s *site) {
			program := filepath.Join(s.t.TempDir(), "hook")
			os.WriteFile(program, []byte("#!/bin/sh\necho no such zone: $TOKEN >&2\nexit 4\n"), 0o700)
			s.cfg.DNS, s.cfg.Settings = "exec", map[string]string{"program": program, "env.TOKEN": "of-env",
				"ca": s.authority.CAFile}
		}, []string{"exit status 4", "no such zone: of-env"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, acmetest.Config{})
			c.spoil(s)
			m := s.start()
			st := s.await(m, "a failure", failed)
			if err := m.Close(); err != nil {
				t.Error(err)
			}
			for _, want := range c.says {
				if !strings.Contains(s.log.String(), want) {
					t.Errorf("no %q in %s", want, s.log)
				}
			}
			if !st.Expires.IsZero() || st.Error == "" || !st.Next.After(time.Now().Add(-time.Minute)) {
				t.Errorf("%+v", st)
			}
			if left, _ := s.names.Texts("_acme-challenge." + domain); len(left) != 0 {
				t.Errorf("%q are left", left)
			}
			if name == "rate limited" && time.Until(st.Next) < 50*time.Minute {
				t.Errorf("the next try is at %v", st.Next)
			}
		})
	}
}

// TestAuthorityIsDown checks that a Manager starts while its authority is down, and asks again.
func TestAuthorityIsDown(t *testing.T) {
	s := newSite(t, acmetest.Config{})
	s.authority.Down.Store(true)
	m := s.start()
	s.await(m, "a failure", failed)
	s.authority.Down.Store(false)
	s.await(m, "a certificate", issued)
	s.cert(domain)
	s.await(m, "the end of failures", func(st Status) bool { return st.Tries == 0 && st.Error == "" })
}

// TestPauses checks that a daemon that starts again keeps to the authority's limit, and else tries soon.
func TestPauses(t *testing.T) {
	s := newSite(t, acmetest.Config{})
	hour := time.Now().Add(time.Hour)
	for _, c := range []struct {
		state state
		most  time.Duration
		least time.Duration
	}{
		{state{Tried: time.Now(), Next: hour, Failures: 4, Limited: true}, 61 * time.Minute, 59 * time.Minute},
		{state{Tried: time.Now(), Next: hour, Failures: 4}, leastPause, leastPause - 5*time.Second},
		{state{Tried: time.Now().Add(-time.Hour), Next: hour, Failures: 4}, 0, -2 * time.Hour},
		{state{Tried: hour, Next: hour.Add(time.Hour), Failures: 4}, 0, math.MinInt64}, // the clock was set back
		{state{}, 0, math.MinInt64},
		// tries whose end no daemon has seen
		{state{Tried: time.Now(), Unended: 1}, leastPause, leastPause - 5*time.Second},
		{state{Tried: time.Now().Add(-90 * time.Second), Unended: 1}, 0, math.MinInt64},
		{state{Tried: time.Now(), Unended: 4}, pauses[3], pauses[3] - 5*time.Second},
		{state{Tried: time.Now(), Unended: 99}, pauses[5], pauses[5] - 5*time.Second},
	} {
		if err := errorsOf(os.MkdirAll(s.cfg.Dir, 0o700), c.state.write(s.cfg.Dir)); err != nil {
			t.Fatal(err)
		}
		m, err := Open(s.cfg)
		if err != nil {
			t.Fatal(err)
		}
		m.forgetPause()
		if d := time.Until(m.next(t.Context(), nil)); d > c.most || d < c.least {
			t.Errorf("%+v: a pause of %s", c.state, d)
		}
	}
}

func errorsOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// TestCloseRemovesRecords checks that a record goes away if the daemon ends while the authority looks for it.
func TestCloseRemovesRecords(t *testing.T) {
	s := newSite(t, acmetest.Config{})
	s.cfg.Settings["check"] = "none"
	m := s.start()
	s.await(m, "a record", func(Status) bool { now, _ := s.names.Texts("_acme-challenge." + domain); return len(now) > 0 })
	begin := time.Now()
	if err := m.Close(); err != nil || time.Since(begin) > cleanLimit {
		t.Errorf("%v after %s", err, time.Since(begin))
	}
	if left, _ := s.names.Texts("_acme-challenge." + domain); len(left) != 0 {
		t.Errorf("%q are left", left)
	}
	if st := m.Status(); st.Tries != 0 {
		t.Errorf("the end of the daemon counts as a failure: %+v", st)
	}
}

// TestEndBehindCertificate checks that a certificate counts whose daemon ends as soon as it has it.
func TestEndBehindCertificate(t *testing.T) {
	s := newSite(t, acmetest.Config{})
	m, err := Open(s.cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	m.cfg.Log = slog.New(slog.NewTextHandler(onWrite(cancel), nil))
	m.run(ctx) // until it logs that it has a certificate
	s.cert(domain)
	if st := readState(s.cfg.Dir); st.Authority != s.cfg.Authority || st.Unended != 0 {
		t.Errorf("the state is %+v", st)
	}
}

// onWrite is a log that calls a function at each entry.
type onWrite func()

func (fn onWrite) Write(data []byte) (int, error) {
	fn()
	return len(data), nil
}

// TestSlowCleaning checks that a slow program has its time to remove a record, unless the daemon ends.
func TestSlowCleaning(t *testing.T) {
	defer func(was time.Duration) { cleanLimit = was }(cleanLimit)
	cleanLimit = 50 * time.Millisecond
	program := filepath.Join(t.TempDir(), "hook")
	if err := os.WriteFile(program, []byte("#!/bin/sh\nexec sleep 0.5\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	setter, err := records.New("exec", map[string]string{"program": program})
	if err != nil {
		t.Fatal(err)
	}
	solver := dnsSolver{setter}
	if err := solver.CleanUp(t.Context(), acme.Challenge{}); err != nil {
		t.Errorf("while the daemon runs: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	for name, ctx := range map[string]context.Context{"ends before": canceled(), "ends meanwhile": ctx} {
		if err := solver.CleanUp(ctx, acme.Challenge{}); err == nil || !strings.Contains(err.Error(), "it was ended") {
			t.Errorf("the daemon %s: %v", name, err)
		}
	}
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// TestEndedTries checks that daemons that end amid a try do not ask the authority at each start.
func TestEndedTries(t *testing.T) {
	s := newSite(t, acmetest.Config{})
	s.cfg.Settings["check"] = "none" // so that a try takes two minutes
	for n := range 2 {
		m := s.start()
		s.await(m, "an order", func(Status) bool { return s.authority.Orders() == n+1 })
		if st := readState(s.cfg.Dir); st.Unended != n+1 || time.Since(st.Tried) > time.Minute {
			t.Errorf("while try %d runs: %+v", n, st)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		st := readState(s.cfg.Dir)
		st.Tried = st.Tried.Add(-90 * time.Second) // the next start is so much later
		if err := st.write(s.cfg.Dir); err != nil {
			t.Fatal(err)
		}
	}
	m, err := Open(s.cfg)
	if err != nil {
		t.Fatal(err)
	}
	m.forgetPause()
	if d := time.Until(m.next(t.Context(), nil)); d < 3*time.Minute || m.Status().Tries != 0 {
		t.Errorf("the third try is to be after %s: %+v", d, m.Status())
	}
	s.cfg.Settings["check"] = s.names.Address
	if err := os.Remove(stateFile(s.cfg.Dir)); err != nil {
		t.Fatal(err)
	}
	s.await(s.start(), "a certificate", issued)
	s.await(m, "the end of a try", func(Status) bool { return readState(s.cfg.Dir).Unended == 0 })
}

// TestRefusals checks that wrong configurations are refused at the start.
func TestRefusals(t *testing.T) {
	s := newSite(t, acmetest.Config{})
	open := filepath.Join(t.TempDir(), "hook")
	if err := errorsOf(os.WriteFile(open, []byte("#!/bin/sh\n"), 0o700), os.Chmod(open, 0o722)); err != nil {
		t.Fatal(err)
	}
	with := func(dns string, pairs ...string) func(*Config) {
		return func(c *Config) {
			c.DNS, c.Settings = dns, maps.Clone(c.Settings)
			for i := 0; i < len(pairs); i += 2 {
				c.Settings[pairs[i]] = pairs[i+1]
			}
			maps.DeleteFunc(c.Settings, func(_, value string) bool { return value == "" })
		}
	}
	none := []string{"server", "", "key", "", "secret", "", "check", ""}
	for says, spoil := range map[string]func(*Config){
		"is no ACME authority":                   func(c *Config) { c.Authority = "http://ca.test/directory" },
		"is no mail address":                     func(c *Config) { c.Email = "nobody" },
		"is no DNS provider; use acme-dns":       with("route99"),
		"secret is not in base64":                with("rfc2136", "secret", "%%"),
		"algorithm:":                             with("rfc2136", "algorithm", "hmac-md5"),
		"setting server is missing":              with("rfc2136", "server", ""),
		"no name server; write it as":            with("rfc2136", "server", "ns.zone.test"),
		"no time up to 1h0m0s":                   with("rfc2136", "wait", "2d"),
		"url is no setting":                      with("rfc2136", "url", "https://x.test"),
		"is no setting of the DNS provider exec": with("exec", "program", open),
		"others may change":                      with("exec", append(slices.Clone(none), "program", open)...),
		"is no absolute path":                    with("exec", append(slices.Clone(none), "program", "hook")...),
		"setting url is missing":                 with("acme-dns", none...),
		"https://auth.example.org": with("acme-dns", append(slices.Clone(none), "url", "ftp://x", "username", "u",
			"password", "p", "subdomain", "s")...),
		"give both":                   with("rfc2136", "eab_kid", "x"),
		"ca: ":                        with("rfc2136", "ca", "/none"),
		"a setting of a DNS provider": func(c *Config) { c.DNS, c.HTTP = "", "127.0.0.1:0" },
	} {
		cfg := s.cfg
		spoil(&cfg)
		if _, err := Open(cfg); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
	if err := CheckSetting("token", "x"); err == nil {
		t.Error("an unknown setting is taken")
	}
}

// TestReplaceablePrograms checks that no program is taken, or run later, that another user could replace.
func TestReplaceablePrograms(t *testing.T) {
	needs.Root(t)
	const other = 777
	link := func(to, at string) error { return errorsOf(os.Remove(at), os.Symlink(to, at)) }
	for name, c := range map[string]struct {
		spoil func(dir, program string) error
		says  string
	}{
		"good":                     {func(string, string) error { return nil }, ""},
		"its owner":                {func(_, p string) error { return os.Chown(p, other, 0) }, "belongs to user 777"},
		"its group":                {func(_, p string) error { return os.Chmod(p, 0o770) }, "chmod go-w"},
		"its directory":            {func(d, _ string) error { return os.Chmod(d+"/a/b", 0o777) }, "/a/b (mode 0777)"},
		"the group of a directory": {func(d, _ string) error { return os.Chmod(d+"/a", 0o770) }, "/a (mode 0770)"},
		"the owner of a directory": {func(d, _ string) error { return os.Chown(d+"/a", other, 0) }, "/a belongs to user 777"},
		"a directory with the sticky bit": {func(d, _ string) error {
			return os.Chmod(d+"/a", 0o777|os.ModeSticky) // as /tmp
		}, ""},
		"a good link":      {func(d, p string) error { return link("/bin/true", p) }, ""},
		"the link's owner": {func(d, p string) error { return errorsOf(link("/bin/true", p), os.Lchown(p, other, 0)) }, "belongs"},
		"where a link leads": {func(d, p string) error {
			return errorsOf(os.Mkdir(d+"/open", 0o700), os.Rename(p, d+"/open/hook"), os.Symlink("../../open/hook", p),
				os.Chmod(d+"/open", 0o777))
		}, "/open (mode 0777)"},
		"the way up from a link": {func(d, p string) error {
			// links to a/b/far/../hook, which is open/hook
			return errorsOf(os.MkdirAll(d+"/open/far", 0o700), os.Rename(p, d+"/open/hook"), os.Symlink(d+"/open/far", d+"/a/b/far"),
				os.Symlink("far/../hook", p), os.Chmod(d+"/open/hook", 0o770))
		}, "/open/hook (mode 0770)"},
		"a link to itself": {func(d, p string) error { return link(p, p) }, "links"},
	} {
		dir := t.TempDir()
		program := filepath.Join(dir, "a/b/hook")
		if err := errorsOf(os.MkdirAll(filepath.Dir(program), 0o700),
			os.WriteFile(program, []byte("#!/bin/sh\n"), 0o700)); err != nil {
			t.Fatal(err)
		}
		setter, err := records.New("exec", map[string]string{"program": program})
		if err == nil {
			err = c.spoil(dir, program)
		}
		if err != nil {
			t.Fatal(err)
		}
		for when, err := range map[string]error{"later": setter.Set(t.Context(), "x", "y"), "at the start": func() error {
			_, err := records.New("exec", map[string]string{"program": program})
			return err
		}()} {
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%s, %s: %v", name, when, err)
			}
		}
	}
}

// TestCertificateByAcmeDNS checks the way to a certificate by an acme-dns server, with _acme-challenge as an alias of an
// alias of its name.
func TestCertificateByAcmeDNS(t *testing.T) {
	s := newSite(t, acmetest.Config{})
	s.authority = acmetest.New(t, acmetest.Config{Resolver: s.names.Resolver(t)})
	s.names.Alias("_acme-challenge."+domain, "hop.zone.test")
	s.names.Alias("hop.zone.test", "s1.auth.test")
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body struct{ Subdomain, Txt string }
		json.NewDecoder(r.Body).Decode(&body)
		s.names.Put(body.Subdomain+".auth.test", body.Txt)
	}))
	t.Cleanup(server.Close)
	s.cfg.Authority, s.cfg.DNS = s.authority.URL, "acme-dns"
	s.cfg.Settings = map[string]string{"ca": s.authority.CAFile, "check": s.names.Address, "url": server.URL,
		"username": "u", "password": "p", "subdomain": "s1", "wait": "5s"}
	m := s.start()
	s.await(m, "a certificate", func(st Status) bool { return issued(st) || failed(st) })
	s.cert(domain, "x."+domain)
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	s.names.Alias("s1.auth.test", "hop.zone.test")
	setter, err := records.New("acme-dns", map[string]string{"check": s.names.Address, "url": server.URL,
		"username": "u", "password": "p", "subdomain": "s1", "wait": "1s"})
	if err != nil {
		t.Fatal(err)
	}
	if err := setter.Await(t.Context(), "_acme-challenge."+domain, "x"); err == nil || !strings.Contains(err.Error(), "aliases") {
		t.Errorf("aliases in a circle: %v", err)
	}
}

// TestAcmeDNS checks the calls of an acme-dns server.
func TestAcmeDNS(t *testing.T) {
	s := newSite(t, acmetest.Config{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var got []string
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		got = append(got, fmt.Sprint(r.Method, r.URL.Path, r.Header.Get("X-Api-User"), r.Header.Get("X-Api-Key"), string(body)))
		http.Error(w, `{"error":"forbidden"}`, http.StatusUnauthorized)
	})}
	go server.Serve(l)
	t.Cleanup(func() { server.Shutdown(context.Background()) })
	s.cfg.DNS = "acme-dns"
	s.cfg.Settings = map[string]string{"ca": s.authority.CAFile, "url": "http://" + l.Addr().String() + "/base",
		"username": "u1", "password": "p1", "subdomain": "s1"}
	m := s.start()
	s.await(m, "a failure", failed)
	if err := m.Close(); err != nil { // the log is written behind the status
		t.Error(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if !strings.HasPrefix(got[0], `POST/base/updateu1p1{"subdomain":"s1","txt":"`) {
		t.Errorf("it got %q", got)
	}
	if text := s.log.String(); !strings.Contains(text, "check username, password and subdomain") || strings.Contains(text, "p1") {
		t.Errorf("the log is %s", text)
	}
}
