// Package proxy carries the outgoing traffic of containers: it speaks HTTP and SOCKS with their programs, checks each
// request, connects to its target, and reports it. Package egress says what is allowed; the daemon makes one Proxy, and
// sessions call it.
package proxy

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"berth/egress"
	"berth/egress/authority"
	"berth/egress/names"
	"berth/egress/placeholder"
	"berth/egress/resolve"
	"berth/proto"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
)

// A Config is what New needs. The zero value of every field is useful.
type Config struct {
	Most     proto.NetworkMode // the widest mode that a container may have; "" is none
	Private  []netip.Prefix    // addresses that are not public and may be reached nevertheless
	Resolver string            // host:port of the name server to ask; "" is the host's
	Ready    func() error      // returns why nothing can be recorded; then nothing goes out. nil: always ready
	NoAsk    bool              // no container may have a person asked
	Log      *slog.Logger      // nil: slog.Default

	// Authority signs for hosts that secrets go to, whose connections are opened. It is called at the first use. nil:
	// such secrets are refused.
	Authority func() (*authority.Authority, error)
	Roots     *x509.CertPool // authorities for those hosts' certificates; nil: the system's

	Connections int // of one container at once; more wait. 0 is 128
	// of all containers; more wait. 0 is 8192, or fewer, so that half of this process's descriptors stay free
	All         int
	PerSecond   float64       // requests of one container; more wait. 0 is 50, and four times as many at once
	DialTimeout time.Duration // to resolve a name and to connect; 0 is 10 s
	HeadTimeout time.Duration // for a client to send its request's head; 0 is 30 s
	IdleTimeout time.Duration // for a connection without traffic; 0 is 5 minutes
}

// A Proxy carries the outgoing traffic of all containers.
type Proxy struct {
	cfg      Config
	resolver *resolve.Resolver
	places   chan struct{}
	fronts   *fronts
}

// New makes a proxy. It opens nothing.
func New(cfg Config) (*Proxy, error) {
	cfg.Most = cmp.Or(cfg.Most, proto.NetworkNone)
	if cfg.Ready == nil {
		cfg.Ready = func() error { return nil }
	}
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	cfg.Connections = cmp.Or(cfg.Connections, 128)
	cfg.All = cmp.Or(cfg.All, mostConnections())
	cfg.PerSecond = cmp.Or(cfg.PerSecond, 50)
	cfg.DialTimeout = cmp.Or(cfg.DialTimeout, 10*time.Second)
	cfg.HeadTimeout = cmp.Or(cfg.HeadTimeout, 30*time.Second)
	cfg.IdleTimeout = cmp.Or(cfg.IdleTimeout, 5*time.Minute)
	if _, _, err := egress.ParsePolicy(proto.Network{Mode: cfg.Most}); err != nil {
		return nil, proto.Invalid("network-max", "%q is not a network mode; use %q, %q or %q", cfg.Most,
			proto.NetworkNone, proto.NetworkAllowlist, proto.NetworkOpen)
	}
	resolver, err := resolve.New(cfg.Private, cfg.Resolver, cfg.Log)
	return &Proxy{cfg: cfg, resolver: resolver, places: make(chan struct{}, cfg.All),
		fronts: &fronts{timeout: cfg.DialTimeout}}, err
}

// mostConnections returns the default of Config.All. Each connection takes two descriptors, one to each side.
func mostConnections() int {
	const most = 8192
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return most
	}
	return max(1, int(min(most, limit.Cur/4)))
}

// Most returns the widest network that a container may be given.
func (p *Proxy) Most() proto.NetworkMode { return p.cfg.Most }

// AllowList checks what a request asks for, whether the daemon grants it, and normalizes it.
func (p *Proxy) AllowList(asked proto.Network) (proto.Network, error) {
	policy, wire, err := egress.ParsePolicy(asked)
	if err != nil {
		return wire, err
	}
	if !p.cfg.Most.Covers(policy.Mode) {
		return wire, proto.Errorf(proto.PermissionDenied, "", "network", "network %q is more than this daemon gives "+
			"to containers, which is %q; its operator can allow it with --network-max %s",
			policy.Mode, p.cfg.Most, policy.Mode)
	}
	if policy.Ask && p.cfg.NoAsk {
		return wire, proto.Errorf(proto.PermissionDenied, "", "network.ask", "on this daemon no connection waits "+
			"for a decision; its operator can allow it with --network-ask")
	}
	for _, r := range policy.Rules {
		if r.Name != "" {
			continue
		}
		if err := p.resolver.Check(r.Addr); err != nil {
			return wire, proto.Invalid("network.allow", "network.allow: %s", err)
		}
	}
	return wire, nil
}

// AllowSecrets checks which secrets go to which hosts, for a container with a network in the form of AllowList, and
// normalizes the hosts.
func (p *Proxy) AllowSecrets(n proto.Network, asked map[string]proto.NetworkSecret) (map[string]proto.NetworkSecret,
	error) {
	if len(asked) == 0 {
		return nil, nil
	}
	policy, _, err := egress.ParsePolicy(n)
	switch {
	case err != nil:
		return nil, err
	case p.cfg.Authority == nil:
		return nil, proto.Errorf(proto.Unsupported, "", "network_secrets", "this daemon puts no secrets into requests")
	}
	return placeholder.Check(policy, asked)
}

// A Gate controls the outgoing traffic of one container. Its methods are safe for concurrent use.
type Gate struct {
	proxy   *Proxy
	policy  atomic.Pointer[egress.Policy]
	secrets *placeholder.Set
	report  func(egress.Report)
	ask     egress.Ask // nil: nobody is asked
	places  chan struct{}
	rate    *rate.Limiter
	asks    *rate.Limiter // of questions for names
	names   *names.Server

	mu      sync.Mutex             // guards what follows
	live    map[*hostConn]struct{} // requests under way
	changed chan struct{}          // closed at the next Change
	asked   map[string]bool        // names whose questions were reported
}

// asksPerRequest is how many questions for names a request may take: one for each kind of address, each asked twice.
const asksPerRequest = 4

// Gate makes the gate of a container with this network and these secrets, in the form of AllowList and AllowSecrets.
// report is called for each request and must not keep it; ask, which may be nil, where the network has people asked. If
// the daemon grants less by now than it did, the gate allows nothing.
func (p *Proxy) Gate(n proto.Network, secrets []egress.Secret, ask egress.Ask, tell func(egress.Report)) *Gate {
	perSecond := rate.Limit(p.cfg.PerSecond)
	asks := asksPerRequest * perSecond
	g := &Gate{proxy: p, secrets: placeholder.New(secrets), report: tell, ask: ask, live: map[*hostConn]struct{}{},
		changed: make(chan struct{}), asked: map[string]bool{},
		places: make(chan struct{}, p.cfg.Connections), rate: rate.NewLimiter(perSecond, max(1, int(4*perSecond))),
		asks: rate.NewLimiter(asks, max(1, int(4*asks)))}
	g.names = names.New(source{g})
	g.Change(n)
	return g
}

// Change gives the container another network, in the form of AllowList. Requests under way that it does not allow end.
func (g *Gate) Change(n proto.Network) {
	policy, _, err := egress.ParsePolicy(n)
	if err != nil {
		policy = egress.Policy{}
	}
	policy.Ask = policy.Ask && !g.proxy.cfg.NoAsk // it may have been asked for before
	g.mu.Lock()
	g.policy.Store(&policy)
	close(g.changed)
	g.changed = make(chan struct{})
	live := maps.Clone(g.live)
	g.mu.Unlock()
	for p := range live {
		if !g.stands(p) {
			p.abort(notAllowed(policy, p.target))
		}
	}
}

// Enter waits for a place among the container's connections. After success the caller must call leave.
func (g *Gate) Enter(ctx context.Context) (leave func(), err error) {
	select {
	case g.places <- struct{}{}:
		return func() { <-g.places }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// resolve checks whether the target may be reached, and returns its addresses.
func (g *Gate) resolve(ctx context.Context, t egress.Target) ([]netip.Addr, error) {
	if err := g.granted(); err != nil {
		return nil, err
	}
	if p := *g.policy.Load(); !p.Allows(t) {
		return nil, notAllowed(p, t)
	}
	return g.proxy.resolver.Resolve(ctx, t)
}

// granted refuses everything if the daemon gives less by now than it did.
func (g *Gate) granted() error {
	if !g.proxy.cfg.Most.Covers(g.policy.Load().Mode) {
		return egress.Refuse(proto.PermissionDenied, "network_max", "the daemon does not give containers the "+
			"network %q any more", g.policy.Load().Mode)
	}
	return nil
}

// notListed is the reason of refusals of what the list does not have.
const notListed = "not_allowed"

// notAllowed refuses a host that the list does not have. Without a port it is a name that was asked for.
func notAllowed(p egress.Policy, t egress.Target) error {
	if p.Denies(t) {
		return egress.Refuse(proto.PermissionDenied, "denied", "%s is denied to this container; take it from its "+
			"network.deny", t)
	}
	entry := t
	if entry.Port == 0 || egress.IsWeb(t.Port) {
		entry.Port = 0
	}
	said := entry.Host()
	if t.Port != 0 {
		said = t.String()
	}
	return egress.Refuse(proto.PermissionDenied, notListed, "%s is not on this container's list; add %q to its "+
		"network.allow", said, egress.Rule{Name: entry.Name, Addr: entry.Addr, Port: entry.Port})
}

// TrustedPEM returns the certificate of the proxy's authority, which containers with secrets trust.
func (p *Proxy) TrustedPEM() ([]byte, error) {
	if p.cfg.Authority == nil {
		return nil, errors.New("there is no authority")
	}
	a, err := p.cfg.Authority()
	if err != nil {
		return nil, err
	}
	return a.PEM(), nil
}
