package access

import (
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"berth/guest/user"
)

// dirFlags open a directory for reading.
const dirFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC

// OpenDir opens a directory. It follows a link at the end only if follow is set.
func OpenDir(at int, name string, follow bool) (*os.File, error) {
	if follow {
		fd, err := unix.Openat(at, name, dirFlags, 0)
		return os.NewFile(uintptr(fd), name), err
	}
	fd, err := OpenEntry(at, name)
	return os.NewFile(uintptr(fd), name), err // nil for an invalid descriptor
}

// OpenEntry opens a directory that is an entry of another for reading. It never follows a link.
func OpenEntry(at int, name string) (int, error) {
	if fd, err := openStraight(at, name); err != unix.ENOSYS {
		return fd, err
	}
	is, err := StepInto(at, name)
	if err != nil {
		return -1, err
	}
	defer unix.Close(is)
	return unix.Openat(is, ".", dirFlags, 0)
}

// noOpenat2 is set if the kernel lacks the call, as gVisor does, or a filter denies it.
var noOpenat2 atomic.Bool

// openStraight opens a directory for reading in one system call, without following links. A link at the end or on the
// way returns unix.ENOTDIR. unix.ENOSYS means that the caller must open it in steps.
func openStraight(at int, path string) (int, error) {
	if noOpenat2.Load() {
		return -1, unix.ENOSYS
	}
	fd, err := unix.Openat2(at, path, &unix.OpenHow{Flags: dirFlags, Resolve: unix.RESOLVE_NO_SYMLINKS})
	switch err {
	case unix.ENOSYS, unix.EPERM:
		noOpenat2.Store(true)
		err = unix.ENOSYS
	case unix.ELOOP:
		err = unix.ENOTDIR
	}
	return fd, err
}

// StepInto opens a directory that is an entry of another, as a base for further steps. A link returns unix.ENOTDIR.
// StepInto checks the type of the open descriptor: under gVisor O_DIRECTORY follows links in spite of O_NOFOLLOW.
func StepInto(at int, name string) (int, error) {
	fd, err := unix.Openat(at, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		err = unix.ENOTDIR
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// openRegular opens regular files only. An open FIFO would wait for its other end, and an open device may have any
// effect.
func openRegular(path string, flags int) (*os.File, *unix.Stat_t, error) {
	fd, err := unix.Open(path, flags|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	return regular(fd, path)
}

// regular makes a file of an open descriptor if it is a regular file, and closes it otherwise.
func regular(fd int, path string) (*os.File, *unix.Stat_t, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	if err != nil {
		_ = unix.Close(fd)
		return nil, nil, err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return os.NewFile(uintptr(fd), path), &st, nil
	case unix.S_IFDIR:
		err = unix.EISDIR
	default:
		err = unix.ENXIO
	}
	_ = unix.Close(fd)
	return nil, nil, err
}

// OpenAs is openRegular with id's permissions.
func OpenAs(id user.User, path string, flags int) (f *os.File, st *unix.Stat_t, err error) {
	err = id.Do(func() (err error) {
		f, st, err = openRegular(path, flags)
		return err
	})
	return f, st, err
}
