package daemon_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"berth/test/daemontest"
)

// TestWideDataDirectory checks that a data directory that others could use is closed to them, with what is in it, and
// that a directory with files of other programs is refused and not changed.
func TestWideDataDirectory(t *testing.T) {
	d := bare(t)
	d.Stop(syscall.SIGTERM)
	wide := map[string]fs.FileMode{"": 0o711, "files": 0o700, "ledger.db": 0o600, "ledger.db.1": 0o600,
		"audit.log": 0o600, "runtime/pool.img": 0o600}
	for name := range wide {
		if err := os.Chmod(filepath.Join(d.Dir, name), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	for name, want := range wide {
		if fi, err := os.Stat(filepath.Join(d.Dir, name)); err != nil || fi.Mode().Perm() != want {
			t.Errorf("%q has the mode %v, not %v; %v", name, fi.Mode(), want, err)
		}
	}
	if !strings.Contains(d.Log(), "it is closed to them now") {
		t.Error("the log does not say so")
	}

	d.Stop(syscall.SIGTERM)
	link := filepath.Join(t.TempDir(), "link")
	if err := errors.Join(os.Symlink(d.Dir, link), os.Chmod(d.Dir, 0o777)); err != nil {
		t.Fatal(err)
	}
	linked := &daemontest.Daemon{Dir: link}
	if err := linked.Start(); err != nil {
		t.Fatal(err)
	}
	linked.Stop(syscall.SIGTERM)
	if fi, err := os.Stat(d.Dir); err != nil || fi.Mode().Perm() != 0o711 {
		t.Errorf("behind a link it has the mode %v, %v", fi.Mode(), err)
	}

	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(other, 0o777|fs.ModeSticky); err != nil {
		t.Fatal(err)
	}
	refused := &daemontest.Daemon{Dir: other}
	if err := refused.Start(); err == nil || !strings.Contains(err.Error(), "is open to others (mode 0777)") {
		t.Errorf("a directory with files of other programs: %v", err)
		refused.Stop(syscall.SIGTERM)
	}
	if fi, err := os.Stat(other); err != nil || fi.Mode().Perm() != 0o777 {
		t.Errorf("it was changed: %v %v", fi, err)
	}
}
