package egress

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

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
	Log      *slog.Logger      // nil: slog.Default

	// Authority signs for hosts that secrets go to, whose connections are opened. It is called at the first use. nil:
	// such secrets are refused.
	Authority func() (*Authority, error)
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
	guard    *guard
	resolver *net.Resolver
	places   chan struct{}
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
	if _, _, err := ParsePolicy(proto.Network{Mode: cfg.Most}); err != nil {
		return nil, invalid("network-max", "%q is not a network mode; use %q, %q or %q", cfg.Most, proto.NetworkNone,
			proto.NetworkAllowlist, proto.NetworkOpen)
	}
	p := &Proxy{cfg: cfg, guard: newGuard(cfg.Private), resolver: &net.Resolver{PreferGo: true},
		places: make(chan struct{}, cfg.All)}
	if cfg.Resolver != "" {
		if host, port, err := net.SplitHostPort(cfg.Resolver); err != nil || host == "" || port == "" {
			return nil, invalid("resolver", "%.200q is not the host:port of a name server", cfg.Resolver)
		}
		p.resolver.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, cfg.Resolver)
		}
	}
	return p, nil
}

// mostConnections is the default of Config.All. Each connection takes two descriptors, one to each side.
func mostConnections() int {
	const most = 8192
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return most
	}
	return max(1, int(min(most, limit.Cur/4)))
}

// Most is the widest network that a container may be given.
func (p *Proxy) Most() proto.NetworkMode { return p.cfg.Most }

// AllowList checks what a request asks for, whether the daemon grants it, and normalizes it.
func (p *Proxy) AllowList(asked proto.Network) (proto.Network, error) {
	policy, wire, err := ParsePolicy(asked)
	if err != nil {
		return wire, err
	}
	if !p.cfg.Most.Covers(policy.Mode) {
		return wire, proto.Errorf(proto.PermissionDenied, "", "network", "network %q is more than this daemon gives "+
			"to containers, which is %q; its operator can allow it with --network-max %s",
			policy.Mode, p.cfg.Most, policy.Mode)
	}
	for _, r := range policy.Rules {
		if r.Name != "" {
			continue
		}
		if err := p.guard.check(r.Addr); err != nil {
			return wire, invalid("network.allow", "network.allow: %s", err)
		}
	}
	return wire, nil
}

// A Report describes one request: when it goes out or is refused, and when it is over.
type Report struct {
	Began, Over bool
	Outcome     string // proto.AuditOK, or the code of the refusal
	Note        string // the refusal in a sentence
	proto.AuditEgress
}

// A Gate controls the outgoing traffic of one container. Its methods are safe for concurrent use.
type Gate struct {
	proxy   *Proxy
	policy  Policy
	swaps   placeholders
	matcher func() *matcher // of swaps
	tell    func(Report)
	places  chan struct{}
	rate    *rate.Limiter
}

// Gate makes the gate of a container with this network and these secrets, in the form of AllowList and AllowSecrets.
// report is called for each request and must not keep it. If the daemon grants less by now than it did, the gate
// allows nothing.
func (p *Proxy) Gate(n proto.Network, secrets []Secret, tell func(Report)) *Gate {
	policy, _, err := ParsePolicy(n)
	if err != nil {
		policy = Policy{}
	}
	perSecond, swaps := rate.Limit(p.cfg.PerSecond), newSwaps(secrets)
	return &Gate{proxy: p, policy: policy, swaps: swaps, matcher: sync.OnceValue(swaps.matcher), tell: tell,
		places: make(chan struct{}, p.cfg.Connections), rate: rate.NewLimiter(perSecond, max(1, int(4*perSecond)))}
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

// check reports whether the target may be reached, and at which addresses.
func (g *Gate) check(ctx context.Context, t Target) ([]netip.Addr, error) {
	p := g.proxy
	switch {
	case !p.cfg.Most.Covers(g.policy.Mode):
		return nil, refuse(proto.PermissionDenied, "network_max", "the daemon does not give containers the network "+
			"%q any more", g.policy.Mode)
	case !g.policy.Allows(t):
		return nil, refuse(proto.PermissionDenied, "not_allowed", "%s is not on this container's list; create one "+
			"whose network.allow has it", t)
	case t.Name == "":
		return []netip.Addr{t.Addr}, p.guard.check(t.Addr)
	}
	list, err := p.resolver.LookupNetIP(ctx, "ip", t.Name+".") // the dot prevents a search list
	if err != nil {
		return nil, unresolved(ctx, t, err)
	}
	// One bad address among good ones is an attack.
	for i, a := range list {
		if list[i] = a.Unmap(); err == nil {
			err = p.guard.check(a)
		}
	}
	if r := (*refusal)(nil); errors.As(err, &r) {
		return nil, refuse(r.code, r.reason, "%s leads to an address that is refused: %s", t.Name, r.text)
	}
	return list, nil
}

func unresolved(ctx context.Context, t Target, err error) error {
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return refuse(proto.NotFound, "no_such_host", "there is no host %s", t.Name)
	case ctx.Err() != nil || errors.As(err, &dns) && dns.IsTimeout:
		return refuse(proto.TimedOut, "resolver_timeout", "no name server answered about %s in time", t.Name)
	}
	return refuse(proto.Unavailable, "resolver_failed", "%s cannot be resolved now", t.Name)
}

// dial connects to the first address that accepts. Nothing is resolved here: only checked addresses are dialled.
func (p *Proxy) dial(ctx context.Context, t Target, list []netip.Addr) (net.Conn, error) {
	var d net.Dialer
	for i, a := range list {
		one, cancel := share(ctx, len(list)-i)
		c, err := d.DialContext(one, "tcp", netip.AddrPortFrom(a, t.Port).String())
		cancel()
		if err == nil {
			return c, nil
		}
		p.cfg.Log.Debug("dialling for a container", "address", a, "error", err)
	}
	if ctx.Err() != nil {
		return nil, refuse(proto.TimedOut, "dial_timeout", "%s did not answer in time", t)
	}
	return nil, refuse(proto.Unavailable, "unreachable", "%s cannot be reached", t)
}

// share gives an address its part of the time left, so that the others can be tried.
func share(ctx context.Context, among int) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(end)/time.Duration(among))
}
