package fs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"berth/guest/output"
	"berth/guest/user"
	"berth/guest/wire"
	"berth/proto"
)

// listingBytes is the approximate size of one message of a list.
const listingBytes = 128 << 10

// file handles a request on files, as id.
func (k *handler) file(id user.User, req *wire.Request) error {
	switch req.Op {
	case wire.OpHash:
		return k.conn.SendReply(k.s.hash(id, req.Paths))
	case wire.OpEdit:
		if req.Edit == nil {
			return wire.ErrFrame
		}
	}
	path, err := k.s.pathOf(req.Op, req.Path)
	if err != nil {
		return k.conn.SendReply(nil, err)
	}
	switch req.Op {
	case wire.OpStat:
		return k.conn.SendReply(k.s.stat(id, path))
	case wire.OpMkdir:
		return k.conn.SendReply(nil, wire.FileError(req.Op, path,
			id.Do(func() error { return os.MkdirAll(path, 0o755) })))
	case wire.OpRemove:
		return k.conn.SendReply(nil, k.s.remove(id, path, req.Recursive))
	case wire.OpMove:
		to, err := k.s.pathOf(req.Op, req.To)
		if err == nil {
			err = move(id, path, to)
		}
		return k.conn.SendReply(nil, err)
	case wire.OpEdit:
		return k.conn.SendReply(k.s.edit(id, path, req.Edit))
	}
	return k.transfer(id, req, path)
}

// transfer handles a request with a long answer or a body.
func (k *handler) transfer(id user.User, req *wire.Request, path string) error {
	switch req.Op {
	case wire.OpList:
		files, truncated, err := list(id, path, clamp(req.Max, wire.MaxList))
		return k.list(files, truncated, wire.FileError(req.Op, path, err))
	case wire.OpWalk:
		files, truncated, err := k.s.walk(id, path, clamp(req.Max, wire.MaxWalk))
		return k.list(files, truncated, wire.FileError(req.Op, path, err))
	case wire.OpRead:
		return k.read(id, req, path)
	case wire.OpTar:
		return k.tar(id, path, req.NoLinks)
	case wire.OpWrite:
		return k.write(id, req, path)
	case wire.OpUntar:
		return k.untar(id, req, path)
	}
	return wire.ErrFrame
}

func clamp(n, most int) int { return min(max(n, 0), most) }

// pathOf checks a path and makes it absolute.
func (s *FS) pathOf(op string, raw []byte) (string, error) {
	path := string(raw)
	switch {
	case path == "":
		return "", proto.Errorf(proto.InvalidArgument, op, "path", "the path is empty")
	case strings.IndexByte(path, 0) >= 0:
		return "", proto.Errorf(proto.InvalidArgument, op, "path", "the path holds a NUL byte")
	}
	return s.Absolute(path), nil
}

// info converts the lstat result of path.
func info(path string, st *unix.Stat_t) proto.FileInfo {
	fi := proto.FileInfo{
		Path: path, Type: typeOf(st.Mode), SizeBytes: st.Size, Mode: fmt.Sprintf("%04o", st.Mode&0o7777),
		UID: st.Uid, GID: st.Gid,
		ModifiedAt: proto.At(time.Unix(st.Mtim.Unix())), ChangedAt: proto.At(time.Unix(st.Ctim.Unix())),
	}
	if !utf8.ValidString(path) {
		fi.RawPath = []byte(path)
		fi.Path = strings.ToValidUTF8(path, "\uFFFD")
	}
	return fi
}

// typeOf translates the type bits of a mode.
func typeOf(mode uint32) proto.FileType {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return proto.TypeFile
	case unix.S_IFDIR:
		return proto.TypeDirectory
	case unix.S_IFLNK:
		return proto.TypeSymlink
	}
	return proto.TypeOther
}

// infoAt describes the entry name of the open directory dir, whose path is given.
func infoAt(dir int, name, path string) (proto.FileInfo, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return proto.FileInfo{}, err
	}
	fi := info(path, &st)
	if fi.Type == proto.TypeSymlink {
		to, _ := linkAt(dir, name)
		fi.Target = strings.ToValidUTF8(to, "\uFFFD")
	}
	return fi, nil
}

// linkAt returns the target of a link as raw bytes, which need not be UTF-8.
func linkAt(dir int, name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, name, buf)
	return string(buf[:max(n, 0)]), err
}

// stat describes one file.
func (s *FS) stat(id user.User, path string) (fi proto.FileInfo, err error) {
	err = id.Do(func() (err error) {
		fi, err = infoAt(unix.AT_FDCWD, path, path)
		return err
	})
	return fi, wire.FileError(wire.OpStat, path, err)
}

// dirFlags open a directory for reading.
const dirFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC

// OpenDir opens a directory. It follows a link at the end only if follow is set.
func OpenDir(at int, name string, follow bool) (*os.File, error) {
	if follow {
		fd, err := unix.Openat(at, name, dirFlags, 0)
		return os.NewFile(uintptr(fd), name), err
	}
	fd, err := OpenEntry(at, name)
	return os.NewFile(uintptr(fd), name), err // nil for an invalid descriptor
}

// OpenEntry opens a directory that is an entry of another for reading. It never follows a link.
func OpenEntry(at int, name string) (int, error) {
	if fd, err := openStraight(at, name); err != unix.ENOSYS {
		return fd, err
	}
	is, err := stepInto(at, name)
	if err != nil {
		return -1, err
	}
	defer unix.Close(is)
	return unix.Openat(is, ".", dirFlags, 0)
}

// noOpenat2 is set if the kernel lacks the call, as gVisor does, or a filter denies it.
var noOpenat2 atomic.Bool

// openStraight opens a directory for reading in one system call, without following links. A link at the end or on the
// way returns unix.ENOTDIR. unix.ENOSYS means that the caller must open it in steps.
func openStraight(at int, path string) (int, error) {
	if noOpenat2.Load() {
		return -1, unix.ENOSYS
	}
	fd, err := unix.Openat2(at, path, &unix.OpenHow{Flags: dirFlags, Resolve: unix.RESOLVE_NO_SYMLINKS})
	switch err {
	case unix.ENOSYS, unix.EPERM:
		noOpenat2.Store(true)
		err = unix.ENOSYS
	case unix.ELOOP:
		err = unix.ENOTDIR
	}
	return fd, err
}

// stepInto opens a directory that is an entry of another, as a base for further steps. A link returns unix.ENOTDIR.
// stepInto checks the type of the open descriptor: under gVisor O_DIRECTORY follows links in spite of O_NOFOLLOW.
func stepInto(at int, name string) (int, error) {
	fd, err := unix.Openat(at, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		err = unix.ENOTDIR
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// list describes the entries of a directory.
func list(id user.User, path string, most int) (files []proto.FileInfo, truncated bool, err error) {
	err = id.Do(func() error {
		d, err := OpenDir(unix.AT_FDCWD, path, true)
		if err != nil {
			return err
		}
		defer d.Close()
		names, err := d.Readdirnames(most + 1)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		truncated = len(names) > most
		sort.Strings(names)
		for _, name := range names[:min(len(names), most)] {
			fi, err := infoAt(int(d.Fd()), name, filepath.Join(path, name))
			if err == nil { // otherwise it was removed in the meantime
				files = append(files, fi)
			}
		}
		return nil
	})
	return files, truncated, err
}

// maxLooked is how many entries a walk examines for each entry that it may return. Without it, the walk of a tree
// that has only directories would be unbounded.
const maxLooked = 4

// walker collects the files below a directory.
type walker struct {
	most      int
	left      int    // number of entries that it may still examine
	prune     string // a directory to remove on the way if it is empty; "" once done
	dev       uint64
	files     []proto.FileInfo
	truncated bool
	buf       []byte // buffer for directory entries from the kernel
}

// walk describes the files and links below dir. dir itself must not be a link, because the daemon uses the result for
// its manifest index.
func (s *FS) walk(id user.User, dir string, most int) ([]proto.FileInfo, bool, error) {
	w := &walker{most: most, left: maxLooked * (most + 1000)}
	err := id.Do(func() error { return w.from(s, dir) })
	return w.sorted(), w.truncated, err
}

// from walks dir and everything below it.
func (w *walker) from(s *FS, dir string) error {
	d, err := s.openNoLinks(dir)
	if err != nil {
		return err
	}
	defer unix.Close(d)
	var st unix.Stat_t
	if err := unix.Fstat(d, &st); err != nil {
		return err
	}
	w.dev, w.buf = uint64(st.Dev), make([]byte, 8<<10)
	return w.walk(d, dir, 0)
}

// sorted returns the files found, sorted by path.
func (w *walker) sorted() []proto.FileInfo {
	sort.Slice(w.files, func(i, j int) bool { return w.files[i].Path < w.files[j].Path })
	return w.files
}

// walk reads one open directory. Below the first directory it leaves out what it cannot read, and paths that are too
// long for the kernel.
func (w *walker) walk(d int, path string, depth int) error {
	entries, err := ReadEntries(d, w.buf, w.left+1)
	if err != nil {
		return err
	}
	if len(entries) > w.left {
		entries, w.truncated = entries[:w.left], true
	}
	w.left -= len(entries)
	slices.SortFunc(entries, func(a, b dirEntry) int { return strings.Compare(a.Name, b.Name) })
	for _, e := range entries {
		child := filepath.Join(path, e.Name)
		if len(child) >= unix.PathMax { // the walk uses descriptors and reaches entries whose paths are too long
			w.truncated = true
			continue
		}
		if child == w.prune && w.removeEmpty(d, e.Name) {
			continue
		}
		if e.kind == unix.DT_DIR { // a directory is not listed, so no stat is needed
			w.descend(d, e.Name, child, depth+1)
		} else {
			w.addEntry(d, e.Name, child, depth)
		}
		if w.truncated && len(w.files) >= w.most {
			return nil
		}
	}
	return nil
}

// removeEmpty removes the directory prune if it is empty. If the walker may not remove it, the caller must.
func (w *walker) removeEmpty(at int, name string) bool {
	err := unix.Unlinkat(at, name, unix.AT_REMOVEDIR)
	if err == nil || err == unix.ENOTEMPTY {
		w.prune = ""
	}
	return err == nil
}

// addEntry describes an entry that is not a directory, or whose type is unknown.
func (w *walker) addEntry(d int, name, child string, depth int) {
	fi, err := infoAt(d, name, child)
	switch {
	case err != nil:
	case fi.Type == proto.TypeDirectory:
		w.descend(d, name, child, depth+1)
	case fi.Type == proto.TypeOther:
	case len(w.files) >= w.most:
		w.truncated = true
	default:
		w.files = append(w.files, fi)
	}
}

// descend walks a subdirectory if it is on the same file system.
func (w *walker) descend(d int, name, path string, depth int) {
	if depth > wire.MaxDepth {
		w.truncated = true
		return
	}
	sub, err := OpenEntry(d, name)
	if err != nil {
		w.truncated = w.truncated || !isMissing(err) // it may have been removed
		return
	}
	defer unix.Close(sub)
	var st unix.Stat_t
	if unix.Fstat(sub, &st) != nil || uint64(st.Dev) != w.dev {
		return
	}
	if w.walk(sub, path, depth) != nil {
		w.truncated = true
	}
}

// list sends a list in messages of limited size.
func (k *handler) list(files []proto.FileInfo, truncated bool, err error) error {
	if err != nil {
		return k.conn.SendReply(nil, err)
	}
	for {
		n, bytes := 0, 0
		for n < len(files) && bytes < listingBytes {
			bytes += 300 + len(files[n].Path) + 2*len(files[n].RawPath) + len(files[n].Target)
			n++
		}
		l := wire.Listing{Files: files[:n], More: n < len(files), Truncated: truncated}
		if err := k.conn.SendJSON(wire.FrameReply, l); err != nil || !l.More {
			return err
		}
		files = files[n:]
	}
}

// move renames a file.
func move(id user.User, from, to string) error {
	err := id.Do(func() error {
		if _, err := os.Lstat(from); err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		return unix.Rename(from, to)
	})
	item := from
	if errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EISDIR) ||
		errors.Is(err, unix.ENOTDIR) {
		item = to
	}
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EISDIR) {
		return proto.Errorf(proto.AlreadyExists, wire.OpMove, to, "%s is a directory and stays; remove it first", to)
	}
	return wire.FileError(wire.OpMove, item, err)
}

// openRegular opens regular files only. An open FIFO would wait for its other end, and an open device may have any
// effect.
func openRegular(path string, flags int) (*os.File, *unix.Stat_t, error) {
	fd, err := unix.Open(path, flags|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	return regular(fd, path)
}

// regular makes a file of an open descriptor if it is a regular file, and closes it otherwise.
func regular(fd int, path string) (*os.File, *unix.Stat_t, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	if err != nil {
		_ = unix.Close(fd)
		return nil, nil, err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return os.NewFile(uintptr(fd), path), &st, nil
	case unix.S_IFDIR:
		err = unix.EISDIR
	default:
		err = unix.ENXIO
	}
	_ = unix.Close(fd)
	return nil, nil, err
}

// openAs is openRegular with id's permissions.
func openAs(id user.User, path string, flags int) (f *os.File, st *unix.Stat_t, err error) {
	err = id.Do(func() (err error) {
		f, st, err = openRegular(path, flags)
		return err
	})
	return f, st, err
}

// read sends a part of a file.
func (k *handler) read(id user.User, req *wire.Request, path string) error {
	open := func() (*os.File, *unix.Stat_t, error) { return openAs(id, path, unix.O_RDONLY) }
	if req.NoLinks {
		open = func() (*os.File, *unix.Stat_t, error) { return k.s.fileNoLinks(id, path) }
	}
	f, st, err := open()
	if err != nil {
		return k.conn.SendReply(nil, wire.FileError(wire.OpRead, path, err))
	}
	defer f.Close()
	if req.Offset < 0 {
		return k.conn.SendReply(nil, proto.Errorf(proto.InvalidArgument, wire.OpRead, path, "the offset is negative"))
	}
	length := max(0, st.Size-req.Offset)
	if req.Count >= 0 {
		length = min(length, req.Count)
	}
	head := wire.Opened{Info: info(path, st), Length: length}
	if req.Handover && length >= handoverBytes && wire.CanHandOver(int(f.Fd())) {
		return k.handOver(f, head)
	}
	if err := k.conn.SendJSON(wire.FrameReply, head); err != nil {
		return err
	}
	switch err := k.send(io.NewSectionReader(f, req.Offset, length), length); {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return k.conn.SendReply(nil, wire.FileShrunk(path))
	case err != nil:
		return err
	}
	return k.conn.Send(wire.FrameClose, nil)
}

// send sends length bytes as a body.
func (k *handler) send(r io.Reader, length int64) error {
	buf := output.NewBuffer()
	defer buf.Free()
	for length > 0 {
		b := buf.Data()[:min(length, output.BufferBytes)]
		if _, err := io.ReadFull(r, b); err != nil {
			return wire.UnexpectedEOF(err)
		}
		if err := k.conn.Send(wire.FrameBody, b); err != nil {
			return err
		}
		length -= int64(len(b))
	}
	return nil
}

// isMissing reports whether err says that a file is not there.
func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// handoverBytes is the length from which a handover costs less than frames.
const handoverBytes = wire.BodyBytes

// handOver answers a read with the file itself.
func (k *handler) handOver(f *os.File, head wire.Opened) error {
	head.Handover = true
	if err := k.conn.SendJSONWith(wire.FrameReply, head, []int{int(f.Fd())}); err != nil {
		return err
	}
	return k.conn.Send(wire.FrameClose, nil)
}
