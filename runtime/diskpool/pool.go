package diskpool

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/runtime/btrfs"

	"github.com/containerd/containerd/v2/core/mount"
	"golang.org/x/sys/unix"
)

// The disk pool holds workspaces and layers. btrfs is the only file system with a byte limit per directory on every
// kernel that we support. If the data directory is on another file system, the pool is a btrfs in a sparse file.

// Kinds of pool, best first, as Facts reports them.
const (
	Btrfs = "btrfs" // the data directory is on btrfs itself
	Loop  = "loop"  // a btrfs in a sparse file in the data directory
	Plain = "plain" // plain directories: no disk limits
)

// poolFlags ensure that no file of the pool acts as a device or raises privileges on the host.
const poolFlags = unix.MS_NOATIME | unix.MS_NOSUID | unix.MS_NODEV

// maxPool is the maximum default size of a pool.
const maxPool = 64 << 30

// MinPool is the minimum size of a pool. btrfs cannot work with less once its own structures are counted.
const MinPool = 256 << 20

// CheckBytes refuses a size that no pool can have. 0 means that no size was requested.
func CheckBytes(size int64) error {
	if size != 0 && size < MinPool {
		return fmt.Errorf("%d bytes are too few for a disk pool, %d is the least", size, MinPool)
	}
	return nil
}

// CheckThere fails if there is no pool in dir. It is for callers that know of workspaces: Open would make a new one.
func CheckThere(dir string) error {
	d := &Pool{root: filepath.Join(dir, "pool")}
	if Exists(poolFile(dir)) || d.holds() {
		return nil
	}
	return fmt.Errorf("the containers' files were in %s, which is missing: put it back, or start the daemon once with "+
		"--accept-loss=workspaces; it then makes a new pool, and containers that had files say so at their next use",
		poolFile(dir))
}

// Open makes or finds the pool in dir. Without a suitable file system a new pool falls back to plain directories and
// reports the reason. A pool that exists is used as it is, or Open fails: a new pool in its place would lack the
// containers' files.
func Open(dir string, size int64, log *slog.Logger) (_ *Pool, err error) {
	d := &Pool{root: filepath.Join(dir, "pool"), Kind: Plain}
	if err := os.MkdirAll(d.root, 0o700); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	err = d.attach(dir, size)
	if img := poolFile(dir); err != nil && Exists(img) {
		return nil, fmt.Errorf("the containers' files are in %s, which cannot be used (%w): mend that, or move the "+
			"file away and use --accept-loss=workspaces to begin without them", img, err)
	}
	if d.mounted {
		if d.backing, err = back(d.root, poolFile(dir), d.Fsid(), log); err != nil {
			return nil, fmt.Errorf("looking after the pool's file: %w", err)
		}
	}
	if err == nil {
		err = d.openQuota()
		d.Quota, d.simple = err == nil, btrfs.SimpleQuota(d.Fsid())
	}
	if err != nil {
		d.Why = err.Error()
		log.Warn("disk limits are off: containers can fill the disk", "pool", d.Kind, "err", err)
	}
	// Files of a container's root belong to root on disk, set-user-ID bits included. Without a nosuid mount, a
	// container's root and a user of the host could become root together.
	if err := os.Chmod(d.root, 0o700); err != nil {
		return nil, fmt.Errorf("closing the pool to others: %w", err)
	}
	for _, sub := range []string{d.workspaceDir(), d.LayerDir(), d.keptDir(), d.snapshotDir(), d.unfinishedDir()} {
		if err := os.MkdirAll(sub, 0o711); err != nil {
			return nil, err
		}
	}
	if err := d.removeUnfinished(); err != nil {
		return nil, fmt.Errorf("removing copies that were not finished: %w", err)
	}
	if err := d.Release(); err != nil {
		return nil, fmt.Errorf("removing the copies of a backup: %w", err)
	}
	if d.Quota {
		d.dropStale()
	}
	if err := d.finishEarlier(filepath.Join(dir, "moves")); err != nil {
		return nil, err
	}
	return d, nil
}

// ErrHeld: the pool's file system is read-only because a write of its own records has failed, and sandboxes still
// have it mounted. The kernel does not mount it anew until the last of them is gone.
var ErrHeld = errors.New("a write of its own records has failed")

// poolRelease is how long the kernel may take to release the pool's file after the last sandbox has ended.
const poolRelease = 10 * time.Second

// Reopen waits until no process has the pool mounted and opens it. The caller has ended the sandboxes of a pool for
// which Open returned ErrHeld.
func Reopen(dir string, size int64, log *slog.Logger) (*Pool, error) {
	for end := time.Now().Add(poolRelease); ; time.Sleep(20 * time.Millisecond) { // the kernel sends no event
		loop, err := findLoop(poolFile(dir))
		if err != nil {
			return nil, err
		}
		if loop == nil || time.Now().After(end) { // if it still exists, Open returns the error
			return Open(dir, size, log)
		}
		loop.Close()
	}
}

// poolFile returns the path of the pool's sparse file.
func poolFile(dir string) string { return filepath.Join(dir, "pool.img") }

func Exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Place returns the path of what the pool is in.
func (d *Pool) Place() string {
	if d.mounted {
		return poolFile(filepath.Dir(d.root))
	}
	return d.root
}

// holds reports whether the pool's directories contain anything of a container.
func (d *Pool) holds() bool {
	for _, list := range []func() ([]string, error){d.Workspaces, d.Layers, d.Kept, d.Snapshots} {
		if names, err := list(); len(names) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
			return true
		}
	}
	return false
}

// attach mounts a btrfs at d.root, if possible.
func (d *Pool) attach(dir string, size int64) error {
	if !btrfs.Is(dir) && btrfs.Is(d.root) && readOnly(d.root) { // it failed earlier, and is mounted anew
		if err := unix.Unmount(d.root, unix.MNT_DETACH); err != nil {
			return err
		}
	}
	if btrfs.Is(d.root) {
		// Either the data directory is on btrfs, or the pool is still mounted here.
		if d.Kind = Btrfs; !btrfs.Is(dir) {
			d.Kind, d.mounted = Loop, true
		}
		return nil
	}
	img := poolFile(dir)
	if !Exists(img) && d.holds() {
		return errors.New("containers have files in plain directories here already; delete all containers and " +
			"workspaces, and restart the daemon, to have new ones limited")
	}
	if err := makePoolFile(img, size); err != nil {
		return err
	}
	loop, held, err := attachLoop(img)
	if err != nil {
		return err
	}
	defer loop.Close() // autoclear: from here on the mount keeps the device
	if err := mountPool(loop.Name(), d.root); err != nil {
		if held && slices.ContainsFunc(endedErrors, func(ended error) bool { return errors.Is(err, ended) }) {
			return fmt.Errorf("mounting what is mounted: %w: %w", err, ErrHeld)
		}
		return fmt.Errorf("mounting the pool: %w", err)
	}
	d.Kind, d.mounted = Loop, true
	return nil
}

// mountPool mounts the pool with nodiscard: the kernel must not return blocks to the sparse file by itself, as new
// kernels would. See backing.
func mountPool(device, target string) error {
	if err := unix.Mount(device, target, "btrfs", poolFlags, "nodiscard"); err != nil {
		return err
	}
	// If sandboxes keep the file system mounted, it still has the options of its first mount.
	if err := unix.Mount("", target, "", unix.MS_REMOUNT|poolFlags, "nodiscard"); err != nil {
		return errors.Join(err, unix.Unmount(target, unix.MNT_DETACH))
	}
	return nil
}

// endedErrors are the kernel's answers to the mount of a file system that is still mounted elsewhere and has turned
// read-only. Older kernels complain that one mount is read-only and the other is not.
var endedErrors = []error{unix.EINVAL, unix.EBUSY, unix.EROFS}

// makePoolFile makes and formats the sparse file, unless it exists. The file gets its final name only when it is
// complete.
func makePoolFile(img string, size int64) error {
	if Exists(img) {
		return nil
	}
	if size == 0 {
		var st unix.Statfs_t
		if err := unix.Statfs(filepath.Dir(img), &st); err != nil {
			return err
		}
		size = min(int64(st.Bavail)*st.Bsize/2, maxPool)
	}
	if size < MinPool {
		return fmt.Errorf("%d MiB are too few for a disk pool, %d is the least", size>>20, MinPool>>20)
	}
	tmp := img + ".new"
	if err := writeSparse(tmp, size); err != nil {
		return err
	}
	// One copy of the metadata: a second copy on the same disk protects from little and doubles writes.
	out, err := exec.Command("mkfs.btrfs", "-q", "-f", "-m", "single", "-d", "single", "-L", "berth",
		tmp).CombinedOutput()
	if err != nil {
		os.Remove(tmp)
		if errors.Is(err, exec.ErrNotFound) {
			return errors.New("mkfs.btrfs is missing: install btrfs-progs")
		}
		return fmt.Errorf("formatting the pool: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return os.Rename(tmp, img)
}

// writeSparse makes a file with a size and without blocks.
func writeSparse(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Truncate(size)
}

// attachLoop returns the loop device of img, and whether the device is in use. If shims of an earlier daemon still
// have the pool mounted, attachLoop returns their device: with two devices over one file, two file systems would
// destroy each other's data.
func attachLoop(img string) (loop *os.File, held bool, err error) {
	loop, err = findLoop(img)
	if loop != nil || err != nil {
		return loop, true, err
	}
	params := mount.LoopParams{Autoclear: true, Direct: true}
	loop, err = mount.SetupLoop(img, params)
	if err != nil {
		// Direct I/O avoids a second copy in the page cache, but not every file system supports it.
		params.Direct = false
		loop, err = mount.SetupLoop(img, params)
	}
	if err != nil {
		return nil, false, fmt.Errorf("attaching a loop device: %w", err)
	}
	return loop, false, nil
}

// findLoop finds a loop device over img, by device and inode: paths differ between mount namespaces.
func findLoop(img string) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Stat(img, &st); err != nil {
		return nil, err
	}
	bound, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	for _, b := range bound {
		dev := "/dev/" + filepath.Base(filepath.Dir(filepath.Dir(b)))
		f, err := os.OpenFile(dev, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
		if err == nil && info.Device == st.Dev && info.Inode == st.Ino {
			return f, nil
		}
		f.Close()
	}
	return nil, nil
}
