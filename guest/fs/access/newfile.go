package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"berth/guest/user"
	"berth/guest/wire"
	"berth/proto"
)

// defaultMode is the mode of files for which no mode is given.
const defaultMode = 0o644

// A NewFile is a file that is being written: a temporary file beside the target, renamed at the end. Until then it can
// be dropped without a trace.
type NewFile struct {
	id     user.User
	path   string // the target path, with links followed
	dir    int    // the directory that name and temp are in, or AT_FDCWD if they are whole paths
	name   string
	temp   string
	f      *os.File
	sum    hash.Hash // nil: no hash requested
	opt    wire.WriteOptions
	before *unix.Stat_t // the existing file, or nil
}

// Create makes the temporary file and its parent directories, as a user.
func (w Workspace) Create(id user.User, path string, opt wire.WriteOptions) (*NewFile, error) {
	in := &NewFile{id: id, dir: unix.AT_FDCWD, opt: opt}
	if opt.Hash {
		in.sum = sha256.New()
	}
	err := id.Do(func() error {
		prepare := in.placeAt
		if opt.NoLinks {
			prepare = func(path string) error { return in.placeNoLinks(w, path) }
		}
		if err := prepare(path); err != nil {
			return err
		}
		fd, err := unix.Openat(in.dir, in.temp, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
		if err == nil {
			in.f = os.NewFile(uintptr(fd), in.temp)
		}
		return err
	})
	if err != nil {
		in.closeDir()
		return nil, wire.FileError(wire.OpWrite, path, err)
	}
	return in, nil
}

// placeAt prepares in to be written to path, or to the target of a link at path. It makes the parent directories.
func (in *NewFile) placeAt(path string) (err error) {
	if in.path, err = target(path); err != nil {
		return err
	}
	in.name = in.path
	if err := in.examine(); err != nil {
		return err
	}
	in.temp = filepath.Join(filepath.Dir(in.path), TempName())
	return os.MkdirAll(filepath.Dir(in.path), 0o755)
}

// placeNoLinks prepares in to be written to a name in an existing directory. It replaces whatever has that name, also
// a link.
func (in *NewFile) placeNoLinks(w Workspace, path string) error {
	in.path = path
	at, name, err := w.OpenParent(path)
	if err != nil {
		return err
	}
	in.dir, in.name = at, name
	var st unix.Stat_t
	if err := unix.Fstatat(in.dir, in.name, &st, unix.AT_SYMLINK_NOFOLLOW); err == nil &&
		st.Mode&unix.S_IFMT == unix.S_IFREG {
		in.before = &st
	}
	in.temp = TempName()
	return nil
}

// TempName returns a name for an incomplete file.
func TempName() string { return tempPrefix + rand.Text() + tempSuffix }

const tempPrefix, tempSuffix = ".berth-", ".tmp"

// IsTemp reports whether TempName may have made a name.
func IsTemp(name string) bool {
	return strings.HasPrefix(name, tempPrefix) && strings.HasSuffix(name, tempSuffix)
}

func (in *NewFile) closeDir() {
	if in.dir != unix.AT_FDCWD {
		_ = unix.Close(in.dir)
		in.dir = unix.AT_FDCWD
	}
}

// examine checks the existing file, with the permission that a write in place would need. A rename needs no
// permission on the file itself.
func (in *NewFile) examine() error {
	f, st, err := openRegular(in.path, unix.O_WRONLY)
	switch {
	case IsMissing(err):
		return nil
	case errors.Is(err, unix.ETXTBSY): // a running program may be replaced; it continues with the old file
		st = &unix.Stat_t{}
		err = unix.Lstat(in.path, st)
	}
	if err != nil {
		return err
	}
	if f != nil {
		_ = f.Close()
	}
	if in.opt.Exclusive {
		return unix.EEXIST
	}
	in.before = st
	return nil
}

// MaxLinks is the maximum number of links on a path, as in the kernel.
const MaxLinks = 40

// target follows the links at the end of path, so that a write to a link changes its target. The final target need
// not exist.
func target(path string) (string, error) {
	for range MaxLinks {
		to, err := os.Readlink(path)
		if errors.Is(err, unix.EINVAL) || IsMissing(err) {
			return path, nil // not a link, or missing
		}
		if err != nil {
			return "", err
		}
		if path, err = beyond(path, to); err != nil {
			return "", err
		}
	}
	return "", unix.ELOOP
}

// beyond returns where the link at path leads, as the kernel resolves it: ".." is the parent of the directory that
// was reached. After a link, that differs from the parent in the path's text.
func beyond(path, to string) (string, error) {
	if !filepath.IsAbs(to) {
		dir, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			return "", err
		}
		to = dir + "/" + to
	}
	to = strings.TrimRight(to, "/")
	last := strings.LastIndexByte(to, '/') + 1 // 0 if the link leads to the root
	dir, err := filepath.EvalSymlinks("/" + to[:last])
	if IsMissing(err) {
		return filepath.Clean("/" + to), nil // it is made with the file
	}
	return filepath.Join(dir, to[last:]), err
}

// Replaces reports whether there was a file under the name when this file was created.
func (in *NewFile) Replaces() bool { return in.before != nil }

// Unchanged reports whether the file to be replaced is still in the state was.
func (in *NewFile) Unchanged(was *unix.Stat_t) bool {
	var st unix.Stat_t
	err := in.id.Do(func() error { return unix.Fstatat(in.dir, in.name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	return err == nil && st.Ino == was.Ino && st.Dev == was.Dev && st.Size == was.Size && st.Mtim == was.Mtim &&
		st.Ctim == was.Ctim
}

// Write adds to the file.
func (in *NewFile) Write(b []byte) (int, error) {
	n, err := in.f.Write(b)
	if in.sum != nil {
		in.sum.Write(b[:n])
	}
	return n, err
}

// Drop removes the temporary file.
func (in *NewFile) Drop() {
	_ = in.f.Close()
	_ = in.id.Do(func() error { return unix.Unlinkat(in.dir, in.temp, 0) })
	in.closeDir()
}

// Commit renames the temporary file to its target and describes it.
func (in *NewFile) Commit() (proto.FileInfo, error) {
	var fi proto.FileInfo
	err := in.id.Do(func() error {
		if err := in.setModeAndOwner(); err != nil {
			return err
		}
		if err := in.rename(); err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(in.f.Fd()), &st); err != nil {
			return err
		}
		fi = Info(in.path, &st)
		return nil
	})
	if err != nil {
		in.Drop()
		return fi, wire.FileError(wire.OpWrite, in.path, err)
	}
	in.closeDir()
	if in.sum != nil {
		fi.SHA256 = hex.EncodeToString(in.sum.Sum(nil))
	}
	return fi, in.f.Close()
}

// setModeAndOwner sets the mode of the temporary file. If root replaces a user's file, it also sets the owner.
func (in *NewFile) setModeAndOwner() error {
	mode := uint32(defaultMode)
	if in.before != nil {
		mode = in.before.Mode & 0o7777
		if in.id.IsRoot() {
			if err := in.f.Chown(int(in.before.Uid), int(in.before.Gid)); err != nil {
				return err
			}
		}
	}
	if in.opt.Mode != 0 {
		mode = in.opt.Mode & 0o7777
	}
	return unix.Fchmod(int(in.f.Fd()), mode)
}

// rename renames the temporary file to its name.
func (in *NewFile) rename() error {
	if !in.opt.Exclusive {
		return unix.Renameat(in.dir, in.temp, in.dir, in.name)
	}
	return unix.Renameat2(in.dir, in.temp, in.dir, in.name, unix.RENAME_NOREPLACE)
}
