package diskpool

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"berth/proto"
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
	forks := []string{randomID(proto.WorkspacePrefix), randomID(proto.WorkspacePrefix), randomID(proto.WorkspacePrefix)}
	for _, fork := range forks { // copies that differ, made in one go
		if err := d.CopyWorkspace(snapshot, "", fork, fork); err != nil {
			t.Fatal(err)
		}
	}
	trees, err := d.Hold()
	if err != nil {
		t.Fatal(err)
	}
	write(t, workspace, "a", "too late")
	sent := make([][]byte, len(trees))
	total := 0
	for i, tree := range trees {
		var b bytes.Buffer
		if err := d.Send(trees[:i], tree, &b); err != nil {
			t.Fatal(err)
		}
		sent[i] = b.Bytes()
		total += b.Len()
	}
	if len(trees) != 7 || total > len(big)*3/2 {
		t.Errorf("%d trees of %d bytes were sent; want 7, and what they share once", len(trees), total)
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
	for _, fork := range forks {
		has(t, to.WorkspacePath(fork), "a", "old")
		if got, err := os.ReadFile(filepath.Join(to.WorkspacePath(fork), "big")); err != nil || !bytes.Equal(got, big) {
			t.Errorf("a fork has another big file: %v", err)
		}
	}
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
