package session

import (
	"context"

	"berth/proto"
	"berth/state/ledger"
)

// BumpGeneration changes the record in two halves, for tests of what happens between them.
func (s *Session) BumpGeneration() (wait func() error) {
	queued, done := make(chan struct{}), make(chan error, 1)
	begin := func(fn func(*ledger.Tx) error) error {
		wait := s.core.cfg.Ledger.StartUpdate(fn)
		close(queued)
		return wait()
	}
	go func() { done <- s.changeWith(begin, func(r *record) { r.Generation++ }) }()
	<-queued
	return func() error { return <-done }
}

// Users returns how many operations hold the session.
func (s *Session) Users() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.users
}

// Spooled returns how many bytes of output count as being in files.
func (ss *Sessions) Spooled() int64 { return ss.outputs.OnDisk() }

// MoveOut moves the output of an ended exec to disk, as a trim of its session does.
func (e *Exec) MoveOut() { e.moveOut() }

// HoldLife takes the session's transition lock, like a slow start, stop or removal.
func (s *Session) HoldLife() (unlock func()) {
	s.transition <- struct{}{}
	return func() { <-s.transition }
}

// InTransition reports whether that lock is held.
func (s *Session) InTransition() bool { return len(s.transition) > 0 }

// RunThen runs a command as Exec does. It calls released when the command has released the session and no client has
// got its end yet.
func (s *Session) RunThen(ctx context.Context, cmd proto.Cmd, released func()) error {
	if err := s.checkExec(ctx, &cmd); err != nil {
		return err
	}
	release, err := s.use(ctx, cmd.Generation)
	if err != nil {
		return err
	}
	e := s.newExec(cmd, retry{}, s.redactorFor(cmd))
	e.key, e.by = proto.CallerOf(ctx).KeyID, auditEntryFor(ctx)
	if err := s.addExec(e); err != nil {
		release()
		return err
	}
	if err := e.startProcess(ctx); err != nil {
		s.removeExec(e)
		release()
		return err
	}
	e.setDeadline()
	s.publishStart(e)
	e.runToEnd(func() { release(); released() })
	return nil
}
