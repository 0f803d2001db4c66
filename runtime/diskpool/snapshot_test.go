package diskpool

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/proto"
	"berth/runtime/btrfs"
	"berth/runtime/layer"
)

// write writes text to a file of a directory.
func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// has checks the text of a file; "" means that it is missing.
func has(t *testing.T, dir, name, want string) {
	t.Helper()
	got, err := os.ReadFile(filepath.Join(dir, name))
	if string(got) != want || err != nil && !(want == "" && errors.Is(err, fs.ErrNotExist)) {
		t.Errorf("%s has %q, %v, want %q", filepath.Join(dir, name), got, err, want)
	}
}

// newSession makes the workspace and the layer of a session that runs.
func newSession(t *testing.T, d *Pool) (c Claim, workspace, upper string) {
	t.Helper()
	c = Claim{randomID(proto.ContainerPrefix), randomID(proto.WorkspacePrefix), randomID(proto.LayerPrefix)}
	workspace, err := d.MakeWorkspace(c.Workspace, 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	path, _, err := d.MakeLayer(c.Session, c, 1<<20, 64<<20)
	if err == nil {
		write(t, filepath.Join(path, layer.Run), layer.Hosts, "localhost")
		err = layer.Mark(path)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c, workspace, filepath.Join(path, layer.Upper)
}

// TestSnapshot takes a snapshot of a session that runs, changes the session, and gives the snapshot's files to another
// one and back to the first.
func TestSnapshot(t *testing.T) {
	d := newLoopPool(t)
	c, workspace, upper := newSession(t, d)
	write(t, workspace, "a", "old")
	write(t, upper, "tmp/b", "old")
	id := randomID(proto.SnapshotPrefix)
	if err := d.TakeSnapshot(id, "", c.Workspace, c.Session, c.Layer); err != nil {
		t.Fatal(err)
	}
	write(t, workspace, "a", "new")
	write(t, upper, "tmp/b", "new")
	if err := os.WriteFile(filepath.Join(d.SnapshotWorkspace(id), "a"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("a snapshot can be written: %v", err)
	}

	fork := Claim{randomID(proto.ContainerPrefix), randomID(proto.WorkspacePrefix), randomID(proto.LayerPrefix)}
	for range 2 { // as after a crash
		if err := errors.Join(d.CopyWorkspace(id, "", fork.Workspace, "first"), d.CopyLayer(id, "", fork)); err != nil {
			t.Fatal(err)
		}
	}
	has(t, d.WorkspacePath(fork.Workspace), "a", "old")
	path, isNew, err := d.MakeLayer(fork.Session, fork, 1<<21, 64<<20)
	if err != nil || isNew {
		t.Fatalf("the fork's layer is new: %t, %v", isNew, err)
	}
	has(t, filepath.Join(path, layer.Upper), "tmp/b", "old")
	if got, err := d.ReadClaim(fork.Session); err != nil || got != fork {
		t.Errorf("the fork's layer is of %+v, %v", got, err)
	}

	if err := d.ReleaseLayer(c.Session); err != nil {
		t.Fatal(err)
	}
	if err := d.CopyWorkspace(id, "", c.Workspace, "undo"); err != nil {
		t.Fatal(err)
	}
	has(t, workspace, "a", "old")
	write(t, workspace, "a", "newest")
	if err := d.CopyWorkspace(id, "", c.Workspace, "undo"); err != nil {
		t.Fatal(err)
	}
	has(t, workspace, "a", "newest") // it was done already
	if err := d.CopyWorkspace(id, "", c.Workspace, "again"); err != nil {
		t.Fatal(err)
	}
	has(t, workspace, "a", "old")
	if left, err := Names(d.unfinishedDir()); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if err := d.RemoveSnapshot(id); err != nil || Exists(d.SnapshotPath(id)) {
		t.Errorf("a removed snapshot is there: %v", err)
	}
	has(t, workspace, "a", "old")
}

// TestSnapshotOfKeptAndUntouched checks which layer a snapshot has.
func TestSnapshotOfKeptAndUntouched(t *testing.T) {
	d := newLoopPool(t)
	c, _, upper := newSession(t, d)
	take := func(want bool) {
		t.Helper()
		id := randomID(proto.SnapshotPrefix)
		if err := d.TakeSnapshot(id, "", c.Workspace, c.Session, c.Layer); err != nil {
			t.Fatal(err)
		}
		if _, err := d.SnapshotLayer(id); (err == nil) != want {
			t.Errorf("the snapshot has a layer: %v, want %t", err, want)
		}
	}
	take(false)
	write(t, upper, "x", "written")
	take(true)
	if err := d.ReleaseLayer(c.Session); err != nil {
		t.Fatal(err)
	}
	take(true)
	if err := d.RemoveKept(c.Layer); err != nil {
		t.Fatal(err)
	}
	take(false)
}

// TestUnfinishedCopies checks that the next daemon removes what a crash has left of a copy.
func TestUnfinishedCopies(t *testing.T) {
	d := newLoopPool(t)
	c, workspace, _ := newSession(t, d)
	if err := btrfs.Snapshot(workspace, d.unfinished(c.Workspace), false); err != nil {
		t.Fatal(err)
	}
	if err := d.removeUnfinished(); err != nil {
		t.Fatal(err)
	}
	if left, err := Names(d.unfinishedDir()); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestPlainPoolHasNoSnapshots checks the error where there is no btrfs.
func TestPlainPoolHasNoSnapshots(t *testing.T) {
	d := &Pool{root: t.TempDir(), Kind: Plain}
	if err := d.TakeSnapshot("snapshot", "", "workspace", "", ""); !errors.Is(err, ErrNoSnapshots) {
		t.Errorf("a snapshot of plain directories: %v", err)
	}
}

// TestSimpleQuota checks that a new pool has simple quotas where the kernel has them, and that a copy of a snapshot
// counts only what is written to it.
func TestSimpleQuota(t *testing.T) {
	d := newLoopPool(t)
	if !kernelFrom(simpleFrom) {
		t.Skip("the kernel has none")
	}
	if !d.simple {
		t.Fatal("a new pool has quotas that cost more with each snapshot")
	}
	c, workspace, _ := newSession(t, d)
	write(t, workspace, "half", strings.Repeat("x", 48<<20))
	id, fork := randomID(proto.SnapshotPrefix), randomID(proto.WorkspacePrefix)
	if err := errors.Join(d.TakeSnapshot(id, "", c.Workspace, c.Session, c.Layer),
		d.CopyWorkspace(id, "", fork, "fork"), d.Limit(d.WorkspacePath(fork), 64<<20)); err != nil {
		t.Fatal(err)
	}
	write(t, d.WorkspacePath(fork), "more", strings.Repeat("y", 48<<20))
	err := os.WriteFile(filepath.Join(d.WorkspacePath(fork), "most"), make([]byte, 48<<20), 0o600)
	if !errors.Is(err, unix.EDQUOT) {
		t.Errorf("the copy's limit does not hold: %v", err)
	}
	// what the snapshot holds still counts for the session that wrote it
	if err := os.Remove(filepath.Join(workspace, "half")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(workspace, "other"), make([]byte, 48<<20), 0o600); !errors.Is(err,
		unix.EDQUOT) {
		t.Errorf("a session may fill the pool by snapshots: %v", err)
	}
}

// TestSnapshotSize checks what a snapshot counts where the pool counts shared space, and that it is left out elsewhere.
// Space that two snapshots and a container share is in none of the exclusive bytes, so no removal is said to free it.
func TestSnapshotSize(t *testing.T) {
	d := newLoopPool(t)
	if err := errors.Join(btrfs.SetQuota(d.root, btrfs.QuotaDisable),
		btrfs.SetQuota(d.root, btrfs.QuotaEnable)); err != nil {
		t.Fatal(err)
	}
	was := d.simple
	d.simple = false
	c, workspace, upper := newSession(t, d)
	const shared, own, slack = 8 << 20, 2 << 20, 1 << 20
	write(t, workspace, "shared", strings.Repeat("x", shared/2))
	write(t, upper, "shared", strings.Repeat("x", shared/2))
	ids := []string{randomID(proto.SnapshotPrefix), randomID(proto.SnapshotPrefix)}
	for _, id := range ids {
		write(t, workspace, "own", strings.Repeat(id[len(id)-1:], own)) // in place of the one before
		if err := d.TakeSnapshot(id, "", c.Workspace, c.Session, c.Layer); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(workspace, "own")); err != nil {
		t.Fatal(err)
	}
	near := func(n, want int64) bool { return n >= want && n < want+slack }
	sizes := func(id string, wantAll, wantOwn int64) {
		t.Helper()
		if err := d.Sync(); err != nil {
			t.Fatal(err)
		}
		if all, exclusive := d.SnapshotSize(id); !near(all, wantAll) || !near(exclusive, wantOwn) {
			t.Errorf("it has %d bytes, %d of its own, want about %d and %d", all, exclusive, wantAll, wantOwn)
		}
	}
	sizes(ids[0], shared+own, own)
	sizes(ids[1], shared+own, own)
	if err := errors.Join(d.RemoveWorkspace(c.Workspace), d.ReleaseLayer(c.Session), d.RemoveKept(c.Layer),
		d.RemoveSnapshot(ids[0])); err != nil {
		t.Fatal(err)
	}
	for range 600 { // the kernel removes in the background
		if _, exclusive := d.SnapshotSize(ids[1]); near(exclusive, shared+own) {
			break
		}
		if err := d.Sync(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	sizes(ids[1], shared+own, shared+own)
	if all, exclusive := d.SnapshotSize("nosuch"); all != 0 || exclusive != 0 {
		t.Errorf("one that is not there has %d bytes, %d of its own", all, exclusive)
	}
	if d.simple = was; was {
		if all, exclusive := d.SnapshotSize(ids[1]); all != 0 || exclusive != 0 {
			t.Errorf("with simple quotas it has %d bytes, %d of its own", all, exclusive)
		}
	}
}
