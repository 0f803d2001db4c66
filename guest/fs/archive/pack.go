package fs

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
	"time"

	"golang.org/x/sys/unix"

	"berth/guest/user"
	"berth/guest/wire"
	"berth/proto"
)

// errCaller wraps errors of the connection, to distinguish them from errors of files.
var errCaller = errors.New("sending to the daemon")

// tar sends a directory as an archive.
func (k *handler) tar(id user.User, dir string, noLinks bool) error {
	var d *os.File
	err := id.Do(func() (err error) {
		if noLinks {
			d, err = k.s.dirNoLinks(dir)
		} else {
			d, err = OpenDir(unix.AT_FDCWD, dir, true)
		}
		return err
	})
	if err != nil {
		return k.conn.SendReply(nil, wire.FileError(wire.OpTar, dir, err))
	}
	defer d.Close()
	if err := k.conn.SendJSON(wire.FrameReply, nil); err != nil {
		return err
	}
	out := bufio.NewWriterSize(bodyWriter{k.conn}, wire.BodyBytes)
	p := &packer{id: id, w: tar.NewWriter(out)}
	err = errors.Join(p.pack(d, dir, "", 0), p.w.Close())
	if err != nil && !errors.Is(err, errCaller) {
		return k.conn.SendReply(nil, wire.FileError(wire.OpTar, dir, err))
	}
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		return err
	}
	return k.conn.Send(wire.FrameClose, nil)
}

// bodyWriter sends what is written to it as frames.
type bodyWriter struct{ conn *wire.Conn }

func (w bodyWriter) Write(b []byte) (int, error) {
	for sent := 0; sent < len(b); {
		n := min(len(b)-sent, wire.MaxFrame)
		if err := w.conn.Send(wire.FrameBody, b[sent:sent+n]); err != nil {
			return sent, fmt.Errorf("%w: %v", errCaller, err)
		}
		sent += n
	}
	return len(b), nil
}

// packer writes a tree into an archive.
type packer struct {
	id user.User
	w  *tar.Writer
}

// pack adds the entries of the open directory d, in order unless there are very many. dir is the directory's path,
// name its name in the archive.
func (p *packer) pack(d *os.File, dir, name string, depth int) error {
	if depth > wire.MaxDepth {
		return proto.Errorf(proto.TooLarge, wire.OpTar, dir, "%s is more than %d directories deep", dir, wire.MaxDepth)
	}
	for {
		names, err := d.Readdirnames(packBatch)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return wire.FileError(wire.OpTar, dir, err)
		}
		sort.Strings(names)
		for _, n := range names {
			if err := p.entry(d, filepath.Join(dir, n), n, path.Join(name, n), depth); err != nil {
				return err
			}
		}
	}
}

// packBatch is how many names of a directory are held in memory and sorted at a time.
const packBatch = 10_000

// entry adds one file, link or directory. For any other entry it adds a comment.
func (p *packer) entry(d *os.File, where, base, name string, depth int) error {
	var fi proto.FileInfo
	var to string // target of a link
	var f *os.File
	var st unix.Stat_t
	err := p.id.Do(func() (err error) {
		if fi, err = infoAt(int(d.Fd()), base, where); err != nil {
			return err
		}
		if fi.Type == proto.TypeSymlink {
			to, err = linkAt(int(d.Fd()), base)
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
		return nil // it was removed in the meantime
	case err != nil:
		return wire.FileError(wire.OpTar, where, err)
	case f == nil && fi.Type == proto.TypeSymlink:
		return p.w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to, Mode: 0o777,
			ModTime: fi.ModifiedAt.Time})
	case f == nil:
		return p.w.WriteHeader(&tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{
			proto.ArchiveComment: proto.ArchiveLeftOut + name}})
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
		// If the file grew in the meantime, the new bytes are left out.
		n, err := io.Copy(p.w, io.LimitReader(f, st.Size))
		if err == nil && n < st.Size {
			return proto.Errorf(proto.Conflict, wire.OpTar, where, "%s became shorter while it was packed; try again",
				where)
		}
		return err
	}
	return nil
}
