package diskpool

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"berth/proto"
	"berth/runtime/btrfs"
	"berth/runtime/layer"
)

// TestBackup sends a pool with a session that runs and a snapshot to another pool.
func TestBackup(t *testing.T) {
	d := newLoopPool(t)
	c, workspace, upper := newSession(t, d)
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	if err := os.WriteFile(filepath.Join(workspace, "big"), big, 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, workspace, "a", "old")
	write(t, upper, "tmp/b", "old")
	snapshot := randomID(proto.SnapshotPrefix)
	if err := d.TakeSnapshot(snapshot, "", c.Workspace, c.Session, c.Layer); err != nil {
		t.Fatal(err)
	}
	write(t, workspace, "a", "new")
	trees, err := d.Hold()
	if err != nil {
		t.Fatal(err)
	}
	write(t, workspace, "a", "too late")
	sent := make([][]byte, len(trees))
	total := 0
	for i, tree := range trees {
		var b bytes.Buffer
		if err := d.Send(t.Context(), tree, &b); err != nil {
			t.Fatal(err)
		}
		sent[i] = b.Bytes()
		total += b.Len()
	}
	if len(trees) != 4 || total > len(big)*3/2 {
		t.Errorf("%d trees of %d bytes were sent; want 4, and what they share once", len(trees), total)
	}
	if err := d.Release(); err != nil || Exists(d.backupDir()) {
		t.Errorf("releasing the copies: %v", err)
	}

	to := newLoopPool(t)
	for i, tree := range trees {
		if err := to.Receive(t.Context(), tree, bytes.NewReader(sent[i])); err != nil {
			t.Fatal(err)
		}
	}
	if err := to.Settle(trees); err != nil {
		t.Fatal(err)
	}
	has(t, to.WorkspacePath(c.Workspace), "a", "new")
	has(t, filepath.Join(to.KeptPath(c.Layer), layer.Upper), "tmp/b", "old") // no sandbox uses it
	has(t, to.SnapshotWorkspace(snapshot), "a", "old")
	err = os.WriteFile(filepath.Join(to.SnapshotWorkspace(snapshot), "a"), nil, 0o600)
	if !errors.Is(err, unix.EROFS) {
		t.Errorf("a snapshot can be written: %v", err)
	}
	err = os.WriteFile(filepath.Join(to.WorkspacePath(c.Workspace), "zeros"), make([]byte, 80<<20), 0o600)
	if to.Quota && !errors.Is(err, unix.EDQUOT) {
		t.Errorf("the limit of the workspace does not hold: %v", err)
	}
}

// TestKinship checks which subvolumes are sent as what others lack.
func TestKinship(t *testing.T) {
	id := func(n byte) btrfs.UUID { return btrfs.UUID{n} }
	for _, c := range []struct {
		name string
		// UUID and parent of each subvolume, by number from 1
		subvolumes [][2]byte
		want       []int
	}{
		{"strangers", [][2]byte{{1, 0}, {2, 0}, {3, 0}}, []int{0, 0, 0}},
		{"a snapshot", [][2]byte{{1, 0}, {2, 1}}, []int{0, 1}},
		{"a snapshot before its source", [][2]byte{{2, 1}, {1, 0}}, []int{0, 1}},
		{"siblings of one that is gone", [][2]byte{{2, 9}, {3, 9}, {4, 9}}, []int{0, 1, 2}},
		{"a fork of a snapshot", [][2]byte{{1, 0}, {2, 1}, {3, 2}}, []int{0, 1, 2}},
		{"families that meet", [][2]byte{{1, 8}, {2, 9}, {9, 8}, {3, 9}}, []int{0, 0, 2, 3}},
	} {
		k := make(kinship)
		var got []int
		for i, s := range c.subvolumes {
			got = append(got, k.add(id(s[0]), id(s[1]), i+1))
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
