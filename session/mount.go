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

// A Mount is a tree outside of a session's workspace, such as a skill. Root owns it, so the ordinary user can only
// read it. It is in the session's layer, which may change meanwhile and may be reset. So the session remembers its
// mounts and provisions each generation.
type Mount struct {
	Path       string `json:"path"`       // in the container, absolute and clean
	Key        string `json:"key"`        // names the tree in the MountSource
	Generation int64  `json:"generation"` // the last generation that has it
}

// A MountSource has the trees of mounts.
type MountSource interface {
	// Tar opens an owner's tree as a tar archive. It is NotFound if there is no tree with that key any more.
	Tar(ctx context.Context, owner, key string) (io.ReadCloser, error)
}

// Provision puts these mounts into the session, in this generation and later ones. A mount that is there stays, one
// with another key is replaced, and mounts that are not in the list stay as they are.
func (s *Session) Provision(ctx context.Context, list []Mount) error {
	if s.core.cfg.Mounts == nil {
		return proto.Errorf(proto.Unsupported, "", s.id, "this daemon has no files to mount in containers")
	}
	return s.WithGuest(ctx, func(g *client.Client) error { return s.provisionMounts(ctx, g, list) })
}

// provisionMounts does the work of Provision for the generation of g. It holds transition, so the sandbox is not
// stopped or provisioned meanwhile.
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

// reprovision provisions a new generation with the mounts of the one before, and returns those to remember. A mount
// that fails does not keep the container from starting: it is logged, and Provision tries again. Called with
// transition held.
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
			s.core.cfg.Log.Warn("a container was started without one of its mounts", "container",
				s.id, "path", f.Path, "error", err)
		}
		if proto.CodeOf(err) != proto.NotFound {
			kept = append(kept, f)
			continue
		}
		if err := removeTree(ctx, s.client(), f.Path); err != nil { // the layer has what the last generation had
			s.core.cfg.Log.Warn("removing a mount that no longer exists", "container", s.id, "path", f.Path, "error",
				err)
		}
	}
	return kept
}

// mountExists reports whether a directory is at a mount's path. Code that runs as root may have removed it.
func mountExists(ctx context.Context, g *client.Client, path string) bool {
	fi, err := g.Stat(ctx, proto.UserRoot, path)
	return err == nil && fi.Type == proto.TypeDirectory
}

// provisionTimeout bounds the last steps of a mount, which run even if the request has ended.
const provisionTimeout = 30 * time.Second

// provisionMount unpacks a tree beside its path and moves it there, so that no program sees a part of it.
func (s *Session) provisionMount(ctx context.Context, g *client.Client, f Mount) error {
	if s.core.cfg.Mounts == nil {
		return proto.Errorf(proto.Unsupported, "", f.Path, "this daemon has no files to mount in containers")
	}
	archive, err := s.core.cfg.Mounts.Tar(ctx, s.owner, f.Key)
	if err != nil {
		return err
	}
	defer archive.Close()
	fresh := path.Join(path.Dir(f.Path), ".new-"+path.Base(f.Path))
	if err := removeTree(ctx, g, fresh); err != nil { // left by an interrupted call
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
		_ = removeTree(late, g, fresh) // else the next call does
	}
	return err
}

// removeTree removes what is at path, if anything is.
func removeTree(ctx context.Context, g *client.Client, path string) error {
	err := g.Remove(ctx, proto.UserRoot, path, true)
	if proto.CodeOf(err) == proto.NotFound {
		return nil
	}
	return err
}

// withMount returns list with f in place of a mount at its path. It copies the list, which other copies of the record
// share.
func withMount(list []Mount, f Mount) []Mount {
	list = slices.DeleteFunc(slices.Clone(list), func(old Mount) bool { return old.Path == f.Path })
	return append(list, f)
}
