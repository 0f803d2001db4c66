package access

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"berth/guest/user"
	"berth/guest/wire"
	"berth/proto"
)

// OpenInPlace opens a regular file for writing as a user, so that it keeps its inode. A missing file is made, with the
// permission bits mode (0 is 0644), and so are its parents. Links are followed as Create follows them.
func OpenInPlace(id user.User, path string, mode uint32, in *proto.InPlace) (f *os.File, err error) {
	flags := unix.O_WRONLY
	if in.Append {
		flags |= unix.O_APPEND
	}
	err = id.Do(func() (err error) {
		if f, _, err = openRegular(path, flags); !IsMissing(err) {
			return err
		}
		to, err := target(path)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		fd, err := unix.Open(to, flags|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
		if errors.Is(err, unix.EEXIST) { // made in the meantime
			f, _, err = openRegular(path, flags)
			return err
		}
		if err != nil {
			return err
		}
		f = os.NewFile(uintptr(fd), to)
		return unix.Fchmod(fd, cmp.Or(mode&0o7777, defaultMode))
	})
	if err != nil && f != nil {
		_ = f.Close()
	}
	return f, wire.FileError(wire.OpWrite, path, err)
}
