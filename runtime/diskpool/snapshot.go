package diskpool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"berth/runtime/btrfs"
	"berth/runtime/layer"
)

// A snapshot is a directory of the pool with a read-only copy of a workspace and, unless nothing was written to it, one
// of a layer. It is made in place, and the core's record says whether it is whole. Copies of it are made beside and get
// their name when they are whole, so a crash leaves no half of one: what it leaves is removed when the pool is opened.

// ErrNoSnapshots: the pool cannot take snapshots.
var ErrNoSnapshots = errors.New("the containers' files are in plain directories; snapshots need btrfs, or a loop " +
	"device for a btrfs of the daemon's own (berth doctor says what is missing)")

// Parts of a snapshot.
const (
	snapshotWorkspace = "workspace"
	snapshotLayer     = "layer"
)

// copyAttribute names, in a workspace that was copied from a snapshot, the copy.
const copyAttribute = "trusted.berth.copy"

func (d *Pool) snapshotDir() string           { return filepath.Join(d.root, "snapshot") }
func (d *Pool) SnapshotPath(id string) string { return filepath.Join(d.snapshotDir(), id) }
func (d *Pool) unfinishedDir() string         { return filepath.Join(d.root, "unfinished") }
func (d *Pool) unfinished(name string) string { return filepath.Join(d.unfinishedDir(), name) }

// Snapshots lists the IDs of the snapshots.
func (d *Pool) Snapshots() ([]string, error) { return Names(d.snapshotDir()) }

// SnapshotLayer returns the path of the layer in a snapshot. It fails with fs.ErrNotExist if the snapshot has none.
func (d *Pool) SnapshotLayer(id string) (string, error) {
	path := filepath.Join(d.SnapshotPath(id), snapshotLayer)
	_, err := os.Lstat(path)
	return path, err
}

// SnapshotWorkspace returns the path of the workspace in a snapshot.
func (d *Pool) SnapshotWorkspace(id string) string {
	return filepath.Join(d.SnapshotPath(id), snapshotWorkspace)
}

// Sync returns once all changes of the pool are on its disk.
func (d *Pool) Sync() error {
	if d.Kind == Plain {
		return nil
	}
	return btrfs.AwaitSync(d.root)
}

// TakeSnapshot makes the snapshot id of a workspace, and of the layer of a sandbox, or of a kept layer if there is no
// such sandbox. It counts for the owner. No process writes to them meanwhile.
func (d *Pool) TakeSnapshot(id, owner, workspace, sandbox, kept string) error {
	source := d.WorkspacePath(workspace)
	if d.Kind == Plain || !btrfs.IsSubvolume(source) {
		return ErrNoSnapshots
	}
	dir := d.SnapshotPath(id)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("making a snapshot: %w", err)
	}
	// The copy of the workspace comes last. The kernel commits it, and with it all before.
	var err error
	if written := d.writtenLayer(sandbox, kept); written != "" {
		err = d.copyTree(written, filepath.Join(dir, snapshotLayer), owner, true)
	}
	if err == nil {
		err = d.copyTree(source, filepath.Join(dir, snapshotWorkspace), owner, true)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("making a snapshot: %w", err), d.removeSnapshot(dir))
	}
	return nil
}

// copyTree makes the subvolume path, a copy of source that counts for the owner.
func (d *Pool) copyTree(source, path, owner string, readOnly bool) error {
	if err := btrfs.Snapshot(source, path, readOnly); err != nil {
		return err
	}
	return d.Own(owner, path)
}

// writtenLayer returns the path of a session's layer: that of its sandbox, else the kept one. It returns "" if nothing
// was written to the layer.
func (d *Pool) writtenLayer(sandbox, kept string) string {
	path := d.LayerPath(sandbox)
	if sandbox != "" && Exists(path) {
		if layer.Untouched(path) {
			return ""
		}
		return path
	}
	if path = d.KeptPath(kept); kept != "" && Exists(path) {
		return path
	}
	return ""
}

// SnapshotSize returns the bytes that a snapshot refers to, and those that nothing else refers to, as of the file
// system's last commit. Both are 0 if the pool does not count them: simple quotas count what was written through a
// subvolume, and nothing is written through a snapshot.
func (d *Pool) SnapshotSize(id string) (all, exclusive int64) {
	if !d.Quota || d.simple {
		return 0, 0
	}
	for _, part := range []string{snapshotWorkspace, snapshotLayer} {
		group, err := btrfs.SubvolumeID(filepath.Join(d.SnapshotPath(id), part))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has no layer
		}
		refers, own, err := btrfs.Usage(d.Fsid(), group)
		if err != nil {
			return 0, 0
		}
		all, exclusive = all+refers, exclusive+own
	}
	return all, exclusive
}

// RemoveSnapshot removes a snapshot. A missing one is no error.
func (d *Pool) RemoveSnapshot(id string) error { return d.removeSnapshot(d.SnapshotPath(id)) }

func (d *Pool) removeSnapshot(path string) error {
	if !Exists(path) {
		return nil
	}
	err := errors.Join(d.remove(filepath.Join(path, snapshotLayer)), d.remove(filepath.Join(path, snapshotWorkspace)))
	if err != nil {
		return err
	}
	return os.Remove(path)
}

// CopyWorkspace gives an owner's workspace the files of the snapshot, in place of those that it has. No sandbox uses
// it. A second call with the same name of the copy changes nothing.
func (d *Pool) CopyWorkspace(snapshot, owner, workspace, copied string) error {
	path, tmp := d.WorkspacePath(workspace), d.unfinished(workspace)
	is := make([]byte, len(copied))
	if n, err := unix.Lgetxattr(path, copyAttribute, is); err == nil && string(is[:n]) == copied {
		return nil
	}
	if err := d.remove(tmp); err != nil {
		return err
	}
	err := d.copyTree(d.SnapshotWorkspace(snapshot), tmp, owner, false)
	if err == nil {
		err = d.BeyondBound(tmp, func() error { return unix.Lsetxattr(tmp, copyAttribute, []byte(copied), 0) })
	}
	if err == nil {
		err = d.BeyondBound(tmp, func() error {
			return unix.Renameat2(unix.AT_FDCWD, tmp, unix.AT_FDCWD, path, unix.RENAME_EXCHANGE)
		})
	}
	if errors.Is(err, fs.ErrNotExist) && !Exists(path) {
		err = d.BeyondBound(tmp, func() error { return renameNew(tmp, path) })
	}
	if err != nil {
		return errors.Join(fmt.Errorf("copying the workspace of snapshot %s: %w", snapshot, err), d.remove(tmp))
	}
	return d.remove(tmp) // what the workspace had
}

// CopyLayer makes the layer of the claim, as one of the owner that no sandbox uses, of the layer in a snapshot. If the
// snapshot has none it makes none: the session's next sandbox begins with a new one. A layer that is there stays.
func (d *Pool) CopyLayer(snapshot, owner string, c Claim) error {
	source, err := d.SnapshotLayer(snapshot)
	if errors.Is(err, fs.ErrNotExist) || Exists(d.KeptPath(c.Layer)) {
		return nil
	}
	tmp := d.unfinished(c.Layer)
	if err = errors.Join(err, d.remove(tmp)); err != nil {
		return err
	}
	err = d.copyTree(source, tmp, owner, false)
	if err == nil {
		err = d.BeyondBound(tmp, func() error {
			if err := os.Remove(filepath.Join(tmp, claimLink)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return layer.Clear(tmp)
		})
	}
	if err == nil {
		err = d.BeyondBound(tmp, func() error { return writeClaim(tmp, c) })
	}
	if err == nil {
		err = d.BeyondBound(tmp, func() error { return renameNew(tmp, d.KeptPath(c.Layer)) })
	}
	if err != nil {
		return errors.Join(fmt.Errorf("copying the layer of snapshot %s: %w", snapshot, err), d.remove(tmp))
	}
	return nil
}

// removeUnfinished removes what a crash has left of copies.
func (d *Pool) removeUnfinished() error {
	names, err := Names(d.unfinishedDir())
	for _, name := range names {
		err = errors.Join(err, d.remove(d.unfinished(name)))
	}
	return err
}
