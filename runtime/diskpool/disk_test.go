package diskpool

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/proto"
	"berth/runtime/btrfs"

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

// TestRemoveNestedSubvolumes checks that a subvolume with other subvolumes inside is removed.
func TestRemoveNestedSubvolumes(t *testing.T) {
	d := newLoopPool(t)
	path, err := d.MakeWorkspace("ws", 1<<20)
	if err == nil {
		err = btrfs.CreateSubvolume(filepath.Join(path, "inner"))
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
