package removetree

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// listDir returns the names in a directory.
func listDir(t *testing.T, dir string) []string {
	t.Helper()
	d, err := os.Open(dir)
	must(t, err)
	defer d.Close()
	names, err := d.Readdirnames(-1)
	must(t, err)
	return names
}

// deepen makes a chain of nested directories in dir and calls in for the last of them.
func deepen(t *testing.T, dir string, depth int, in func(at int) error) {
	t.Helper()
	d, err := openDir(unix.AT_FDCWD, dir)
	for range depth {
		if err == nil {
			err = unix.Mkdirat(int(d.Fd()), "d", 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		above := d
		d, err = openDir(int(above.Fd()), "d")
		above.Close()
	}
	if err == nil {
		defer d.Close()
		err = in(int(d.Fd()))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// spareDescriptors limits the process to n descriptors more than it has, for the time of the test.
func spareDescriptors(t *testing.T, n int) {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	highest := 0
	for _, fd := range listDir(t, "/proc/self/fd") {
		if n, err := strconv.Atoi(fd); err == nil {
			highest = max(highest, n)
		}
	}
	low := unix.Rlimit{Cur: uint64(highest + n), Max: was.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &was) })
}

// TestRemoveTree checks that a tree of any depth and width is removed with few descriptors, and that the targets of
// its links stay.
func TestRemoveTree(t *testing.T) {
	dir := t.TempDir()
	outside, tree := filepath.Join(dir, "outside"), filepath.Join(dir, "tree")
	kept := filepath.Join(outside, "kept")
	if err := errors.Join(os.Mkdir(outside, 0o755), os.WriteFile(kept, nil, 0o600), os.Mkdir(tree, 0o755)); err != nil {
		t.Fatal(err)
	}
	fill := func(at int) error {
		err := unix.Symlinkat(outside, at, "link")
		for i := range 1100 { // more than one read returns
			err = errors.Join(err, unix.Mknodat(at, fmt.Sprint("file ", i), unix.S_IFREG|0o600, 0))
		}
		for i := range 20 { // directories that are not empty
			name := fmt.Sprint("dir\n", i)
			err = errors.Join(err, unix.Mkdirat(at, name, 0), unix.Mkdirat(at, name+"/.berth-removing-1", 0o755),
				unix.Symlinkat(kept, at, name+"/link"))
		}
		return errors.Join(err, unix.Mknodat(at, "pipe", unix.S_IFIFO, 0))
	}
	for _, depth := range []int{0, openLevels, openLevels + 1, 2000} {
		sub := filepath.Join(tree, fmt.Sprint(depth))
		if err := os.Mkdir(sub, 0o755); err != nil {
			t.Fatal(err)
		}
		deepen(t, sub, depth, fill)
	}
	if err := errors.Join(os.Symlink(outside, filepath.Join(dir, "link")), os.WriteFile(filepath.Join(dir, "file"), nil,
		0o600)); err != nil {
		t.Fatal(err)
	}
	spareDescriptors(t, 100)
	for _, name := range []string{"tree", "link", "file", "nothing", "nothing/below"} {
		path := filepath.Join(dir, name)
		if err := All(path); err != nil || exists(path) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left := listDir(t, dir); len(left) != 1 || !exists(kept) {
		t.Errorf("left %v", left)
	}
}

// TestAllStopsAtMounts checks that All removes nothing of a file system that is mounted in the tree.
func TestAllStopsAtMounts(t *testing.T) {
	for _, depth := range []int{0, openLevels + 10} {
		tree, elsewhere := filepath.Join(t.TempDir(), "tree"), t.TempDir()
		kept := filepath.Join(elsewhere, "kept")
		if err := errors.Join(os.Mkdir(tree, 0o755), os.WriteFile(kept, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		deepen(t, tree, depth, func(at int) error { return unix.Mkdirat(at, "mnt", 0o755) })
		mnt := filepath.Join(tree, strings.Repeat("d/", depth), "mnt")
		if err := unix.Mount(elsewhere, mnt, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		if err := All(tree); !errors.Is(err, unix.EBUSY) || !exists(kept) {
			t.Errorf("removed with what is mounted there: %v", err)
		}
		if err := unix.Unmount(mnt, 0); err != nil {
			t.Fatal(err)
		}
		if err := All(tree); err != nil || exists(tree) {
			t.Errorf("afterwards: %v", err)
		}
	}
}

// TestRemoveTreeFarDown checks that a tree of 3,000 levels is removed, and that a removal never goes on above a directory that
// another process has moved.
func TestRemoveTreeFarDown(t *testing.T) {
	dir := t.TempDir()
	top, err := os.Open(dir)
	must(t, err)
	defer top.Close()
	if out, err := exec.Command("python3", "-c", `
import os, sys
os.chdir(sys.argv[1])
os.mkdir("tree"); os.chdir("tree")
for i in range(3000):
    open("file", "w").close(); os.mkdir("a"); os.mkdir("empty"); os.symlink("/etc", "link")
    os.chdir("a")`, dir).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	must(t, All(filepath.Join(dir, "tree")))
	if _, err := os.Lstat(filepath.Join(dir, "tree")); !os.IsNotExist(err) {
		t.Errorf("it is there: %v", err)
	}
	must(t, os.MkdirAll(filepath.Join(dir, "a", "b", "c"), 0o755))
	c, err := os.Open(filepath.Join(dir, "a", "b"))
	must(t, err)
	defer c.Close()
	from, err := placeOf(top)
	must(t, err)
	if _, err := openAbove(c, from); !errors.Is(err, errMoved) {
		t.Error("it went on above a tree that was moved")
	}
}
