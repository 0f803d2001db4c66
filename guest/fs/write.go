package fs

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"berth/guest/output"
	"berth/guest/user"
	"berth/guest/wire"
	"berth/proto"
)

// defaultMode is the mode of files for which no mode is given.
const defaultMode = 0o644

// newFile is a file that is being written: a temporary file beside the target, renamed at the end. Until then it can
// be dropped without a trace.
type newFile struct {
	id     user.User
	path   string // the target path, with links followed
	dir    int    // the directory that name and temp are in, or AT_FDCWD if they are whole paths
	name   string
	temp   string
	f      *os.File
	sum    hash.Hash // nil: no hash requested
	size   int64
	opt    wire.WriteOptions
	before *unix.Stat_t // the existing file, or nil
}

// createTemp makes the temporary file and its parent directories.
func (s *FS) createTemp(id user.User, path string, opt wire.WriteOptions) (*newFile, error) {
	in := &newFile{id: id, dir: unix.AT_FDCWD, opt: opt}
	if opt.Hash {
		in.sum = sha256.New()
	}
	err := id.Do(func() error {
		prepare := in.placeAt
		if opt.NoLinks {
			prepare = func(path string) error { return in.placeNoLinks(s, path) }
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
func (in *newFile) placeAt(path string) (err error) {
	if in.path, err = target(path); err != nil {
		return err
	}
	in.name = in.path
	if err := in.examine(); err != nil {
		return err
	}
	in.temp = filepath.Join(filepath.Dir(in.path), tempName())
	return os.MkdirAll(filepath.Dir(in.path), 0o755)
}

// tempName returns a name for an incomplete file.
func tempName() string { return ".berth-" + rand.Text() + ".tmp" }

func (in *newFile) closeDir() {
	if in.dir != unix.AT_FDCWD {
		_ = unix.Close(in.dir)
		in.dir = unix.AT_FDCWD
	}
}

// examine checks the existing file, with the permission that a write in place would need. A rename needs no
// permission on the file itself.
func (in *newFile) examine() error {
	f, st, err := openRegular(in.path, unix.O_WRONLY)
	switch {
	case isMissing(err):
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

// maxLinks is the maximum number of links on a path, as in the kernel.
const maxLinks = 40

// target follows the links at the end of path, so that a write to a link changes its target. The final target need
// not exist.
func target(path string) (string, error) {
	for range maxLinks {
		to, err := os.Readlink(path)
		if errors.Is(err, unix.EINVAL) || isMissing(err) {
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
	if isMissing(err) {
		return filepath.Clean("/" + to), nil // it is made with the file
	}
	return filepath.Join(dir, to[last:]), err
}

// unchanged reports whether the file to be replaced is still in the state was.
func (in *newFile) unchanged(was *unix.Stat_t) bool {
	var st unix.Stat_t
	err := in.id.Do(func() error { return unix.Fstatat(in.dir, in.name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	return err == nil && st.Ino == was.Ino && st.Dev == was.Dev && st.Size == was.Size && st.Mtim == was.Mtim &&
		st.Ctim == was.Ctim
}

// Write adds to the file.
func (in *newFile) Write(b []byte) (int, error) {
	n, err := in.f.Write(b)
	if in.sum != nil {
		in.sum.Write(b[:n])
	}
	in.size += int64(n)
	return n, err
}

// drop removes the temporary file.
func (in *newFile) drop() {
	_ = in.f.Close()
	_ = in.id.Do(func() error { return unix.Unlinkat(in.dir, in.temp, 0) })
	in.closeDir()
}

// commit renames the temporary file to its target and describes it.
func (in *newFile) commit() (proto.FileInfo, error) {
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
		fi = info(in.path, &st)
		return nil
	})
	if err != nil {
		in.drop()
		return fi, wire.FileError(wire.OpWrite, in.path, err)
	}
	in.closeDir()
	if in.sum != nil {
		fi.SHA256 = hex.EncodeToString(in.sum.Sum(nil))
	}
	return fi, in.f.Close()
}

// setModeAndOwner sets the mode of the temporary file. If root replaces a user's file, it also sets the owner.
func (in *newFile) setModeAndOwner() error {
	mode := uint32(defaultMode)
	if in.before != nil {
		mode = in.before.Mode & 0o7777
		if in.id.Name == proto.UserRoot {
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
func (in *newFile) rename() error {
	if !in.opt.Exclusive {
		return unix.Renameat(in.dir, in.temp, in.dir, in.name)
	}
	return unix.Renameat2(in.dir, in.temp, in.dir, in.name, unix.RENAME_NOREPLACE)
}

// write receives a file.
func (k *handler) write(id user.User, req *wire.Request, path string) error {
	in, err := k.s.createTemp(id, path, req.Write)
	if err != nil {
		return k.conn.SendReply(nil, err)
	}
	if err := k.conn.SendJSON(wire.FrameReply, nil); err != nil {
		in.drop()
		return err
	}
	b := &body{conn: k.conn}
	if _, err := io.Copy(in, b); err != nil {
		in.drop()
		return b.fail(k, wire.FileError(wire.OpWrite, path, err))
	}
	return k.conn.SendReply(in.commit())
}

// body reads the frames of an upload.
type body struct {
	conn *wire.Conn
	rest []byte
	err  error // of the connection, or io.EOF at the end
}

// Read gives the next bytes.
func (b *body) Read(p []byte) (int, error) {
	for len(b.rest) == 0 {
		if b.err == nil {
			b.fill()
		}
		if b.err != nil {
			return 0, b.err
		}
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// WriteTo copies without a further buffer.
func (b *body) WriteTo(w io.Writer) (total int64, err error) {
	for {
		n, err := w.Write(b.rest)
		total += int64(n)
		b.rest = b.rest[n:]
		if err != nil {
			return total, err
		}
		if b.err == nil {
			b.fill()
		}
		if b.err == io.EOF {
			return total, nil
		}
		if b.err != nil {
			return total, b.err
		}
	}
}

// fill reads the next frame.
func (b *body) fill() {
	kind, payload, err := b.conn.ReadFrame()
	switch {
	case err != nil:
		b.err = wire.UnexpectedEOF(err)
	case kind == wire.FrameClose:
		b.err = io.EOF
	case kind == wire.FrameBody:
		b.rest = payload
	default:
		b.err = wire.ErrFrame
	}
}

// fail ends an upload that cannot go on. If the connection is usable, fail tells the daemon why, and discards the
// data that the daemon sends until it receives that.
func (b *body) fail(k *handler, why error) error {
	if b.err != nil && b.err != io.EOF {
		return b.err
	}
	if err := k.conn.SendReply(nil, why); err != nil {
		return err
	}
	b.rest = nil
	for b.err == nil {
		b.fill()
	}
	if b.err != io.EOF {
		return b.err
	}
	return nil
}

// hash hashes files. It leaves the result empty for files that cannot be hashed.
func (s *FS) hash(id user.User, paths [][]byte) ([]string, error) {
	sums := make([]string, len(paths))
	for i, raw := range paths {
		path, err := s.pathOf(wire.OpHash, raw)
		if err != nil {
			continue
		}
		sums[i] = s.hashFile(id, path)
	}
	return sums, nil
}

// hashFile returns the SHA-256 of a regular file in hex, or "". It follows no link, because the daemon uses the
// result for its manifest index.
func (s *FS) hashFile(id user.User, path string) string {
	f, st, err := s.fileNoLinks(id, path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if st.Size > wire.MaxHash {
		return ""
	}
	sum := sha256.New()
	buf := output.NewBuffer()
	defer buf.Free()
	// A growing file is hashed up to the size that it had.
	if _, err := io.CopyBuffer(onlyWriter{sum}, io.LimitReader(f, st.Size), buf.Data()); err != nil {
		return ""
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// onlyWriter hides other methods, so that io.CopyBuffer uses the buffer.
type onlyWriter struct{ io.Writer }
