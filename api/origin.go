package api

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"berth/proto"
)

// Origins are the origins of web pages that may open websockets and send requests to edges that check it, such as
// "https://app.example.org". Pages from the daemon's own address may, too, and clients without an origin.
type Origins []string

// ParseOrigins reads origins as an operator writes them, and returns them as browsers send them. It refuses what no
// browser sends, and what every page could have.
func ParseOrigins(list []string) (out Origins, err error) {
	for _, text := range list {
		origin, err := parseOrigin(text)
		if err != nil {
			return nil, err
		}
		out = append(out, origin)
	}
	return out, nil
}

func parseOrigin(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" || u.Host == "" || u.Path != "" || u.RawQuery != "" || u.Fragment != "" ||
		u.User != nil || strings.Contains(u.Host, "*") {
		return "", proto.Invalid("origin", "%.80q is not a web origin such as https://app.example.org: a scheme and a "+
			"host, a port if it is not the usual one, and nothing else; name each origin", text)
	}
	host := strings.ToLower(u.Host)
	switch u.Scheme { // browsers leave out the usual port
	case "https":
		host = strings.TrimSuffix(host, ":443")
	case "http":
		host = strings.TrimSuffix(host, ":80")
	}
	return u.Scheme + "://" + host, nil
}

// Check refuses requests that a foreign web page sends from a browser. Only browsers send an origin, and pages cannot
// forge it. A page whose host name resolves to this machine has that name in Host, too (DNS rebinding), so equal names
// only count if no one else can own them.
func (o Origins) Check(r *http.Request) error {
	for _, origin := range r.Header.Values("Origin") {
		if !o.allow(origin, r.Host) {
			return proto.Errorf(proto.PermissionDenied, "", "Origin", "the origin %.80q may not send requests here; "+
				"allow it with --origin", origin)
		}
	}
	return nil
}

func (o Origins) allow(origin, host string) bool {
	if o.lists(origin) {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, host) && IsOwnName(host)
}

// lists reports whether an origin is one of these.
func (o Origins) lists(origin string) bool {
	return slices.ContainsFunc(o, func(allowed string) bool { return strings.EqualFold(allowed, origin) })
}

// IsOwnName reports whether a host, with or without a port, is an address or localhost. A web page can bring no other
// host's browser to send it, unless that page comes from there.
func IsOwnName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	_, err := netip.ParseAddr(host)
	return err == nil || strings.EqualFold(host, "localhost")
}
