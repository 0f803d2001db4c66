package fs

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"berth/guest/user"
)

// The daemon itself also works with root's permissions in directories that the ordinary user may rearrange at any
// moment. No link may lead this work elsewhere: neither a link at the end of the path nor one that replaces a
// directory on the way. So each step starts from the previous directory. (Where openat2 exists, it does this in one
// call, for directories that are read with each command. gVisor has no openat2.)

// openParent opens the parent directory of a clean absolute path, as a base for further steps. It follows no link
// below the workspace. The path of the workspace itself is trusted, because the container's maker set it. name is the
// path's last part, or "." for the workspace.
func (s *FS) openParent(path string) (at int, name string, err error) {
	at, rest, err := s.openBase(path)
	if err != nil || rest == "." {
		return at, rest, err
	}
	parts := strings.Split(rest, "/")
	for _, part := range parts[:len(parts)-1] {
		next, err := stepInto(at, part)
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
func (s *FS) openBase(path string) (at int, rest string, err error) {
	base, rest := "/", path
	if s.inWorkspace(path) {
		base, rest = s.workspace, path[len(s.workspace):]
	}
	at, err = unix.Open(base, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return at, cmp.Or(strings.TrimPrefix(rest, "/"), "."), err
}

// makeNoLinks makes a directory and its parents without following links.
func (s *FS) makeNoLinks(path string) error {
	parent := filepath.Dir(path)
	if parent != path && s.inWorkspace(parent) {
		if err := s.makeNoLinks(parent); err != nil {
			return err
		}
	}
	at, name, err := s.openParent(path)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	if err := unix.Mkdirat(at, name, 0o755); err != nil && err != unix.EEXIST {
		return err
	}
	dir, err := stepInto(at, name)
	if err == nil {
		_ = unix.Close(dir)
	}
	return err
}

// freshNoLinks removes what is at path without following links, and makes an empty directory there.
func (s *FS) freshNoLinks(path string) error {
	at, name, err := s.openParent(path)
	if err == nil {
		err = (&remover{}).remove(at, name)
		_ = unix.Close(at)
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return s.makeNoLinks(path)
}

// dirNoLinks is openNoLinks that returns a file.
func (s *FS) dirNoLinks(path string) (*os.File, error) {
	fd, err := s.openNoLinks(path)
	return os.NewFile(uintptr(fd), path), err // nil for an invalid descriptor
}

// openNoLinks opens a directory for reading without following links.
func (s *FS) openNoLinks(path string) (int, error) {
	if fd, err := openStraight(unix.AT_FDCWD, path); err == nil {
		return fd, nil // the usual case: no link leads to the workspace either
	}
	base, rest, err := s.openBase(path)
	if err != nil {
		return -1, err
	}
	defer unix.Close(base)
	if fd, err := openStraight(base, rest); err != unix.ENOSYS {
		return fd, err
	}
	at, name, err := s.openParent(path)
	if err != nil {
		return -1, err
	}
	defer unix.Close(at)
	return OpenEntry(at, name)
}

// fileNoLinks is openAs for reading a regular file without following links.
func (s *FS) fileNoLinks(id user.User, path string) (f *os.File, st *unix.Stat_t, err error) {
	err = id.Do(func() error {
		at, name, err := s.openParent(path)
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

// placeNoLinks prepares in to be written to a name in an existing directory. It replaces whatever has that name, also
// a link.
func (in *newFile) placeNoLinks(s *FS, path string) error {
	in.path = path
	at, name, err := s.openParent(path)
	if err != nil {
		return err
	}
	in.dir, in.name = at, name
	var st unix.Stat_t
	if err := unix.Fstatat(in.dir, in.name, &st, unix.AT_SYMLINK_NOFOLLOW); err == nil &&
		st.Mode&unix.S_IFMT == unix.S_IFREG {
		in.before = &st
	}
	in.temp = tempName()
	return nil
}
