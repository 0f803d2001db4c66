// Package peers keeps the connections from outside to ports of a container.
package peers

import (
	"io"
	"sync"

	"berth/guest/client"
)

// A Set is the open connections of one container. The zero Set is empty. It is safe for concurrent use.
type Set struct {
	mu   sync.Mutex // guards open
	open map[*conn]struct{}
}

// Add counts a connection until it is closed. held is closed with it.
func (s *Set) Add(c client.PortConn, held io.Closer) client.PortConn {
	p := &conn{PortConn: c, set: s, held: held}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[*conn]struct{}{}
	}
	s.open[p] = struct{}{}
	return p
}

// Len returns how many are open.
func (s *Set) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// Close closes all that are open.
func (s *Set) Close() {
	s.mu.Lock()
	var all []*conn
	for c := range s.open {
		all = append(all, c)
	}
	s.mu.Unlock()
	for _, c := range all {
		_ = c.Close()
	}
}

// A conn is a connection that its set counts.
type conn struct {
	client.PortConn
	set  *Set
	held io.Closer // also closes the connection
	once sync.Once // for closing
	err  error     // of closing
}

// Close may be called more than once. The set counts the connection until it is closed, as its container does: what a
// container counts and its set does not is in use otherwise.
func (c *conn) Close() error {
	c.once.Do(func() {
		c.err = c.held.Close()
		c.set.mu.Lock()
		defer c.set.mu.Unlock()
		delete(c.set.open, c)
	})
	return c.err
}
