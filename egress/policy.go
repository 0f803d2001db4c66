package egress

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"berth/proto"
)

// A Policy says what may be reached. The zero Policy allows nothing.
type Policy struct {
	Mode  proto.NetworkMode
	Rules []Rule // of proto.NetworkAllowlist; no rule allows nothing
}

// A Rule allows one host, or the hosts one label below a name.
type Rule struct {
	Name     string     // as in Target; empty if Addr is set
	Wildcard bool       // one label before Name, and not Name itself
	Addr     netip.Addr //
	Port     uint16     // 0 is 80 and 443
}

// maxRules bounds a list: each request is compared with all of it.
const maxRules = 256

// ParsePolicy checks what a request asks for and normalizes it, as wire shows. Proxy.AllowList decides whether the
// daemon grants it.
func ParsePolicy(asked proto.Network) (p Policy, wire proto.Network, err error) {
	p.Mode = asked.Mode
	if p.Mode == "" && len(asked.Allow) > 0 {
		p.Mode = proto.NetworkAllowlist
	}
	switch p.Mode {
	case "":
		p.Mode = proto.NetworkNone
	case proto.NetworkNone, proto.NetworkAllowlist, proto.NetworkOpen:
	default:
		return p, wire, proto.Invalid("network.mode", "network.mode %.64q is not known; use %q, %q or %q", asked.Mode,
			proto.NetworkNone, proto.NetworkAllowlist, proto.NetworkOpen)
	}
	if len(asked.Allow) > 0 && p.Mode != proto.NetworkAllowlist {
		return p, wire, proto.Invalid("network.allow", "network.allow goes with the mode %q; leave it out, or the mode",
			proto.NetworkAllowlist)
	}
	if len(asked.Allow) > maxRules {
		return p, wire, proto.Invalid("network.allow", "%d hosts are too many; %d is the limit", len(asked.Allow),
			maxRules)
	}
	wire.Mode = p.Mode
	for i, text := range asked.Allow {
		r, err := ParseRule(text)
		if err != nil {
			return p, wire, proto.Invalid("network.allow."+strconv.Itoa(i), "network.allow: %s", err)
		}
		if !slices.Contains(p.Rules, r) {
			p.Rules, wire.Allow = append(p.Rules, r), append(wire.Allow, r.String())
		}
	}
	return p, wire, nil
}

// ParseRule reads one entry of a list. Names may use any script.
func ParseRule(text string) (Rule, error) {
	switch {
	case strings.Contains(text, "://"):
		return Rule{}, BadTarget("%.80q has a scheme; write the host alone, such as example.com or example.com:8443",
			text)
	case strings.ContainsAny(text, "/?#"):
		return Rule{}, BadTarget("%.80q has a path; the list has whole hosts, so write the host alone", text)
	}
	rest, wildcard := strings.CutPrefix(text, "*.")
	if strings.Contains(rest, "*") {
		return Rule{}, BadTarget("%.80q: a star stands for one whole label, the first: *.example.com", text)
	}
	host, port, err := cutPort(rest)
	switch {
	case err != nil:
	case strings.IndexFunc(host, func(r rune) bool { return r >= utf8.RuneSelf }) >= 0:
		host, err = parseName(host)
	default:
		err = checkText(host)
	}
	if err != nil {
		return Rule{}, err
	}
	t, err := parseHost(host)
	if err == nil && port != "" {
		t.Port, err = parsePort(port)
	}
	if err == nil && wildcard && !strings.Contains(t.Name, ".") {
		err = BadTarget("%.80q would allow too many hosts; two labels must follow the star", text)
	}
	return Rule{Name: t.Name, Addr: t.Addr, Wildcard: wildcard, Port: t.Port}, err
}

// String returns the rule as written in a request.
func (r Rule) String() string {
	host := Target{Name: r.Name, Addr: r.Addr}.Host()
	if r.Addr.Is6() {
		host = "[" + host + "]"
	}
	if r.Wildcard {
		host = "*." + host
	}
	if r.Port != 0 {
		host += ":" + strconv.Itoa(int(r.Port))
	}
	return host
}

// Allows reports whether the target's name may be reached. The addresses of the name are checked later.
func (p Policy) Allows(t Target) bool {
	switch p.Mode {
	case proto.NetworkOpen:
		return true
	case proto.NetworkAllowlist:
		return slices.ContainsFunc(p.Rules, func(r Rule) bool { return r.Fits(t) })
	}
	return false
}

// AllowsName reports whether the policy allows a host at any port.
func (p Policy) AllowsName(name string) bool {
	return p.Mode == proto.NetworkOpen || p.Mode == proto.NetworkAllowlist && slices.ContainsFunc(p.Rules,
		func(r Rule) bool { return r.Fits(Target{Name: name, Port: cmp.Or(r.Port, 443)}) })
}

// Fits reports whether the rule allows a target.
func (r Rule) Fits(t Target) bool {
	if r.Port != t.Port && (r.Port != 0 || !IsWeb(t.Port)) || r.Addr != t.Addr {
		return false
	}
	if !r.Wildcard {
		return r.Name == t.Name
	}
	_, parent, found := strings.Cut(t.Name, ".")
	return found && parent == r.Name
}

// Covers reports whether the policy allows all that a rule allows, at least at one of its ports.
func (p Policy) Covers(r Rule) bool {
	if p.Mode == proto.NetworkOpen {
		return true
	}
	return slices.ContainsFunc(p.Rules, func(own Rule) bool {
		if own.Port != r.Port && own.Port != 0 && r.Port != 0 || own.Port != r.Port && !IsWeb(max(own.Port, r.Port)) {
			return false
		}
		if own.Wildcard && !r.Wildcard {
			return own.Fits(Target{Name: r.Name, Addr: r.Addr, Port: max(own.Port, r.Port, 80)})
		}
		return own.Name == r.Name && own.Addr == r.Addr && own.Wildcard == r.Wildcard
	})
}
