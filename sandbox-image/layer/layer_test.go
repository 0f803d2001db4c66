package layer

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"berth/sandbox-image/buildenv"
)

// capNetRaw is the attribute of a program with cap_net_raw=ep, version 2.
const capNetRaw = "\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"

// makeTree makes a tree with one of everything an image can hold, created in the order of names.
func makeTree(t *testing.T, names ...string) string {
	t.Helper()
	root := t.TempDir()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"bin", "dev", "tmp", "home"} {
		check(os.Mkdir(filepath.Join(root, dir), 0o755))
	}
	for _, name := range names {
		check(os.WriteFile(filepath.Join(root, name), []byte(filepath.Base(name)), 0o644))
	}
	check(os.Link(filepath.Join(root, "bin/a"), filepath.Join(root, "bin/z")))
	check(os.Symlink("a", filepath.Join(root, "bin/link")))
	check(os.Chown(filepath.Join(root, "home"), 1000, 1000))
	check(os.Chmod(filepath.Join(root, "bin/b"), 0o755|fs.ModeSetuid))
	check(unix.Setxattr(filepath.Join(root, "bin/c"), "security.capability", []byte(capNetRaw), 0))
	check(syscall.Mknod(filepath.Join(root, "dev/null"), syscall.S_IFCHR|0o666, 1<<8|3))
	old := time.Date(2020, 1, 2, 3, 4, 5, 600e6, time.UTC)
	check(os.Chtimes(filepath.Join(root, "bin/b"), old, old))
	return root
}

var testEpoch = time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)

func packTree(t *testing.T, root string) Layer {
	t.Helper()
	layer, err := Pack(context.Background(), &buildenv.Env{}, root, filepath.Join(t.TempDir(), "layer"), testEpoch, nil)
	if err != nil {
		t.Fatal(err)
	}
	return layer
}

// readLayer lists a layer's entries by name.
func readLayer(t *testing.T, layer Layer) map[string]*tar.Header {
	t.Helper()
	f, err := os.Open(layer.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := zstd.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	entries := map[string]*tar.Header{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return entries
		}
		if err != nil {
			t.Fatal(err)
		}
		entries[h.Name] = h
	}
}

func TestPackKeeps(t *testing.T) {
	e := readLayer(t, packTree(t, makeTree(t, "bin/a", "bin/b", "bin/c", "tmp/left", "dev/pts")))
	for _, name := range []string{"dev/null", "dev/pts", "tmp/left"} {
		if e[name] != nil {
			t.Errorf("%s is in the layer", name)
		}
	}
	for _, name := range []string{"bin/", "dev/", "tmp/", "home/", "bin/a", "bin/b", "bin/c", "bin/z", "bin/link"} {
		if e[name] == nil {
			t.Fatalf("%s is not in the layer", name)
		}
	}
	if h := e["bin/z"]; h.Typeflag != tar.TypeLink || h.Linkname != "bin/a" {
		t.Errorf("second name of a file: type %c to %q, want a link to bin/a", h.Typeflag, h.Linkname)
	}
	if h := e["bin/link"]; h.Typeflag != tar.TypeSymlink || h.Linkname != "a" {
		t.Errorf("symlink: type %c to %q", h.Typeflag, h.Linkname)
	}
	if h := e["bin/b"]; h.FileInfo().Mode() != 0o755|fs.ModeSetuid ||
		!h.ModTime.Equal(time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)) {
		t.Errorf("setuid program: mode %v, time %v", h.FileInfo().Mode(), h.ModTime)
	}
	if got := e["bin/c"].PAXRecords["SCHILY.xattr.security.capability"]; got != capNetRaw {
		t.Errorf("capability %q, want %q", got, capNetRaw)
	}
	if h := e["home/"]; h.Uid != 1000 || h.Gid != 1000 || h.Uname != "" || !h.ModTime.Equal(testEpoch) {
		t.Errorf("home: %d:%d %q %v; want 1000:1000, no names, the epoch", h.Uid, h.Gid, h.Uname, h.ModTime)
	}
}

// TestPackStable packs the same tree made twice, in different orders and at different times.
func TestPackStable(t *testing.T) {
	one := packTree(t, makeTree(t, "bin/a", "bin/b", "bin/c"))
	two := packTree(t, makeTree(t, "bin/c", "bin/b", "bin/a"))
	if one.Digest != two.Digest || one.DiffID != two.DiffID {
		t.Errorf("same tree, two layers: %s and %s", one.Digest, two.Digest)
	}
	if other := packTree(t, makeTree(t, "bin/a", "bin/b", "bin/c", "bin/d")); other.DiffID == one.DiffID {
		t.Error("another tree, the same layer")
	}
}

func TestPackCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	tree, path := makeTree(t, "bin/a", "bin/b", "bin/c"), filepath.Join(t.TempDir(), "l")
	if _, err := Pack(ctx, &buildenv.Env{}, tree, path, testEpoch, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("pack with a canceled context: %v", err)
	}
}
