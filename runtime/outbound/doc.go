// Package outbound opens the sockets that receive what the programs of a sandbox send beyond its loopback. No packet
// passes through the daemon: both ends of such a connection are sockets of the sandbox's own network, and one of them
// is the daemon's.
//
// The network has no device but loopback. A route makes every address local there, and a program of BPF (sk_lookup)
// gives TCP connections and questions to name servers to the daemon's two sockets, whatever address they name. Other
// datagrams find no socket, and the kernel refuses them by ICMP. Loopback itself and the container's own address stay
// with the container's programs, except for port 53.
//
// Only IPv4 goes this way: package egress/names gives every host an IPv4 address, and there is no route for IPv6.
//
// It needs Linux 5.9, and rights that only root of the host has. Package egress/proxy decides what happens to what
// arrives.
package outbound
