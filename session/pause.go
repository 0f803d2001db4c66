package session

import (
	"context"

	"berth/proto"
)

// pause is Pause, or with onlyIdle what the sweeper does to a session that nobody has used for a while. It
// reports whether it paused it. Called with life held.
func (s *Session) pause(ctx context.Context, onlyIdle bool) (bool, error) {
	if s.core.pauser == nil {
		return false, proto.Errorf(proto.Unsupported, "", s.id, "containers cannot be paused here")
	}
	if did, err := s.markPaused(onlyIdle); !did {
		return false, err
	}
	s.closePorts() // who is at the other end cannot be told to wait
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

// markPaused marks the session, so that whoever comes now wakes it again, if it may be paused.
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
	// A command that runs waits. What else is under way waits for the guest, and would count it as lost.
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

// stillPaused reports whether it is paused, as the runtime has it too: what has ended is not.
func (s *Session) stillPaused() bool {
	return s.isPaused() && s.core.pauser.Paused(s.id)
}

// resume has a paused session go on, and returns at once if it is not paused. One that has ended meanwhile is stopped
// then.
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

// resumeOrStart is wake for a use: one that has ended while it stood still is started again, unless ctx is bound to
// what has ended.
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

// resumeLocked is wake with life held, as all have it that end a sandbox: a command that they end would else wait for
// that lock.
func (s *Session) resumeLocked(ctx context.Context) error {
	if !s.isPaused() {
		return nil
	}
	err := s.core.pauser.Resume(ctx, s.id)
	over := proto.CodeOf(err) == proto.NotFound
	if err != nil && !over {
		return err
	}
	// before anybody can start a command in it, which it would take for one that nobody knows of
	if s.needsHandshake.Load() {
		s.handshake()
	}
	if over { // written down before it counts as awake, or somebody would take it for one that runs
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

// stopVanished stops a session whose sandbox the runtime does not find, where that is not done. The guest is asked
// too: a runtime that cannot look says the same, and what stands still gives no answer, while one that is gone
// refuses. Called with life held.
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

// resumeToEnd is thaw for what is about to be ended in any case.
func (s *Session) resumeToEnd(ctx context.Context) {
	if err := s.resumeLocked(ctx); err != nil {
		s.core.cfg.Log.Warn("waking a container to end it", "container", s.id, "error", err)
	}
}

// repause is for Close, which had to wake a session to end its commands.
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

// pauseIdle is the sweeper's, for a session whose time has come. One that is in use is left alone. Called with life
// held.
func (ss *Sessions) pauseIdle(ctx context.Context, s *Session, done *Swept) error {
	if s.needsHandshake.Load() || s.client().Dozes() { // it dozes, and there is nothing in it to stand still
		return nil
	}
	did, err := s.pause(ctx, true)
	countIf(&done.Paused, did)
	switch proto.CodeOf(err) {
	case proto.Conflict, proto.NotFound, proto.Expired: // in use, lost or over; others see to that
		return nil
	}
	return err
}
