package proto

import (
	"slices"
	"strconv"
	"strings"
)

// Port is a port of a container that a program listens on.
type Port struct {
	Port    uint16 `json:"port"`
	Address string `json:"address"`           // That the program listens on, such as 127.0.0.1 or 0.0.0.0.
	PID     int    `json:"pid"`               // In the container; 0 if unknown, as under gVisor.
	Program string `json:"program,omitempty"` // Name of the process.
	// Of the port's own host name, if the daemon has a domain. It needs an API key, or a signed URL, unless the port is
	// public.
	URL    string `json:"url,omitempty"`
	Public bool   `json:"public,omitempty"` // Anyone may send requests to it.
}

// A SignPort asks for a signed URL.
type SignPort struct {
	// How long the URL is valid; 0 is the default, one hour.
	ExpiresInSeconds int64 `json:"expires_in_seconds,omitempty" schema:"min=0 max=604800"`
}

// Bounds of SignPort, in seconds.
const (
	UsualPortURL = 60 * 60
	MaxPortURL   = 7 * 24 * 60 * 60
)

// A PortURL is a signed URL: who has it may use one port of a container until a time. It ends with the container, and
// with the API key that asked for it.
type PortURL struct {
	URL       string `json:"url"`
	ExpiresAt Time   `json:"expires_at"`
}

// PortAccess is the widest access to ports of containers that a daemon allows. "" is PortsSigned.
type PortAccess string

// The accesses, each wider than the one before.
const (
	PortsPrivate PortAccess = "private" // with an API key of the owner
	PortsSigned  PortAccess = "signed"  // also with a signed URL or another token for the container
	PortsPublic  PortAccess = "public"  // also without any credential, to ports that their owner makes public
)

// Covers reports whether a allows all that other does.
func (a PortAccess) Covers(other PortAccess) bool { return a.width() >= other.width() }

func (a PortAccess) width() int {
	switch a {
	case PortsPrivate:
		return 0
	case PortsPublic:
		return 2
	}
	return 1
}

// MaxPublicPorts bounds the list of a container's public ports.
const MaxPublicPorts = 100

// PublicPorts are ports of a container that take requests without any credential. The zero PublicPorts are none.
type PublicPorts struct {
	All   bool     `json:"all,omitempty"`   // Every port.
	Ports []uint16 `json:"ports,omitempty"` // At most 100 ports, sorted.
}

// IsZero reports whether no port is public.
func (p PublicPorts) IsZero() bool { return !p.All && len(p.Ports) == 0 }

// Has reports whether a port is public.
func (p PublicPorts) Has(port uint16) bool { return p.All || slices.Contains(p.Ports, port) }

// Within returns what a daemon with that bound lets be public.
func (p PublicPorts) Within(most PortAccess) PublicPorts {
	if most != PortsPublic {
		return PublicPorts{}
	}
	p.Ports = slices.Clone(p.Ports)
	return p
}

// Normal returns p with its list sorted and without repetitions.
func (p PublicPorts) Normal() PublicPorts {
	p.Ports = slices.Compact(slices.Sorted(slices.Values(p.Ports)))
	return p
}

// String returns p for people.
func (p PublicPorts) String() string {
	if p.All {
		return "all"
	}
	var list []string
	for _, port := range p.Ports {
		list = append(list, strconv.Itoa(int(port)))
	}
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}

// PublishedPorts are the public ports of a container after a change.
type PublishedPorts struct {
	All   bool     `json:"all"`           // Every port is public.
	Ports []uint16 `json:"ports"`         // Ports that are public by themselves, sorted.
	URL   string   `json:"url,omitempty"` // Of the port that was made public.
}
