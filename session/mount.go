package session

import (
	"context"
	"slices"

	"berth/guest/client"
	"berth/proto"
	"berth/session/mounts"
)

// Trees outside of a session's workspace; see package mounts.
type (
	Mount       = mounts.Mount
	MountSource = mounts.Source
)

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
	if rec.State != proto.StateRunning || s.Guest() != g {
		return proto.Errorf(proto.Unavailable, "", s.id, "container %s was stopped meanwhile; its files are kept, "+
			"send the request again", s.id)
	}
	for _, f := range list {
		f.Generation = rec.Generation
		if slices.Contains(rec.Mounts, f) && mounts.Exists(ctx, g, f.Path) {
			continue
		}
		if err := mounts.Place(ctx, g, s.core.cfg.Mounts, s.owner, f); err != nil {
			return err
		}
		if err := s.changeAsync(func(r *record) { r.Mounts = mounts.With(r.Mounts, f) }); err != nil {
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
		err := mounts.Place(ctx, s.Guest(), s.core.cfg.Mounts, s.owner, f)
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
		if err := mounts.Remove(ctx, s.Guest(), f.Path); err != nil { // the layer has what the last generation had
			s.core.cfg.Log.Warn("removing a mount that no longer exists", "container", s.id, "path", f.Path, "error",
				err)
		}
	}
	return kept
}
