package egress

import (
	"net/netip"
	"strconv"
	"strings"

	"berth/proto"

	"golang.org/x/net/idna"
)

// A Target is the destination of a request: a host by its name or address, and a port.
type Target struct {
	Name string     // lower-case ASCII without a final dot; empty if Addr is set
	Addr netip.Addr // never an IPv4 address written as an IPv6 one
	Port uint16
}

// Host returns the target's name or address.
func (t Target) Host() string {
	if t.Name != "" {
		return t.Name
	}
	return t.Addr.String()
}

// String returns host:port, with an IPv6 address in brackets.
func (t Target) String() string {
	if t.Addr.Is6() {
		return netip.AddrPortFrom(t.Addr, t.Port).String()
	}
	return t.Host() + ":" + strconv.Itoa(int(t.Port))
}

// HostHeader returns the target in the form of a Host header, which omits the default port.
func (t Target) HostHeader(encrypted bool) string {
	if encrypted && t.Port != 443 || !encrypted && t.Port != 80 {
		return t.String()
	}
	if t.Addr.Is6() {
		return "[" + t.Host() + "]"
	}
	return t.Host()
}

// IsWeb reports whether rules without a port mean this port. There, only TLS and HTTP are allowed.
func IsWeb(port uint16) bool { return port == 80 || port == 443 }

// ParseTarget reads host:port from a request. A host has one spelling: anything that another program would read
// differently is refused. With port 0 the text must name a port.
func ParseTarget(text string, port uint16) (Target, error) {
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
		err = BadTarget("%+q has no port", text)
	default:
		t.Port = port
	}
	return t, err
}

// checkText refuses text that does not belong into host and port but means something to some program: user@host,
// escapes, paths, line ends.
func checkText(text string) error {
	if len(text) > MaxHostPort {
		return BadTarget("a host of %d bytes is too long", len(text))
	}
	for _, c := range []byte(text) {
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`@%/\?#"<>`, c) >= 0 {
			return BadTarget("%+q holds a character that no host has; write it as name:port", text)
		}
	}
	return nil
}

// cutPort splits host:port. Brackets stay: they mark an IPv6 address.
func cutPort(text string) (host, port string, err error) {
	end := strings.LastIndexByte(text, ']') + 1
	i := strings.IndexByte(text[end:], ':')
	if i < 0 {
		return text, "", nil
	}
	if port = text[end+i+1:]; port == "" || strings.Contains(port, ":") {
		return "", "", BadTarget("%+q is not host:port; an IPv6 address stands in brackets", text)
	}
	return text[:end+i], port, nil
}

// MaxHostPort exceeds the longest name with its port, in bytes.
const MaxHostPort = 270

// parsePort reads a port without sign, space or leading zeros.
func parsePort(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 || text != strconv.FormatUint(n, 10) {
		return 0, BadTarget("%+q is not a port; it must be from 1 to 65535", text)
	}
	return uint16(n), nil
}

// parseHost reads a name or an address.
func parseHost(text string) (Target, error) {
	if inner, ok := strings.CutPrefix(text, "["); ok {
		inner, closed := strings.CutSuffix(inner, "]")
		addr, err := netip.ParseAddr(inner)
		if err != nil || !closed || !addr.Is6() || addr.Zone() != "" {
			return Target{}, BadTarget("%+q is not an IPv6 address", text)
		}
		return Target{Addr: addr.Unmap()}, nil
	}
	if endsInNumber(text) {
		addr, err := netip.ParseAddr(text)
		if err != nil || !addr.Is4() {
			return Target{}, BadTarget("%+q is not an address as it is usually written, four decimal numbers "+
				"without leading zeros", text)
		}
		return Target{Addr: addr}, nil
	}
	name, err := parseName(text)
	return Target{Name: name}, err
}

// endsInNumber reports whether some program would read text as an IPv4 address, such as 2130706433, 0x7f.1 or 127.1:
// its last label is a number, in any base.
func endsInNumber(text string) bool {
	text = strings.TrimSuffix(text, ".")
	last := strings.ToLower(text[strings.LastIndexByte(text, '.')+1:])
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return last != "" && strings.Trim(last, "0123456789") == ""
}

// names converts typed names to the form that resolvers get, and refuses anything that is no host name.
var names = idna.New(idna.MapForLookup(), idna.Transitional(false), idna.StrictDomainName(true), idna.BidiRule(),
	idna.CheckHyphens(true), idna.VerifyDNSLength(true))

// parseName normalizes a host's name: lower case, ASCII, no final dot.
func parseName(text string) (string, error) {
	name, err := names.ToASCII(strings.TrimSuffix(text, "."))
	if err != nil || name == "" || strings.HasSuffix(name, ".") {
		return "", BadTarget("%+q is not a host name", text)
	}
	if endsInNumber(name) { // digits of other scripts have become ASCII digits
		return "", BadTarget("%+q is not a host name", text)
	}
	return name, nil
}

// BadTarget returns the refusal for a target that cannot be read.
func BadTarget(format string, args ...any) error {
	return Refuse(proto.InvalidArgument, "bad_target", format, args...)
}
