package session

// BumpGeneration is a change of the record in two halves, for tests of what happens between them.
func (s *Session) BumpGeneration() (wait func() error) {
	return s.beginChange(func(r *record) { r.Generation++ })
}
