package session

import (
	"context"

	"berth/proto"
)

// pause pauses the session and reports whether it did. With onlyIdle it does so only if the session is idle, for the
// sweeper. Called with transition held.
func (s *Session) pause(ctx context.Context, onlyIdle bool) (bool, error) {
	if s.core.pauser == nil {
		return false, proto.Errorf(proto.Unsupported, "", s.id, "containers cannot be paused here")
	}
	if did, err := s.markPaused(onlyIdle); !did {
		return false, err
	}
	s.closePorts() // the peers cannot be told to wait
	if err := s.core.pauser.Pause(ctx, s.id); err != nil {
		s.markResumed()
		s.restorePorts(ctx)
		return false, err
	}
	note := ""
	if onlyIdle {
		note = "the container was idle"
	}
	s.auditAct(ctx, actionPause, note)
	return true, nil
}

// markPaused marks the session, if it may be paused, so that the next use resumes it.
func (s *Session) markPaused(onlyIdle bool) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused {
		return false, nil
	}
	if err := s.usableLocked(); err != nil {
		return false, err
	}
	if !s.runningLocked() {
		return false, proto.Errorf(proto.Conflict, "", s.id, "container %s is %s; only one that runs can be paused",
			s.id, s.rec.State)
	}
	// A running command can wait. Other operations wait for the guest and would count it as lost.
	if s.users > s.holdingExecs() || onlyIdle && s.users > 0 {
		return false, proto.Errorf(proto.Conflict, "", s.id, "container %s is in use: a command is starting, or "+
			"files are on their way; try again", s.id)
	}
	s.paused = true
	return true, nil
}

func (s *Session) markResumed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = false
}

func (s *Session) isPaused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.paused
}

// stillPaused reports whether the runtime has it as paused, too. A sandbox that has ended is not paused.
func (s *Session) stillPaused() bool {
	return s.isPaused() && s.core.pauser.Paused(s.id)
}

// resume resumes a paused session; it returns at once if the session is not paused. If the sandbox has ended
// meanwhile, the session is stopped.
func (s *Session) resume(ctx context.Context) error {
	if !s.isPaused() {
		return nil
	}
	unlock, err := s.lockTransition(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := s.resumeLocked(ctx); err != nil {
		return err
	}
	if s.state() == proto.StateRunning {
		s.restorePorts(ctx)
	}
	return nil
}

// resumeOrStart resumes a session for a use. If the sandbox ended while the session was paused, it starts the session
// again, unless ctx is bound to the generation that ended.
func (s *Session) resumeOrStart(ctx context.Context) error {
	if err := s.resume(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	runs, err := s.runningLocked(), s.boundLocked(ctx)
	s.mu.Unlock()
	if runs || err != nil {
		return err
	}
	return s.ensureStarted(ctx)
}

// resumeLocked does the work of resume, with transition held. Everything that ends a sandbox holds that lock, and a
// command that it ends would wait for it.
func (s *Session) resumeLocked(ctx context.Context) error {
	if !s.isPaused() {
		return nil
	}
	err := s.core.pauser.Resume(ctx, s.id)
	over := proto.CodeOf(err) == proto.NotFound
	if err != nil && !over {
		return err
	}
	// before a command can start in it, which the handshake would take for an unknown process
	if s.needsHandshake.Load() {
		s.handshake()
	}
	if over { // recorded before it counts as resumed, so that no user believes that it runs
		if err := s.stopVanished(ctx); err != nil {
			return err
		}
	}
	s.markResumed()
	if !over {
		s.auditAct(ctx, actionResume, "")
	}
	return nil
}

// stopVanished stops a session whose sandbox the runtime does not find. It asks the guest first, since a runtime that
// cannot look reports the same: a paused guest does not answer, and one that is gone refuses the connection. Called
// with transition held.
func (s *Session) stopVanished(ctx context.Context) error {
	if s.state() != proto.StateRunning {
		return nil
	}
	_, err := s.hello(s.core.ctx)
	switch {
	case err == nil || s.core.ctx.Err() != nil:
		return nil
	case timedOut(err):
		return proto.Errorf(proto.Unavailable, "", s.id, "container %s is paused and could not be resumed; try again",
			s.id)
	case !s.stopLost(ctx, s.client()) && s.state() == proto.StateRunning:
		return proto.Errorf(proto.Unavailable, "", s.id, "container %s ended while it was paused, and that could "+
			"not be written down; try again", s.id)
	}
	return nil
}

// resumeToEnd resumes a session that is about to be ended in any case. Called with transition held.
func (s *Session) resumeToEnd(ctx context.Context) {
	if err := s.resumeLocked(ctx); err != nil {
		s.core.cfg.Log.Warn("waking a container to end it", "container", s.id, "error", err)
	}
}

// repause pauses a session again that Close had to resume to end its commands.
func (s *Session) repause() error {
	if s.isPaused() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.core.cfg.StartTimeout)
	defer cancel()
	err := s.core.pauser.Pause(ctx, s.id)
	if proto.CodeOf(err) == proto.NotFound {
		return nil
	}
	return err
}

// pauseIdle pauses an idle session for the sweeper. It leaves a session in use alone. Called with transition held.
func (ss *Sessions) pauseIdle(ctx context.Context, s *Session, done *Swept) error {
	if s.needsHandshake.Load() || s.client().Dozes() { // a dozing guest runs nothing that could be paused
		return nil
	}
	did, err := s.pause(ctx, true)
	countIf(&done.Paused, did)
	switch proto.CodeOf(err) {
	case proto.Conflict, proto.NotFound, proto.Expired: // in use, lost or over, which others handle
		return nil
	}
	return err
}
