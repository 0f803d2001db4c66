package keys

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is in a key file is a key that a header can carry, or is refused.
func FuzzKeyFile(f *testing.F) {
	for _, seed := range []string{"berth_ABCDEFGHIJKLMNOPQRSTUVWXYZ\n", "", "short", "two words are not a key",
		"sixteen-letters-\x00", strings.Repeat("k", maxSecret+1), "  padded-with-spaces  \r\n", "ünïcödeünïcöde",
		"key-one-is-here\nkey-two-is-here"} {
		f.Add([]byte(seed))
	}
	path := filepath.Join(f.TempDir(), "api-key")
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		key, err := ReadFile(path, NoGroup)
		if err != nil {
			return
		}
		if len(key) < minSecret || len(key) > maxSecret || key != strings.TrimSpace(string(data)) ||
			strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
			t.Fatalf("%q is taken for a key", key)
		}
	})
}
