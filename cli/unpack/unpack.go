// Package unpack writes tar archives that a container made onto the host.
//
// Whoever made the archive is not trusted. All writing goes through an os.Root, so that the kernel itself keeps
// every path below the destination, links made meanwhile by others included. On top of that:
//
//	names          absolute ones, and those with a ".." that leaves, are refused
//	files          replace what has their name, once they are whole, and never write through a link
//	links          are made as they are, but nothing of the archive is written through one that it brought
//	hard links     only to members, inside
//	devices, FIFOs refused
//	modes          permission bits; set-id and sticky bits and owners are dropped
package unpack

import (
	"archive/tar"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"berth/proto"
)

// Tar unpacks r into the directory dst, which must exist. It stops at the first member that it refuses, with an
// InvalidArgument that names it; what came before it stays. leftOut is told the names of what the archive says that
// it has not.
func Tar(dst string, r io.Reader, leftOut func(name string)) error {
	root, err := os.OpenRoot(dst)
	if err != nil {
		return err
	}
	defer root.Close()
	u := &unpacker{root: root, links: map[string]bool{}, last: root, at: "."}
	defer u.leave()
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return u.finish()
		}
		if err != nil {
			return err
		}
		if name, ok := missing(h); ok {
			leftOut(name)
			continue
		}
		if err := u.member(h, tr); err != nil {
			return err
		}
	}
}

// Read reads all of r and unpacks nothing. leftOut is told what Tar tells it, as far as r is an archive.
func Read(r io.Reader, leftOut func(name string)) error {
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if err != nil {
			break
		}
		if name, ok := missing(h); ok {
			leftOut(name)
		}
	}
	_, err := io.Copy(io.Discard, r)
	return err
}

// missing tells a comment on something that the archive has not.
func missing(h *tar.Header) (name string, ok bool) {
	if h.Typeflag != tar.TypeXGlobalHeader {
		return "", false
	}
	return strings.CutPrefix(h.PAXRecords[proto.ArchiveComment], proto.ArchiveLeftOut)
}

// An unpacker works below one directory.
type unpacker struct {
	root  *os.Root
	links map[string]bool // symbolic links that the archive brought
	dirs  []dir           // in the order of the archive
	// the directory of the member before, which is nearly always that of the next, too; root itself at first
	last *os.Root
	at   string // its name
}

// A dir gets its mode and time at the end: it may not be writable by then, and writing into it changes its time.
type dir struct {
	name string
	mode fs.FileMode
	time time.Time
}

// refuse is the error for a member that will not be written. The name is quoted: it may hold anything.
func refuse(h *tar.Header, why string) error {
	return proto.Errorf(proto.InvalidArgument, "", h.Name, "the archive's member %q %s; nothing more was unpacked",
		h.Name, why)
}

// member writes one member of the archive, or says why not.
func (u *unpacker) member(h *tar.Header, r io.Reader) error {
	name, err := u.check(h, h.Name)
	if err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return u.dir(h, name)
	case tar.TypeReg:
		return u.file(h, name, r)
	case tar.TypeSymlink:
		return u.symlink(h, name)
	case tar.TypeLink:
		return u.hardlink(h, name)
	case tar.TypeXGlobalHeader:
		return nil // a comment
	case tar.TypeChar, tar.TypeBlock:
		return refuse(h, "is a device")
	case tar.TypeFifo:
		return refuse(h, "is a FIFO")
	}
	return refuse(h, fmt.Sprintf("is of the unknown type %q", h.Typeflag))
}

// check cleans a name of the archive and refuses one that leaves, or that leads through a link that the archive
// brought.
func (u *unpacker) check(h *tar.Header, name string) (string, error) {
	switch {
	case name == "" || strings.ContainsRune(name, 0):
		return "", refuse(h, "has no usable name")
	case path.IsAbs(name):
		return "", refuse(h, "has an absolute path")
	}
	clean := path.Clean(name)
	if !filepath.IsLocal(clean) {
		return "", refuse(h, "is outside the directory")
	}
	for at := path.Dir(clean); at != "."; at = path.Dir(at) {
		if u.links[at] {
			return "", refuse(h, "leads through the link "+at)
		}
	}
	return clean, nil
}

// enter makes the way to the directory of name and opens it. It is the archive's to stay: no member replaces a
// directory.
func (u *unpacker) enter(h *tar.Header, name string) (in *os.Root, base string, err error) {
	if name == "." {
		return nil, "", refuse(h, "would replace the directory itself")
	}
	at, base := path.Dir(name), path.Base(name)
	if at == u.at {
		return u.last, base, nil
	}
	u.leave()
	if at == "." {
		return u.last, base, nil
	}
	if err := u.root.MkdirAll(at, 0o755); err != nil {
		return nil, "", u.explain(h, err)
	}
	if in, err = u.root.OpenRoot(at); err != nil {
		return nil, "", u.explain(h, err)
	}
	u.last, u.at = in, at
	return in, base, nil
}

// leave goes back to the root.
func (u *unpacker) leave() {
	if u.last != u.root {
		_ = u.last.Close() // it was for names only
	}
	u.last, u.at = u.root, "."
}

// clear enters the directory of name and removes what is there, but not a directory.
func (u *unpacker) clear(h *tar.Header, name string) (in *os.Root, base string, err error) {
	in, base, there, err := u.prepare(h, name)
	if err == nil && there {
		err = u.explain(h, in.Remove(base))
	}
	return in, base, err
}

// prepare enters the directory of name, and reports whether something is there, which is no directory.
func (u *unpacker) prepare(h *tar.Header, name string) (in *os.Root, base string, there bool, err error) {
	if in, base, err = u.enter(h, name); err != nil {
		return nil, "", false, err
	}
	delete(u.links, name)
	fi, err := in.Lstat(base)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return in, base, false, nil
	case err != nil:
		return nil, "", false, u.explain(h, err)
	case fi.IsDir():
		return nil, "", false, refuse(h, "would replace a directory")
	}
	return in, base, true, nil
}

// explain names the member that the file system refused. os.Root says "path escapes" for what leads out.
func (u *unpacker) explain(h *tar.Header, err error) error {
	if err == nil {
		return nil
	}
	var pe *fs.PathError
	var le *os.LinkError
	switch {
	case errors.As(err, &pe):
		err = pe.Err
	case errors.As(err, &le):
		err = le.Err
	}
	return refuse(h, "cannot be written: "+err.Error())
}

// dir makes a directory. One that is there already is used: unpacking over an earlier copy is what people do.
func (u *unpacker) dir(h *tar.Header, name string) error {
	if u.links[name] {
		return refuse(h, "would replace a link that the archive brought")
	}
	if err := u.root.MkdirAll(name, 0o755); err != nil {
		return u.explain(h, err)
	}
	u.dirs = append(u.dirs, dir{name, fs.FileMode(h.Mode).Perm(), h.ModTime})
	return nil
}

// file writes a file under a name that nothing has, with O_EXCL so that no link can be in the way, and then gives it
// its own: what breaks off leaves nothing cut short behind, and what was there stays.
func (u *unpacker) file(h *tar.Header, name string, r io.Reader) (err error) {
	in, base, _, err := u.prepare(h, name)
	if err != nil {
		return err
	}
	part := ".berth-" + rand.Text()
	f, err := in.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return u.explain(h, err)
	}
	defer func() {
		if err != nil {
			_, _ = f.Close(), in.Remove(part) // what went wrong tells more
		}
	}()
	if _, err := io.Copy(f, r); err != nil {
		return err // the archive's, mostly; it names what it is
	}
	if err := errors.Join(f.Chmod(fs.FileMode(h.Mode).Perm()), f.Close()); err != nil {
		return u.explain(h, err)
	}
	if err := in.Chtimes(part, time.Time{}, h.ModTime); err != nil {
		return u.explain(h, err)
	}
	return u.explain(h, in.Rename(part, base))
}

// symlink makes a link as it is. Where it points is not judged, since nothing here will follow it.
func (u *unpacker) symlink(h *tar.Header, name string) error {
	in, base, err := u.clear(h, name)
	if err != nil {
		return err
	}
	u.links[name] = true
	return u.explain(h, in.Symlink(h.Linkname, base))
}

// hardlink gives a file of the destination another name. It must be a file: a link to a link would be a way around
// links.
func (u *unpacker) hardlink(h *tar.Header, name string) error {
	target, err := u.check(h, h.Linkname)
	if err != nil {
		return err
	}
	fi, err := u.root.Lstat(target)
	if err != nil {
		return u.explain(h, err)
	}
	if !fi.Mode().IsRegular() {
		return refuse(h, "is a hard link to what is not a file")
	}
	if target == name {
		return nil
	}
	if _, _, err := u.clear(h, name); err != nil {
		return err
	}
	return u.explain(h, u.root.Link(target, name))
}

// finish gives the directories their modes and times, the deepest first.
func (u *unpacker) finish() error {
	for i := len(u.dirs) - 1; i >= 0; i-- {
		d := u.dirs[i]
		if d.name == "." {
			continue // the destination is the user's own
		}
		if err := u.root.Chmod(d.name, d.mode|0o700); err != nil {
			return err
		}
		if err := u.root.Chtimes(d.name, time.Time{}, d.time); err != nil {
			return err
		}
	}
	return nil
}
