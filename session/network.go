package session

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/egress"
	"berth/guest/client"
	"berth/proto"
)

// This file has the way out of a session that has a network. Its sandbox has loopback alone, as any other; there it
// finds a proxy, as loopback.go has it, and egress decides where each connection goes. A session without a network
// has nothing of this.

// proxyPort is where the proxy is found on the container's loopback. It never changes, since what runs has it in its
// environment.
const proxyPort = 3128

// proxyVariables are how programs find a proxy. Libraries differ in which they read, and some read one case alone.
var proxyVariables = map[string]string{
	"HTTP_PROXY": "http://127.0.0.1:3128", "HTTPS_PROXY": "http://127.0.0.1:3128", "ALL_PROXY": "http://127.0.0.1:3128",
	"NO_PROXY": "localhost,127.0.0.1,::1",
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
		n, err = c.Egress.AllowList(asked)
	case asked.Mode.Covers(proto.NetworkAllowlist) || len(asked.Allow) > 0:
		err = proto.Errorf(proto.Unsupported, "", "network", "this daemon gives containers no network")
	}
	if n.Mode == proto.NetworkNone {
		n.Mode = ""
	}
	return n, err
}

// proxies reports whether a session of this record finds the proxy.
func (c Config) proxies(rec record) bool { return c.Egress != nil && rec.connected() }

// proxyService is the way out of the session's present generation, or nil if it has none.
func (s *Session) proxyService(rec record) Service {
	if s.core.cfg.proxies(rec) {
		return s.core.cfg.Egress.Gate(rec.Network, slices.Collect(maps.Values(rec.NetworkSecrets)), s.auditEgress)
	}
	return nil
}

// auditEgress has a request that left the container, or was refused, audited.
func (s *Session) auditEgress(v egress.Report) {
	act := actionEgressRefuse
	switch {
	case v.Began:
		act = actionEgressBegin
	case v.Over:
		act = actionEgressEnd
	}
	v.Host = s.redactor.Hide(v.Host) // code that gives a secret away may do it in a name
	s.core.cfg.Audit(proto.AuditEntry{
		Act: act, Outcome: v.Outcome, Actor: proto.ActorContainer, Owner: s.owner, ContainerID: s.id,
		Note: s.redactor.Hide(
			v.Note), Egress: &v.AuditEgress,
	})
}

// This file has what a session's sandbox finds on its loopback. The guest listens there and hands each connection to
// us, over lines that we have brought for that, ahead of time. A session that is given nothing to find has no
// listener, no line and no goroutine of this.

// A Service is what programs in one container find at a port of its loopback. egress.Gate is one.
type Service interface {
	// Enter waits for a place among the container's connections. Whoever has one must call leave.
	Enter(ctx context.Context) (leave func(), err error)
	// Serve answers one connection and closes it. It returns when ctx ends, at the latest.
	Serve(ctx context.Context, c egress.Conn)
}

// servePorts begins to serve the present generation's loopback. The guest listens when it returns. Called with life
// held.
func (s *Session) servePorts(ctx context.Context) error {
	rec := s.record()
	if err := s.servePort(ctx, proxyPort, s.proxyService(rec)); err != nil {
		return err
	}
	return s.serveTools(ctx, rec)
}

// readyListeners is how many connections wait in the guest for the next one, of each service: with one alone, who comes
// right behind another waits a little.
const readyListeners = 2

// servePort begins to serve one port, unless there is nothing to serve or that is done already. Called with life held.
func (s *Session) servePort(ctx context.Context, port uint16, service Service) error {
	if service == nil || s.portServed(port) {
		return nil
	}
	g := s.client()
	line, err := g.Listen(ctx, port)
	if err != nil {
		return err
	}
	serving, cancel := context.WithCancel(s.core.ctx)
	s.mu.Lock()
	if s.servedPorts == nil {
		s.servedPorts = map[uint16]func(){}
	}
	s.servedPorts[port] = cancel
	s.mu.Unlock()
	err = s.core.goTracked(nil, func() {
		var wg sync.WaitGroup
		wg.Go(func() { s.acceptConnections(serving, g, port, service, line) })
		for range readyListeners - 1 {
			wg.Go(func() { s.acceptConnections(serving, g, port, service, nil) })
		}
		wg.Wait()
	})
	if err != nil {
		cancel()
		line.Close()
	}
	return err
}

func (s *Session) portServed(port uint16) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.servedPorts[port] != nil
}

// restorePorts is connect for a generation that goes on, of what it does not have now, also where whoever paused or
// woke it has gone away. Without that it still goes on. Called with life held.
func (s *Session) restorePorts(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), helloTimeout)
	defer cancel()
	if err := s.servePorts(ctx); err != nil && s.core.ctx.Err() == nil {
		s.core.cfg.Log.Error("a container has lost its network or its tools; a sweep will try again", "container", s.id,
			"error", err)
	}
}

// restoreLostPorts is the sweeper's, for a session that goes on without what it should have on its loopback: one slow
// moment is enough to lose that. Called with life held.
func (s *Session) restoreLostPorts(ctx context.Context) {
	rec := s.record()
	lost := s.core.cfg.proxies(rec) && !s.portServed(proxyPort) || s.core.cfg.offers(rec) && !s.portServed(toolsPort)
	if lost && rec.State == proto.StateRunning && !s.isPaused() && !s.needsHandshake.Load() && !s.client().Dozes() {
		s.restorePorts(ctx)
	}
}

// closePorts ends what is served, and all that would come.
func (s *Session) closePorts() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cut := range s.servedPorts {
		cut()
	}
	s.servedPorts = nil
}

// How long a line that failed is let be: the guest may be gone, which others find out, or short of descriptors.
const (
	lineRest    = 100 * time.Millisecond
	longestRest = 5 * time.Second
)

// acceptConnections takes one connection after another and has each served, until ctx ends. line is the first, if it
// is there already.
func (s *Session) acceptConnections(ctx context.Context, g *client.Client, port uint16, service Service,
	line *client.Line) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for rest := lineRest; ; line = nil {
		leave, err := service.Enter(ctx) // before somebody is heard: who finds no place waits in the container
		if err != nil {
			if line != nil {
				line.Close()
			}
			return
		}
		call, err := acceptConnection(ctx, g, port, line)
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
			service.Serve(ctx, call)
		})
	}
}

// acceptConnection waits for the next connection, on line or a new one.
func acceptConnection(ctx context.Context, g *client.Client, port uint16, line *client.Line) (*client.Call, error) {
	if line == nil {
		var err error
		if line, err = g.Listen(ctx, port); err != nil {
			return nil, err
		}
	}
	return line.Await(ctx)
}
