package egress

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"berth/proto"

	"code.dny.dev/ssrf"
)

// metadata are addresses at which clouds hand out credentials to any program on the machine. Some of them are public
// by number. They are refused whatever an operator allows.
var metadata = addrs("169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.169.123", "100.100.100.200",
	"168.63.129.16", "192.0.0.192",
	"fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fe80::a9fe:a9fe")

func addrs(list ...string) (out []netip.Addr) {
	for _, text := range list {
		out = append(out, netip.MustParseAddr(text))
	}
	return out
}

// A guard decides which addresses may be reached.
type guard struct {
	private []netip.Prefix // addresses that are not public but allowed by the operator
	public  *ssrf.Guardian // knows the special-purpose addresses of IANA

	mu   sync.Mutex // guards what follows
	own  []netip.Addr
	seen time.Time
}

func newGuard(private []netip.Prefix) *guard {
	return &guard{private: private, public: ssrf.New(ssrf.WithAnyPort(), ssrf.WithAnyNetwork())}
}

// check refuses an address that is not on the public internet: private, loopback, link-local, shared, reserved,
// multicast, and any IPv6 address that contains an IPv4 one. It also refuses the host's own addresses: services there
// may trust them.
func (g *guard) check(a netip.Addr) error {
	a = a.Unmap() // the kernel unmaps it when it is dialled
	if inner, ok := translated(a); ok {
		if err := g.check(inner); err != nil {
			return err
		}
	}
	switch {
	case slices.Contains(metadata, a.WithZone("")):
		return refuse(proto.PermissionDenied, "metadata_address", "%s is a metadata service's address, which no "+
			"container may reach", a)
	// a range that contains it was not meant for it
	case g.isOwn(a) && !slices.Contains(g.private, netip.PrefixFrom(a, a.BitLen())):
		return refuse(proto.PermissionDenied, "private_address", "%s is the daemon's own host; its operator can "+
			"allow it by itself", a)
	case slices.ContainsFunc(g.private, func(p netip.Prefix) bool { return p.Contains(a) }):
		return nil
	case a.Zone() != "" || g.public.SafeAddr(a) != nil:
		return refuse(proto.PermissionDenied, "private_address", "%s is not a public address; the operator of the "+
			"daemon can allow it", a)
	}
	return nil
}

// translators carry an IPv4 address in their last four bytes and forward to it (RFC 6052).
var translators = netip.MustParsePrefix("64:ff9b::/96")

// translated returns the address that a translator forwards to.
func translated(a netip.Addr) (inner netip.Addr, ok bool) {
	if !translators.Contains(a) {
		return inner, false
	}
	b := a.As16()
	return netip.AddrFrom4([4]byte(b[12:])), true
}

// ownFor is how long the list of the host's addresses is cached.
const ownFor = 2 * time.Second

// isOwn reports whether the host has the address.
func (g *guard) isOwn(a netip.Addr) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.seen) > ownFor {
		list, err := net.InterfaceAddrs()
		if err != nil {
			return true // the addresses are unknown, so none is allowed
		}
		g.own, g.seen = g.own[:0], time.Now()
		for _, n := range list {
			if p, err := netip.ParsePrefix(n.String()); err == nil {
				g.own = append(g.own, p.Addr().Unmap())
			}
		}
	}
	return slices.Contains(g.own, a)
}
