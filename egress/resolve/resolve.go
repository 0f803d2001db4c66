// Package resolve finds the addresses of targets, refuses those that no container may reach, and connects to the
// others. It does not know lists of hosts; the proxy checks these first.
package resolve

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/egress"
	"berth/proto"

	"code.dny.dev/ssrf"
)

// A Resolver finds the addresses of targets, checks them, and connects to checked ones.
type Resolver struct {
	names   net.Resolver
	private []netip.Prefix // addresses that are not public but allowed by the operator
	public  *ssrf.Guardian // knows the special-purpose addresses of IANA
	log     *slog.Logger

	mu   sync.Mutex   // guards the fields below
	own  []netip.Addr // addresses of the host
	seen time.Time    // when own was read
}

// New returns a Resolver that allows private addresses and asks the name server at host:port; "" is the
// host's.
func New(private []netip.Prefix, server string, log *slog.Logger) (*Resolver, error) {
	r := &Resolver{names: net.Resolver{PreferGo: true}, private: private, log: log,
		public: ssrf.New(ssrf.WithAnyPort(), ssrf.WithAnyNetwork())}
	if server != "" {
		if host, port, err := net.SplitHostPort(server); err != nil || host == "" || port == "" {
			return nil, proto.Invalid("resolver", "%.200q is not the host:port of a name server", server)
		}
		r.names.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, server)
		}
	}
	return r, nil
}

// Resolve returns the addresses of a target. It refuses the target if one of them may not be reached.
func (r *Resolver) Resolve(ctx context.Context, t egress.Target) ([]netip.Addr, error) {
	if t.Name == "" {
		return []netip.Addr{t.Addr}, r.Check(t.Addr)
	}
	list, err := r.lookUp(ctx, t.Name)
	if err != nil {
		return nil, failed(ctx, err, t.Name)
	}
	for i, a := range list {
		list[i] = a.Unmap()
		if err := r.Check(a); err != nil { // one bad address among good ones is an attack
			why := egress.RefusalOf(err)
			return nil, egress.Refuse(why.Code, why.Reason, "%s leads to an address that is refused: %s", t.Name,
				why.Text)
		}
	}
	return list, nil
}

// failed returns the refusal for a name that could not be resolved.
func failed(ctx context.Context, err error, name string) error {
	var dns *net.DNSError
	switch {
	case err == nil || errors.As(err, &dns) && dns.IsNotFound:
		return egress.Refuse(proto.NotFound, "no_such_host", "there is no host %s", name)
	case ctx.Err() != nil || errors.As(err, &dns) && dns.IsTimeout:
		return egress.Refuse(proto.TimedOut, "resolver_timeout", "no name server answered about %s in time", name)
	}
	return egress.Refuse(proto.Unavailable, "resolver_failed", "%s cannot be resolved now", name)
}

// lookUp asks the host's /etc/hosts, then the name server.
func (r *Resolver) lookUp(ctx context.Context, name string) ([]netip.Addr, error) {
	if !strings.Contains(name, ".") {
		// Package net does not find a name of one label there if it ends with a dot.
		if list, err := hostsFile.LookupNetIP(ctx, "ip", name); err == nil {
			return list, nil
		}
	}
	return r.names.LookupNetIP(ctx, "ip", name+".") // the dot prevents a search list
}

// CheckKnown refuses a target that is known to lead to an address that is refused, without asking a name server.
func (r *Resolver) CheckKnown(ctx context.Context, t egress.Target) error {
	if t.Name == "" {
		return r.Check(t.Addr)
	}
	list, _ := hostsFile.LookupNetIP(ctx, "ip", t.Name) // an error: it is not known
	for _, a := range list {
		if err := r.Check(a); err != nil {
			return err
		}
	}
	return nil
}

// hostsFile finds names in /etc/hosts alone: it reaches no name server.
var hostsFile = net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("no name server is asked")
}}

// metadata are addresses at which clouds hand out credentials to any program on the machine. Some of them are public
// by number. They are refused whatever an operator allows.
var metadata = []string{"169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.169.123", "100.100.100.200",
	"168.63.129.16", "192.0.0.192",
	"fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fe80::a9fe:a9fe"}

// Check refuses an address that is not on the public internet: private, loopback, link-local, shared, reserved,
// multicast, and any IPv6 address that contains an IPv4 one. It also refuses the host's own addresses: services there
// may trust them.
func (r *Resolver) Check(a netip.Addr) error {
	a = a.Unmap() // the kernel unmaps it when it is dialled
	if translators.Contains(a) {
		b := a.As16()
		if err := r.Check(netip.AddrFrom4([4]byte(b[12:]))); err != nil {
			return err
		}
	}
	switch {
	case slices.Contains(metadata, a.WithZone("").String()):
		return egress.Refuse(proto.PermissionDenied, "metadata_address",
			"%s is a metadata service's address, which no "+
				"container may reach", a)
	// a range that contains it was not meant for it
	case r.isOwn(a) && !slices.Contains(r.private, netip.PrefixFrom(a, a.BitLen())):
		return egress.Refuse(proto.PermissionDenied, "private_address", "%s is an address of the daemon's host; the "+
			"operator can allow this single address", a)
	case slices.ContainsFunc(r.private, func(p netip.Prefix) bool { return p.Contains(a) }):
		return nil
	case a.Zone() != "" || r.public.SafeAddr(a) != nil:
		return egress.Refuse(proto.PermissionDenied, "private_address", "%s is not a public address; the operator of "+
			"the daemon can allow it", a)
	}
	return nil
}

// translators carry an IPv4 address in their last four bytes and forward to it (RFC 6052).
var translators = netip.MustParsePrefix("64:ff9b::/96")

// ownFor is how long the list of the host's addresses is cached.
const ownFor = 2 * time.Second

// isOwn reports whether the host has the address.
func (r *Resolver) isOwn(a netip.Addr) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.seen) > ownFor {
		list, err := net.InterfaceAddrs()
		if err != nil {
			return true // the addresses are unknown, so none is allowed
		}
		r.own, r.seen = r.own[:0], time.Now()
		for _, n := range list {
			if p, err := netip.ParsePrefix(n.String()); err == nil {
				r.own = append(r.own, p.Addr().Unmap())
			}
		}
	}
	return slices.Contains(r.own, a)
}

// Dial connects to the first address that accepts. Nothing is resolved here: only checked addresses are dialled.
func (r *Resolver) Dial(ctx context.Context, t egress.Target, list []netip.Addr) (net.Conn, error) {
	var d net.Dialer
	for i, a := range list {
		one, cancel := ctx, context.CancelFunc(func() {})
		if end, ok := ctx.Deadline(); ok { // a share of the time left, so that the other addresses can be tried
			one, cancel = context.WithTimeout(ctx, time.Until(end)/time.Duration(len(list)-i))
		}
		c, err := d.DialContext(one, "tcp", netip.AddrPortFrom(a, t.Port).String())
		cancel()
		if err == nil {
			return c, nil
		}
		r.log.Debug("dialling for a container", "address", a, "error", err)
	}
	if ctx.Err() != nil {
		return nil, egress.Refuse(proto.TimedOut, "dial_timeout", "%s did not answer in time", t)
	}
	return nil, egress.Refuse(proto.Unavailable, "unreachable", "%s cannot be reached", t)
}
