package egress

import (
	"net/netip"
	"strconv"
	"strings"

	"berth/proto"

	"golang.org/x/net/idna"
)

// A Target is where somebody wants to go: a host by its name or by its address, and a port.
type Target struct {
	Name string     // lower case ASCII, without a dot at the end; empty where Addr is set
	Addr netip.Addr // never an IPv4 address in the clothes of an IPv6 one
	Port uint16
}

// Host is the target's name or address.
func (t Target) Host() string {
	if t.Name != "" {
		return t.Name
	}
	return t.Addr.String()
}

// String is host:port, an IPv6 address in brackets.
func (t Target) String() string {
	if t.Addr.Is6() {
		return netip.AddrPortFrom(t.Addr, t.Port).String()
	}
	return t.Host() + ":" + strconv.Itoa(int(t.Port))
}

// isWeb reports whether a port is one that rules without a port mean, where nothing but TLS and HTTP is spoken.
func isWeb(port uint16) bool { return port == 80 || port == 443 }

// parseTarget reads host:port as it stands in a request. There is one way to write each host and no second one: what
// other programs would read in another way than we do is refused. A port of 0 must be given.
func parseTarget(text string, port uint16) (Target, error) {
	if err := checkText(text); err != nil {
		return Target{}, err
	}
	host, given, err := cutPort(text)
	if err != nil {
		return Target{}, err
	}
	t, err := parseHost(host)
	if err != nil {
		return Target{}, err
	}
	switch {
	case given != "":
		t.Port, err = parsePort(given)
	case port == 0:
		err = badTarget("%+q has no port", text)
	default:
		t.Port = port
	}
	return t, err
}

// checkText refuses what stands in no host and port, and means something to some program: user@host, escapes, paths,
// line ends.
func checkText(text string) error {
	if len(text) > maxHostPort {
		return badTarget("a host of %d bytes is too long", len(text))
	}
	for _, c := range []byte(text) {
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`@%/\?#"<>`, c) >= 0 {
			return badTarget("%+q holds a character that no host has; write it as name:port", text)
		}
	}
	return nil
}

// cutPort parts host:port. Brackets stay: they say that an IPv6 address stands there.
func cutPort(text string) (host, port string, err error) {
	end := strings.LastIndexByte(text, ']') + 1
	i := strings.IndexByte(text[end:], ':')
	if i < 0 {
		return text, "", nil
	}
	if port = text[end+i+1:]; port == "" || strings.Contains(port, ":") {
		return "", "", badTarget("%+q is not host:port; an IPv6 address stands in brackets", text)
	}
	return text[:end+i], port, nil
}

// maxHostPort is more than the longest name with its port has, in bytes.
const maxHostPort = 270

// parsePort reads a port as it is written by everybody: without sign, space or leading zeros.
func parsePort(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 || text != strconv.FormatUint(n, 10) {
		return 0, badTarget("%+q is not a port; it must be from 1 to 65535", text)
	}
	return uint16(n), nil
}

// parseHost reads a name or an address.
func parseHost(text string) (Target, error) {
	if inner, ok := strings.CutPrefix(text, "["); ok {
		inner, closed := strings.CutSuffix(inner, "]")
		addr, err := netip.ParseAddr(inner)
		if err != nil || !closed || !addr.Is6() || addr.Zone() != "" {
			return Target{}, badTarget("%+q is not an IPv6 address", text)
		}
		return Target{Addr: addr.Unmap()}, nil
	}
	if endsInNumber(text) {
		addr, err := netip.ParseAddr(text)
		if err != nil || !addr.Is4() {
			return Target{}, badTarget("%+q is not an address as it is usually written, four decimal numbers "+
				"without leading zeros", text)
		}
		return Target{Addr: addr}, nil
	}
	name, err := parseName(text)
	return Target{Name: name}, err
}

// endsInNumber reports whether some program would take text for an IPv4 address, such as 2130706433, 0x7f.1 or 127.1:
// its last label is a number, in whatever base.
func endsInNumber(text string) bool {
	text = strings.TrimSuffix(text, ".")
	last := strings.ToLower(text[strings.LastIndexByte(text, '.')+1:])
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return last != "" && strings.Trim(last, "0123456789") == ""
}

// names maps what people type to what is asked of a resolver, and refuses what is no host name.
var names = idna.New(idna.MapForLookup(), idna.Transitional(false), idna.StrictDomainName(true), idna.BidiRule(),
	idna.CheckHyphens(true), idna.VerifyDNSLength(true))

// parseName brings a host's name into the one form that is compared: lower case, in ASCII, with no dot at its end.
func parseName(text string) (string, error) {
	name, err := names.ToASCII(strings.TrimSuffix(text, "."))
	if err != nil || name == "" || strings.HasSuffix(name, ".") {
		return "", badTarget("%+q is not a host name", text)
	}
	if endsInNumber(name) { // digits of other scripts have become ours
		return "", badTarget("%+q is not a host name", text)
	}
	return name, nil
}

func badTarget(format string, args ...any) error {
	return refuse(proto.InvalidArgument, "bad_target", format, args...)
}
