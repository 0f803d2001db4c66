// Package pack makes tar archives of local directories for containers.
package pack

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"berth/proto"
)

// Tar writes the directory dir as a tar archive, with names relative to dir and without owners. It packs links as
// links, except links that lead out of dir. It calls note for everything that it leaves out, or packs a part of. As GNU
// tar does, it goes on after a file that cannot be read.
func Tar(w io.Writer, dir string, note func(name string, why Reason)) error {
	return write(w, dir, packing{note: note})
}

// write packs dir with the settings of p.
func write(w io.Writer, dir string, p packing) error {
	// An os.Root ensures that a directory that is replaced by a link during the packing does not lead out of dir.
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	p.root, p.w = root, tar.NewWriter(w)
	if err := fs.WalkDir(root.FS(), ".", p.entry); err != nil {
		return err
	}
	for name, text := range p.extra {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(text)), Format: tar.FormatPAX}
		if err := p.w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := p.w.Write(text); err != nil {
			return err
		}
	}
	return p.w.Close()
}

// errUnread ends the packing if send stopped reading.
var errUnread = errors.New("the archive is no longer wanted")

// Stream packs a directory as Tar does, while send sends it. So the archive needs neither memory nor disk space.
func Stream(dir string, note func(name string, why Reason), send func(io.Reader) error) error {
	return stream(dir, packing{note: note}, send)
}

// StreamContext packs a directory as the context of an image's build, while send sends it. It leaves out what ignored
// names; if that is a directory, then with all in it if prune is true. It packs all links and the permissions of all
// files, since they are copied to an image, and then extra: files by name that are not in the directory.
func StreamContext(dir string, ignored func(name string) (skip, prune bool), extra map[string][]byte,
	note func(name string, why Reason), send func(io.Reader) error) error {
	return stream(dir, packing{note: note, ignored: ignored, allLinks: true, extra: extra}, send)
}

func stream(dir string, p packing, send func(io.Reader) error) error {
	pr, pw := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := write(pw, dir, p)
		pw.CloseWithError(err)
		packed <- err
	}()
	err := send(pr)
	pr.CloseWithError(errUnread) // unblocks the packer if send did not read everything
	if perr := <-packed; perr != nil && !errors.Is(perr, errUnread) {
		return perr // the receiver only saw the consequence of this error
	}
	return err
}

// A packing writes one archive. Names are relative to root, with slashes, as tar requires.
type packing struct {
	root *os.Root
	w    *tar.Writer
	note func(name string, why Reason)

	ignored  func(name string) (skip, prune bool) // nil: nothing is ignored
	allLinks bool                                 // also links that lead out
	extra    map[string][]byte
}

// unread notes a file that cannot be read, unless it was removed meanwhile.
func (p *packing) unread(name string, err error) {
	if !errors.Is(err, fs.ErrNotExist) {
		p.note(name, Unread)
	}
}

// entry packs one file, directory or link. It does not follow links: their targets may be anywhere, and of any owner.
func (p *packing) entry(name string, d fs.DirEntry, err error) error {
	if err != nil && name == "." {
		return err
	}
	if err != nil { // a directory that cannot be listed
		p.unread(name, err)
		return nil
	}
	// The directory itself is not packed: its mode would replace that of the destination.
	if name == "." {
		return nil
	}
	if p.ignored != nil {
		switch skip, prune := p.ignored(name); {
		case skip && prune && d.IsDir():
			return fs.SkipDir
		case skip:
			return nil
		}
	}
	fi, err := d.Info()
	if err != nil {
		p.unread(name, err)
		return nil
	}
	switch fi.Mode().Type() {
	case 0:
		return p.file(name)
	case fs.ModeDir:
		return p.w.WriteHeader(header(name+"/", tar.TypeDir, fi))
	case fs.ModeSymlink:
		return p.link(name, fi)
	}
	// Sockets, pipes and devices are useless without their local counterpart. They are skipped and are no error.
	p.note(name, NoFile)
	return nil
}

// A Reason says why a copy lacks something.
type Reason string

// The reasons. The first two are no errors.
const (
	NoFile   Reason = "it is neither file, directory nor link"
	LeadsOut Reason = "it is a link that leads out of the directory"
	Unread   Reason = "it cannot be read"
	Cut      Reason = "it cannot be read to its end" // zeros take the place of the rest
)

// link packs a link unchanged: its target may exist only in the container. It skips a link that leads out, because
// the container would refuse the whole archive for it. An example is the link to the interpreter in a Python virtual
// environment.
func (p *packing) link(name string, fi fs.FileInfo) error {
	target, err := p.root.Readlink(name)
	if err != nil {
		p.unread(name, err)
		return nil
	}
	if !p.allLinks && !proto.LinkStaysInside(name, target) {
		p.note(name, LeadsOut)
		return nil
	}
	h := header(name, tar.TypeSymlink, fi)
	h.Linkname = target
	return p.w.WriteHeader(h)
}

// file packs the file as it is when opened.
func (p *packing) file(name string) error {
	f, err := p.root.Open(name)
	if err != nil {
		p.unread(name, err)
		return nil
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		p.unread(name, err)
		return nil
	}
	h := header(name, tar.TypeReg, fi)
	// The size comes before the content in the archive. A file that grows meanwhile is cut there.
	h.Size = fi.Size()
	if err := p.w.WriteHeader(h); err != nil {
		return err
	}
	padded, err := proto.CopyPadded(p.w, f, h.Size)
	if padded {
		p.note(name, Cut)
	}
	return err
}

// header returns the header of one member. It has no owner, because the container has other users. It has only
// permission bits, because setuid means nothing for users of another system.
func header(name string, kind byte, fi fs.FileInfo) *tar.Header {
	return &tar.Header{Typeflag: kind, Name: name, Mode: int64(fi.Mode().Perm()), ModTime: fi.ModTime().Round(
		time.Microsecond), Format: tar.FormatPAX}
}
