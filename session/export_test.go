package session

// BumpGeneration is a change of the record in two halves, for tests of what happens between them.
func (s *Session) BumpGeneration() (wait func() error) {
	return s.beginChange(func(r *record) { r.Generation++ })
}

// Users is how many operations hold the session.
func (s *Session) Users() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.users
}
