// Package archive packs a directory of a container as a tar archive, and unpacks an archive into one. Archives come
// from users, so unpacking never leaves the directory and creates neither devices nor privileged files. Package
// guest/fs sends and receives the archives; package proto has the rules that the client keeps too.
package archive

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"sort"
	"time"

	"golang.org/x/sys/unix"

	"berth/guest/fs/access"
	"berth/guest/user"
	"berth/guest/wire"
	"berth/proto"
)

// Pack writes the content of the open directory d, whose path is dir, to w as a tar archive. It reads as a user. Names
// in the archive are relative to the directory.
func Pack(w io.Writer, id user.User, d *os.File, dir string) error {
	p := &packer{id: id, w: tar.NewWriter(w)}
	return errors.Join(p.pack(d, dir, "", 0), p.w.Close())
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
		if fi, err = access.InfoAt(int(d.Fd()), base, where); err != nil {
			return err
		}
		if fi.Type == proto.TypeSymlink {
			to, err = access.LinkAt(int(d.Fd()), base)
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
	case access.IsMissing(err):
		return nil // it was removed in the meantime
	case errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM):
		return p.w.WriteHeader(proto.UnreadableHeader(name)) // as GNU tar, go on with the rest
	case err != nil:
		return wire.FileError(wire.OpTar, where, err)
	case f == nil && fi.Type == proto.TypeSymlink:
		return p.w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to, Mode: 0o777,
			ModTime: fi.ModifiedAt.Time})
	case f == nil:
		return p.w.WriteHeader(proto.LeftOutHeader(name))
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
