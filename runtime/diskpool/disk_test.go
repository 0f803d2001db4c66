package diskpool

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"berth/proto"

	"golang.org/x/sys/unix"
)

// TestMadeWhole checks that a directory that a crash or a power cut left half made is completed.
func TestMadeWhole(t *testing.T) {
	d, program := newLoopPool(t), "/bin/true"
	guest, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	first, err := d.KeepGuest(program)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(first, 0); err != nil {
		t.Fatal(err)
	}
	if path, err := d.KeepGuest(program); err != nil || path != first {
		t.Errorf("%q, %v", path, err)
	}
	if kept, err := os.ReadFile(first); err != nil || !bytes.Equal(kept, guest) {
		t.Errorf("the guest that is kept has %d bytes of %d, %v", len(kept), len(guest), err)
	}

	name := randomID(proto.WorkspacePrefix)
	if _, err := d.make(d.WorkspacePath(name)); err != nil {
		t.Fatal(err)
	}
	path, err := d.MakeWorkspace(name, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || st.Uid != sessionUser || st.Gid != sessionUser ||
		st.Mode&0o777 != 0o755 {
		t.Errorf("a workspace is %d:%d's with mode %o, %v", st.Uid, st.Gid, st.Mode, err)
	}
}

// TestPoolStays checks that a pool with containers' files keeps its kind. No file system is mounted over plain
// directories that hold files. A file system that cannot be mounted is not replaced by plain directories.
func TestPoolStays(t *testing.T) {
	log := testLog
	dir := t.TempDir()
	d, err := Open(dir, 1<<20, log) // too small for a btrfs
	if err != nil {
		t.Fatal(err)
	}
	ws, err := d.MakeWorkspace("ws", 1<<20)
	if err == nil {
		err = os.WriteFile(filepath.Join(ws, "kept"), nil, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if d, err = Open(dir, 1<<30, log); err != nil || d.Kind != Plain ||
		!strings.Contains(d.Why, "plain directories") {
		t.Errorf("%+v, %v", d, err)
	}
	if !Exists(filepath.Join(ws, "kept")) {
		t.Error("the files are hidden")
	}

	dir = t.TempDir()
	if err := os.WriteFile(poolFile(dir), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if d, err := Open(dir, 1<<30, log); err == nil || !strings.Contains(err.Error(), poolFile(dir)) {
		t.Errorf("with a file that is no file system: %+v, %v", d, err)
	}
}

// TestRangeOfLayer checks that a range is learnt as it was assigned, whichever user owns which part of the layer.
func TestRangeOfLayer(t *testing.T) {
	const first, base = 100_000, 100_000 + 3*IDRange
	for what, c := range map[string]struct {
		owners map[string]int
		want   uint32
	}{
		"as it was made":      {map[string]int{"upper": base, "work": base}, base},
		"given away":          {map[string]int{"upper": base + 1000, "work": base}, base},
		"the upper one alone": {map[string]int{"upper": base + IDRange - 1}, base},
		"the work one alone":  {map[string]int{"work": base}, base},
		"half made":           {map[string]int{"upper": base, "work": 0}, base},
		"root's":              {map[string]int{"upper": 0, "work": 0}, 0},
		"of another time":     {map[string]int{"upper": first - 1, "work": first - 1}, 0},
		"empty":               {nil, 0},
	} {
		d, ids := &Pool{root: t.TempDir(), Kind: Plain}, NewIDRanges(first)
		if err := os.MkdirAll(d.LayerPath("it"), 0o755); err != nil {
			t.Fatal(err)
		}
		for dir, owner := range c.owners {
			path := filepath.Join(d.LayerPath("it"), dir)
			if err := errors.Join(os.Mkdir(path, 0o755), os.Chown(path, owner, owner)); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.LearnOwners(ids); err != nil || ids.Base("it") != c.want {
			t.Errorf("%s: learnt %d, %v, want %d", what, ids.Base("it"), err, c.want)
		}
	}
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
	d := &Pool{root: dir, Kind: Plain}
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
		if err := d.remove(path); err != nil || Exists(path) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left := listDir(t, dir); len(left) != 1 || !Exists(kept) {
		t.Errorf("left %v", left)
	}
}

// TestRemoveTreeStopsAtMounts checks that RemoveTree removes nothing of a file system that is mounted in the tree.
func TestRemoveTreeStopsAtMounts(t *testing.T) {
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
		if err := RemoveTree(tree); !errors.Is(err, unix.EBUSY) || !Exists(kept) {
			t.Errorf("removed with what is mounted there: %v", err)
		}
		if err := unix.Unmount(mnt, 0); err != nil {
			t.Fatal(err)
		}
		if err := RemoveTree(tree); err != nil || Exists(tree) {
			t.Errorf("afterwards: %v", err)
		}
	}
}

// TestRemoveNestedSubvolumes checks that a subvolume with other subvolumes inside is removed.
func TestRemoveNestedSubvolumes(t *testing.T) {
	d := newLoopPool(t)
	path, err := d.MakeWorkspace("ws", 1<<20)
	if err == nil {
		err = createSubvolume(filepath.Join(path, "inner"))
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(path, "inner", "file"), nil, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := d.RemoveWorkspace("ws"); err != nil || Exists(path) {
		t.Errorf("left: %v", err)
	}
}
