package fs

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"berth/guest/fs/access"
	"berth/guest/user"
	"berth/guest/wire"
	"berth/proto"
)

// removeDepth is how many directories deep a removal descends. It moves deeper directories up to the top, so that a
// tree of any depth needs a bounded number of descriptors.
const removeDepth = 50

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

// removeTree removes path and everything below it. Only the directories above path are reached by name. The rest goes
// by descriptors, which never lead through a link.
func removeTree(path string) error {
	parent, err := access.OpenDir(unix.AT_FDCWD, filepath.Dir(path), true)
	if err != nil {
		return err
	}
	defer parent.Close()
	r := &remover{}
	return r.remove(int(parent.Fd()), filepath.Base(path))
}

// remover removes one tree.
type remover struct {
	top   int    // the tree's top directory; deep directories are moved to it
	mark  string // random part of the names of moved directories, unique to this removal
	moved int
}

// remove removes an entry of the directory at.
func (r *remover) remove(at int, name string) error {
	err := unix.Unlinkat(at, name, 0)
	if err != unix.EISDIR && err != unix.EPERM {
		return err
	}
	d, derr := access.OpenDir(at, name, false)
	if derr != nil {
		if derr == unix.ENOTDIR || derr == unix.ELOOP {
			return err // EPERM, but not for a directory
		}
		return derr
	}
	defer d.Close()
	r.top = int(d.Fd())
	if err := r.empty(d, 0); err != nil {
		return err
	}
	return unix.Unlinkat(at, name, unix.AT_REMOVEDIR)
}

// empty removes the entries of an open directory. Removal changes the directory while it is read. So empty reads
// names in pieces, and from the start again until none is left. That way the top also finds what was moved up to it.
func (r *remover) empty(d *os.File, depth int) error {
	for {
		names, err := d.Readdirnames(1024)
		if len(names) == 0 {
			return endOfDir(err)
		}
		for _, name := range names {
			if err := r.entry(d, name, depth); err != nil && err != unix.ENOENT {
				return err
			}
		}
		if _, err := d.Seek(0, io.SeekStart); err != nil {
			return err
		}
	}
}

// endOfDir distinguishes the end of a directory from a read error.
func endOfDir(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// entry removes one entry of d, or moves it to the top if it is too deep.
func (r *remover) entry(d *os.File, name string, depth int) error {
	at := int(d.Fd())
	err := unix.Unlinkat(at, name, 0)
	if err != unix.EISDIR && err != unix.EPERM {
		return err
	}
	if unix.Unlinkat(at, name, unix.AT_REMOVEDIR) == nil {
		return nil
	}
	if depth >= removeDepth {
		if r.mark == "" {
			r.mark = rand.Text()[:16]
		}
		r.moved++
		err := unix.Renameat(at, name, r.top, fmt.Sprintf(".berth-removing-%s-%d", r.mark, r.moved))
		if err == unix.EDQUOT || err == unix.ENOSPC { // a longer name needs disk space
			return removeDeep(at, name)
		}
		return err
	}
	sub, err := access.OpenDir(at, name, false)
	if err != nil {
		return err
	}
	err = r.empty(sub, depth+1)
	_ = sub.Close()
	if err != nil {
		return err
	}
	return unix.Unlinkat(at, name, unix.AT_REMOVEDIR)
}
