package daemon_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/test/acmetest"
	"berth/test/daemontest"
)

// acmeSite is a name server and an authority, and the flags of a daemon that uses them.
func acmeSite(t *testing.T, cfg acmetest.Config) (*acmetest.Authority, *acmetest.NameServer, []string) {
	names := acmetest.StartNameServer(t)
	cfg.Resolver = names.Address
	authority := acmetest.New(t, cfg)
	file := filepath.Join(t.TempDir(), "acme.conf")
	text := fmt.Sprintf("# settings\nca=%s\nserver=%s\ncheck=%s\nkey=%s\nsecret=%s\n", authority.CAFile, names.Address,
		names.Address, acmetest.Key, acmetest.Secret)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return authority, names, []string{"--domain", "apps.zone.test", "--acme", authority.URL, "--acme-agree", "--acme-dns",
		"rfc2136", "--acme-config", file}
}

// TestCertificateByACME checks a daemon's certificates: its own one until an authority has issued one, that one for the
// domain and each name below it, a renewal that ends no connection, and a restart without another order.
func TestCertificateByACME(t *testing.T) {
	authority, names, flags := acmeSite(t, acmetest.Config{Valid: 10 * time.Second})
	authority.Down.Store(true)
	d := bare(t, flags...)
	dial := func(name string, roots *x509.CertPool) (*tls.Conn, error) { return shown(d, name, roots) }
	pem, err := os.ReadFile(d.CAFile())
	if err != nil {
		t.Fatal(err)
	}
	own := x509.NewCertPool()
	own.AppendCertsFromPEM(pem)
	hosts := []string{"apps.zone.test", "api.apps.zone.test", "8000-i0123456789abcdefghjkmnpqr.apps.zone.test"}
	for _, host := range hosts {
		conn, err := dial(host, own)
		if err != nil {
			t.Fatalf("%s, before there is a certificate: %v", host, err)
		}
		conn.Close()
	}
	eventually(t, "the failure in the log", func() bool { return strings.Contains(d.Log(), "no certificate from the ACME") })
	if n := gauge(t, d, "berth_certificate_failures"); n != 1 {
		t.Errorf("%v failures in the metrics", n)
	}
	d.Stop(syscall.SIGTERM)
	authority.Down.Store(false)
	state := filepath.Join(d.Dir, "acme", "state.json")
	if err := os.Remove(state); err != nil { // the pause after a failure is a minute
		t.Fatal(err)
	}
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	var conn *tls.Conn
	eventually(t, "a certificate", func() bool { conn, err = dial(hosts[2], authority.Roots); return err == nil })
	defer conn.Close()
	first := conn.ConnectionState().PeerCertificates[0]
	renewed := func() bool {
		c, err := dial(hosts[0], authority.Roots)
		if err != nil {
			return false
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].NotAfter.After(first.NotAfter)
	}
	eventually(t, "a renewal", renewed)
	for _, host := range hosts {
		c, err := dial(host, authority.Roots)
		if err != nil {
			t.Fatalf("%s: %v", host, err)
		}
		c.Close()
	}
	req, _ := http.NewRequest("GET", "https://api.apps.zone.test/v1/info", nil)
	req.Header.Set("X-Api-Key", d.Key)
	if err := req.Write(conn); err != nil {
		t.Fatal(err)
	}
	if res, err := http.ReadResponse(bufio.NewReader(conn), req); err != nil || res.StatusCode != 200 {
		t.Errorf("a connection of before the renewal: %v, %v", res, err)
	}
	if n := gauge(t, d, `berth_certificate_expiry_timestamp_seconds{source="issued"}`); int64(n) <= first.NotAfter.Unix() {
		t.Errorf("the metric is %v", n)
	}
	if text := d.Log(); strings.Contains(text, acmetest.Secret) {
		t.Errorf("the log has the secret: %s", text)
	}
	if left, _ := names.Texts("_acme-challenge.apps.zone.test"); len(left) != 0 {
		t.Errorf("%q are left", left)
	}
}

// TestRestartWithIssuedCertificate checks that a daemon that starts again asks the authority for nothing.
func TestRestartWithIssuedCertificate(t *testing.T) {
	authority, _, flags := acmeSite(t, acmetest.Config{})
	d := bare(t, flags...)
	issued := func() bool {
		c, err := shown(d, "x.apps.zone.test", authority.Roots)
		if err == nil {
			c.Close()
		}
		return err == nil
	}
	eventually(t, "a certificate", issued)
	for range 2 {
		d.Stop(syscall.SIGTERM)
		authority.Down.Store(true)
		if err := d.Start(); err != nil {
			t.Fatal(err)
		}
		if !issued() {
			t.Error("a daemon that starts again does not show its certificate")
		}
	}
	if n := authority.Orders(); n != 1 {
		t.Errorf("%d orders", n)
	}
}

// shown connects to a daemon by a name, and verifies the certificate that it shows. It completes the handshake in any
// case, so that the daemon's log does not fill while a test waits.
func shown(d *daemontest.Daemon, name string, roots *x509.CertPool) (*tls.Conn, error) {
	conn, err := tls.Dial("tcp", strings.TrimPrefix(d.URL, "https://"), &tls.Config{ServerName: name,
		InsecureSkipVerify: true})
	if err != nil {
		return nil, err
	}
	chain := conn.ConnectionState().PeerCertificates
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	if _, err := chain[0].Verify(x509.VerifyOptions{DNSName: name, Roots: roots, Intermediates: between}); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// gauge returns the value of a daemon's metric.
func gauge(t *testing.T, d *daemontest.Daemon, name string) float64 {
	t.Helper()
	_, out, err := d.Do("GET", "/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			n, err := strconv.ParseFloat(text, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("there is no %s", name)
	return 0
}
