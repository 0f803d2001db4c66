package fs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"berth/guest/fs/access"
	"berth/guest/wire"
	"berth/proto"
)

// level is a directory that a descent passed, with the name of the next one.
type level struct {
	dev, ino uint64
	name     string
}

// removeDeep removes the directory name of at if nothing can be renamed because the disk is full. The tree may be
// deeper than the number of descriptors, so removeDeep has one directory open at a time and goes back by "..". It
// checks that ".." is the directory that it came from. If not, another process has moved the tree.
func removeDeep(at int, name string) error {
	d, err := access.OpenDir(at, name, false)
	if err != nil {
		return err
	}
	var above []level
	for {
		sub, err := clearDir(d)
		if err != nil {
			_ = d.Close()
			return err
		}
		var next *os.File
		switch {
		case sub != "":
			next, above, err = descend(d, sub, above)
		case len(above) == 0:
			_ = d.Close()
			return unix.Unlinkat(at, name, unix.AT_REMOVEDIR)
		default:
			next, err = ascend(d, above[len(above)-1])
			above = above[:len(above)-1]
		}
		_ = d.Close()
		if err != nil {
			return err
		}
		d = next
	}
}

// clearDir removes the entries of d except directories that are not empty. It returns the name of one of those, or
// "".
func clearDir(d *os.File) (string, error) {
	for {
		if _, err := d.Seek(0, 0); err != nil {
			return "", err
		}
		names, err := d.Readdirnames(1024)
		if len(names) == 0 {
			return "", endOfDir(err)
		}
		for _, name := range names {
			err := unix.Unlinkat(int(d.Fd()), name, 0)
			if err == unix.EISDIR || err == unix.EPERM {
				err = unix.Unlinkat(int(d.Fd()), name, unix.AT_REMOVEDIR)
			}
			switch {
			case err == unix.ENOTEMPTY:
				return name, nil
			case err != nil && err != unix.ENOENT:
				return "", err
			}
		}
	}
}

// descend opens the directory sub of d and remembers d.
func descend(d *os.File, sub string, above []level) (*os.File, []level, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(d.Fd()), &st); err != nil {
		return nil, above, err
	}
	next, err := access.OpenDir(int(d.Fd()), sub, false)
	return next, append(above, level{st.Dev, st.Ino, sub}), err
}

// ascend opens the directory above d, which must be up, and removes d from it.
func ascend(d *os.File, up level) (*os.File, error) {
	parent, err := access.OpenDir(int(d.Fd()), "..", false)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(int(parent.Fd()), &st); err == nil && (st.Dev != up.dev || st.Ino != up.ino) {
		err = proto.Errorf(proto.Conflict, wire.OpRemove, "",
			"the tree was moved while it was being removed; try again")
	}
	if err == nil {
		err = unix.Unlinkat(int(parent.Fd()), up.name, unix.AT_REMOVEDIR)
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		_ = parent.Close()
		return nil, err
	}
	return parent, nil
}
