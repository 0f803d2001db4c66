package access

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"berth/guest/user"
)

// A Workspace is the path of a container's workspace. Its Open and Make methods follow no link below it.
//
// The daemon itself also works with root's permissions in directories that the ordinary user may rearrange at any
// moment. No link may lead this work elsewhere: neither a link at the end of the path nor one that replaces a
// directory on the way. So each step starts from the previous directory. (Where openat2 exists, it does this in one
// call, for directories that are read with each command. gVisor has no openat2.)
type Workspace string

// Absolute makes path absolute. A relative path is relative to the workspace.
func (w Workspace) Absolute(path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(string(w), path)
}

// Has reports whether an absolute clean path lies in the workspace.
func (w Workspace) Has(path string) bool {
	return path == string(w) || strings.HasPrefix(path, string(w)+"/")
}

// OpenParent opens the parent directory of a clean absolute path, as a base for further steps. It follows no link
// below the workspace. The path of the workspace itself is trusted, because the container's maker set it. name is the
// path's last part, or "." for the workspace.
func (w Workspace) OpenParent(path string) (at int, name string, err error) {
	at, rest, err := w.openBase(path)
	if err != nil || rest == "." {
		return at, rest, err
	}
	parts := strings.Split(rest, "/")
	for _, part := range parts[:len(parts)-1] {
		next, err := StepInto(at, part)
		_ = unix.Close(at)
		if err != nil {
			return -1, "", err
		}
		at = next
	}
	return at, parts[len(parts)-1], nil
}

// openBase opens the directory from which a clean absolute path must be free of links, and returns the rest of the
// path.
func (w Workspace) openBase(path string) (at int, rest string, err error) {
	base, rest := "/", path
	if w.Has(path) {
		base, rest = string(w), path[len(string(w)):]
	}
	at, err = unix.Open(base, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return at, cmp.Or(strings.TrimPrefix(rest, "/"), "."), err
}

// MakeDir makes a directory and its parents without following links.
func (w Workspace) MakeDir(path string) error {
	parent := filepath.Dir(path)
	if parent != path && w.Has(parent) {
		if err := w.MakeDir(parent); err != nil {
			return err
		}
	}
	at, name, err := w.OpenParent(path)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	if err := unix.Mkdirat(at, name, 0o755); err != nil && err != unix.EEXIST {
		return err
	}
	dir, err := StepInto(at, name)
	if err == nil {
		_ = unix.Close(dir)
	}
	return err
}

// OpenDir is OpenDirFD that returns a file.
func (w Workspace) OpenDir(path string) (*os.File, error) {
	fd, err := w.OpenDirFD(path)
	return os.NewFile(uintptr(fd), path), err // nil for an invalid descriptor
}

// OpenDirFD opens a directory for reading without following links.
func (w Workspace) OpenDirFD(path string) (int, error) {
	if fd, err := openStraight(unix.AT_FDCWD, path); err == nil {
		return fd, nil // the usual case: no link leads to the workspace either
	}
	base, rest, err := w.openBase(path)
	if err != nil {
		return -1, err
	}
	defer unix.Close(base)
	if fd, err := openStraight(base, rest); err != unix.ENOSYS {
		return fd, err
	}
	at, name, err := w.OpenParent(path)
	if err != nil {
		return -1, err
	}
	defer unix.Close(at)
	return OpenEntry(at, name)
}

// OpenFile is openAs for reading a regular file without following links.
func (w Workspace) OpenFile(id user.User, path string) (f *os.File, st *unix.Stat_t, err error) {
	err = id.Do(func() error {
		at, name, err := w.OpenParent(path)
		if err != nil {
			return err
		}
		defer unix.Close(at)
		fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		f, st, err = regular(fd, path)
		return err
	})
	return f, st, err
}
