package session

import (
	"bytes"
	"context"
	"io"
	"maps"
	"slices"
	"time"

	"berth/egress"
	"berth/guest/client"
	"berth/guest/wire"
	"berth/proto"
	"berth/session/loopback"
	"berth/session/secrets"
)

// A proxy listens on the loopback of a session with a network. Package egress decides where each connection goes.

// A Proxy carries the traffic of sessions with a network. egress/proxy has one.
type Proxy interface {
	// AllowList checks the network that a request asks for, and whether the daemon grants it. It returns the network in
	// normal form.
	AllowList(asked proto.Network) (proto.Network, error)
	// AllowSecrets checks which secrets go to which hosts, and normalizes the hosts. n is in normal form.
	AllowSecrets(n proto.Network, asked map[string]proto.NetworkSecret) (map[string]proto.NetworkSecret, error)
	// Gate returns the service that controls the traffic of one session; nil: of a build. It reports each request.
	Gate(s *Session, n proto.Network, secrets []egress.Secret, report func(egress.Report)) Gate
	// TrustedPEM returns the certificate that sessions with secrets trust.
	TrustedPEM() ([]byte, error)
}

// A Gate answers the connections of one session to its proxy, and what its programs send elsewhere.
type Gate interface {
	loopback.Service
	loopback.OutboundService
	// Change gives the session another network, in the form of AllowList. Connections that it does not allow end.
	Change(n proto.Network)
}

// grant checks the network that a request asks for and normalises it; no network is the zero Network.
func (c Config) grant(asked proto.Network) (n proto.Network, err error) {
	switch {
	case c.Egress != nil:
		n, err = c.Egress.AllowList(asked)
	case asked.Mode.Covers(proto.NetworkAllowlist) || len(asked.Allow) > 0 || asked.Ask:
		err = proto.Errorf(proto.Unsupported, "", "network", "this daemon gives containers no network; its "+
			"operator can allow it with --network-max")
	}
	if n.Mode == proto.NetworkNone {
		n.Mode = ""
	}
	return n, err
}

// proxies reports whether a session with this record gets the proxy.
func (c Config) proxies(rec record) bool { return c.Egress != nil && rec.connected() }

// makeGate makes the session's gate, if it has a network. It lasts until the session ends: programs keep the addresses
// that it gives to names. The caller holds transition.
func (s *Session) makeGate(rec record) {
	if s.gate == nil && s.core.cfg.proxies(rec) {
		s.gate = s.core.cfg.Egress.Gate(s, rec.Network, slices.Collect(maps.Values(rec.NetworkSecrets)), s.auditEgress)
	}
}

// installCA makes the container of a new guest trust the proxy's CA, if the session has network secrets.
func (s *Session) installCA(ctx context.Context) error {
	if s.core.cfg.Egress == nil || len(s.record().NetworkSecrets) == 0 {
		return nil
	}
	authority, err := s.core.cfg.Egress.TrustedPEM()
	if err != nil {
		return err
	}
	g := s.Guest()
	return secrets.InstallCA(authority, func(path string, most int64) (io.ReadCloser, error) {
		r, _, err := g.Read(ctx, proto.UserRoot, path, 0, most)
		return r, err
	}, func(path string, text []byte) error {
		_, err := g.Write(ctx, proto.UserRoot, path, wire.WriteOptions{Mode: 0o644}, bytes.NewReader(text))
		return err
	})
}

// auditEgress audits a request that left the container, or was refused.
func (s *Session) auditEgress(v egress.Report) {
	e := s.refusals.Entry(v, s.redactor.Hide)
	e.Owner, e.ContainerID = s.owner, s.id
	s.core.cfg.Audit(e)
}

// Refused returns notes on what the network has refused since a moment.
func (s *Session) Refused(since time.Time) []string { return s.refusals.Notes(since) }

// servePorts starts to serve the present generation's loopback. When it returns, the guest listens. The caller holds
// transition.
func (s *Session) servePorts(ctx context.Context) error {
	rec := s.record()
	if s.makeGate(rec); s.gate != nil {
		if err := s.ports.Serve(ctx, s.guestListen(), loopback.ProxyPort, s.gate); err != nil {
			return err
		}
		open := func() (egress.Outbound, error) { return s.core.cfg.Runtime.OpenOutbound(ctx, s.id) }
		if err := s.ports.ServeOutbound(open, s.gate); err != nil && proto.CodeOf(err) != proto.Unsupported {
			s.core.cfg.Log.Warn("a container reaches its network by the proxy alone", "container", s.id, "error", err)
		}
	}
	return s.serveTools(ctx, rec)
}

// applyNetwork gives a session that may run the network of its record. The caller holds transition.
func (s *Session) applyNetwork(ctx context.Context, n proto.Network) {
	if s.gate != nil {
		s.gate.Change(n)
	}
	s.restoreLostPorts(ctx)
}

// EditNetwork changes the session's network by a function of the present one, as Change does.
func (s *Session) EditNetwork(ctx context.Context, edit func(proto.Network) proto.Network) error {
	unlock, err := s.lockTransition(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := s.usable(); err != nil {
		return err
	}
	network, err := s.core.cfg.grant(edit(s.record().Network))
	if err == nil {
		err = s.change(func(r *record) { r.Network = network })
	}
	if err == nil {
		s.auditAction(ctx, actionChange, "its network, by an approval")
		s.applyNetwork(ctx, network)
	}
	return err
}

// guestListen returns a function that opens listeners in the guest of the present generation.
func (s *Session) guestListen() loopback.Listen {
	g := s.Guest()
	return func(ctx context.Context, port uint16) (loopback.Listener, error) {
		l, err := g.Listen(ctx, port)
		if err != nil {
			return nil, err
		}
		return guestListener{l}, nil
	}
}

// A guestListener is a client.Listener in the form that package loopback needs.
type guestListener struct{ *client.Listener }

// Await implements loopback.Listener.
func (l guestListener) Await(ctx context.Context) (egress.Conn, error) {
	c, err := l.Listener.Await(ctx)
	if err != nil {
		return nil, err
	}
	return c, nil
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
	lost := s.core.cfg.proxies(rec) && !s.ports.Served(loopback.ProxyPort) ||
		s.core.cfg.offers(rec) && !s.ports.Served(ToolsPort)
	if lost && rec.State == proto.StateRunning && !s.is(&s.paused) && !s.needsHandshake.Load() {
		s.restorePorts(ctx)
	}
}

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
	return s.peers.Add(c, held), nil
}
