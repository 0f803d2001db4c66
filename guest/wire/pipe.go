package wire

import (
	"os"

	"golang.org/x/sys/unix"
)

// Pipe makes a pipe that anybody who holds an end may open again: commands do so through
// /dev/stdout and /dev/stderr, and its owner is a stranger to the container's users.
func Pipe() (r, w int, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return -1, -1, err
	}
	_ = unix.Fchmod(fds[1], 0o666)
	return fds[0], fds[1], nil
}

// Pollable wraps a descriptor for the poller.
func Pollable(fd int, name string) (*os.File, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

func CloseAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// CanHandOver reports whether a file that is open at fd can be handed over: a regular one, on a file system that the
// kernel serves by itself. Of any other, somebody in the container might be the one who serves it, and whoever reads
// it would wait for them.
func CanHandOver(fd int) bool {
	var st unix.Stat_t
	var in unix.Statfs_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || unix.Fstatfs(fd, &in) != nil {
		return false
	}
	switch int64(in.Type) {
	case unix.OVERLAYFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC,
		unix.TMPFS_MAGIC:
		return true
	}
	return false
}

func ReadRetry(fd int, b []byte) (int, error) {
	for {
		n, err := unix.Read(fd, b)
		if err != unix.EINTR {
			return n, err
		}
	}
}
