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
