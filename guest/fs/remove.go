package fs

import (
	"errors"
	"path/filepath"

	"golang.org/x/sys/unix"

	"berth/guest/fs/access"
	"berth/guest/removetree"
	"berth/guest/user"
	"berth/guest/wire"
	"berth/proto"
)

// remove removes a file or a tree.
func (s *FS) remove(id user.User, path string, recursive bool) error {
	if path == "/" {
		return proto.Errorf(proto.InvalidArgument, wire.OpRemove, path, "the root directory cannot be removed")
	}
	err := id.Do(func() error {
		if recursive {
			return removeTree(path)
		}
		err := unix.Unlink(path)
		if errors.Is(err, unix.EISDIR) {
			err = unix.Rmdir(path)
		}
		return err
	})
	return wire.FileError(wire.OpRemove, path, err)
}

// removeTree removes path and everything below it. Only the directories above path are reached by name.
func removeTree(path string) error {
	parent, err := access.OpenDir(unix.AT_FDCWD, filepath.Dir(path), true)
	if err != nil {
		return err
	}
	defer parent.Close()
	return removeEntry(int(parent.Fd()), filepath.Base(path))
}

// removeEntry removes an entry of an open directory, and everything below it.
func removeEntry(dir int, name string) error {
	err := removetree.Entry(dir, name)
	if errors.Is(err, removetree.ErrMoved) {
		return proto.Errorf(proto.Conflict, wire.OpRemove, "", "%v; try again", err)
	}
	return err
}
