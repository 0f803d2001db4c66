// Package address spells ports of containers as host names, <port>-<id>.<domain>, and reads them again. The ID is the
// container's as proto.HostID spells it, since a host name has no case.
package address

import (
	"cmp"
	"net"
	"net/url"
	"strconv"
	"strings"

	"berth/proto"
)

// A Domain is the name below which each port of a container has a host name. The zero Domain has none.
type Domain struct {
	Scheme string // of URLs: "http" or "https"
	Name   string // lower case, without a port
	Port   string // of URLs; "": the usual one of the scheme
}

// apiLabel is the label below a domain that is the API's, for clients that expect it there.
const apiLabel = "api"

// Parse reads NAME, NAME:PORT or https://NAME:PORT as an operator writes it. The scheme is only needed behind a proxy
// that has TLS. Without a port, or without a scheme, that field of the Domain is empty.
func Parse(text string) (d Domain, err error) {
	wrong := func(why string) (Domain, error) {
		return Domain{}, proto.Invalid("domain", "%.80q is not a domain: %s; write it as preview.example.org, with a "+
			"port if clients use another than this daemon's, and with https:// behind a proxy that has TLS", text, why)
	}
	rest := text
	if scheme, host, ok := strings.Cut(text, "://"); ok {
		if scheme != "http" && scheme != "https" {
			return wrong("its scheme is neither http nor https")
		}
		d.Scheme, rest = scheme, host
	}
	d.Name = strings.ToLower(rest)
	if name, port, ok := strings.Cut(d.Name, ":"); ok {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return wrong("its port is no number from 1 to 65535")
		}
		d.Name, d.Port = name, strconv.Itoa(int(n))
	}
	if net.ParseIP(d.Name) != nil {
		return wrong("an address has no names below it")
	}
	for label := range strings.SplitSeq(d.Name, ".") {
		if !isLabel(label) {
			return wrong("each part between dots is letters, digits and hyphens")
		}
	}
	if len(d.Name) > maxName {
		return wrong("it is too long")
	}
	return d, nil
}

// maxName leaves room in the 253 characters of a host name for the label of a port.
const maxName = 253 - len("65535-i") - 26 - 1

// isLabel reports whether text is one label of a host name, in lower case.
func isLabel(text string) bool {
	ok := text != "" && len(text) <= 63 && text[0] != '-' && text[len(text)-1] != '-'
	for _, c := range []byte(text) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-')
	}
	return ok
}

// At returns the domain with the scheme and the port of a daemon for the fields that its operator left out. Behind a
// proxy with TLS the port is the usual one.
func (d Domain) At(scheme, port string) Domain {
	if d.Scheme == "" {
		d.Port = cmp.Or(d.Port, port)
	}
	d.Scheme = cmp.Or(d.Scheme, scheme)
	if d.Scheme == "https" && d.Port == "443" || d.Scheme == "http" && d.Port == "80" {
		d.Port = ""
	}
	return d
}

// URL returns the URL of a port of a container, without a slash at its end; "" without a domain.
func (d Domain) URL(container string, port uint16) string {
	id := proto.HostID(container)
	if d.Name == "" || id == "" {
		return ""
	}
	host := strconv.Itoa(int(port)) + "-" + id + "." + d.Name
	if d.Port != "" {
		host = net.JoinHostPort(host, d.Port)
	}
	return d.Scheme + "://" + host
}

// A Place is the port of a container that a host name spells.
type Place struct {
	Container string // ID; "" if the name spells none
	Port      string // as it is written
}

// Find reads a host, with or without a port. It reports whether the host is below the domain, and not the API's.
func (d Domain) Find(host string) (at Place, below bool) {
	if d.Name == "" {
		return at, false
	}
	tcp := ""
	if name, port, err := net.SplitHostPort(host); err == nil {
		host, tcp = name, port
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	label, below := strings.CutSuffix(host, "."+d.Name)
	if !below || label == apiLabel {
		return at, false
	}
	port, id, _ := strings.Cut(label, "-")
	at = Place{Container: proto.IDOfHost(id), Port: port}
	if _, err := strconv.ParseUint(cmp.Or(tcp, "0"), 10, 16); err != nil || at.Container == "" ||
		strings.Contains(port, ".") {
		return Place{}, true
	}
	return at, true
}

// SameContainer reports whether a web origin is a port of this container, under the same domain and the same TCP port
// as the host of the request.
func (d Domain) SameContainer(origin, host, container string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Scheme != d.Scheme {
		return false
	}
	at, below := d.Find(u.Host)
	_, theirs, _ := strings.Cut(strings.ToLower(u.Host), ".")
	_, ours, _ := strings.Cut(strings.ToLower(host), ".")
	return below && at.Container == container && theirs == ours
}
