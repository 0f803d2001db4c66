package diskpool

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"berth/runtime/btrfs"
	"berth/runtime/removetree"
)

// sessionUser owns a new workspace. The guest runs commands as this user by default.
const sessionUser = 1000

// A Pool holds directories with byte limits. Only this file knows which of them are subvolumes, and how they are made
// and removed.
type Pool struct {
	root    string
	Kind    string // one of the Pool constants
	Quota   bool   // limits are enforced
	mounted bool   // we mounted it, and Close unmounts it
	Why     string // why there are no limits

	named sync.Once // guards name
	name  string    // of the file system in sysfs

	backing *backing // nil unless the pool is in a file
	tidy    qgroupCleaner
}

func (d *Pool) workspaceDir() string           { return filepath.Join(d.root, "ws") }
func (d *Pool) LayerDir() string               { return filepath.Join(d.root, "layer") }
func (d *Pool) WorkspacePath(id string) string { return filepath.Join(d.workspaceDir(), id) }
func (d *Pool) LayerPath(id string) string     { return filepath.Join(d.LayerDir(), id) }

// MakeWorkspace makes the workspace id, unless it exists, and limits it to bytes.
func (d *Pool) MakeWorkspace(id string, bytes int64) (string, error) {
	path := d.WorkspacePath(id)
	made, err := d.make(path)
	if err == nil && (made || unowned(path)) {
		// the process's umask decides the mode of a new subvolume
		err = errors.Join(os.Chmod(path, 0o755), os.Chown(path, sessionUser, sessionUser))
	}
	if err == nil {
		err = d.Limit(path, bytes)
	}
	if err != nil {
		return "", fmt.Errorf("making the workspace: %w", err)
	}
	return path, nil
}

// unowned reports whether a directory is empty and owned by root, as after a crash between its creation and the
// chown.
func unowned(path string) bool {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil || st.Uid != 0 {
		return false
	}
	list, err := Names(path)
	return err == nil && len(list) == 0
}

// MakeLayer makes an empty writable layer for session id and limits it to bytes. Host user owner is root in the
// sandbox.
func (d *Pool) MakeLayer(id string, owner uint32, bytes int64) (upper, work string, err error) {
	path := d.LayerPath(id)
	// A volatile overlay refuses a work directory that another mount has used.
	if err := d.remove(path); err != nil {
		return "", "", fmt.Errorf("removing an old layer: %w", err)
	}
	if _, err := d.make(path); err != nil {
		return "", "", fmt.Errorf("making the layer: %w", err)
	}
	upper, work = filepath.Join(path, "upper"), filepath.Join(path, "work")
	for _, dir := range []string{upper, work} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return "", "", err
		}
		if err := os.Chown(dir, int(owner), int(owner)); err != nil {
			return "", "", err
		}
	}
	return upper, work, d.Limit(path, bytes)
}

// ownerOf returns the host user that a layer was made for, or 0. It asks the work directory, which nothing inside the
// sandbox can reach. The upper directory is "/" inside, and root inside can give it to any of its own users.
func (d *Pool) ownerOf(id string) uint32 {
	var st unix.Stat_t
	for _, dir := range []string{"work", "upper"} {
		if unix.Lstat(filepath.Join(d.LayerPath(id), dir), &st) == nil && st.Uid != 0 {
			return st.Uid
		}
	}
	return 0
}

// Workspaces lists the IDs of the workspaces.
func (d *Pool) Workspaces() ([]string, error) { return Names(d.workspaceDir()) }

func (d *Pool) RemoveWorkspace(id string) error { return d.remove(d.WorkspacePath(id)) }

func (d *Pool) RemoveLayer(id string) error { return d.remove(d.LayerPath(id)) }

// claimLink is the name of a link in a layer. It records which session took the sandbox from the pool, and which
// workspace the session has. Its target is not a path but "SESSION WORKSPACE". The kernel creates a link with its
// whole content or not at all. The link is removed with the layer, and no container can see it.
const claimLink = "claim"

// WriteClaim writes the link. It fails with fs.ErrExist if the sandbox has a link.
func (d *Pool) WriteClaim(sandbox, session, workspace string) error {
	if err := os.Symlink(session+" "+workspace, filepath.Join(d.LayerPath(sandbox), claimLink)); err != nil {
		return fmt.Errorf("recording the session of a sandbox: %w", err)
	}
	return nil
}

// ReadClaim reads the link. It fails with fs.ErrNotExist if there is none.
func (d *Pool) ReadClaim(sandbox string) (session, workspace string, err error) {
	target, err := os.Readlink(filepath.Join(d.LayerPath(sandbox), claimLink))
	if err != nil {
		return "", "", err
	}
	session, workspace, _ = strings.Cut(target, " ")
	return session, workspace, nil
}

// Layers lists the layers, by sandbox.
func (d *Pool) Layers() ([]string, error) { return Names(d.LayerDir()) }

// KeepGuest copies the guest into the pool under the hash of its content and returns the path of the copy. Sandboxes
// of older daemons keep their copy, and a build may replace the original at any time.
func (d *Pool) KeepGuest(guest string) (string, error) {
	content, err := os.ReadFile(guest)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(d.root, "bin")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	sum := sha256.Sum256(content)
	path := filepath.Join(dir, "guest-"+hex.EncodeToString(sum[:8]))
	// compare the content: a power cut can leave half a file
	if kept, err := os.ReadFile(path); err == nil && bytes.Equal(kept, content) {
		return path, nil
	}
	return path, ReplaceFile(path, content, 0o755)
}

// DropGuests removes all copies of guests except those at the paths in keep. Call it only when no sandbox uses
// another copy.
func (d *Pool) DropGuests(keep ...string) error {
	if left, err := d.Layers(); len(left) > 0 || err != nil {
		return err
	}
	kept, err := filepath.Glob(filepath.Join(d.root, "bin", "guest-*"))
	for _, path := range kept {
		if !slices.Contains(keep, path) {
			err = errors.Join(err, os.Remove(path))
		}
	}
	return err
}

// AcknowledgeErrors reads and so clears the kernel's record of failed writes, such as those on a full disk. Until
// that is done the kernel mounts no volatile overlay over the file system with the failed writes.
func (d *Pool) AcknowledgeErrors() {
	f, err := os.Open(d.root)
	if err != nil {
		return
	}
	defer f.Close()
	_ = unix.Syncfs(int(f.Fd())) // it returns the error, which clears it
}

// Close detaches the pool. Running sandboxes keep their mounts of it.
func (d *Pool) Close() error {
	d.tidy.stop()
	d.sweep()
	if !d.mounted {
		return nil
	}
	if d.backing != nil {
		d.backing.close()
	}
	return unix.Unmount(d.root, unix.MNT_DETACH)
}

// make makes one limited directory and reports whether it was missing.
func (d *Pool) make(path string) (bool, error) {
	var err error
	if d.Kind == Plain {
		err = os.Mkdir(path, 0o755)
	} else if err = btrfs.CreateSubvolume(path); err == nil {
		// The process's umask decides the mode of a new subvolume.
		err = os.Chmod(path, 0o755)
	}
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	return err == nil, err
}

// Limit limits path to bytes if the pool has quotas.
func (d *Pool) Limit(path string, bytes int64) error {
	if !d.Quota || !btrfs.IsSubvolume(path) {
		return nil
	}
	if err := btrfs.LimitSubvolume(path, bytes); err != nil {
		return fmt.Errorf("limiting its size: %w", err)
	}
	return nil
}

// remove removes path with its content. A missing path is no error.
func (d *Pool) remove(path string) error {
	if !btrfs.IsSubvolume(path) {
		return removetree.All(path)
	}
	id, idErr := btrfs.SubvolumeID(path)
	if err := btrfs.DestroySubvolume(path); err != nil {
		// A subvolume inside prevents the removal at once; the content can still be removed entry by entry.
		if rerr := removetree.All(path); rerr != nil {
			return errors.Join(err, rerr)
		}
	}
	if d.Quota && idErr == nil {
		d.dropLater(id)
	}
	return nil
}

// Names lists the names in a directory.
func Names(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	out := make([]string, 0, len(entries))
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out, nil
}

// A Space says how much of a limit is used, in bytes.
type Space struct{ Used, Limit int64 }

// PoolSpace returns the space of the whole pool.
func (d *Pool) PoolSpace() Space {
	var st unix.Statfs_t
	if err := unix.Statfs(d.root, &st); err != nil {
		return Space{}
	}
	size, free := int64(st.Blocks)*st.Bsize, int64(st.Bavail)*st.Bsize
	return Space{Used: size - free, Limit: size}
}

// Fsid returns the name of the pool's file system in sysfs. It asks the kernel once.
func (d *Pool) Fsid() string {
	d.named.Do(func() { d.name = btrfs.Fsid(d.root) })
	return d.name
}

// DiskSpace returns the free space and the size of the file system that dir is on, in bytes.
func DiskSpace(dir string) (free, size int64, err error) {
	var st unix.Statfs_t
	err = unix.Statfs(dir, &st)
	return int64(st.Bavail) * st.Bsize, int64(st.Blocks) * st.Bsize, err
}

// ReplaceFile writes path as a whole or not at all: a shim of an earlier daemon may be reading it.
func ReplaceFile(path string, content []byte, mode os.FileMode) error {
	tmp := path + ".new"
	if err := os.WriteFile(tmp, content, mode); err != nil {
		return err
	}
	if err := os.Chmod(tmp, mode); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
