// Package egress controls a container's outgoing traffic: a proxy in the daemon that checks each request and connects
// to its target.
//
// A container has loopback only, and no resolver. Its programs speak HTTP (CONNECT, or a plain request with a whole
// URL) or SOCKS5 to the proxy, over a connection that the guest hands over: see Gate.Serve. The steps are the same
// for all:
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
	"net"

	"berth/proto"
)

// A Conn is a connection that a program in the container made.
type Conn interface {
	net.Conn
	CloseWrite() error // ends this direction; the other one goes on
}

// A Secret replaces its placeholder in requests. Code in the container has the placeholder only.
type Secret struct {
	Name, Placeholder, Value string
	Hosts                    []string // as AllowSecrets returned them
}

// A Report describes one request: when it goes out or is refused, and when it is over.
type Report struct {
	Began, Over bool
	Outcome     string // proto.AuditOK, or the code of the refusal
	Note        string // the refusal in a sentence
	proto.AuditEgress
}
