package session

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/egress"
	"berth/guest"
	"berth/proto"
)

// This file has the way out of a session that has a network. Its sandbox has loopback alone, as any other; on it the guest listens and hands each
// connection to us, and egress decides where it goes. A session without a network has nothing of this.

// proxyPort is where the proxy is found on the container's loopback. It never changes, since what runs has it in its environment.
const proxyPort = 3128

// proxyVariables are how programs find a proxy. Libraries differ in which they read, and some read one case alone.
var proxyVariables = map[string]string{
	"HTTP_PROXY": "http://127.0.0.1:3128", "HTTPS_PROXY": "http://127.0.0.1:3128", "ALL_PROXY": "http://127.0.0.1:3128", "NO_PROXY": "localhost,127.0.0.1,::1",
}

// addProxy puts these into an environment, but for what it says itself, in whatever case.
func addProxy(env map[string]string) {
	for name, value := range proxyVariables {
		lower := strings.ToLower(name)
		_, said := env[name]
		if _, also := env[lower]; !said && !also {
			env[name], env[lower] = value, value
		}
	}
}

// grant is the network that a request asks for, in its one form; none at all is the zero Network.
func (c Config) grant(asked proto.Network) (n proto.Network, err error) {
	switch {
	case c.Egress != nil:
		n, err = c.Egress.Grant(asked)
	case asked.Mode.Covers(proto.NetworkAllowlist) || len(asked.Allow) > 0:
		err = proto.Errorf(proto.Unsupported, "", "network", "this daemon gives containers no network")
	}
	if n.Mode == proto.NetworkNone {
		n.Mode = ""
	}
	return n, err
}

// connected reports whether the session may reach anything.
func (r record) connected() bool { return r.Network.Mode.Covers(proto.NetworkAllowlist) }

// network is the record's as it is shown.
func (r record) network() proto.Network {
	n := r.Network
	setDefault(&n.Mode, proto.NetworkNone)
	n.Allow = slices.Clone(n.Allow)
	return n
}

// proxyLines is how many connections wait in the guest for the next one: with one alone, who comes right behind another waits a little.
const proxyLines = 2

// connect begins to serve the way out of the present generation. The guest listens when it returns. Called with life held.
func (s *Session) connect(ctx context.Context) error {
	rec, proxy := s.record(), s.core.cfg.Egress
	if !rec.connected() || proxy == nil {
		return nil
	}
	g := s.client()
	line, err := g.Listen(ctx, proxyPort)
	if err != nil {
		return err
	}
	serving, cancel := context.WithCancel(s.core.ctx)
	s.mu.Lock()
	s.cut = cancel
	s.mu.Unlock()
	gate := proxy.Gate(rec.Network, slices.Collect(maps.Values(rec.Swapped)), s.tellVisit)
	err = s.core.track(nil, func() {
		var wg sync.WaitGroup
		wg.Go(func() { s.takeCalls(serving, g, gate, line) })
		for range proxyLines - 1 {
			wg.Go(func() { s.takeCalls(serving, g, gate, nil) })
		}
		wg.Wait()
	})
	if err != nil {
		cancel()
		line.Close()
	}
	return err
}

// reconnect is connect for a generation that goes on, if it has no way out now. Without one it still goes on. Called with life held.
func (s *Session) reconnect(ctx context.Context) {
	s.mu.Lock()
	has := s.cut != nil
	s.mu.Unlock()
	if has {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	if err := s.connect(ctx); err != nil && s.core.ctx.Err() == nil {
		s.core.cfg.Log.Error("a container has lost its network until it is started anew", "container", s.id, "error", err)
	}
}

// disconnect ends what is on the way out, and all that would come.
func (s *Session) disconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut != nil {
		s.cut()
		s.cut = nil
	}
}

// How long a line that failed is let be: the guest may be gone, which others find out, or short of descriptors.
const (
	lineRest    = 100 * time.Millisecond
	longestRest = 5 * time.Second
)

// takeCalls takes one connection after another and has each served, until ctx ends. line is the first, if it is there already.
func (s *Session) takeCalls(ctx context.Context, g *guest.Client, gate *egress.Gate, line *guest.Line) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for rest := lineRest; ; line = nil {
		leave, err := gate.Enter(ctx) // before somebody is heard: who finds no place waits in the container
		if err != nil {
			if line != nil {
				line.Close()
			}
			return
		}
		call, err := await(ctx, g, line)
		if err != nil {
			leave()
			select {
			case <-ctx.Done():
				return
			case <-time.After(rest):
				rest = min(2*rest, longestRest)
				continue
			}
		}
		rest = lineRest
		wg.Go(func() {
			defer leave()
			gate.Serve(ctx, call)
		})
	}
}

// await waits for the next connection, on line or a new one.
func await(ctx context.Context, g *guest.Client, line *guest.Line) (*guest.Call, error) {
	if line == nil {
		var err error
		if line, err = g.Listen(ctx, proxyPort); err != nil {
			return nil, err
		}
	}
	return line.Await(ctx)
}

// tellVisit has a request that left the container, or was refused, audited.
func (s *Session) tellVisit(v egress.Visit) {
	act := actEgressRefuse
	switch {
	case v.Began:
		act = actEgressBegin
	case v.Over:
		act = actEgressEnd
	}
	v.Host = s.veil.hide(v.Host) // code that gives a secret away may do it in a name
	s.core.cfg.Audit(proto.AuditEntry{
		Act: act, Outcome: v.Outcome, Actor: proto.ActorContainer, Owner: s.owner, ContainerID: s.id, Note: s.veil.hide(v.Note), Egress: &v.AuditEgress,
	})
}
