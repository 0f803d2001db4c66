package guest

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"berth/proto"
)

// What an archive unpacks to at most, where the caller sets no limit.
const (
	defaultUntarBytes = 64 << 30
	defaultUntarFiles = 1_000_000
)

// errCaller wraps what the connection says, to tell it from what files say.
var errCaller = errors.New("sending to the daemon")

// tar sends a directory as an archive.
func (k *caller) tar(id identity, dir string, noLinks bool) error {
	var d *os.File
	err := id.do(func() (err error) {
		if noLinks {
			d, err = k.s.dirNoLinks(dir)
		} else {
			d, err = openDir(unix.AT_FDCWD, dir, true)
		}
		return err
	})
	if err != nil {
		return k.reply(nil, fileError(opTar, dir, err))
	}
	defer d.Close()
	if err := k.conn.sendJSON(frameReply, nil); err != nil {
		return err
	}
	out := bufio.NewWriterSize(bodyWriter{k.conn}, bodyBytes)
	p := &packer{id: id, w: tar.NewWriter(out)}
	err = errors.Join(p.pack(d, dir, "", 0), p.w.Close())
	if err != nil && !errors.Is(err, errCaller) {
		return k.reply(nil, fileError(opTar, dir, err))
	}
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		return err
	}
	return k.conn.send(frameClose, nil)
}

// A bodyWriter sends what is written to it as frames.
type bodyWriter struct{ conn *conn }

func (w bodyWriter) Write(b []byte) (int, error) {
	for sent := 0; sent < len(b); {
		n := min(len(b)-sent, MaxFrame)
		if err := w.conn.send(frameBody, b[sent:sent+n]); err != nil {
			return sent, fmt.Errorf("%w: %v", errCaller, err)
		}
		sent += n
	}
	return len(b), nil
}

// A packer writes a tree into an archive.
type packer struct {
	id identity
	w  *tar.Writer
}

// pack adds what the open directory d holds, in order. path is where it is, name what it is called in the archive.
func (p *packer) pack(d *os.File, dir, name string, depth int) error {
	if depth > maxDepth {
		return proto.Errorf(proto.TooLarge, opTar, dir, "%s is more than %d directories deep", dir, maxDepth)
	}
	names, err := d.Readdirnames(-1)
	if err != nil {
		return fileError(opTar, dir, err)
	}
	sort.Strings(names)
	for _, n := range names {
		if err := p.entry(d, filepath.Join(dir, n), n, path.Join(name, n), depth); err != nil {
			return err
		}
	}
	return nil
}

// entry adds one file, link or directory.
func (p *packer) entry(d *os.File, where, base, name string, depth int) error {
	var fi proto.FileInfo
	var f *os.File
	var st unix.Stat_t
	err := p.id.do(func() (err error) {
		if fi, err = infoAt(int(d.Fd()), base, where); err != nil {
			return err
		}
		if fi.Type != proto.TypeFile && fi.Type != proto.TypeDirectory {
			return nil
		}
		fd, err := unix.Openat(int(d.Fd()), base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		f = os.NewFile(uintptr(fd), base)
		return unix.Fstat(fd, &st)
	})
	if f != nil {
		defer f.Close()
	}
	switch {
	case isMissing(err):
		return nil // it was removed meanwhile
	case err != nil:
		return fileError(opTar, where, err)
	case f == nil && fi.Type == proto.TypeSymlink:
		return p.w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: fi.Target, Mode: 0o777, ModTime: fi.ModifiedAt.Time})
	case f == nil:
		return nil
	}
	return p.open(f, &st, where, name, depth)
}

// open adds an open file or directory.
func (p *packer) open(f *os.File, st *unix.Stat_t, where, name string, depth int) error {
	h := &tar.Header{
		Name: name, Mode: int64(st.Mode & 0o7777), Uid: int(st.Uid), Gid: int(st.Gid),
		ModTime: time.Unix(st.Mtim.Unix()),
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
		if err := p.w.WriteHeader(h); err != nil {
			return err
		}
		return p.pack(f, where, name, depth+1)
	case unix.S_IFREG:
		h.Typeflag, h.Size = tar.TypeReg, st.Size
		if err := p.w.WriteHeader(h); err != nil {
			return err
		}
		// What a file grew meanwhile is left out.
		n, err := io.Copy(p.w, io.LimitReader(f, st.Size))
		if err == nil && n < st.Size {
			return proto.Errorf(proto.Conflict, opTar, where, "%s became shorter while it was packed; try again", where)
		}
		return err
	}
	return nil
}

// untar receives an archive.
func (k *caller) untar(id identity, req *request, dir string) error {
	u := &unpacker{limits: req.Untar}
	if u.limits.Bytes <= 0 {
		u.limits.Bytes = defaultUntarBytes
	}
	if u.limits.Files <= 0 {
		u.limits.Files = defaultUntarFiles
	}
	err := id.do(func() (err error) {
		if err = os.MkdirAll(dir, 0o755); err == nil {
			u.root, err = os.OpenRoot(dir)
		}
		return err
	})
	if err != nil {
		return k.reply(nil, fileError(opUntar, dir, err))
	}
	defer u.root.Close()
	if err := k.conn.sendJSON(frameReply, nil); err != nil {
		return err
	}
	b := &body{conn: k.conn}
	// All in one go on one thread: the members come too fast to change credentials for each.
	if err := id.do(func() error { return u.unpack(b) }); err != nil {
		return b.fail(k, u.explain(err))
	}
	for b.err == nil { // padding after the end of the archive
		b.rest = nil
		b.fill()
	}
	if b.err != io.EOF {
		return b.err
	}
	return k.reply(nil, nil)
}

// An unpacker unpacks an archive below root, which it cannot leave: every name is resolved by
// descriptors and links that lead out are refused by os.Root too.
type unpacker struct {
	root   *os.Root
	limits UntarLimits
	bytes  int64
	files  int    // members that are unpacked
	member string // the one at hand
	dirs   []*tar.Header
}

// unpack reads the archive to its end.
func (u *unpacker) unpack(r io.Reader) error {
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return u.dates()
		}
		if err != nil {
			return err
		}
		u.member = h.Name
		if u.files >= u.limits.Files {
			return proto.Errorf(proto.TooLarge, opUntar, u.member, "the archive has more than %d members", u.limits.Files)
		}
		if err := u.one(h, tr); err != nil {
			return err
		}
		u.files++
	}
}

// one unpacks one member.
func (u *unpacker) one(h *tar.Header, r io.Reader) error {
	name, err := memberName(h.Name)
	if err != nil {
		return err
	}
	if name == "." {
		return nil
	}
	if err := u.root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		if err := u.root.MkdirAll(name, 0o755); err != nil {
			return err
		}
		u.dirs = append(u.dirs, h)
		return nil
	case tar.TypeReg:
		return u.file(name, h, r)
	case tar.TypeSymlink:
		return u.symlink(name, h)
	case tar.TypeLink:
		return u.hardlink(name, h)
	case tar.TypeXGlobalHeader:
		return nil
	}
	return refuse(h.Name, "is a device, FIFO or other special file, which are not unpacked")
}

// refuse says why a member is not unpacked.
func refuse(member, why string) error {
	member = clean(strings.ToValidUTF8(member, "\uFFFD"), 1024)
	return proto.Errorf(proto.InvalidArgument, opUntar, member, "member %q %s", member, why)
}

// memberName checks and cleans the name of a member.
func memberName(name string) (string, error) {
	switch {
	case name == "" || strings.IndexByte(name, 0) >= 0:
		return "", refuse(name, "has no valid name")
	case path.IsAbs(name):
		return "", refuse(name, "has an absolute name")
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", refuse(name, `has ".." in its name`)
		}
	}
	return path.Clean(name), nil
}

// clear removes what stands in the place of a new file, link or hard link. Directories stay.
func (u *unpacker) clear(name, member string) error {
	fi, err := u.root.Lstat(name)
	if err != nil {
		if isMissing(err) {
			return nil
		}
		return err
	}
	if fi.IsDir() {
		return refuse(member, "would replace a directory")
	}
	return u.root.Remove(name)
}

// file unpacks a regular file. It takes its name only when it is whole.
func (u *unpacker) file(name string, h *tar.Header, r io.Reader) error {
	if h.Size > u.limits.Bytes-u.bytes {
		return proto.Errorf(proto.TooLarge, opUntar, h.Name, "the archive unpacks to more than %d bytes", u.limits.Bytes)
	}
	u.bytes += h.Size
	temp := path.Join(path.Dir(name), ".berth-"+random()+".tmp")
	f, err := u.root.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	if err == nil {
		err = f.Chmod(os.FileMode(h.Mode & 0o777))
	}
	if err == nil {
		err = f.Close()
	}
	if err == nil {
		err = u.clear(name, h.Name)
	}
	if err == nil {
		err = u.root.Rename(temp, name)
	}
	if err != nil {
		_ = f.Close()
		_ = u.root.Remove(temp)
		return err
	}
	return u.root.Chtimes(name, h.ModTime, h.ModTime)
}

// symlink unpacks a link that stays inside.
func (u *unpacker) symlink(name string, h *tar.Header) error {
	if path.IsAbs(h.Linkname) || !filepath.IsLocal(path.Join(path.Dir(name), h.Linkname)) {
		return refuse(h.Name, "is a link that leads out of the directory")
	}
	if err := u.clear(name, h.Name); err != nil {
		return err
	}
	return u.root.Symlink(h.Linkname, name)
}

// hardlink unpacks another name of a member that came before.
func (u *unpacker) hardlink(name string, h *tar.Header) error {
	old, err := memberName(h.Linkname)
	if err != nil {
		return refuse(h.Name, "is a link that leads out of the directory")
	}
	fi, err := u.root.Lstat(old)
	if err != nil || !fi.Mode().IsRegular() {
		return refuse(h.Name, "is a hard link to something that the archive does not hold")
	}
	if err := u.clear(name, h.Name); err != nil {
		return err
	}
	return u.root.Link(old, name)
}

// dates gives directories their modes and times, which unpacking into them changed.
func (u *unpacker) dates() error {
	for i := len(u.dirs) - 1; i >= 0; i-- {
		h := u.dirs[i]
		name, err := memberName(h.Name)
		if err != nil {
			return err
		}
		// One that was replaced by a later member is that member's affair.
		if fi, err := u.root.Lstat(name); err != nil || !fi.IsDir() {
			continue
		}
		if err := u.root.Chmod(name, os.FileMode(h.Mode&0o777)); err != nil {
			return err
		}
		if err := u.root.Chtimes(name, h.ModTime, h.ModTime); err != nil {
			return err
		}
	}
	return nil
}

// explain adds to an error which member it is about and what was done before it.
func (u *unpacker) explain(err error) error {
	member := clean(strings.ToValidUTF8(u.member, "\uFFFD"), 1024)
	var e *proto.Error
	if !errors.As(err, &e) {
		switch {
		case errors.Is(err, tar.ErrHeader), errors.Is(err, io.ErrUnexpectedEOF):
			e = proto.Errorf(proto.InvalidArgument, opUntar, member, "the archive is damaged or cut off after member %q", member)
		case escapes(err):
			errors.As(refuse(u.member, "leads out of the directory through a link"), &e)
		default:
			errors.As(fileError(opUntar, member, err), &e)
		}
	}
	told := *e
	told.Message += fmt.Sprintf("; %d members before it were unpacked", u.files)
	return &told
}

// escapes reports whether os.Root refused a path. It has no name for that error.
func escapes(err error) bool {
	return err != nil && strings.Contains(err.Error(), "escapes")
}
