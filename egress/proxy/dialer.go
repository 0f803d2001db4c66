package proxy

import (
	"context"
	"net"
	"net/netip"
	"strings"

	"berth/egress"
	"berth/proto"
)

// A Dialer connects the daemon itself to hosts that tenants name and the operator has listed. It follows the rules
// for containers: a target is read strictly, each address is checked, and only a checked address is dialled.
type Dialer struct{ gate *Gate }

// NewDialer makes a dialer for a list of hosts: HOST or HOST:PORT, as in a container's allow-list. Addresses that are
// not public are reached if the list has them or a range that contains them.
func NewDialer(list []string, resolver string) (*Dialer, error) {
	cfg, asked := Config{Most: proto.NetworkAllowlist, Resolver: resolver}, proto.Network{Mode: proto.NetworkAllowlist}
	for _, text := range list {
		if p, err := netip.ParsePrefix(text); err == nil {
			cfg.Private = append(cfg.Private, p.Masked())
			continue
		}
		asked.Allow = append(asked.Allow, text)
		host := text
		if h, _, err := net.SplitHostPort(text); err == nil {
			host = h
		}
		if a, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
			cfg.Private = append(cfg.Private, netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()))
		}
	}
	p, err := New(cfg)
	if err != nil {
		return nil, err
	}
	granted, err := p.AllowList(asked)
	if err != nil {
		return nil, err
	}
	return &Dialer{p.Gate(granted, nil, nil, func(egress.Report) {})}, nil
}

// Reach reports whether host:port is on the list. The name is resolved when it is dialled.
func (d *Dialer) Reach(hostPort string) error {
	t, err := egress.ParseTarget(hostPort, 0)
	if err == nil && !d.gate.policy.Load().Allows(t) {
		err = egress.Refuse(proto.PermissionDenied, "not_allowed", "%s is not among the servers that tool calls may "+
			"go to; the daemon's operator can list it with --tools-callback", t)
	}
	if err != nil {
		r := egress.RefusalOf(err)
		return proto.Errorf(r.Code, "", cutHost(hostPort), "%s", r.Text)
	}
	return nil
}

func cutHost(text string) string { return text[:min(len(text), egress.MaxHostPort)] }

// DialContext connects to host:port if it is on the list and its address may be reached. network is ignored; it is
// TCP.
func (d *Dialer) DialContext(ctx context.Context, _, hostPort string) (net.Conn, error) {
	t, err := egress.ParseTarget(hostPort, 0)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, d.gate.proxy.cfg.DialTimeout)
	defer cancel()
	addrs, err := d.gate.resolve(ctx, t)
	if err != nil {
		return nil, err
	}
	return d.gate.proxy.resolver.Dial(ctx, t, addrs)
}

// A PublicDialer connects the daemon itself to any public address, for hosts that tenants name. It follows the rules
// for containers with the widest network: each address of a name is judged, and only a judged one is dialled.
type PublicDialer struct{ proxy *Proxy }

// NewPublicDialer makes a dialer. Addresses that are not public are reached if a range of private has them.
func NewPublicDialer(private []netip.Prefix, resolver string) (*PublicDialer, error) {
	p, err := New(Config{Most: proto.NetworkAllowlist, Resolver: resolver, Private: private})
	return &PublicDialer{p}, err
}

// DialContext connects to host:port if its address may be reached. network is ignored; it is TCP.
func (d *PublicDialer) DialContext(ctx context.Context, _, hostPort string) (net.Conn, error) {
	t, err := egress.ParseTarget(hostPort, 0)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, d.proxy.cfg.DialTimeout)
	defer cancel()
	list, err := d.proxy.resolver.Resolve(ctx, t)
	if err != nil {
		return nil, err
	}
	return d.proxy.resolver.Dial(ctx, t, list)
}

// Reach returns an error if host:port leads to an address that DialContext would refuse now. A name that cannot be
// resolved now may be reached later.
func (d *PublicDialer) Reach(ctx context.Context, hostPort string) error {
	t, err := egress.ParseTarget(hostPort, 0)
	if err == nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.proxy.cfg.DialTimeout)
		defer cancel()
		_, err = d.proxy.resolver.Resolve(ctx, t)
		if err == nil || egress.RefusalOf(err).Code != proto.PermissionDenied {
			return nil
		}
	}
	return proto.Errorf(proto.InvalidArgument, "", cutHost(hostPort), "%s", egress.RefusalOf(err).Text)
}
