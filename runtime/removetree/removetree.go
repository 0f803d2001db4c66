// Package removetree removes directory trees of any depth. It works with descriptors and never follows a link below
// the directory that it starts from.
//
// Containers can leave directories that are nested deeper than the number of descriptors that a process may have.
// os.RemoveAll opens one descriptor for each level: it would fail, and leave no descriptors for the rest of the
// process while it runs. runtime/diskpool and runtime/containerd remove such trees on the host. In containers guest/fs
// removes trees by other steps: gVisor's kernel follows a link that is put in place of a directory while it is opened.
package removetree

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// openLevels is how many levels of a tree are open at a time. Below these levels only one directory is open.
const openLevels = 50

// errMoved means that another process moved a directory of the tree during the removal.
var errMoved = errors.New("the tree was moved while it was being removed")

// All removes path with its content. A missing path is no error. The parent directory must not be a link. A file
// system that is mounted in the tree is an error, and its files stay.
func All(path string) error {
	parent, err := openDir(unix.AT_FDCWD, filepath.Dir(path))
	if err == nil {
		defer parent.Close()
		err = removeBelow(int(parent.Fd()), filepath.Base(path), 0)
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "remove", Path: path, Err: err}
	}
	return nil
}

// removeBelow removes the entry name of a directory with its content. The entry is depth levels below the top.
func removeBelow(dir int, name string, depth int) error {
	full, err := removeEntry(dir, name)
	if !full {
		return err
	}
	sub, err := openDir(dir, name)
	if err != nil {
		return err
	}
	if depth < openLevels {
		err = emptyDir(sub, depth+1)
		_ = sub.Close()
	} else {
		err = emptyDeep(sub)
	}
	if err != nil {
		return err
	}
	return unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
}

// removeEntry removes the entry name of a directory, unless that is a directory with content; then it reports full.
// An error beside it means that the directory cannot be removed, but its content may be: a sticky parent protects the
// directory alone.
func removeEntry(dir int, name string) (full bool, err error) {
	err = unix.Unlinkat(dir, name, 0)
	if err != unix.EISDIR && err != unix.EPERM {
		return false, err
	}
	switch derr := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR); derr {
	case unix.ENOTEMPTY, unix.EEXIST:
		return true, nil
	case unix.EPERM:
		return true, derr
	case unix.ENOTDIR: // EPERM was meant
		return false, err
	default:
		return false, derr
	}
}

// emptyDir removes the content of d. Removing entries while reading a directory may hide other entries, so emptyDir
// reads again from the start until there are none.
func emptyDir(d *os.File, depth int) error {
	for again := true; again; {
		again = false
		for {
			list, err := d.Readdirnames(1024)
			if len(list) == 0 {
				if err != io.EOF {
					return err
				}
				break
			}
			again = true
			for _, name := range list {
				if err := removeBelow(int(d.Fd()), name, depth); err != nil && err != unix.ENOENT {
					return err
				}
			}
		}
		if _, err := d.Seek(0, io.SeekStart); err != nil {
			return err
		}
	}
	return nil
}

// A place identifies a directory on the path of a descent.
type place struct{ dev, ino uint64 }

func placeOf(d *os.File) (p place, err error) {
	var st unix.Stat_t
	err = unix.Fstat(int(d.Fd()), &st)
	return place{st.Dev, st.Ino}, err
}

// emptyDeep removes the content of d, and closes d. It has one directory open at a time and goes back by "..", which
// must be the directory that it came from.
func emptyDeep(d *os.File) error {
	var above []place
	defer func() { _ = d.Close() }()
	for {
		sub, err := clearDir(d)
		if err != nil || sub == "" && len(above) == 0 {
			return err
		}
		here, err := placeOf(d)
		if err != nil {
			return err
		}
		var next *os.File
		if sub != "" {
			next, err = openDir(int(d.Fd()), sub)
			above = append(above, here)
		} else {
			next, err = openAbove(d, above[len(above)-1])
			above = above[:len(above)-1]
		}
		if err != nil {
			return err
		}
		_ = d.Close()
		d = next
	}
}

// clearDir removes the entries of d, except directories that are not empty. It returns the first of those, or "".
func clearDir(d *os.File) (string, error) {
	for {
		if _, err := d.Seek(0, io.SeekStart); err != nil {
			return "", err
		}
		list, err := d.Readdirnames(128)
		if len(list) == 0 {
			if err == io.EOF {
				err = nil
			}
			return "", err
		}
		for _, name := range list {
			full, err := removeEntry(int(d.Fd()), name)
			if err != nil && err != unix.ENOENT {
				return "", err
			}
			if full {
				return name, nil
			}
		}
	}
}

// openAbove opens the parent directory of d, which must be up.
func openAbove(d *os.File, up place) (*os.File, error) {
	above, err := openDir(int(d.Fd()), "..")
	if err != nil {
		return nil, err
	}
	if at, err := placeOf(above); err != nil || at != up {
		_ = above.Close()
		return nil, errors.Join(err, errMoved)
	}
	return above, nil
}

// openDir opens the directory name of the directory at, which must not be a link.
func openDir(at int, name string) (*os.File, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(at, name, flags, 0)
	for err == unix.EINTR {
		fd, err = unix.Openat(at, name, flags, 0)
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}
