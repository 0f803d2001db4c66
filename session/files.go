package session

import (
	"context"
	"io"
	"strings"

	"berth/guest"
	"berth/proto"
)

// File access inside a session. `as` is proto.UserDefault or proto.UserRoot, and the kernel in the
// container judges what that user may do. Paths are the container's; nothing outside it can be
// named. Each method starts a stopped session and renews the lease.

// Origins of a file that was not made by an exec.
const (
	OriginUploaded = "uploaded"
	OriginEdited   = "edited"
)

// Stat describes one file; it does not follow a link at the end of path.
func (s *Session) Stat(ctx context.Context, as, path string) (fi proto.FileInfo, err error) {
	err = s.withGuest(ctx, func(g *guest.Client) error { fi, err = g.Stat(ctx, as, path); return err })
	return fi, err
}

// List describes the entries of a directory, sorted; truncated says that there are more.
func (s *Session) List(ctx context.Context, as, path string) (list []proto.FileInfo, truncated bool, err error) {
	err = s.withGuest(ctx, func(g *guest.Client) error { list, truncated, err = g.List(ctx, as, path); return err })
	return list, truncated, err
}

// Walk describes the files and links below a directory, at most limit of them. No link is followed, not on the way
// there either.
func (s *Session) Walk(ctx context.Context, as, path string, limit int) (list []proto.FileInfo, truncated bool,
	err error) {
	err = s.withGuest(ctx, func(g *guest.Client) error {
		list, truncated, err = g.Walk(ctx, as, path,
			limit)
		return err
	})
	return list, truncated, err
}

// Hash is the SHA-256 of files, in hex, by path; one that could not be read is missing.
func (s *Session) Hash(ctx context.Context, as string, paths []string) (sums map[string]string, err error) {
	err = s.withGuest(ctx, func(g *guest.Client) error { sums, err = g.Hash(ctx, as, paths); return err })
	return sums, err
}

// ReadFile opens a file from offset on for n bytes; n < 0 is to its end. The session is in use
// until the reader is closed.
func (s *Session) ReadFile(ctx context.Context, as, path string, offset, n int64) (io.ReadCloser, proto.FileInfo,
	error) {
	return s.read(ctx, func(g *guest.Client) (io.ReadCloser, proto.FileInfo, error) {
		return g.Read(ctx, as, path, offset, n)
	})
}

// ReadFileNoLinks is ReadFile of a whole file for what acts on nobody's request, such as publishing: code in the
// container cannot lead it elsewhere with a link, which is InvalidArgument.
func (s *Session) ReadFileNoLinks(ctx context.Context, as, path string) (io.ReadCloser, proto.FileInfo, error) {
	return s.read(ctx, func(g *guest.Client) (io.ReadCloser, proto.FileInfo, error) {
		return g.ReadNoLinks(ctx, as, path)
	})
}

func (s *Session) read(ctx context.Context, open func(*guest.Client) (io.ReadCloser, proto.FileInfo, error)) (
	io.ReadCloser, proto.FileInfo, error) {
	release, err := s.use(ctx)
	if err != nil {
		return nil, proto.FileInfo{}, err
	}
	g, err := s.clientFor(ctx, nil)
	if err != nil {
		release()
		return nil, proto.FileInfo{}, err
	}
	r, fi, err := open(g)
	if err != nil {
		release()
		return nil, fi, s.guestError(ctx, g, err)
	}
	return &heldReader{r, release}, fi, nil
}

// Tar streams a directory as a tar archive. The session is in use until it is closed.
func (s *Session) Tar(ctx context.Context, as, path string) (io.ReadCloser, error) {
	return s.tar(ctx, func(g *guest.Client) (io.ReadCloser, error) { return g.Tar(ctx, as, path) })
}

// TarNoLinks is Tar of a directory that code in the container could have replaced by a link, which is InvalidArgument.
func (s *Session) TarNoLinks(ctx context.Context, as, path string) (io.ReadCloser, error) {
	return s.tar(ctx, func(g *guest.Client) (io.ReadCloser, error) { return g.TarNoLinks(ctx, as, path) })
}

func (s *Session) tar(ctx context.Context, open func(*guest.Client) (io.ReadCloser, error)) (io.ReadCloser, error) {
	release, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	g, err := s.clientFor(ctx, nil)
	if err != nil {
		release()
		return nil, err
	}
	r, err := open(g)
	if err != nil {
		release()
		return nil, s.guestError(ctx, g, err)
	}
	return &heldReader{r, release}, nil
}

// heldReader keeps its session in use until it is closed.
type heldReader struct {
	io.ReadCloser
	release func()
}

// WriteTo leaves the way of the bytes to what is read: a file may have a shorter one than through a buffer here.
func (r *heldReader) WriteTo(w io.Writer) (int64, error) { return io.Copy(w, r.ReadCloser) }

func (r *heldReader) Close() error {
	if r.release != nil {
		defer r.release()
		r.release = nil
	}
	return r.ReadCloser.Close()
}

// WriteOptions say how WriteFile makes a file.
type WriteOptions struct {
	Mode uint32 // permission bits; 0 keeps an existing file's and is 0644 for a new one
	Hash bool   // tell its SHA-256, which takes longer than to write it
}

// WriteFile stores what r gives at path, whole or not at all; parents are made.
func (s *Session) WriteFile(ctx context.Context, as, path string, opt WriteOptions, r io.Reader) (fi proto.FileInfo,
	err error) {
	err = s.withGuest(ctx, func(g *guest.Client) error {
		if fi, err = g.Write(ctx, as, path, guest.WriteOptions{Mode: opt.Mode, Hash: opt.Hash}, r); err == nil {
			s.changed(ctx, g, fi.Path, OriginUploaded)
		}
		return err
	})
	return fi, err
}

// WriteBook stores a file that the daemon keeps in a job's directory. A link at its end is replaced, one on the way is
// InvalidArgument: root may be the one who writes, and the directory is the ordinary user's.
func (s *Session) WriteBook(ctx context.Context, as, path string, r io.Reader) (fi proto.FileInfo, err error) {
	err = s.withGuest(ctx, func(g *guest.Client) error {
		fi, err = g.Write(ctx, as, path, guest.WriteOptions{Mode: 0o644, NoLinks: true}, r)
		return err
	})
	return fi, err
}

// Untar unpacks a tar archive into a directory, which is made. Members that would leave it,
// and devices, are refused by name.
func (s *Session) Untar(ctx context.Context, as, path string, r io.Reader) error {
	return s.withGuest(ctx, func(g *guest.Client) error {
		err := g.Untar(ctx, as, path, r, guest.UntarLimits{})
		s.changed(ctx, g, path, OriginUploaded) // an archive that broke off may have left members
		return err
	})
}

// Mkdir makes a directory and its parents.
func (s *Session) Mkdir(ctx context.Context, as, path string) error {
	return s.withGuest(ctx, func(g *guest.Client) error { return g.Mkdir(ctx, as, path) })
}

// RemoveFile removes a file or, if recursive, a directory with all it holds. Links are removed,
// never followed.
func (s *Session) RemoveFile(ctx context.Context, as, path string, recursive bool) error {
	return s.withGuest(ctx, func(g *guest.Client) error {
		err := g.Remove(ctx, as, path, recursive)
		s.changed(ctx, g, path, OriginUploaded)
		return err
	})
}

// MoveFile renames a file or directory.
func (s *Session) MoveFile(ctx context.Context, as, from, to string) error {
	return s.withGuest(ctx, func(g *guest.Client) error {
		err := g.Move(ctx, as, from, to)
		if err == nil {
			s.changed(ctx, g, from, OriginUploaded)
			s.changed(ctx, g, to, OriginUploaded)
		}
		return err
	})
}

// Edit runs one verb of the editor. A leading $INPUT_DIR in the path is expanded, as the hosted
// tool does, and a relative path counts from where commands begin.
func (s *Session) Edit(ctx context.Context, as string, in proto.EditorInput) (res proto.EditorResult, err error) {
	rest, isInput := strings.CutPrefix(in.Path, "$INPUT_DIR")
	switch {
	case isInput && (rest == "" || rest[0] == '/'):
		in.Path = proto.InputDir + rest
	case in.Path != "" && in.Path[0] != '/':
		in.Path = proto.JobDir(s.DefaultJob()) + "/" + in.Path
	}
	err = s.withGuest(ctx, func(g *guest.Client) error {
		if res, err = g.Edit(ctx, as, in); err == nil && in.Command != "view" {
			s.changed(ctx, g, in.Path, OriginEdited)
		}
		return err
	})
	return res, err
}

// Shells lists the session's persistent shells.
func (s *Session) Shells(ctx context.Context) (list []guest.ShellInfo, err error) {
	err = s.withGuest(ctx, func(g *guest.Client) error { list, err = g.Shells(ctx); return err })
	return list, err
}

// CloseShell ends a persistent shell and what runs in it.
func (s *Session) CloseShell(ctx context.Context, name string) error {
	return s.withGuest(ctx, func(g *guest.Client) error { return g.CloseShell(ctx, name) })
}

// changed tells the books of a file that an operation with g wrote or removed.
func (s *Session) changed(ctx context.Context, g *guest.Client, path, origin string) {
	s.core.cfg.Jobs.Changed(forBooks(ctx, g), s, path, origin)
}

// withGuest runs fn while the session is in use.
func (s *Session) withGuest(ctx context.Context, fn func(*guest.Client) error) error {
	release, err := s.use(ctx)
	if err != nil {
		return err
	}
	defer release()
	g, err := s.clientFor(ctx, nil)
	if err != nil {
		return err
	}
	return s.guestError(ctx, g, fn(g))
}

// guestError looks at an error of the guest's: if it means that the sandbox is gone, the session is
// stopped, so that the next request starts it again.
func (s *Session) guestError(ctx context.Context, g *guest.Client, err error) error {
	if proto.CodeOf(err) != proto.Unavailable || ctx.Err() != nil || bookkeeping(ctx) != nil || !s.confirmLost(ctx, g) {
		return err
	}
	if err := s.usable(); err != nil {
		return err
	}
	return proto.Errorf(proto.Unavailable, "", s.id, "container %s ended meanwhile; its files are kept, send the "+
		"request again", s.id)
}
