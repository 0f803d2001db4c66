package session

import (
	"cmp"
	"context"
	"io"
	"strings"

	"berth/guest/client"
	"berth/guest/wire"
	"berth/proto"
)

// Files gives access to the files of a session. Session embeds it for its callers.
//
// as is proto.UserDefault, proto.UserRoot or another user of the container, and the kernel in the container decides
// what that user may do. Paths are the container's; they cannot name anything outside. Each method starts a stopped
// session and renews the lease.
//
// Jobs.End and Jobs.Changed get Files that are bound to a generation. They never start a stopped session, never find
// one lost, and do not renew the lease: no manifest is worth that.
type Files struct {
	s     *Session
	bound *client.Client // the guest of that generation; nil: any generation
	// the only generation that the files are for; 0: any
	generation int64
}

// InGeneration returns access to the files of one generation. If another generation runs, its methods fail with a
// Conflict that names both, and start nothing. 0 is any generation.
func (s *Session) InGeneration(generation int64) Files { return Files{s: s, generation: generation} }

// Owner returns the owner, the only one who may use the session.
func (f Files) Owner() string { return f.s.owner }

// ID returns the ID of the container.
func (f Files) ID() string { return f.s.id }

// Limits returns the limits of the container.
func (f Files) Limits() proto.Limits { return f.s.Info().Limits }

// WorkspaceID names the tree at /workspace.
func (f Files) WorkspaceID() string { return f.s.workspace }

// Origins of a file that no exec made.
const OriginUploaded, OriginEdited = "uploaded", "edited"

// Stat describes one file. It does not follow a link at the end of path.
func (f Files) Stat(ctx context.Context, as, path string) (fi proto.FileInfo, err error) {
	err = f.WithGuest(ctx, func(g *client.Client) error { fi, err = g.Stat(ctx, as, path); return err })
	return fi, err
}

// List describes the entries of a directory, sorted. truncated reports that there are more.
func (f Files) List(ctx context.Context, as, path string) (list []proto.FileInfo, truncated bool, err error) {
	err = f.WithGuest(ctx, func(g *client.Client) error { list, truncated, err = g.List(ctx, as, path); return err })
	return list, truncated, err
}

// ReadFile opens n bytes of a file from offset on; n < 0 reads to the end. The session is in use until it is closed.
func (f Files) ReadFile(ctx context.Context, as, path string, offset, n int64) (r io.ReadCloser, fi proto.FileInfo,
	err error) {
	r, err = f.Open(ctx, func(g *client.Client) (r io.ReadCloser, err error) {
		r, fi, err = g.Read(ctx, as, path, offset, n)
		return r, err
	})
	return r, fi, err
}

// Tar streams a directory as a tar archive, and uses the session meanwhile. See proto.UnreadOf for what it lacks.
func (f Files) Tar(ctx context.Context, as, path string) (io.ReadCloser, error) {
	return f.Open(ctx, func(g *client.Client) (io.ReadCloser, error) { return g.Tar(ctx, as, path) })
}

// TarNoLinks works like Tar, but a link in the path is InvalidArgument: code in the container may have made it.
func (f Files) TarNoLinks(ctx context.Context, as, path string) (io.ReadCloser, error) {
	return f.Open(ctx, func(g *client.Client) (io.ReadCloser, error) { return g.TarNoLinks(ctx, as, path) })
}

// Open opens a reader of the guest. The session is in use until the reader is closed. It is for session/filework.
func (f Files) Open(ctx context.Context, fn func(*client.Client) (io.ReadCloser, error)) (io.ReadCloser, error) {
	release, err := f.use(ctx)
	if err != nil {
		return nil, err
	}
	g, err := f.s.clientFor(f.generation, nil)
	if err != nil {
		release()
		return nil, err
	}
	r, err := fn(g)
	if err != nil {
		release()
		return nil, f.guestError(ctx, g, err)
	}
	return &heldReader{r, release}, nil
}

// heldReader holds its session until it is closed.
type heldReader struct {
	io.ReadCloser
	release func()
}

// WriteTo lets the source copy: for a file, that can be faster than a copy through a buffer here.
func (r *heldReader) WriteTo(w io.Writer) (int64, error) { return io.Copy(w, r.ReadCloser) }

// Unread asks the source; see proto.UnreadOf.
func (r *heldReader) Unread() *proto.Unread { return proto.UnreadOf(r.ReadCloser) }

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
	Hash bool   // return its SHA-256, which takes longer than the write

	InPlace *proto.InPlace // write into the file itself, and not whole or not at all
	Size    int64          // bytes of the body; at most 0: unknown
}

// WriteFile stores the bytes of r at path, whole or not at all, and makes missing parents.
func (f Files) WriteFile(ctx context.Context, as, path string, opt WriteOptions, r io.Reader) (fi proto.FileInfo,
	err error) {
	err = f.WithGuest(ctx, func(g *client.Client) error {
		if fi, err = g.Write(ctx, as, path, wire.WriteOptions{Mode: opt.Mode, Hash: opt.Hash,
			InPlace: opt.InPlace, Size: max(0, opt.Size)}, r); err == nil || opt.InPlace != nil {
			f.changed(ctx, g, cmp.Or(fi.Path, path), OriginUploaded) // a broken write in place may have left a part
		}
		return err
	})
	return fi, err
}

// Untar unpacks a tar archive into a directory, which it makes. It refuses devices and members that leave it, by name.
func (f Files) Untar(ctx context.Context, as, path string, r io.Reader) error {
	return f.WithGuest(ctx, func(g *client.Client) error {
		err := g.Untar(ctx, as, path, r, wire.UntarLimits{})
		f.changed(ctx, g, path, OriginUploaded) // a broken archive may have left members
		return err
	})
}

// Mkdir makes a directory and its parents.
func (f Files) Mkdir(ctx context.Context, as, path string) error {
	return f.WithGuest(ctx, func(g *client.Client) error { return g.Mkdir(ctx, as, path) })
}

// RemoveFile removes a file or, if recursive, a directory with its content. It never follows links.
func (f Files) RemoveFile(ctx context.Context, as, path string, recursive bool) error {
	return f.WithGuest(ctx, func(g *client.Client) error {
		err := g.Remove(ctx, as, path, recursive)
		f.changed(ctx, g, path, OriginUploaded)
		return err
	})
}

// MoveFile renames a file or directory.
func (f Files) MoveFile(ctx context.Context, as, from, to string) error {
	return f.WithGuest(ctx, func(g *client.Client) error {
		err := g.Move(ctx, as, from, to)
		if err != nil {
			return err
		}
		f.changed(ctx, g, from, OriginUploaded)
		f.changed(ctx, g, to, OriginUploaded)
		return nil
	})
}

// Edit runs one command of the editor. It expands a leading $INPUT_DIR as the hosted tool does. A relative path
// starts at the working directory of commands.
func (f Files) Edit(ctx context.Context, as string, in proto.EditorInput) (res proto.EditorResult, err error) {
	rest, isInput := strings.CutPrefix(in.Path, "$INPUT_DIR")
	switch {
	case isInput && (rest == "" || rest[0] == '/'):
		in.Path = proto.InputDir + rest
	case in.Path != "" && in.Path[0] != '/':
		in.Path = proto.JobDir(f.s.DefaultJob()) + "/" + in.Path
	}
	err = f.WithGuest(ctx, func(g *client.Client) error {
		if res, err = g.Edit(ctx, as, in); err == nil && in.Command != "view" {
			f.changed(ctx, g, in.Path, OriginEdited)
		}
		return err
	})
	return res, err
}

// Shells lists the session's persistent shells.
func (f Files) Shells(ctx context.Context) (list []wire.ShellInfo, err error) {
	err = f.WithGuest(ctx, func(g *client.Client) error { list, err = g.Shells(ctx); return err })
	return list, err
}

// CloseShell ends a persistent shell and what runs in it.
func (f Files) CloseShell(ctx context.Context, name string) error {
	err := f.WithGuest(ctx, func(g *client.Client) error { return g.CloseShell(ctx, name) })
	if err == nil {
		f.s.closedShells.Add(name)
	}
	return err
}

// changed tells Jobs about a file that an operation with g wrote or removed.
func (f Files) changed(ctx context.Context, g *client.Client, path, origin string) {
	f.s.core.cfg.Jobs.Changed(ctx, Files{s: f.s, bound: g}, path, origin)
}

// use holds the session for one operation, until release.
func (f Files) use(ctx context.Context) (release func(), err error) {
	if f.bound != nil {
		return f.s.useGeneration(ctx, f.bound)
	}
	return f.s.use(ctx, f.generation)
}

// WithGuest runs fn with the guest while the session is in use. It is for session/filework.
func (f Files) WithGuest(ctx context.Context, fn func(*client.Client) error) error {
	release, err := f.use(ctx)
	if err != nil {
		return err
	}
	defer release()
	g, err := f.s.clientFor(f.generation, nil)
	if err != nil {
		return err
	}
	return f.guestError(ctx, g, fn(g))
}

// guestError looks at an error of the guest. If it means that the sandbox is gone, the session is stopped, so that the
// next request starts it again.
func (f Files) guestError(ctx context.Context, g *client.Client, err error) error {
	if proto.CodeOf(err) != proto.Unavailable || ctx.Err() != nil || f.bound != nil || !f.s.confirmLost(ctx, g) {
		return err
	}
	if err := f.s.usable(); err != nil {
		return err
	}
	return proto.Errorf(proto.Unavailable, "", f.s.id, "container %s ended meanwhile; its files are kept, send the "+
		"request again", f.s.id)
}
