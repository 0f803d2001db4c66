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
	Deny  []Rule // what Rules do not allow, and nobody is asked about
	Ask   bool   // somebody is asked about all else
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
	if p.Mode == "" && (len(asked.Allow) > 0 || asked.Ask) {
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
	for field, given := range map[string]bool{"allow": len(asked.Allow) > 0, "deny": len(asked.Deny) > 0,
		"ask": asked.Ask} {
		if given && p.Mode != proto.NetworkAllowlist {
			return p, wire, proto.Invalid("network."+field, "network.%s goes with the mode %q; leave it out, or the "+
				"mode",
				field, proto.NetworkAllowlist)
		}
	}
	p.Ask, wire.Mode, wire.Ask = asked.Ask, p.Mode, asked.Ask
	if p.Rules, wire.Allow, err = parseRules("network.allow", asked.Allow); err == nil {
		p.Deny, wire.Deny, err = parseRules("network.deny", asked.Deny)
	}
	return p, wire, err
}

// parseRules reads the list of a field, and returns it without repetitions, also as it is written.
func parseRules(field string, list []string) (rules []Rule, wire []string, err error) {
	if len(list) > maxRules {
		return nil, nil, proto.Invalid(field, "%d hosts are too many; %d is the limit", len(list), maxRules)
	}
	for i, text := range list {
		r, err := ParseRule(text)
		if err != nil {
			return nil, nil, proto.Invalid(field+"."+strconv.Itoa(i), "%s: %s", field, err)
		}
		if !slices.Contains(rules, r) {
			rules, wire = append(rules, r), append(wire, r.String())
		}
	}
	return rules, wire, nil
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
		return slices.ContainsFunc(p.Rules, func(r Rule) bool { return r.Fits(t) }) && !p.Denies(t)
	}
	return false
}

// Denies reports whether the target is refused without asking, even if a rule allows it.
func (p Policy) Denies(t Target) bool {
	return slices.ContainsFunc(p.Deny, func(r Rule) bool { return r.Fits(t) })
}

// Asks reports whether somebody may be asked about a target that is not allowed. A name of one label is no public host.
func (p Policy) Asks(t Target) bool {
	return p.Mode == proto.NetworkAllowlist && p.Ask && !p.Denies(t) && (t.Name == "" || strings.Contains(t.Name, "."))
}

// AllowsName reports whether the policy allows a host at any port.
func (p Policy) AllowsName(name string) bool {
	return p.Mode == proto.NetworkOpen || p.Mode == proto.NetworkAllowlist && slices.ContainsFunc(p.Rules,
		func(r Rule) bool {
			t := Target{Name: name, Port: cmp.Or(r.Port, 443)}
			return r.Fits(t) && !p.Denies(t)
		})
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
