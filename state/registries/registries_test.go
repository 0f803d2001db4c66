package registries

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/proto"
	"berth/state/ledger"
	"berth/state/vault"
)

// open opens the store in a directory, and returns a function that closes its ledger.
func open(t *testing.T, dir string) (*Store, *vault.Vault, func()) {
	t.Helper()
	db, err := ledger.Open(filepath.Join(dir, "ledger.db"))
	if err != nil {
		t.Fatal(err)
	}
	v, err := vault.Open(filepath.Join(dir, "secret-key"), db)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(db, v)
	if err != nil {
		t.Fatal(err)
	}
	return s, v, func() { _ = db.Close() }
}

// TestCredentialsSurvive keeps, replaces and removes credentials over restarts, and looks for them on the disk.
func TestCredentialsSurvive(t *testing.T) {
	dir := t.TempDir()
	s, v, end := open(t, dir)
	for _, pass := range []string{"first-sesame", "second-sesame"} {
		if _, err := s.Set("https://index.docker.io/v1/", proto.SetRegistry{Username: "me", Password: pass}); err != nil {
			t.Fatal(err)
		}
	}
	if done, err := v.Rotate(s.Reseal); err != nil || done.Resealed != 1 {
		t.Errorf("a new key: %+v, %v", done, err)
	}
	if done, err := v.Forget(s.Reseal); err != nil || done.Closed != 0 {
		t.Errorf("forgetting the old key: %+v, %v", done, err)
	}
	end()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		if text, _ := os.ReadFile(f); bytes.Contains(text, []byte("sesame")) {
			t.Errorf("%s has a password", f)
		}
	}
	s, _, end = open(t, dir)
	defer end()
	user, pass, err := s.For("registry-1.docker.io")
	if err != nil || user != "me" || pass != "second-sesame" {
		t.Errorf("after a restart: %q, %q, %v", user, pass, err)
	}
	if user, pass, err := s.For("ghcr.io"); err != nil || user != "" || pass != "" {
		t.Errorf("another registry: %q, %q, %v", user, pass, err)
	}
	if list := s.List(); len(list) != 1 || list[0].Host != DockerHub {
		t.Errorf("%+v", list)
	}
	if err := s.Remove("docker.io"); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove("docker.io"); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("removing twice: %v", err)
	}
}

// TestBadCredentials checks what is refused, and that the error names it.
func TestBadCredentials(t *testing.T) {
	s, _, end := open(t, t.TempDir())
	defer end()
	for _, c := range []struct{ host, user, pass, says string }{
		{"", "me", "x", "host"}, {"ghcr", "me", "x", "host"}, {"ghcr.io/me", "me", "x", "host"},
		{"a b.io", "me", "x", "host"}, {"-a.io", "me", "x", "host"}, {"ghcr.io", "", "x", "username"},
		{"ghcr.io", "me:too", "x", "username"}, {"ghcr.io", "me", "", "password"},
		{"ghcr.io", "me", "x\ny", "password"}, {"ghcr.io", "me", strings.Repeat("x", maxPassword+1), "password"},
	} {
		_, err := s.Set(c.host, proto.SetRegistry{Username: c.user, Password: c.pass})
		if proto.CodeOf(err) != proto.InvalidArgument || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	for _, host := range []string{"localhost", "localhost:5000", "127.0.0.1:5000", "[::1]:5000", "GHCR.io"} {
		if _, err := s.Set(host, proto.SetRegistry{Username: "me", Password: "x"}); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	for i := len(s.List()); i < maxRegistries; i++ {
		if _, err := s.Set(strings.Repeat("a", i+1)+".io", proto.SetRegistry{Username: "me", Password: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Set("more.io", proto.SetRegistry{Username: "me", Password: "x"}); proto.CodeOf(err) != proto.TooMany {
		t.Errorf("more than the limit: %v", err)
	}
}
