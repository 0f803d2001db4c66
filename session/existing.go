package session

import (
	"context"

	"berth/proto"
	"berth/session/existing"
)

// createOrFind returns the owner's live session of the requested name, running, or creates it. found reports that it
// was there. A request that comes while the session is being created waits for that.
func (ss *Sessions) createOrFind(ctx context.Context, owner string, req proto.CreateContainer) (s *Session, found bool,
	err error) {
	if _, err := ss.cfg.newRecord(owner, req); err != nil { // the same request is refused whether it is there or not
		return nil, false, hidden(req, err)
	}
	for {
		ss.mu.RLock()
		s, found = ss.index.Named(owner, req.Name)
		ss.mu.RUnlock()
		if found {
			err = s.startNamed(ctx)
		} else {
			s, err = ss.create(ctx, owner, req, retry{})
		}
		// Either the session went away after it was found, or another request took the name after it was free.
		again := found && isOver(err) || !found && proto.CodeOf(err) == proto.AlreadyExists
		if !again || ctx.Err() != nil {
			return s, found, err
		}
	}
}

// isOver reports whether err says that a session is not live any more.
func isOver(err error) bool {
	code := proto.CodeOf(err)
	return err != nil && (code == proto.NotFound || code == proto.Expired)
}

// startNamed waits for the creation of the session and starts it if it does not run.
func (s *Session) startNamed(ctx context.Context) error {
	if s.created != nil {
		select {
		case <-s.created:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s.awaitHandshake()
	return s.Start(ctx)
}

// hidden returns the error without the secrets of the request.
func hidden(req proto.CreateContainer, err error) error {
	hideIn(req, &err)
	return err
}

// Differences lists what the request for an existing session asks for and the session has otherwise.
func (s *Session) Differences(ctx context.Context, req proto.CreateContainer) []proto.Difference {
	r, digest := s.record(), ""
	if req.Image != "" {
		img, err := s.core.cfg.Images.Resolve(ctx, req.Image)
		if err == nil { // else the session was made from another one
			digest = img.Digest
		}
	}
	return existing.Differences(existing.Container{Container: s.Info(), Env: r.Env, Secrets: r.Secrets,
		NetworkSecrets: r.NetworkSecrets}, digest, req)
}

// rename gives the session another name, and its sandbox the host name. Called with transition held.
func (s *Session) rename(ctx context.Context, name string) error {
	ss, old := s.core, s.record().Name
	ss.mu.Lock()
	err := ss.index.TakeName(s, name)
	ss.mu.Unlock()
	if err != nil || old == name {
		return err
	}
	free := old
	if err = s.change(func(r *record) { r.Name = name }); err != nil {
		free = name
	}
	ss.mu.Lock()
	ss.index.FreeName(s, free)
	ss.mu.Unlock()
	if err != nil || s.state() != proto.StateRunning {
		return err
	}
	err = ss.cfg.Runtime.SetHostname(ctx, s.id, s.record().hostname())
	if proto.CodeOf(err) == proto.Unsupported {
		return nil // from the next start on
	}
	return err
}
