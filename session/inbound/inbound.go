// Package inbound opens connections from outside to what listens in containers.
//
// In scope: which ports can be reached, how many connections there may be, and what listens. A connection wakes a
// container that is stopped or paused, as every use does, and keeps it awake until it is closed. Out of scope: who may
// connect, and what the connections carry (api/ports).
package inbound

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"

	"berth/guest/client"
	"berth/proto"
	"berth/session"
	"berth/session/loopback"
)

// Limits of open connections.
const (
	perContainer = 1024
	perOwner     = 4096
)

// ownPorts are the ports of loopback that the daemon itself answers through the guest. Behind them are the container's
// network with its secrets, and the tools of its user. They are for code in the container alone.
var ownPorts = []uint16{loopback.ProxyPort, session.ToolsPort}

// ParsePort reads the number of a port that can be reached.
func ParsePort(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 || text[0] == '0' || text[0] == '+' {
		return 0, proto.Invalid("port", "%.20q is not a port; use a number from 1 to 65535", text)
	}
	return uint16(n), Reachable(uint16(n))
}

// Reachable returns an error for the ports that are the guest's own.
func Reachable(port uint16) error {
	if port == 0 {
		return proto.Invalid("port", "0 is not a port; use a number from 1 to 65535")
	}
	if slices.Contains(ownPorts, port) {
		return proto.Errorf(proto.PermissionDenied, "", "port", "port %d belongs to berth and is for code in the "+
			"container only; have the program listen on another port", port)
	}
	return nil
}

// ErrClosed is what an error is if nothing listens on a port.
var ErrClosed = errors.New("nothing listens on the port")

// Ports opens connections within limits. It is safe for concurrent use.
type Ports struct {
	mu   sync.Mutex     // guards open
	open map[string]int // open connections, by container and by owner
}

// New returns Ports without open connections.
func New() *Ports { return &Ports{open: map[string]int{}} }

// Dial connects to a port of a container. If nothing listens there, the error is NotFound with the item "port"; over a
// limit it is TooMany.
func (p *Ports) Dial(ctx context.Context, s *session.Session, port uint16) (client.PortConn, error) {
	if err := Reachable(port); err != nil {
		return nil, err
	}
	if err := p.enter(s); err != nil {
		return nil, err
	}
	c, err := s.Connect(ctx, port)
	if err != nil {
		p.leave(s)
		return nil, err
	}
	return &counted{PortConn: c, leave: sync.OnceFunc(func() { p.leave(s) })}, nil
}

// enter counts a connection.
func (p *Ports) enter(s *session.Session) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	owner := ownerKey(s)
	switch {
	case p.open[s.ID()] >= perContainer:
		return proto.Errorf(proto.TooMany, "", s.ID(), "container %s has %d connections to its ports, which is the "+
			"limit; close some", s.ID(), perContainer)
	case p.open[owner] >= perOwner:
		return proto.Errorf(proto.TooMany, "", s.ID(), "your containers have %d connections to their ports, which is "+
			"the limit; close some", perOwner)
	}
	p.open[s.ID()]++
	p.open[owner]++
	return nil
}

func (p *Ports) leave(s *session.Session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range []string{s.ID(), ownerKey(s)} {
		if p.open[key]--; p.open[key] <= 0 {
			delete(p.open, key)
		}
	}
}

// ownerKey is what the owner's connections are counted under. No container ID has a slash.
func ownerKey(s *session.Session) string { return "/" + s.Owner() }

// counted is a connection that leaves the count when it is closed.
type counted struct {
	client.PortConn
	leave func()
}

func (c *counted) Close() error {
	defer c.leave()
	return c.PortConn.Close()
}

// Listening lists the ports that programs in a container listen on and that can be reached, sorted. A container that
// does not run has none, and stays as it is.
func Listening(ctx context.Context, s *session.Session) ([]proto.Port, error) {
	list := []proto.Port{}
	if s.Info().State != proto.StateRunning {
		return list, nil
	}
	err := s.WithGuest(ctx, func(g *client.Client) (err error) {
		list, err = g.Listening(ctx)
		return err
	})
	list = slices.DeleteFunc(list, func(l proto.Port) bool { return Reachable(l.Port) != nil })
	return list, err
}
