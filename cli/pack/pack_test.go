package pack

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

func TestTar(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a": "1", "d/b": "22"} {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o600),
			os.Chmod(filepath.Dir(file), 0o755), os.Chmod(file, 0o640)); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"l": "d/b", "d/up": "../a", "abs": "/etc/passwd", "d/out": "../../a",
		"again": "d/../a"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "p"), 0o600); err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	var skipped []string
	if err := Tar(&buf, dir, func(name, why string) { skipped = append(skipped, name+": "+why) }); err != nil {
		t.Fatal(err)
	}
	var got []string
	for tr := tar.NewReader(&buf); ; {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(tr)
		got = append(got, fmt.Sprintf("%s %c %o %s%s", h.Name, h.Typeflag, h.Mode, text, h.Linkname))
	}
	if want := "[a 0 640 1 d/ 5 755  d/b 0 640 22 d/up 2 777 ../a l 2 777 d/b]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
	if want := []string{"abs: " + leadsOut, "again: " + leadsOut, "d/out: " + leadsOut, "p: " + NoFile}; !slices.Equal(
		skipped, want) {
		t.Errorf("left out %q", skipped)
	}
}

// TestStreamEnds checks that the packer ends if the receiver stops early. The receiver's error is returned, unless
// the packer has one.
func TestStreamEnds(t *testing.T) {
	dir, enough := t.TempDir(), errors.New("enough")
	if err := os.WriteFile(filepath.Join(dir, "a"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Stream(dir, nil, func(io.Reader) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("a receiver that gave up: %v", err)
	}
	err := Stream(filepath.Join(dir, "none"), nil, func(r io.Reader) error {
		_, _ = io.Copy(io.Discard, r)
		return enough
	})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory that is not there: %v", err)
	}
}
