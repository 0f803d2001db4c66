package pack

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"berth/test/needs"
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
	note := func(name string, why Reason) { skipped = append(skipped, name+": "+string(why)) }
	if err := Tar(&buf, dir, note); err != nil {
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
	const out = string(LeadsOut)
	if want := []string{"abs: " + out, "again: " + out, "d/out: " + out, "p: " + string(NoFile)}; !slices.Equal(
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

// TestUnreadableFiles checks that a file that cannot be read, or not to its end, is named, and that the rest is packed.
func TestUnreadableFiles(t *testing.T) {
	needs.Root(t) // to read as another user
	dir := t.TempDir()
	for _, name := range []string{"a", "closed/in", "key", "short", "z"} {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, make([]byte, 1<<20), 0o600),
			os.Chmod(filepath.Dir(file), 0o755), os.Chmod(file, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o755),
		os.Chmod(filepath.Join(dir, "key"), 0o600), os.Chmod(filepath.Join(dir, "closed"), 0o700)); err != nil {
		t.Fatal(err)
	}
	// The thread is never unlocked, so it ends with this goroutine.
	runtime.LockOSThread()
	if err := unix.Setfsuid(1000); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Setfsuid(0) }() // the cleanup runs here, too
	var lacking []string
	var buf bytes.Buffer
	w := writerFunc(func(p []byte) (int, error) {
		if strings.HasPrefix(string(p), "short\x00") { // its header has its size
			done := make(chan error)
			go func() { done <- os.Truncate(filepath.Join(dir, "short"), 10) }() // on a thread of root
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		return buf.Write(p)
	})
	note := func(name string, why Reason) { lacking = append(lacking, name+": "+string(why)) }
	if err := Tar(w, dir, note); err != nil {
		t.Fatal(err)
	}
	if want := "closed: it cannot be read, key: it cannot be read, short: it cannot be read to its end"; strings.Join(
		lacking, ", ") != want {
		t.Errorf("lacking %q, want %s", lacking, want)
	}
	var got []string
	for r := tar.NewReader(&buf); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, h.Name)
	}
	if want := "[a closed/ short z]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
