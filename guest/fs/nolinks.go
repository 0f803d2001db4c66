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

// What the daemon does of its own accord, with root's permissions, in directories that the ordinary user may
// rearrange at any moment, must not be led anywhere by a link: not by one at the end of the path, and not by one that
// takes the place of a directory on the way. So each step is taken from the directory before it. (openat2 does it
// in one call where there is one, for directories that are looked at with each command; gVisor has none.)

// openParent opens the directory that a clean absolute path is in, as a place to go on from, without following any
// link below the workspace. The workspace itself is where the container's maker put it. name is the path's last part;
// "." for the workspace.
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

// openBase opens the directory from which the way to a clean absolute path is to be without links, and returns the
// rest of the path.
func (s *FS) openBase(path string) (at int, rest string, err error) {
	base, rest := "/", path
	if s.inWorkspace(path) {
		base, rest = s.workspace, path[len(s.workspace):]
	}
	at, err = unix.Open(base, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return at, cmp.Or(strings.TrimPrefix(rest, "/"), "."), err
}

// makeNoLinks makes a directory and those above it, none of them behind a link.
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

// freshNoLinks removes what is at path, without going anywhere by a link, and makes an empty directory there.
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

// dirNoLinks is openNoLinks as a file.
func (s *FS) dirNoLinks(path string) (*os.File, error) {
	fd, err := s.openNoLinks(path)
	return os.NewFile(uintptr(fd), path), err // nil for a descriptor that is none
}

// openNoLinks opens a directory for reading that no link leads to.
func (s *FS) openNoLinks(path string) (int, error) {
	if fd, err := openStraight(unix.AT_FDCWD, path); err == nil {
		return fd, nil // nearly always: no link leads to the workspace either
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

// fileNoLinks is openAs for a regular file that is to be read, without following links.
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

// placeNoLinks makes in ready to be written to a name in a directory that is there, whatever stands at that
// name now: a link is replaced by the file.
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
