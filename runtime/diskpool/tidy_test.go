package diskpool

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/proto"
	"berth/runtime/btrfs"
)

// TestRemovedIsFreed checks that the space of a removed directory is freed soon, before the file system's own next
// commit.
func TestRemovedIsFreed(t *testing.T) {
	d := newLoopPool(t)
	var qgroups []string
	for range 20 {
		id := randomID(proto.ContainerPrefix)
		path, _, err := d.MakeLayer(id, Claim{}, 0, 32<<20)
		if err == nil {
			err = os.WriteFile(filepath.Join(path, "file"), make([]byte, 1<<20), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		number, err := btrfs.SubvolumeID(path)
		if err != nil {
			t.Fatal(err)
		}
		qgroups = append(qgroups, filepath.Join("/sys/fs/btrfs", d.Fsid(), "qgroups", fmt.Sprint("0_", number)))
		if err := d.ReleaseLayer(id); err != nil {
			t.Fatal(err)
		}
	}
	left := func() int {
		return len(slices.DeleteFunc(slices.Clone(qgroups), func(q string) bool { return !Exists(q) }))
	}
	if left() == 0 {
		t.Fatal("the kernel shows no qgroups")
	}
	began := time.Now()
	for left() > 0 && time.Since(began) < 25*time.Second { // the file system's own commit comes after 30 s
		time.Sleep(50 * time.Millisecond) // the kernel sends no event
	}
	if n := left(); n > 0 {
		t.Errorf("%d of 20 removed subvolumes hold their qgroup after %v", n, time.Since(began))
	}
}

// TestSnapshotsLeaveNoQgroup removes a workspace before the snapshot that holds its files. The qgroup of the workspace
// is busy until the snapshot is gone, and must go then.
func TestSnapshotsLeaveNoQgroup(t *testing.T) {
	d := newLoopPool(t)
	c, workspace, _ := newSession(t, d)
	write(t, workspace, "file", strings.Repeat("x", 1<<20))
	number, err := btrfs.SubvolumeID(workspace)
	if err != nil {
		t.Fatal(err)
	}
	id := randomID(proto.SnapshotPrefix)
	if err := errors.Join(d.TakeSnapshot(id, "", c.Workspace, c.Session, c.Layer), d.RemoveWorkspace(c.Workspace),
		d.ReleaseLayer(c.Session)); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); d.simple && !slices.Contains(d.staleQgroups(), number); {
		if time.Now().After(end) {
			t.Fatal("the qgroup of the workspace went before the snapshot")
		}
		time.Sleep(50 * time.Millisecond) // the kernel sends no event
	}
	if err := d.RemoveSnapshot(id); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); len(d.staleQgroups()) > 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("left: %v", d.staleQgroups())
		}
	}
}

// newLoopPool opens a pool in a file of its own.
func newLoopPool(t *testing.T) *Pool {
	t.Helper()
	d, err := Open(t.TempDir(), 1<<30, testLog)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	if d.Kind != Loop || !d.Quota {
		t.Fatalf("no disk limits on this machine: %s %s", d.Kind, d.Why)
	}
	return d
}

// TestProofIsTidied checks that the subvolume of the quota proof leaves no qgroup either.
func TestProofIsTidied(t *testing.T) {
	pool := newLoopPool(t)
	d := &Pool{root: pool.root, Kind: pool.Kind} // the state before quotas are verified
	d.tidy.stop()
	if err := d.proveQuota(); err != nil || len(d.tidy.dropped) != 1 {
		t.Errorf("to be dropped: %v, %v", d.tidy.dropped, err)
	}
}

// TestStaleQgroups checks that a daemon finds the qgroups that the previous one did not drop, and nothing else.
func TestStaleQgroups(t *testing.T) {
	d := newLoopPool(t)
	paths := make(map[string]uint64)
	for _, name := range []string{"gone", "stays", "empty"} {
		path, err := d.MakeWorkspace(name, 1<<20)
		if err == nil && name != "empty" {
			err = os.WriteFile(filepath.Join(path, "file"), nil, 0o600)
		}
		if err == nil {
			paths[name], err = btrfs.SubvolumeID(path)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if stale := d.staleQgroups(); slices.Contains(stale, paths["gone"]) {
		t.Errorf("%d is called stale, which is there", paths["gone"])
	}
	// the kernel keeps the rest until this is closed
	open, err := os.Open(filepath.Join(d.WorkspacePath("gone"), "file"))
	if err == nil {
		err = btrfs.DestroySubvolume(d.WorkspacePath("gone"))
	}
	if err != nil {
		t.Fatal(err)
	}
	next := &Pool{root: d.root, Kind: Loop}
	next.tidy.stop()
	next.dropStale()
	got := next.tidy.dropped
	if !slices.Contains(got, paths["gone"]) || slices.Contains(got, paths["stays"]) ||
		slices.Contains(got, paths["empty"]) {
		t.Errorf("to be dropped are %v of %v", got, paths)
	}
	other := &Pool{root: d.root, Kind: Btrfs}
	if other.dropStale(); len(other.tidy.dropped) > 0 {
		t.Errorf("%v are to be dropped of somebody else's file system", other.tidy.dropped)
	}
	open.Close()
}
