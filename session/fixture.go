package session

import (
	"context"
	"io"
	"path"
	"slices"
	"time"

	"berth/guest/client"
	"berth/guest/wire"
	"berth/proto"
)

// A Mount is a tree that a session has outside of its workspace, such as a skill: root's, so that the ordinary user
// can read it and no more. What is outside of the workspace ends with each generation, so the session remembers its
// fixtures and has the next one furnished with them.
type Mount struct {
	Path       string `json:"path"`       // where it is, absolute and clean
	Key        string `json:"key"`        // what it is, in words of whoever Fixtures is
	Generation int64  `json:"generation"` // the last one that was furnished with it
}

// MountSource gives what fixtures are made of.
type MountSource interface {
	// Tar opens a tree of an owner's as a tar archive, or is NotFound where there is none of that key any more.
	Tar(ctx context.Context, owner, key string) (io.ReadCloser, error)
}

// Provision has these fixtures in the session from now on, in this generation and those to come. One that is there
// stays as it is, one that has another key is replaced, and of those that are not named nothing changes.
func (s *Session) Provision(ctx context.Context, list []Mount) error {
	if s.core.cfg.Mounts == nil {
		return proto.Errorf(proto.Unsupported, "", s.id, "this daemon has nothing to furnish containers with")
	}
	return s.withGuest(ctx, func(g *client.Client) error { return s.provisionMounts(ctx, g, list) })
}

// provisionMounts is Furnish for the generation of g. It holds life, so that nobody stops the sandbox meanwhile, nor
// furnishes it as well.
func (s *Session) provisionMounts(ctx context.Context, g *client.Client, list []Mount) error {
	unlock, err := s.lockTransition(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	rec := s.record()
	if rec.State != proto.StateRunning || s.client() != g {
		return proto.Errorf(proto.Unavailable, "", s.id, "container %s was stopped meanwhile; its files are kept, "+
			"send the request again", s.id)
	}
	for _, f := range list {
		f.Generation = rec.Generation
		if slices.Contains(rec.Mounts, f) && mountExists(ctx, g, f.Path) {
			continue
		}
		if err := s.provisionMount(ctx, g, f); err != nil {
			return err
		}
		if err := s.changeAsync(func(r *record) { r.Mounts = withMount(r.Mounts, f) }); err != nil {
			return err
		}
	}
	return nil
}

// reprovision gives a generation that is coming up the fixtures of the one before. One that cannot be had is no reason
// to have no container: it is told in the log, and Furnish tries again. It returns what is to be remembered. Called
// with life held.
func (s *Session) reprovision(ctx context.Context) []Mount {
	rec := s.record()
	if len(rec.Mounts) == 0 {
		return nil
	}
	var kept []Mount
	for _, f := range rec.Mounts {
		err := s.provisionMount(ctx, s.client(), f)
		if err == nil {
			f.Generation = rec.Generation
		} else {
			s.core.cfg.Log.Warn("a container was started without something that it was furnished with", "container",
				s.id, "path", f.Path, "error", err)
		}
		if proto.CodeOf(err) != proto.NotFound {
			kept = append(kept, f)
		}
	}
	return kept
}

// mountExists reports whether something is at a fixture's path: code that runs as root may have removed it.
func mountExists(ctx context.Context, g *client.Client, path string) bool {
	fi, err := g.Stat(ctx, proto.UserRoot, path)
	return err == nil && fi.Type == proto.TypeDirectory
}

// provisionTimeout bounds the last steps of a fixture, which are taken even if whoever asked for it has gone.
const provisionTimeout = 30 * time.Second

// provisionMount unpacks a fixture beside its place and moves it there, so that nobody sees a part of it.
func (s *Session) provisionMount(ctx context.Context, g *client.Client, f Mount) error {
	if s.core.cfg.Mounts == nil {
		return proto.Errorf(proto.Unsupported, "", f.Path, "this daemon has nothing to furnish containers with")
	}
	archive, err := s.core.cfg.Mounts.Tar(ctx, s.owner, f.Key)
	if err != nil {
		return err
	}
	defer archive.Close()
	fresh := path.Join(path.Dir(f.Path), ".new-"+path.Base(f.Path))
	if err := removeTree(ctx, g, fresh); err != nil { // what one left that was interrupted
		return err
	}
	err = g.Untar(ctx, proto.UserRoot, fresh, archive, wire.UntarLimits{})
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), provisionTimeout)
	defer cancel()
	if err == nil {
		err = removeTree(late, g, f.Path)
	}
	if err == nil {
		err = g.Move(late, proto.UserRoot, fresh, f.Path)
	}
	if err != nil {
		_ = removeTree(late, g, fresh) // else the next one does
	}
	return err
}

// removeTree removes what is at path, if there is anything.
func removeTree(ctx context.Context, g *client.Client, path string) error {
	err := g.Remove(ctx, proto.UserRoot, path, true)
	if proto.CodeOf(err) == proto.NotFound {
		return nil
	}
	return err
}

// withMount is list with f in the place of whatever has its path. The list itself is shared with other copies of
// the record, and stays.
func withMount(list []Mount, f Mount) []Mount {
	list = slices.DeleteFunc(slices.Clone(list), func(old Mount) bool { return old.Path == f.Path })
	return append(list, f)
}
