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
	"berth/runtime/layer"
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
	simple  bool   // by simple quotas; see btrfs.SetQuota
	mounted bool   // we mounted it, and Close unmounts it
	Why     string // why there are no limits

	ownerBytes int64 // what each owner may have; 0: no bound
	lifting    sync.Mutex
	lifts      map[btrfs.Group]int // how many operations go beyond the bound of a group now; guarded by lifting
	owners     sync.Map            // the groups of owners that this daemon has made, as keys; see owner.go

	named sync.Once // guards name
	name  string    // of the file system in sysfs

	backing *backing // nil unless the pool is in a file
	tidy    qgroupCleaner
}

func (d *Pool) workspaceDir() string           { return filepath.Join(d.root, "ws") }
func (d *Pool) LayerDir() string               { return filepath.Join(d.root, "layer") }
func (d *Pool) WorkspacePath(id string) string { return filepath.Join(d.workspaceDir(), id) }
func (d *Pool) LayerPath(id string) string     { return filepath.Join(d.LayerDir(), id) }
func (d *Pool) keptDir() string                { return filepath.Join(d.root, "kept") }
func (d *Pool) KeptPath(id string) string      { return filepath.Join(d.keptDir(), id) }

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

// MakeLayer makes the writable layer of a sandbox and limits it to bytes. If the pool keeps the layer of the claim,
// MakeLayer takes that one, and isNew is false. A sandbox of the warm pool has no claim yet, the zero Claim. Host user
// base is root in the sandbox.
func (d *Pool) MakeLayer(sandbox string, c Claim, base uint32, bytes int64) (path string, isNew bool, err error) {
	path = d.LayerPath(sandbox)
	prepare := layer.Prepare
	// A start that failed may have left the layer here.
	if had, none := d.ReadClaim(sandbox); none != nil || c.Layer == "" || had != c {
		if err := d.remove(path); err != nil {
			return "", false, fmt.Errorf("removing an old layer: %w", err)
		}
		err = d.BeyondBound(d.KeptPath(c.Layer), func() error { return d.takeKept(path, c) })
	}
	if isNew = errors.Is(err, fs.ErrNotExist); isNew {
		prepare = layer.Make
		if _, err = d.make(path); err == nil && c != (Claim{}) {
			err = d.WriteClaim(sandbox, c)
		}
	}
	if err == nil {
		err = d.BeyondBound(path, func() error { return prepare(path, base) })
	}
	if err == nil {
		err = d.Limit(path, bytes)
	}
	if err != nil {
		return "", isNew, fmt.Errorf("making the layer: %w", err)
	}
	return path, isNew, nil
}

// takeKept moves the kept layer of a claim to path. It fails with fs.ErrNotExist if there is none. A kept layer always
// has the claim of its session.
func (d *Pool) takeKept(path string, c Claim) error {
	if c.Layer == "" {
		return fs.ErrNotExist
	}
	return renameNew(d.KeptPath(c.Layer), path)
}

// renameNew renames from to to. It fails with fs.ErrExist if something has that name.
func renameNew(from, to string) error {
	return unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
}

// ReleaseLayer ends a sandbox's use of its layer. The layer is kept for the session of its claim, unless nothing was
// written to it. A layer of the warm pool, or of an older build, is removed. No sandbox runs over it.
func (d *Pool) ReleaseLayer(sandbox string) error {
	path := d.LayerPath(sandbox)
	c, err := d.ReadClaim(sandbox)
	if errors.Is(err, fs.ErrNotExist) || err == nil && c.Layer == "" || layer.Base(path) == 0 || layer.Untouched(path) {
		return d.remove(path)
	}
	if err != nil {
		return err
	}
	// A layer that is full has no room for a rename either. The next sandbox gets the limit again.
	if err := d.Limit(path, btrfs.NoLimit); err != nil {
		return err
	}
	if err := d.BeyondBound(path, func() error { return layer.Clear(path) }); err != nil {
		return fmt.Errorf("clearing a layer: %w", err)
	}
	if err := d.BeyondBound(path, func() error { return renameNew(path, d.KeptPath(c.Layer)) }); err != nil {
		return fmt.Errorf("keeping layer %s: %w", c.Layer, err)
	}
	return nil
}

// RemoveKept removes a layer that no sandbox uses.
func (d *Pool) RemoveKept(id string) error { return d.remove(d.KeptPath(id)) }

// Kept lists the IDs of the layers that no sandbox uses.
func (d *Pool) Kept() ([]string, error) { return Names(d.keptDir()) }

// baseOf returns the host user that was root in the sandbox of a layer, or 0.
func (d *Pool) baseOf(sandbox string) uint32 {
	path := d.LayerPath(sandbox)
	if base := layer.Base(path); base != 0 {
		return base
	}
	// Older builds did not map layers. Root inside could give away the upper directory, but not the other one.
	if base := layer.Base(filepath.Join(path, layer.Work)); base != 0 {
		return base
	}
	return layer.Base(filepath.Join(path, layer.Upper))
}

// Workspaces lists the IDs of the workspaces.
func (d *Pool) Workspaces() ([]string, error) { return Names(d.workspaceDir()) }

func (d *Pool) RemoveWorkspace(id string) error { return d.remove(d.WorkspacePath(id)) }

// A Claim says whose a sandbox is.
type Claim struct {
	Session   string
	Workspace string
	Layer     string // the ID under which the session keeps its layer; "": it does not
}

// claimLink is the name of a link in a layer. It records a Claim. Its target is not a path but the fields of the
// claim, with spaces between. The kernel creates a link with its whole content or not at all. The link stays as long
// as the layer, and no container can see it.
const claimLink = "claim"

// WriteClaim records whose the sandbox is. It fails with fs.ErrExist if that is recorded already.
func (d *Pool) WriteClaim(sandbox string, c Claim) error {
	path := d.LayerPath(sandbox)
	return d.BeyondBound(path, func() error { return writeClaim(path, c) })
}

func writeClaim(layer string, c Claim) error {
	target := strings.TrimSuffix(c.Session+" "+c.Workspace+" "+c.Layer, " ")
	if err := os.Symlink(target, filepath.Join(layer, claimLink)); err != nil {
		return fmt.Errorf("recording the session of a sandbox: %w", err)
	}
	return nil
}

// ReadClaim reads the claim of a sandbox. It fails with fs.ErrNotExist if there is none.
func (d *Pool) ReadClaim(sandbox string) (c Claim, err error) {
	target, err := os.Readlink(filepath.Join(d.LayerPath(sandbox), claimLink))
	if err != nil {
		return c, err
	}
	for i, field := range strings.Split(target, " ") {
		switch i {
		case 0:
			c.Session = field
		case 1:
			c.Workspace = field
		case 2:
			c.Layer = field
		}
	}
	return c, nil
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
	if err := btrfs.LimitSubvolume(d.root, path, bytes); err != nil {
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
