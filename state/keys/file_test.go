package keys

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/test/needs"
)

func TestKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api-key")
	secret, err := ReadFile(path, NoGroup)
	if err != nil {
		t.Fatal(err)
	}
	data, _ := os.ReadFile(path)
	fi, _ := os.Stat(path)
	if fi.Mode().Perm() != 0o600 || !strings.HasPrefix(string(data), "berth_") {
		t.Fatalf("%v %q", fi.Mode(), data)
	}
	if secret != strings.TrimSpace(string(data)) {
		t.Fatalf("%q %q", secret, data)
	}
	if again, err := ReadFile(path, NoGroup); err != nil || again != secret {
		t.Fatalf("the second start has another key: %v", err)
	}
	spoils := []func(){
		func() { os.Chmod(path, 0o640) },
		func() { os.Chmod(path, 0o604) },
		func() { os.Chmod(path, 0o600); os.WriteFile(path, []byte("x"), 0o600) },
		func() { os.Truncate(path, 0) },
		func() { os.WriteFile(path, []byte("two words are not a key"), 0o600) },
		func() { os.WriteFile(path+".real", data, 0o600); os.Remove(path); os.Symlink(path+".real", path) },
		func() { os.Remove(path); os.Mkdir(path, 0o700) },
	}
	for i, spoil := range spoils {
		spoil()
		if _, err := ReadFile(path, NoGroup); err == nil {
			t.Errorf("spoilt key file %d was accepted", i)
		}
	}
}

// TestKeyFileOfAGroup checks that members of the group may read the key, and nobody else.
func TestKeyFileOfAGroup(t *testing.T) {
	needs.Root(t)
	const group, other = 997, 998
	path := filepath.Join(t.TempDir(), "api-key")
	secret, err := ReadFile(path, NoGroup) // made before there was a group
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		again, err := ReadFile(path, group)
		fi, serr := os.Stat(path)
		if err != nil || serr != nil || again != secret || fi.Mode().Perm() != 0o640 || !isOf(fi, group) {
			t.Fatalf("%v, %v: %v", err, serr, fi)
		}
	}
	for name, spoil := range map[string]func() error{
		"another group's":      func() error { return os.Chown(path, 0, other) },
		"writable":             func() error { return errors.Join(os.Chown(path, 0, group), os.Chmod(path, 0o660)) },
		"everybody's":          func() error { return os.Chmod(path, 0o644) },
		"of a group that left": func() error { return os.Chmod(path, 0o640) },
	} {
		of := group
		if name == "of a group that left" {
			of = NoGroup
		}
		if err := errors.Join(os.Chown(path, 0, group), os.Chmod(path, 0o640), spoil()); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadFile(path, of); err == nil {
			t.Errorf("a key file that is %s was taken", name)
		}
	}
}
