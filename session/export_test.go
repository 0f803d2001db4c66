package session

import "berth/ledger"

// BumpGeneration is a change of the record in two halves, for tests of what happens between them.
func (s *Session) BumpGeneration() (wait func() error) {
	queued, done := make(chan struct{}), make(chan error, 1)
	begin := func(fn func(*ledger.Tx) error) error {
		wait := s.core.cfg.Ledger.Begin(fn)
		close(queued)
		return wait()
	}
	go func() { done <- s.alter(begin, func(r *record) { r.Generation++ }) }()
	<-queued
	return func() error { return <-done }
}

// Users is how many operations hold the session.
func (s *Session) Users() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.users
}

// Spooled is how many bytes of output count as being in files.
func (ss *Sessions) Spooled() int64 { return ss.spooled.Load() }

// MoveOut moves the output of an ended exec to disk, as whoever trims its session does.
func (e *Exec) MoveOut() { e.moveOut() }
