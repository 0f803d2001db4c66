// Package filework does work on the files of a session beyond reading and writing them: what manifests of jobs need.
// artifacts and the edges call it with the Files of a session, whose rules it keeps: kernel permissions of the named
// user, starts of a stopped session, leases.
package filework

import (
	"context"
	"io"

	"berth/guest/client"
	"berth/guest/wire"
	"berth/proto"
	"berth/session"
)

// A Walked is what is below a directory.
type Walked struct {
	Files     []proto.FileInfo // all but directories
	Truncated bool             // there is more
	// Files are only those that are new or changed since an earlier state, and Gone the paths of those that are gone
	Delta bool
	Gone  []string
	// State of a job's directory is what session.DirectoryState.Fingerprint says at the end of later execs as long as
	// nothing has changed; "" if the guest cannot tell.
	State string
}

// Walk describes at most n entries below a directory as root. It follows no links, also not in path. With the State
// of an earlier walk as since, the answer is a Delta if the guest can tell what has changed.
func Walk(ctx context.Context, f session.Files, path string, n int, since string) (w Walked, err error) {
	err = f.WithGuest(ctx, func(g *client.Client) error {
		l, err := g.WalkAll(ctx, proto.UserRoot, path, n, since)
		w = Walked{Files: l.Files, Truncated: l.Truncated, Delta: l.Delta, State: l.Mark}
		for _, p := range l.Gone {
			w.Gone = append(w.Gone, string(p))
		}
		return err
	})
	if err == nil && !w.Truncated && !w.Delta {
		w.State = proto.Fingerprint(path, w.Files)
	}
	return w, err
}

// Hash returns the SHA-256 of files in hex, by path. Files that could not be read are missing.
func Hash(ctx context.Context, f session.Files, as string, paths []string) (sums map[string]string, err error) {
	err = f.WithGuest(ctx, func(g *client.Client) error { sums, err = g.Hash(ctx, as, paths); return err })
	return sums, err
}

// ReadForJob reads a whole file for work without a request, such as publishing. A link on the way is InvalidArgument,
// so code in the container cannot redirect the read. path itself may be a link to a file in the workspace.
func ReadForJob(ctx context.Context, f session.Files, as, path string) (r io.ReadCloser, fi proto.FileInfo, err error) {
	r, err = f.Open(ctx, func(g *client.Client) (r io.ReadCloser, err error) {
		r, fi, err = g.ReadFollowing(ctx, as, path)
		return r, err
	})
	return r, fi, err
}

// WriteManifest stores a file of ours, such as a manifest, in the workspace. It replaces a link at the end of path. A
// link on the way is InvalidArgument, because root may write there and the ordinary user owns the directory. It is no
// change by the API.
func WriteManifest(ctx context.Context, f session.Files, as, path string, r io.Reader) error {
	return f.WithGuest(ctx, func(g *client.Client) error {
		_, err := g.Write(ctx, as, path, wire.WriteOptions{Mode: 0o644, NoLinks: true}, r)
		return err
	})
}

// RemoveManifest removes a file without reporting that as a change by the API.
func RemoveManifest(ctx context.Context, f session.Files, as, path string) error {
	return f.WithGuest(ctx, func(g *client.Client) error { return g.Remove(ctx, as, path, false) })
}
