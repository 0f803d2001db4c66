package wire

import (
	"os"

	"golang.org/x/sys/unix"
)

// Pipe makes a pipe. Every process that holds an end may open it again: commands do so through /dev/stdout and
// /dev/stderr, and the pipe's owner is not one of the container's users.
func Pipe() (r, w int, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return -1, -1, err
	}
	_ = unix.Fchmod(fds[1], 0o666)
	return fds[0], fds[1], nil
}

// Pollable wraps a descriptor in a file that uses the poller.
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

// CanHandOver reports whether the open file fd can be handed over. It must be a regular file on a file system that
// the kernel itself serves. A process in the container might serve any other file system, and a reader would wait for
// that process.
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
