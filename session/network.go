package session

import (
	"maps"
	"slices"
	"strings"

	"berth/egress"
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

// proxies reports whether a session of this record finds the proxy.
func (c Config) proxies(rec record) bool { return c.Egress != nil && rec.connected() }

// proxyService is the way out of the session's present generation, or nil if it has none.
func (s *Session) proxyService(rec record) Service {
	if s.core.cfg.proxies(rec) {
		return s.core.cfg.Egress.Gate(rec.Network, slices.Collect(maps.Values(rec.Swapped)), s.tellVisit)
	}
	return nil
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
		Act: act, Outcome: v.Outcome, Actor: proto.ActorContainer, Owner: s.owner, ContainerID: s.id, Note: s.veil.hide(
			v.Note), Egress: &v.AuditEgress,
	})
}
