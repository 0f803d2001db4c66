// Package egress controls a container's outgoing traffic: a proxy in the daemon that checks each request and connects
// to its target.
//
// A container has loopback only. Its programs reach the proxy in two ways, and the steps are the same for both:
//
//   - They speak HTTP (CONNECT, or a plain request with a whole URL) or SOCKS5 to it, over a connection that the guest
//     hands over: see Gate.Serve.
//   - They know of no proxy, ask for names and connect to addresses. The kernel hands that over: see Outbound. Package
//     names answers with addresses of its own, so that the proxy knows which name a connection is for.
//
// The steps:
//
//	target   read strictly what was asked for: a host has one spelling
//	policy   is that host on the list, at that port?
//	resolve  once, here; every address in the answer must be allowed
//	dial     one of those addresses, and nothing else
//	inspect  with a list: the name in the TLS hello, or in each Host header, is the target's
//
// Each request is reported before its first byte leaves, and again at its end. The client follows redirects itself;
// each is another request. A Policy is a plain value and does not say to whom it applies.
package egress

import (
	"context"
	"net"
	"net/netip"

	"berth/proto"
)

// A Conn is a connection that a program in the container made.
type Conn interface {
	net.Conn
	CloseWrite() error // ends this direction; the other one goes on
}

// An Outbound receives what the programs of a container send to any address beyond its loopback. Its sockets are in
// the network of the container. The local address of a connection, and the destination of a question, are what the
// program has named.
type Outbound interface {
	// Accept waits for a connection.
	Accept() (*net.TCPConn, error)
	// ReadQuestion waits for a datagram to port 53 of any address.
	ReadQuestion(b []byte) (n int, from, to netip.AddrPort, err error)
	// WriteAnswer answers a question, from the address that it was sent to.
	WriteAnswer(b []byte, from, to netip.AddrPort) error
	// Close closes the sockets: what is waited for fails. Connections that were accepted stay.
	Close() error
}

// A Secret replaces its placeholder in requests. Code in the container has the placeholder only.
type Secret struct {
	Name, Placeholder, Value string
	Hosts                    []string // as AllowSecrets returned them
}

// An Ask has a person asked whether a target may be reached that the list lacks, and waits for the decision. It fails
// with a Refusal, or when ctx ends. waits is called, at most once, if this is the first connection that waits for a new
// approval, before anybody can decide about it.
type Ask func(ctx context.Context, t Target, waits func(id string)) (*Permit, error)

// A Permit is a person's consent to one connection.
type Permit struct {
	Note   string // who has allowed what, in a sentence
	Listed bool   // the list has the target now, so that it alone counts
	// ends when the consent does, and with it the connection; nil: not before the connection does
	Life context.Context
}

// A Report describes one request: when it goes out or is refused, and when it is over.
type Report struct {
	Began, Over bool
	Outcome     string // proto.AuditOK, or the code of the refusal
	Note        string // the refusal in a sentence; or how a person allowed it
	Asked       string // it waits for a decision about the approval with this ID, and Note says what for
	proto.AuditEgress
}
