// Package pack makes tar archives of the host's directories for containers.
package pack

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// Tar writes what the directory dir holds as a tar archive, with names from there on and no owners. Links are
// packed as links, unless they lead out of dir. It tells of what it leaves out.
func Tar(w io.Writer, dir string, skipped func(name, why string)) error {
	// A root, so that a directory which is swapped for a link while it is packed does not lead out
	// of dir.
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

// errUnread ends the packing of what nobody reads any more.
var errUnread = errors.New("the archive is no longer wanted")

// Stream packs a directory as Tar does while it is sent, so that its size costs neither memory nor disk.
func Stream(dir string, skipped func(name, why string), send func(io.Reader) error) error {
	pr, pw := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := Tar(pw, dir, skipped)
		pw.CloseWithError(err)
		packed <- err
	}()
	err := send(pr)
	pr.CloseWithError(errUnread) // frees the packer if not all was wanted
	if perr := <-packed; perr != nil && !errors.Is(perr, errUnread) {
		return perr // which the receiver can only have seen the effect of
	}
	return err
}

// Names are relative to root, with slashes, as tar wants them.
type packing struct {
	root    *os.Root
	w       *tar.Writer
	skipped func(name, why string)
}

// entry packs one file, directory or link. A link is not followed: what it points to may be anywhere, and anybody's.
func (p *packing) entry(name string, d fs.DirEntry, err error) error {
	if err != nil {
		return err
	}
	// The directory itself is not a member: its mode would replace that of the destination.
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
	// Sockets, pipes and devices mean nothing without what is behind them here. They are told of
	// and are no error.
	p.skipped(name, NoFile)
	return nil
}

// Why something is left out of a copy.
const (
	NoFile   = "it is neither file, directory nor link"
	leadsOut = "it is a link that leads out of the directory"
)

// link packs a link as it stands: it may point to something that only the container has. The container refuses a
// whole archive for a link that leads out, such as the one to the interpreter in a virtual environment of Python.
func (p *packing) link(name string, fi fs.FileInfo) error {
	target, err := p.root.Readlink(name)
	if err != nil {
		return err
	}
	if !inner(name, target) {
		p.skipped(name, leadsOut)
		return nil
	}
	h := header(name, tar.TypeSymlink, fi)
	h.Linkname = target
	return p.w.WriteHeader(h)
}

// inner reports whether a link stays inside, by the rule that the container has: where a path leads that goes down
// and then up depends on what is a link down there, so it does not count.
func inner(name, target string) bool {
	down := false
	for part := range strings.SplitSeq(target, "/") {
		if part == ".." && down {
			return false
		}
		down = down || part != ".." && part != "." && part != ""
	}
	return !path.IsAbs(target) && filepath.IsLocal(path.Join(path.Dir(name), target))
}

// file packs what is there when it is opened.
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
	// The archive has the size before the content, so a file that grows meanwhile is cut there,
	// and one that shrinks is an error.
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

// header describes one member. Owners are left out: the container has users of its own.
// Permission bits alone, as setuid means nothing for another system's users.
func header(name string, kind byte, fi fs.FileInfo) *tar.Header {
	return &tar.Header{Typeflag: kind, Name: name, Mode: int64(fi.Mode().Perm()), ModTime: fi.ModTime().Round(
		time.Microsecond), Format: tar.FormatPAX}
}
