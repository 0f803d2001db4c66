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

// The sandbox of a session with a network has loopback only, like any other. On it listens a proxy, and egress
// decides where each connection goes. A session without a network has no proxy.

// proxyPort is the port of the proxy on the container's loopback. It never changes, since running commands have it in
// their environment.
const proxyPort = 3128

// proxyVariables tell programs about the proxy. Libraries differ in which they read, and some read one case only.
var proxyVariables = map[string]string{
	"HTTP_PROXY": "http://127.0.0.1:3128", "HTTPS_PROXY": "http://127.0.0.1:3128", "ALL_PROXY": "http://127.0.0.1:3128",
	"NO_PROXY": "localhost,127.0.0.1,::1",
}

// addProxy adds these variables to an environment, except those it has in either case.
func addProxy(env map[string]string) {
	for name, value := range proxyVariables {
		lower := strings.ToLower(name)
		_, said := env[name]
		if _, also := env[lower]; !said && !also {
			env[name], env[lower] = value, value
		}
	}
}

// A Proxy carries the traffic of sessions with a network. egress/proxy has one.
type Proxy interface {
	// AllowList checks the network that a request asks for, and whether the daemon grants it. It returns the network in
	// normal form.
	AllowList(asked proto.Network) (proto.Network, error)
	// AllowSecrets checks which secrets go to which hosts, and normalizes the hosts. n is in normal form.
	AllowSecrets(n proto.Network, asked map[string]proto.NetworkSecret) (map[string]proto.NetworkSecret, error)
	// Gate returns the service that controls the traffic of one session. It reports each request.
	Gate(n proto.Network, secrets []egress.Secret, report func(egress.Report)) Service
	// TrustedPEM returns the certificate that sessions with secrets trust.
	TrustedPEM() ([]byte, error)
}

// grant checks the network that a request asks for and normalises it; no network is the zero Network.
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

// proxies reports whether a session with this record gets the proxy.
func (c Config) proxies(rec record) bool { return c.Egress != nil && rec.connected() }

// proxyService returns the proxy of the session's present generation, or nil.
func (s *Session) proxyService(rec record) Service {
	if s.core.cfg.proxies(rec) {
		return s.core.cfg.Egress.Gate(rec.Network, slices.Collect(maps.Values(rec.NetworkSecrets)), s.auditEgress)
	}
	return nil
}

// auditEgress audits a request that left the container, or was refused.
func (s *Session) auditEgress(v egress.Report) {
	act := actionEgressRefuse
	switch {
	case v.Began:
		act = actionEgressBegin
	case v.Over:
		act = actionEgressEnd
	}
	v.Host = s.redactor.Hide(v.Host) // code may leak a secret in a host name
	s.core.cfg.Audit(proto.AuditEntry{
		Act: act, Outcome: v.Outcome, Actor: proto.ActorContainer, Owner: s.owner, ContainerID: s.id,
		Note: s.redactor.Hide(
			v.Note), Egress: &v.AuditEgress,
	})
}

// The guest listens on the container's loopback. It passes each connection to the daemon, over a connection that the
// daemon has opened to the guest in advance. A session without services has no listener, connection or goroutine for
// this.

// A Service answers connections to one port of a container's loopback. A gate of egress/proxy is one.
type Service interface {
	// Enter waits for a slot among the container's connections. The caller calls leave afterwards.
	Enter(ctx context.Context) (leave func(), err error)
	// Serve answers one connection and closes it. It returns when ctx ends, at the latest.
	Serve(ctx context.Context, c egress.Conn)
}

// servePorts starts to serve the present generation's loopback. When it returns, the guest listens. The caller holds
// transition.
func (s *Session) servePorts(ctx context.Context) error {
	rec := s.record()
	if err := s.servePort(ctx, proxyPort, s.proxyService(rec)); err != nil {
		return err
	}
	return s.serveTools(ctx, rec)
}

// readyListeners is how many listeners wait in the guest for each service. With only one, two connections in quick
// succession would make the second wait.
const readyListeners = 2

// servePort starts to serve one port, unless there is no service or the port is served. The caller holds transition.
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

// restorePorts serves the ports that a generation has lost, even if the request behind ctx has ended. On failure the
// generation continues without them. The caller holds transition.
func (s *Session) restorePorts(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), helloTimeout)
	defer cancel()
	if err := s.servePorts(ctx); err != nil && s.core.ctx.Err() == nil {
		s.core.cfg.Log.Error("a container has lost its network or its tools; a sweep will try again", "container", s.id,
			"error", err)
	}
}

// restoreLostPorts restores the ports of a running session. The sweeper calls it, since one slow response of the
// guest can lose a port. The caller holds transition.
func (s *Session) restoreLostPorts(ctx context.Context) {
	rec := s.record()
	lost := s.core.cfg.proxies(rec) && !s.portServed(proxyPort) || s.core.cfg.offers(rec) && !s.portServed(toolsPort)
	if lost && rec.State == proto.StateRunning && !s.isPaused() && !s.needsHandshake.Load() && !s.client().Dozes() {
		s.restorePorts(ctx)
	}
}

// closePorts closes the served ports and their connections.
func (s *Session) closePorts() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cut := range s.servedPorts {
		cut()
	}
	s.servedPorts = nil
}

// Delay after a failed listener: the guest may be gone, which other code detects, or may lack descriptors.
const (
	lineRest    = 100 * time.Millisecond
	longestRest = 5 * time.Second
)

// acceptConnections accepts connections until ctx ends and has the service answer each. line is the first listener,
// if one exists already.
func (s *Session) acceptConnections(ctx context.Context, g *client.Client, port uint16, service Service,
	line *client.Listener) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for rest := lineRest; ; line = nil {
		leave, err := service.Enter(ctx) // before the accept: a connection without a slot waits in the container
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

// acceptConnection waits for the next connection, on line or a new listener.
func acceptConnection(ctx context.Context, g *client.Client, port uint16, line *client.Listener) (*client.Conn, error) {
	if line == nil {
		var err error
		if line, err = g.Listen(ctx, port); err != nil {
			return nil, err
		}
	}
	return line.Await(ctx)
}
