// Package pack makes tar archives of local directories for containers.
package pack

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"berth/proto"
)

// Tar writes the directory dir as a tar archive, with names relative to dir and without owners. It packs links as
// links, except links that lead out of dir. It calls skipped for everything that it leaves out.
func Tar(w io.Writer, dir string, skipped func(name, why string)) error {
	// An os.Root ensures that a directory that is replaced by a link during the packing does not lead out of dir.
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	p := &packing{root: root, w: tar.NewWriter(w), skipped: skipped}
	if err := fs.WalkDir(root.FS(), ".", p.entry); err != nil {
		return err
	}
	return p.w.Close()
}

// errUnread ends the packing if send stopped reading.
var errUnread = errors.New("the archive is no longer wanted")

// Stream packs a directory as Tar does, while send sends it. So the archive needs neither memory nor disk space.
func Stream(dir string, skipped func(name, why string), send func(io.Reader) error) error {
	pr, pw := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := Tar(pw, dir, skipped)
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
	root    *os.Root
	w       *tar.Writer
	skipped func(name, why string)
}

// entry packs one file, directory or link. It does not follow links: their targets may be anywhere, and of any owner.
func (p *packing) entry(name string, d fs.DirEntry, err error) error {
	if err != nil {
		return err
	}
	// The directory itself is not packed: its mode would replace that of the destination.
	if name == "." {
		return nil
	}
	fi, err := d.Info()
	if err != nil {
		return err
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
	p.skipped(name, NoFile)
	return nil
}

// Reasons to leave something out of a copy.
const (
	NoFile   = "it is neither file, directory nor link"
	leadsOut = "it is a link that leads out of the directory"
)

// link packs a link unchanged: its target may exist only in the container. It skips a link that leads out, because
// the container would refuse the whole archive for it. An example is the link to the interpreter in a Python virtual
// environment.
func (p *packing) link(name string, fi fs.FileInfo) error {
	target, err := p.root.Readlink(name)
	if err != nil {
		return err
	}
	if !proto.LinkStaysInside(name, target) {
		p.skipped(name, leadsOut)
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
		return err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	h := header(name, tar.TypeReg, fi)
	// The size comes before the content in the archive. A file that grows meanwhile is cut there, and one that
	// shrinks is an error.
	h.Size = fi.Size()
	if err := p.w.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.CopyN(p.w, f, h.Size)
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s became shorter while it was sent", filepath.Join(p.root.Name(), name))
	}
	return err
}

// header returns the header of one member. It has no owner, because the container has other users. It has only
// permission bits, because setuid means nothing for users of another system.
func header(name string, kind byte, fi fs.FileInfo) *tar.Header {
	return &tar.Header{Typeflag: kind, Name: name, Mode: int64(fi.Mode().Perm()), ModTime: fi.ModTime().Round(
		time.Microsecond), Format: tar.FormatPAX}
}
