// Package egress is the way out of a container that may have one: a proxy in the daemon, which decides for each
// request where it may go, and goes there itself.
//
// A container has no interface beside loopback, and no resolver. What runs in it speaks to the proxy, as HTTP
// (CONNECT, or a plain request with its whole URL) or SOCKS5, over a connection that somebody else brings: see
// Gate.Serve. The steps are the same for all:
//
//	target   what was asked for, read strictly: one way to write a host, or none
//	policy   is that host on the list, at that port?
//	resolve  once, here; every address that comes back must be one that may be reached
//	dial     one of those addresses, and nothing else
//	inspect  with a list: the name in the TLS hello, or in each Host header, is the target's
//
// Each request is told of before its first byte leaves, and again at its end. Redirects are the client's to follow:
// that is another request. A Policy is a plain value, which says nothing of who is bound by it.
package egress
