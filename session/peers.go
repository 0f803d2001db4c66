package session

import (
	"context"
	"io"
	"maps"
	"slices"

	"berth/guest/client"
)

// peers are the connections from outside to ports of a container. They keep it from being paused or stopped as idle.
// A pause or stop on request closes them.
type peers map[io.Closer]struct{}

// Connect opens a connection to a port of the container; see client.Client.Dial. The session is in use until it is
// closed. The API key in ctx must have CPU time left. It is for session/inbound, which decides which ports there are.
func (s *Session) Connect(ctx context.Context, port uint16) (client.PortConn, error) {
	if err := s.core.cfg.mayRun(ctx); err != nil {
		return nil, err
	}
	var c client.PortConn
	held, err := s.Open(ctx, func(g *client.Client) (_ io.ReadCloser, err error) {
		c, err = g.Dial(ctx, port)
		return c, err
	})
	if err != nil {
		return nil, err
	}
	p := &peer{PortConn: c, s: s, held: held}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.peers == nil {
		s.peers = peers{}
	}
	s.peers[p] = struct{}{}
	return p, nil
}

// closePeers closes the connections to the session's ports.
func (s *Session) closePeers() {
	s.mu.Lock()
	all := slices.Collect(maps.Keys(s.peers))
	s.mu.Unlock()
	for _, p := range all {
		_ = p.Close()
	}
}

// A peer is a connection that its session counts.
type peer struct {
	client.PortConn
	s    *Session
	held io.Closer // also closes the connection
}

// Close may be called more than once.
func (p *peer) Close() error {
	p.s.mu.Lock()
	_, open := p.s.peers[p]
	delete(p.s.peers, p)
	p.s.mu.Unlock()
	if !open {
		return nil
	}
	return p.held.Close()
}
