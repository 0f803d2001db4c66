package keys

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api-key")
	secret, err := ReadFile(path)
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
	if again, err := ReadFile(path); err != nil || again != secret {
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
		if _, err := ReadFile(path); err == nil {
			t.Errorf("spoilt key file %d was accepted", i)
		}
	}
}
