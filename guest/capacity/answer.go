package capacity

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"berth/guest/user"
)

// handle answers a call in the memory of its caller. It reports false if the kernel is to answer. The memory is written
// as a debugger does it, so also where the caller itself may not write; that is the caller's own affair.
func (s *server) handle(n *notification) (answered bool) {
	defer func() {
		if recover() != nil { // a panic would end the container
			answered = false
		}
	}()
	caller, err := s.open(n)
	if err != nil {
		return false
	}
	defer caller.close()
	reply := s.statfs(caller, n)
	if reply == nil || !s.valid(n) {
		return false
	}
	// A write that fails leaves it to the kernel to say why.
	wrote, err := unix.Pwrite(caller.mem, reply, int64(n.args[1]))
	return err == nil && wrote == len(reply)
}

// A process is the caller of a held call. The guest acts as its user.
type process struct {
	dir  string // in /proc
	user user.User
	mem  int // its memory, or -1
}

// open opens the memory of a caller. That it was the caller's is certain once the call is still valid afterwards.
func (s *server) open(n *notification) (*process, error) {
	c := &process{dir: fmt.Sprintf("/proc/%d", n.tid), mem: -1}
	var st unix.Stat_t
	if err := unix.Stat(c.dir, &st); err != nil {
		return nil, err
	}
	c.user = user.User{UID: int(st.Uid), GID: int(st.Gid)}
	err := c.user.Do(func() (err error) {
		c.mem, err = unix.Open(c.dir+"/mem", unix.O_RDWR|unix.O_CLOEXEC, 0)
		return err
	})
	if err == nil && !s.valid(n) {
		err = unix.ESRCH
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *process) close() {
	if c.mem >= 0 {
		_ = unix.Close(c.mem)
	}
}

// pathAt reads a path of the caller; "" if there is none that the kernel would take.
func (c *process) pathAt(at uint64) string {
	const page = 4096
	var path []byte
	for len(path) < unix.PathMax {
		buf := make([]byte, page-at%page) // the next page may be missing
		got, err := unix.Pread(c.mem, buf, int64(at))
		if err != nil || got <= 0 {
			return ""
		}
		if end := bytes.IndexByte(buf[:got], 0); end >= 0 {
			if path = append(path, buf[:end]...); len(path) < unix.PathMax {
				return string(path)
			}
			return ""
		}
		path = append(path, buf[:got]...)
		at += uint64(got)
	}
	return ""
}

// statfs returns the answer to statfs or fstatfs, or nil. The figures come last: most calls are of programs that look
// for a file system of the kernel's, as ls does.
func (s *server) statfs(c *process, n *notification) []byte {
	file := -1
	_ = c.user.Do(func() (err error) {
		if n.nr == unix.SYS_FSTATFS {
			file, err = unix.Open(fmt.Sprintf("%s/fd/%d", c.dir, int32(n.args[0])), unix.O_PATH|unix.O_CLOEXEC, 0)
		} else if path := c.pathAt(n.args[0]); !ofKernel(path) {
			file, err = c.resolve(path)
		}
		return err
	})
	if file < 0 {
		return nil
	}
	defer unix.Close(file)
	name := spaceOf(mountOf(file, ""))
	if name == "" {
		return nil
	}
	space := s.read()[name]
	var st unix.Statfs_t
	if space.limit == 0 || unix.Fstatfs(file, &st) != nil || st.Bsize <= 0 {
		return nil
	}
	block := uint64(st.Bsize)
	st.Blocks = space.limit / block
	st.Bfree = min(st.Bavail, space.left()/block) // the pool may have less
	st.Bavail = st.Bfree
	return unsafe.Slice((*byte)(unsafe.Pointer(&st)), unsafe.Sizeof(st))
}

// ofKernel reports whether a path is below a directory of the kernel's file systems.
func ofKernel(path string) bool {
	return strings.HasPrefix(path, "/sys/") || strings.HasPrefix(path, "/proc/") || strings.HasPrefix(path, "/dev/")
}

// resolve opens the file at a path, as the caller would. It fails with a path that leads over a link of /proc, since
// those are different for the guest, and for a caller with another root.
func (c *process) resolve(path string) (int, error) {
	if own := mountOf(unix.AT_FDCWD, "/"); path == "" || own != mountOf(unix.AT_FDCWD, c.dir+"/root") ||
		!sameFile("/", c.dir+"/root") {
		return -1, unix.ENOENT
	}
	dir, err := unix.Open(c.dir+"/cwd", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(dir)
	return unix.Openat2(dir, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_MAGICLINKS})
}

func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	y, err2 := os.Stat(b)
	return err == nil && err2 == nil && os.SameFile(x, y)
}

// spaces says what the mounts at some paths take their room from. The guest's own mounts show the pool, too.
var spaces = [...]struct{ at, space string }{{"/workspace", "workspace"}, {"/", "layer"}, {"/etc/hosts", "layer"},
	{"/.berth/run", "layer"}, {"/.berth/guest", "layer"}}

// spaceOf returns the name of the figure for a mount; "" if there is none.
func spaceOf(mount uint64) string {
	for _, s := range spaces {
		if mount != 0 && mount == mountOf(unix.AT_FDCWD, s.at) {
			return s.space
		}
	}
	return ""
}

// mountOf returns the number of the mount that a file is on; 0 if the kernel does not say it.
func mountOf(dir int, path string) uint64 {
	var st unix.Statx_t
	flags := 0
	if path == "" {
		flags = unix.AT_EMPTY_PATH
	}
	if unix.Statx(dir, path, flags, unix.STATX_MNT_ID, &st) != nil || st.Mask&unix.STATX_MNT_ID == 0 {
		return 0
	}
	return st.Mnt_id
}
