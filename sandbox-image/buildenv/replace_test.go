package buildenv

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestReplaceFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	fail := errors.New("no")
	err := ReplaceFile(path, func(f *os.File) error {
		f.WriteString("half")
		return fail
	})
	if data, _ := os.ReadFile(path); string(data) != "old" || !errors.Is(err, fail) {
		t.Errorf("after a failed write: %q, error %v", data, err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("%d files left, want 1", len(left))
	}
}
