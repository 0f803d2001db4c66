package access

import (
	"cmp"
	"errors"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"berth/guest/user"
	"berth/guest/wire"
	"berth/proto"
)

// An InPlace is a regular file that is being written without being replaced.
type InPlace struct {
	*os.File
	id    user.User
	made  string // its path if the file is new
	size  int64  // before the write
	start int64  // where the first byte goes
}

// OpenInPlace opens a regular file for writing as a user, so that it keeps its inode. A missing file is made, with the
// permission bits mode (0 is 0644), and so are its parents. Links are followed as Create follows them.
func OpenInPlace(id user.User, path string, mode uint32, in *proto.InPlace) (*InPlace, error) {
	w := &InPlace{id: id, start: in.Offset}
	flags := unix.O_WRONLY
	if in.Append {
		flags |= unix.O_APPEND
	}
	err := id.Do(func() (err error) {
		var st *unix.Stat_t
		w.File, st, err = openRegular(path, flags)
		if IsMissing(err) {
			st, err = w.create(path, flags, mode)
		}
		if err == nil {
			w.size = st.Size
			_, err = w.Seek(w.start, io.SeekStart) // WriteAt would not count a part that it wrote
		}
		return err
	})
	if err != nil && w.File != nil {
		_ = w.Close()
	}
	if in.Append {
		w.start = w.size
	}
	return w, wire.FileError(wire.OpWrite, path, err)
}

// create makes the file, or opens one that was made in the meantime.
func (w *InPlace) create(path string, flags int, mode uint32) (*unix.Stat_t, error) {
	to, err := target(path)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return nil, err
	}
	fd, err := unix.Open(to, flags|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if errors.Is(err, unix.EEXIST) {
		var st *unix.Stat_t
		w.File, st, err = openRegular(path, flags)
		return st, err
	}
	if err != nil {
		return nil, err
	}
	w.File, w.made = os.NewFile(uintptr(fd), to), to
	return &unix.Stat_t{}, unix.Fchmod(fd, cmp.Or(mode&0o7777, defaultMode))
}

// Reserve takes the disk space by which a body of n bytes makes the file longer, without changing its size. File
// systems that cannot do it, as in gVisor, leave that to the writes.
func (w *InPlace) Reserve(n int64) error {
	from := max(w.start, w.size)
	if n = w.start + n - from; n <= 0 {
		return nil
	}
	err := unix.Fallocate(int(w.Fd()), unix.FALLOC_FL_KEEP_SIZE, from, n)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG) {
		return err
	}
	return nil
}

// Overwrites reports whether the write replaces bytes that the file has.
func (w *InPlace) Overwrites() bool { return w.start < w.size }

// Spool returns an unnamed file for a body whose length is not known yet. It is beside the file where that is possible,
// so that the body can move without a copy; the caller closes it.
func (w *InPlace) Spool(path string) (*os.File, error) {
	to, err := target(path)
	if err != nil {
		return nil, err
	}
	flags := unix.O_TMPFILE | unix.O_RDWR | unix.O_CLOEXEC
	if fd, err := unix.Open(filepath.Dir(to), flags, 0o600); err == nil {
		return os.NewFile(uintptr(fd), "spool"), nil
	}
	f, err := os.CreateTemp("", "spool") // file systems without unnamed files, as in gVisor
	if err == nil {
		err = os.Remove(f.Name())
	}
	return f, err
}

// Release gives back what Reserve took and no write has used.
func (w *InPlace) Release() {
	var st unix.Stat_t
	if unix.Fstat(int(w.Fd()), &st) == nil {
		_ = unix.Ftruncate(int(w.Fd()), st.Size)
	}
}

// Undo takes back by how much n written bytes have made the file longer, and removes a file that is new. What was
// written over the old content stays. So does all that another program has added behind it.
func (w *InPlace) Undo(n int64) {
	var st unix.Stat_t
	if unix.Fstat(int(w.Fd()), &st) != nil || st.Size > max(w.size, w.start+n) {
		return
	}
	_ = unix.Ftruncate(int(w.Fd()), w.size)
	if w.made != "" {
		_ = w.id.Do(func() error { return os.Remove(w.made) })
	}
}
