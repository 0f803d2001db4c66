package layer

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"berth/test/needs"
)

// base is the host user of the tests' sandboxes.
const base = 1 << 20

// The tests give files to other users and set attributes of the kernel's own. They need root.
func TestMain(m *testing.M) {
	needs.Main("give files away")
	os.Exit(m.Run())
}

// newLayer makes a layer as the first sandbox of a session leaves it: with its file of host names, and marked.
func newLayer(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	err := errors.Join(Make(dir, base), os.WriteFile(filepath.Join(dir, Run, Hosts), []byte("localhost"), 0o644),
		Mark(dir))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestUntouched checks that each change that a user can make is seen, and none that nobody has made.
func TestUntouched(t *testing.T) {
	for how, change := range map[string]func(upper string) error{
		"nothing":    func(string) error { return nil },
		"a new file": func(upper string) error { return os.WriteFile(upper+"/tmp/x", nil, 0o600) },
		"a file that is gone again": func(upper string) error {
			return errors.Join(os.WriteFile(upper+"/x", nil, 0o600), os.Remove(upper+"/x"))
		},
		"a mode":               func(upper string) error { return os.Chmod(upper+"/tmp", 0o755) },
		"the mode of its root": func(upper string) error { return os.Chmod(upper, 0o700) },
		"an owner":             func(upper string) error { return os.Chown(upper+"/etc", 7, 7) },
		"a removed file": func(upper string) error {
			return errors.Join(os.Mkdir(upper+"/usr", 0o755), unix.Mknod(upper+"/usr/gone", unix.S_IFCHR, 0))
		},
		"a host name": func(upper string) error {
			return os.WriteFile(filepath.Join(upper, "..", Run, Hosts), []byte("other"), 0o644)
		},
		"many files": func(upper string) error {
			for i := range 2 * mostMade {
				if err := os.WriteFile(upper+"/tmp/"+strconv.Itoa(i), nil, 0o600); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		dir := newLayer(t)
		if err := change(filepath.Join(dir, Upper)); err != nil {
			t.Fatal(err)
		}
		if got := Untouched(dir); got != (how == "nothing") {
			t.Errorf("%s: untouched: %t", how, got)
		}
	}
	if unmarked := t.TempDir(); Untouched(unmarked) {
		t.Error("a layer that was never marked counts as untouched")
	}
}

// TestPrepare checks that the next sandbox finds its mount points whatever the last one has left, that all else stays,
// and that no link in a layer leads the daemon anywhere.
func TestPrepare(t *testing.T) {
	outside := t.TempDir()
	dir := newLayer(t)
	upper := filepath.Join(dir, Upper)
	err := errors.Join(
		os.WriteFile(filepath.Join(upper, "tmp", "kept"), []byte("kept"), 0o600),
		os.Rename(filepath.Join(upper, ".berth"), filepath.Join(upper, "moved")),
		os.Symlink(outside, filepath.Join(upper, ".berth")),
		os.RemoveAll(filepath.Join(upper, "proc")), os.Symlink(outside, filepath.Join(upper, "proc")),
		os.RemoveAll(filepath.Join(upper, "sys")), unix.Mknod(filepath.Join(upper, "sys"), unix.S_IFCHR, 0),
		os.RemoveAll(filepath.Join(upper, "dev")), os.WriteFile(filepath.Join(upper, "dev"), nil, 0o600),
		Clear(dir), Prepare(dir, base+1))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(mountPoints, temporary) {
		if info, err := os.Lstat(filepath.Join(upper, path)); err != nil || !info.IsDir() {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	if info, err := os.Lstat(filepath.Join(upper, InsideGuest)); err != nil || !info.Mode().IsRegular() {
		t.Errorf("the guest's place: %v, %v", info, err)
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("outside of the layer there is %v, %v", left, err)
	}
	if text, err := os.ReadFile(filepath.Join(upper, "tmp", "kept")); err != nil || string(text) != "kept" {
		t.Errorf("a file has %q, %v", text, err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, Hosts)); err != nil || string(text) != "localhost" {
		t.Errorf("the file of host names has %q, %v", text, err)
	}
	if got := Base(dir); got != base+1 {
		t.Errorf("it belongs to %d", got)
	}
}

// TestClearKeepsNoLink checks that a link in place of the file of host names is not kept, since it would be mounted.
func TestClearKeepsNoLink(t *testing.T) {
	dir := newLayer(t)
	hosts := filepath.Join(dir, Run, Hosts)
	if err := errors.Join(os.Remove(hosts), os.Symlink("/etc/shadow", hosts), Clear(dir)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(dir, Hosts)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it was kept: %v", err)
	}
}
