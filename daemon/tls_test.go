package daemon_test

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/test/daemontest"
)

// bare starts a daemon without an image, for tests without containers.
func bare(t *testing.T, flags ...string) *daemontest.Daemon {
	t.Helper()
	d := &daemontest.Daemon{Dir: t.TempDir(), Flags: append([]string{"--stop-on-exit"}, flags...)}
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Stop(syscall.SIGTERM) })
	return d
}

func TestSelfSigned(t *testing.T) {
	d := bare(t, "--tls-self-signed")
	status, body, err := d.Do("GET", "/v1/info", nil) // over TLS, trusting only the daemon's certificate
	if err != nil || status != http.StatusOK || !strings.HasPrefix(d.URL, "https://127.0.0.1:") {
		t.Fatalf("%s: %d %s %v", d.URL, status, body, err)
	}
	data, err := os.ReadFile(filepath.Join(d.Dir, "tls", "cert.pem"))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(data)
	sum := strings.ReplaceAll(fmt.Sprintf("% X", sha256.Sum256(block.Bytes)), " ", ":")
	if !strings.Contains(d.Log(), "tls_sha256="+sum) || !strings.Contains(d.Log(), "ca_file="+d.CAFile()) {
		t.Errorf("the fingerprint %s or the file is not told: %s", sum, d.Log())
	}
	if fi, err := os.Stat(filepath.Join(d.Dir, "tls", "key.pem")); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("the key: %v %v", fi, err)
	}
	conn, err := tls.Dial("tcp", strings.TrimPrefix(d.URL, "https://"), &tls.Config{InsecureSkipVerify: true,
		MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11})
	if err == nil {
		conn.Close()
		t.Error("the daemon speaks TLS 1.1")
	}
	res, err := http.Get("http" + strings.TrimPrefix(d.URL, "https") + "/v1/info")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if text, _ := io.ReadAll(res.Body); res.StatusCode != http.StatusBadRequest ||
		!strings.Contains(string(text), "HTTPS") {
		t.Errorf("plain HTTP to the TLS port: %d %s", res.StatusCode, text)
	}
	d.Stop(syscall.SIGTERM)
	if err := d.Start(); err != nil || !strings.Contains(d.Log(), sum) {
		t.Errorf("another certificate after a restart: %v", err)
	}
}

// TestClearTextWarning checks that the daemon warns about clear text on other addresses than loopback.
func TestClearTextWarning(t *testing.T) {
	warns := regexp.MustCompile(`level=WARN msg="API KEYS AND DATA CROSS THE NETWORK IN CLEAR TEXT`)
	if d := bare(t, "--listen", "0.0.0.0:0"); !warns.MatchString(d.Log()) {
		t.Errorf("no warning: %s", d.Log())
	}
	if warns.MatchString(base.Log()) {
		t.Error("a warning on loopback")
	}
	if d := bare(t, "--listen", "0.0.0.0:0", "--tls-self-signed"); warns.MatchString(d.Log()) {
		t.Error("a warning with TLS")
	}
}

func TestReadableTLSKey(t *testing.T) {
	d := bare(t, "--tls-self-signed")
	key := filepath.Join(t.TempDir(), "key.pem")
	data, err := os.ReadFile(filepath.Join(d.Dir, "tls", "key.pem"))
	if err == nil {
		err = errors.Join(os.WriteFile(key, data, 0o644), os.Chmod(key, 0o644)) // whatever the umask
	}
	if err != nil {
		t.Fatal(err)
	}
	bin, _ := daemontest.Binary()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // if it serves, it does not end
	defer cancel()
	out, err := exec.CommandContext(ctx, bin, "serve", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--tls-cert",
		filepath.Join(d.Dir, "tls", "cert.pem"), "--tls-key", key).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "chmod 600") {
		t.Fatalf("%v %s", err, out)
	}
}
