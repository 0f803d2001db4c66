// Package unpack writes tar archives from a container onto the host.
//
// The archive is not trusted. All writing goes through an os.Root, so the kernel keeps every path below the
// destination, even if other processes create links meanwhile. In addition:
//
//	names          absolute names, and those with a ".." that leaves, are refused
//	files          replace a file of the same name once complete, and never write through a link
//	links          are created unchanged, but no member is written through a link of the archive
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

// Tar unpacks r into the existing directory dst. It stops at the first member that it refuses, and returns an
// InvalidArgument that names the member. Members before it stay. It calls note for each file that the archive says it
// lacks.
func Tar(dst string, r io.Reader, note func(proto.ArchiveNote, string)) error {
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
		if why, name, ok := proto.NoteOf(h); ok {
			note(why, name)
			continue
		}
		if err := u.member(h, tr); err != nil {
			return err
		}
	}
}

// Read reads all of r without unpacking. It calls note as Tar does, as far as r is an archive.
func Read(r io.Reader, note func(proto.ArchiveNote, string)) error {
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if err != nil {
			break
		}
		if why, name, ok := proto.NoteOf(h); ok {
			note(why, name)
		}
	}
	_, err := io.Copy(io.Discard, r)
	return err
}

// An unpacker unpacks into one directory.
type unpacker struct {
	root  *os.Root
	links map[string]bool // symbolic links from the archive
	dirs  []dir           // in archive order
	// last is the directory of the previous member, at first root. The next member is nearly always in it too.
	last *os.Root
	at   string // the name of last
}

// A dir is a directory that gets its mode and time at the end: the mode may forbid writing, and writing into the
// directory changes its time.
type dir struct {
	name string
	mode fs.FileMode
	time time.Time
}

// refuse returns the error for a refused member. It quotes the name, which may contain any character.
func refuse(h *tar.Header, why string) error {
	return proto.Errorf(proto.InvalidArgument, "", h.Name, "the archive's member %q %s; nothing more was unpacked",
		h.Name, why)
}

// member writes one member of the archive or returns the reason why not.
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

// check cleans a name from the archive. It refuses a name that leaves the directory, or leads through a link from the
// archive.
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

// enter creates and opens the directory of name. It stays open for the next member, because no member can replace a
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

// leave returns to the root.
func (u *unpacker) leave() {
	if u.last != u.root {
		_ = u.last.Close() // opened only to resolve names
	}
	u.last, u.at = u.root, "."
}

// clear enters the directory of name and removes an existing file of that name. A directory is an error.
func (u *unpacker) clear(h *tar.Header, name string) (in *os.Root, base string, err error) {
	in, base, there, err := u.prepare(h, name)
	if err == nil && there {
		err = u.explain(h, in.Remove(base))
	}
	return in, base, err
}

// prepare enters the directory of name and reports whether a file of that name exists. A directory is an error.
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

// explain returns an error that names the member that could not be written. For a path that leads out, os.Root says
// "path escapes".
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

// dir creates a directory, or uses an existing one: users unpack over earlier copies.
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

// file writes a file under an unused name and then renames it. O_EXCL ensures that it follows no link. After an error
// no partial file is left, and the old file stays.
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
			_, _ = f.Close(), in.Remove(part) // the earlier error says more
		}
	}()
	if _, err := io.Copy(f, r); err != nil {
		return err // mostly an error of the archive, which describes itself
	}
	if err := errors.Join(f.Chmod(fs.FileMode(h.Mode).Perm()), f.Close()); err != nil {
		return u.explain(h, err)
	}
	if err := in.Chtimes(part, time.Time{}, h.ModTime); err != nil {
		return u.explain(h, err)
	}
	return u.explain(h, in.Rename(part, base))
}

// symlink creates a link unchanged. It does not check the target, because unpacking never follows it.
func (u *unpacker) symlink(h *tar.Header, name string) error {
	in, base, err := u.clear(h, name)
	if err != nil {
		return err
	}
	u.links[name] = true
	return u.explain(h, in.Symlink(h.Linkname, base))
}

// hardlink gives a file of the destination another name. It refuses a link as the source, because that could bypass
// the rules for links.
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

// finish sets the modes and times of directories, the deepest first.
func (u *unpacker) finish() error {
	for i := len(u.dirs) - 1; i >= 0; i-- {
		d := u.dirs[i]
		if d.name == "." {
			continue // the destination belongs to the user
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
