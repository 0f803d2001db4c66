// Package archive packs a directory of a container as a tar archive, and unpacks an archive into one. Archives come
// from users, so unpacking never leaves the directory and creates neither devices nor privileged files. Package
// guest/fs sends and receives the archives; package proto has the rules that the client keeps too.
package archive

import (
	"archive/tar"
	"cmp"
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
// in the archive are relative to the directory. As GNU tar does, it goes on after a file that cannot be read, and
// returns its name. An error means that the archive is broken.
func Pack(w io.Writer, id user.User, d *os.File, dir string) (proto.Unread, error) {
	p := &packer{id: id, w: tar.NewWriter(w)}
	err := errors.Join(p.pack(d, dir, "", 0), p.w.Close())
	return p.unread, err
}

// packer writes a tree into an archive.
type packer struct {
	id     user.User
	w      *tar.Writer
	unread proto.Unread
}

// miss notes that a file, or a part of it, is missing in the archive. The name of the packed directory itself is "".
func (p *packer) miss(n proto.ArchiveNote, name string) error {
	name = cmp.Or(name, ".")
	p.unread.Add(name)
	return p.w.WriteHeader(n.Header(name))
}

// pack adds the entries of the open directory d, in order unless there are very many. dir is the directory's path,
// name its name in the archive.
func (p *packer) pack(d *os.File, dir, name string, depth int) error {
	if depth > wire.MaxDepth {
		return p.miss(proto.ArchiveIncomplete, name)
	}
	for {
		names, err := d.Readdirnames(packBatch)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return p.miss(proto.ArchiveIncomplete, name)
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
	case err != nil:
		return p.miss(proto.ArchiveUnreadable, name)
	case f == nil && fi.Type == proto.TypeSymlink:
		return p.w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to, Mode: 0o777,
			ModTime: fi.ModifiedAt.Time})
	case f == nil:
		return p.w.WriteHeader(proto.ArchiveLeftOut.Header(name))
	}
	return p.add(f, &st, where, name, depth)
}

// add adds an open file or directory.
func (p *packer) add(f *os.File, st *unix.Stat_t, where, name string, depth int) error {
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
		// If the file grew in the meantime, the new bytes are left out. If it became shorter, zeros take the place of
		// the rest.
		padded, err := proto.CopyPadded(p.w, f, st.Size)
		if err == nil && padded {
			err = p.miss(proto.ArchiveIncomplete, name)
		}
		return err
	}
	return p.w.WriteHeader(proto.ArchiveLeftOut.Header(name)) // it has become a pipe or device
}
