package attack

import (
	"context"
	"errors"
	"net"
	"net/url"
	"time"

	"golang.org/x/sys/unix"

	"berth/proto"
)

// Groups 36, 37 and 40: a container has no network, so it must not reach anything. Each container has a network
// namespace with only loopback and no link to any other. In gVisor it has a network stack without links. A way out
// would lead to the operator's network, with the operator's addresses.
var _ = register(
	// The metadata service of a cloud (169.254.169.254) gives credentials to any request from the machine. The
	// Capital One breach of 2019 began that way.
	attempts(Case{
		Group: 36, Name: "network/addresses",
		Tries: "connect from inside to metadata services in all spellings, link-local, private and carrier " +
			"addresses, gateways and multicast, over TCP and UDP",
		Wants: "there is no way to any of them",
	}, asBoth, addressAttempts),
	// The daemon listens on the host's loopback, which must not be the container's.
	Case{
		Group: 36, Name: "network/daemon", Inside: true,
		Tries: "connect from inside to the daemon's own port on every address of loopback and of its host name",
		Wants: "nothing listens there",
		Run:   daemonPort,
	},
	// With an interface, a container could get addresses and act as a separate machine on the host's network.
	attempts(Case{
		Group: 36, Name: "network/interfaces",
		Tries: "find an interface, a route or an address beside loopback, and make one",
		Wants: "there is none, and none can be made",
	}, asBoth, interfaceAttempts),
	// DNS carries data out where connections are blocked: a resolver forwards queries (DNS tunnels).
	attempts(Case{
		Group: 37, Name: "network/names",
		Tries: "resolve names through every usual resolver, and send queries that carry data to public ones, over " +
			"UDP, TCP, DoT and DoH",
		Wants: "no name resolves and no query leaves",
	}, asBoth, nameAttempts),
	// Raw sockets can forge senders and answer for others: ARP and DHCP determine where a network's traffic goes
	// (CVE-2020-14386 began with a packet socket).
	attempts(Case{
		Group: 40, Name: "network/packets",
		Tries: "send raw, spoofed, broadcast and ARP packets, and answer DHCP",
		Wants: "no socket for them can be had, or there is nobody to send to",
	}, asBoth, packetAttempts),
)

// addressAttempts dial addresses. For UDP they also send: a UDP socket "connects" without contacting the peer if
// there is a route.
func addressAttempts() []attempt {
	var all []attempt
	for _, host := range []string{
		// The same address in forms that have passed text filters: mapped and translated IPv6, octal, decimal,
		// hexadecimal and shortened.
		"169.254.169.254", "169.254.170.2", "[fd00:ec2::254]", "[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]",
		"[64:ff9b::a9fe:a9fe]", "100.100.100.200", "168.63.129.16",
		"192.0.0.192", "10.0.0.1", "10.0.2.2", "172.16.0.1", "172.17.0.1", "192.168.0.1", "192.168.122.1", "100.64.0.1",
		"198.18.0.1", "[fe80::1]", "[fe80::1%25lo]", "[fc00::1]",
		"224.0.0.1", "[ff02::1]", "255.255.255.255", "8.8.8.8", "1.1.1.1", "[2606:4700:4700::1111]",
		"0251.0376.0251.0376", "2852039166", "0xa9fea9fe", "169.254.43518",
	} {
		for _, network := range []string{"tcp", "udp"} {
			all = append(all, attempt{network + " " + host, func() error {
				conn, err := net.DialTimeout(network, host+":80", 3*time.Second)
				if err != nil {
					return noWay(err)
				}
				defer conn.Close()
				_, err = conn.Write([]byte("GET / HTTP/1.0\r\n\r\n"))
				return err
			}})
		}
	}
	return all
}

// noWay returns the error of a connection that was refused at once. A connection that timed out had a route: its
// packets have left the container.
func noWay(err error) error {
	var timed net.Error
	if errors.As(err, &timed) && timed.Timeout() {
		return through("it was sent, and not answered in time: %v", err)
	}
	return err
}

// daemonPort uses the daemon's real port, so an answer would come from the daemon.
func daemonPort(ctx context.Context, t *Target) (string, error) {
	con, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	u, err := url.Parse(t.Host)
	if err != nil {
		return "", err
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	var found []string
	// For the kernel, 0.0.0.0 and :: mean this machine; another engine names the host host.docker.internal.
	if err := t.Probe(ctx, con.ID, "", "connect", &found, port, "127.0.0.1", "127.0.0.2", "127.255.255.254", "::1",
		"0.0.0.0", "::", "localhost", u.Hostname(), "host.docker.internal"); err != nil {
		return "", err
	}
	if len(found) > 0 {
		return "", Breached("port %s answers at %v", port, found)
	}
	return "port " + port + " answers at none of them", nil
}

// connect prints the hosts that accepted a connection.
var _ = addProbe("connect", func(args []string) (any, error) {
	found := []string{}
	for _, host := range args[1:] {
		conn, err := net.DialTimeout("tcp", net.JoinHostPort(host, args[0]), 3*time.Second)
		if err == nil {
			found = append(found, host)
			_ = conn.Close()
		}
	}
	return found, nil
})

// interfaceAttempts use netlink like ip(8). Its routing family is allowed, but only for reading.
func interfaceAttempts() []attempt {
	return []attempt{
		{"an interface", func() error {
			list, err := net.Interfaces()
			if err != nil {
				return moot("%v", err)
			}
			for _, i := range list {
				if i.Flags&net.FlagLoopback == 0 {
					return through("there is %s", i.Name)
				}
			}
			return errors.New("there is loopback alone")
		}},
		{"an address", func() error {
			list, err := net.InterfaceAddrs()
			if err != nil {
				return moot("%v", err)
			}
			for _, a := range list {
				if ip, ok := a.(*net.IPNet); !ok || !ip.IP.IsLoopback() {
					return through("there is %s", a)
				}
			}
			return errors.New("there is loopback alone")
		}},
		{"bind another address", func() error {
			ln, err := net.Listen("tcp", "10.0.0.1:80")
			if err == nil {
				_ = ln.Close()
			}
			return err
		}},
		{"an interface of its own", func() error {
			fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return addDummy(fd)
		}},
	}
}

// addDummy requests a new interface over routing netlink. The answer is a message with an error number. The message
// is built by hand: a netlink header of 16 bytes, and an empty ifinfomsg.
func addDummy(fd int) error {
	msg := make([]byte, 32)
	// create, and fail if it exists
	msg[0], msg[4], msg[6], msg[7] = 32, unix.RTM_NEWLINK, unix.NLM_F_REQUEST|unix.NLM_F_ACK, 0x06
	if err := unix.Sendto(fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 3})
	buf := make([]byte, 4096)
	n, err := unix.Read(fd, buf)
	switch {
	case err != nil:
		return moot("the kernel did not answer: %v", err)
	case n >= 20 && buf[4] == unix.NLMSG_ERROR && (buf[16]|buf[17]|buf[18]|buf[19]) != 0:
		return errors.New("the kernel refused it")
	}
	return nil
}

// nameAttempts use the resolver that commands use, and then send queries directly to servers.
func nameAttempts() []attempt {
	var all []attempt
	for _, name := range []string{"example.com", "example.com.", "secret.exfiltrated.example.com",
		"metadata.google.internal", "169.254.169.254.nip.io", "xn--e1afmkfd.example"} {
		all = append(all, attempt{"resolve " + name, func() error {
			_, err := net.LookupHost(name)
			return noWay(err)
		}})
	}
	// 127.0.0.53 and 127.0.0.11 are resolvers of other systems; 10.96.0.10 is the resolver of many clusters.
	for _, server := range []string{"127.0.0.1:53", "127.0.0.53:53", "127.0.0.11:53", "8.8.8.8:53", "1.1.1.1:853",
		"1.1.1.1:443", "[2001:4860:4860::8888]:53", "10.96.0.10:53", "224.0.0.251:5353"} {
		for _, network := range []string{"udp", "tcp"} {
			all = append(all, attempt{network + " query to " + server, func() error { return query(network, server) }})
		}
	}
	return all
}

// query sends a DNS query and waits for an answer. Over UDP, a connection alone proves nothing.
func query(network, server string) error {
	conn, err := net.DialTimeout(network, server, 3*time.Second)
	if err != nil {
		return noWay(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	// A query for the address of example.com, in wire format.
	if _, err := conn.Write(
		[]byte("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03com\x00\x00\x01\x00\x01")); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 512))
	return noWay(err)
}

// packetAttempts mostly need CAP_NET_RAW; the others need a route.
func packetAttempts() []attempt {
	send := func(what string, family, kind, protocol int, to unix.Sockaddr) attempt {
		return attempt{what, func() error {
			fd, err := unix.Socket(family, kind, protocol)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1)
			return unix.Sendto(fd, make([]byte, 64), 0, to)
		}}
	}
	broadcast := [4]byte{255, 255, 255, 255}
	return []attempt{
		// Ethernet's protocol numbers are in network byte order: 0x0806 is ARP.
		send("ARP", unix.AF_PACKET, unix.SOCK_RAW, 0x0608, &unix.SockaddrLinklayer{Ifindex: 1}),
		send("a packet of any kind", unix.AF_PACKET, unix.SOCK_DGRAM, 0x0300, &unix.SockaddrLinklayer{Ifindex: 1}),
		send("a spoofed source", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW, &unix.SockaddrInet4{
			Addr: [4]byte{10, 0, 0, 1}}),
		send("a ping", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP, &unix.SockaddrInet4{Addr: [4]byte{10, 0, 0, 1}}),
		send("a ping without rights", unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP, &unix.SockaddrInet4{
			Addr: [4]byte{10, 0, 0, 1}}),
		send("a neighbour advertisement", unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6, &unix.SockaddrInet6{
			Addr: [16]byte{0xff, 2, 15: 1}}),
		send("DHCP", unix.AF_INET, unix.SOCK_DGRAM, 0, &unix.SockaddrInet4{Addr: broadcast, Port: 67}),
		send("broadcast", unix.AF_INET, unix.SOCK_DGRAM, 0, &unix.SockaddrInet4{Addr: broadcast, Port: 9}),
	}
}
