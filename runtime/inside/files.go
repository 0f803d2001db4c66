package inside

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"berth/proto"
	"berth/runtime/layer"
)

// Paths of the files inside a container.
const meminfo, capacity = "/proc/meminfo", layer.InsideCapacity

// fresh is how long a file stays as it was written. A process that reads without a pause could otherwise keep the
// daemon busy.
const fresh = 50 * time.Millisecond

// Files are the files of all containers. A nil Files makes none.
type Files struct {
	dir  string // of a file system that only this process and the containers see
	read func(sandbox string) Figures
	log  *slog.Logger

	events  *os.File // of fanotify
	fd      int      // of events
	serving sync.WaitGroup

	mu      sync.Mutex
	known   map[key]file
	written map[key]*pause // files that are not read in the kernel's way at present; nil after Close
}

// A key identifies a file for as long as it exists.
type key struct{ dev, ino uint64 }

type file struct {
	sandbox string
	at      string // path inside
}

// A pause is the time for which the kernel does not ask about a file.
type pause struct {
	fd    int // of the file
	timer *time.Timer
}

// Open prepares for files in the directory dir, over which it mounts a file system. The process has a mount namespace
// of its own. read returns the present figures of a sandbox, and must not read a file of this package.
func Open(dir string, read func(sandbox string) Figures, log *slog.Logger) (_ *Files, err error) {
	f := &Files{dir: dir, read: read, log: log, known: map[key]file{}, written: map[key]*pause{}}
	const how = unix.FAN_CLASS_CONTENT | unix.FAN_CLOEXEC | unix.FAN_NONBLOCK
	if f.fd, err = unix.FanotifyInit(how, unix.O_RDWR|unix.O_CLOEXEC|unix.O_LARGEFILE); err != nil {
		return nil, fmt.Errorf("asking for permission events: %w", err)
	}
	f.events = os.NewFile(uintptr(f.fd), "fanotify")
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, errors.Join(err, f.events.Close())
	}
	// Without a size, statfs shows no use of it, and df does not list it.
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC,
		"size=0,nr_inodes=0,mode=711"); err != nil {
		return nil, errors.Join(fmt.Errorf("mounting %s: %w", dir, err), f.events.Close())
	}
	f.serving.Go(f.serve)
	return f, nil
}

// Close stops. Containers keep their files, with the figures that they have.
func (f *Files) Close() {
	if f == nil {
		return
	}
	_ = f.events.Close()
	f.serving.Wait()
	f.mu.Lock()
	for _, p := range f.written {
		p.timer.Stop()
		_ = unix.Close(p.fd)
	}
	f.written = nil
	f.mu.Unlock()
	_ = unix.Unmount(f.dir, unix.MNT_DETACH)
}

// Make makes the files of a sandbox and returns the mounts that it needs. Call Made when they are mounted, or when they
// never will be.
func (f *Files) Make(sandbox string, l proto.Limits) ([]specs.Mount, error) {
	if f == nil {
		return nil, nil
	}
	dir := filepath.Join(f.dir, sandbox)
	if err := os.Mkdir(dir, 0o711); err != nil {
		return nil, fmt.Errorf("making the files of limits: %w", err)
	}
	first := firstFigures(l)
	var mounts []specs.Mount
	for _, at := range []string{meminfo, capacity} {
		path := filepath.Join(dir, filepath.Base(at))
		// No user of the container owns the file, so none can change it. The mount is writable for the daemon, which
		// writes to the file that the kernel has opened for it.
		if err := os.WriteFile(path, first.text(at), 0o444); err != nil {
			return nil, fmt.Errorf("making a file of limits: %w", err)
		}
		if err := f.watch(unix.AT_FDCWD, path, file{sandbox, at}); err != nil {
			return nil, err
		}
		mounts = append(mounts, specs.Mount{Destination: at, Type: "bind", Source: path,
			Options: []string{"bind", "rw", "nosuid", "nodev", "noexec"}})
	}
	return mounts, nil
}

// Made removes the names of a sandbox's files. The files stay as long as they are mounted.
func (f *Files) Made(sandbox string) {
	if f != nil {
		_ = os.RemoveAll(filepath.Join(f.dir, sandbox))
	}
}

// Adopt finds the files of a sandbox that an earlier daemon has made. pid is its first process. A sandbox without files
// stays without.
func (f *Files) Adopt(sandbox string, pid int) error {
	if f == nil {
		return nil
	}
	root, err := unix.Open(fmt.Sprintf("/proc/%d/root", pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("looking for the files of limits: %w", err)
	}
	defer unix.Close(root)
	for _, at := range []string{meminfo, capacity} {
		fd, err := unix.Openat2(root, at[1:], &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS})
		if err != nil {
			continue // of an older build, or moved away
		}
		if ours(fd) {
			err = f.watch(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), file{sandbox, at})
		}
		_ = unix.Close(fd)
		if err != nil {
			return err
		}
	}
	return nil
}

// ours reports whether a file is one that Make has made. The container is hostile, but it can neither mount a file
// system without a size nor make files of the host's root.
func ours(fd int) bool {
	var on unix.Statfs_t
	var st unix.Stat_t
	return unix.Fstatfs(fd, &on) == nil && on.Type == unix.TMPFS_MAGIC && on.Blocks == 0 &&
		unix.Fstat(fd, &st) == nil && st.Mode == unix.S_IFREG|0o444 && st.Uid == 0
}

// Forget forgets the files of a sandbox that has ended. The kernel forgets them by itself.
func (f *Files) Forget(sandbox string) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for k, of := range f.known {
		if of.sandbox == sandbox {
			f.resume(k, false)
			delete(f.known, k)
		}
	}
}

// Changed makes the next reads of a sandbox's files show its limits as they are now.
func (f *Files) Changed(sandbox string) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for k, of := range f.known {
		if of.sandbox == sandbox {
			f.resume(k, true)
		}
	}
}

// watch has the kernel ask about reads of a file from now on.
func (f *Files) watch(dir int, path string, of file) error {
	var st unix.Stat_t
	err := unix.Stat(path, &st)
	if err == nil {
		err = f.mark(unix.FAN_MARK_ADD, dir, path)
	}
	if err != nil {
		return fmt.Errorf("watching a file of limits: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known[key{st.Dev, st.Ino}] = of
	return nil
}

// mark adds or removes a mark. An evictable one does not keep the file when the last mount of it goes.
func (f *Files) mark(what uint, dir int, path string) error {
	if what == unix.FAN_MARK_ADD {
		what |= unix.FAN_MARK_EVICTABLE
	}
	return unix.FanotifyMark(f.fd, what, unix.FAN_ACCESS_PERM, dir, path)
}
