package attack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Group 38, for programs that know of no proxy: what they can do to the sockets, packets, routes and devices of a
// container that has a network.
var _ = register(
	// Routing by source, marks and devices have led packets past filters of other engines.
	attemptsIn(Case{
		Group: 38, Name: "egress/sockets",
		Tries: "connect past the list with IP options, marks, devices, foreign senders, mapped and other IPv6 " +
			"addresses, to addresses of names never asked for, of the daemon's end and of this network, by TCP and UDP",
		Wants: "each is refused at once",
	}, asBoth, socketAttempts, listedNetwork),
	// In class gvisor frames leave the container's kernel. Whatever they hold, they must end in its namespace.
	attemptsIn(Case{
		Group: 40, Name: "egress/packets",
		Tries: "send raw, spoofed and broadcast packets from a container with a network, answer DHCP, and ping hosts",
		Wants: "no socket for them can be had, or nobody answers",
	}, asBoth, packetsInNetwork, listedNetwork),
	// With a route, an address or a device of its own, a container could answer for others or leave by another way.
	attemptsIn(Case{
		Group: 36, Name: "egress/interfaces",
		Tries: "change routes, rules, addresses and devices of a container with a network, make a network or a TUN " +
			"device of its own, and set what the kernel lets it set; then connect past the list",
		Wants: "nothing of it can be made, and what can be set opens no way",
	}, asBoth, routeAttempts, listedNetwork),
)

// tricks are changes of a socket before it connects.
var tricks = []struct {
	what string
	do   func(fd int) error
}{
	{"nothing special", func(int) error { return nil }},
	{"a source route", ipOptions(unix.IPPROTO_IP, []byte{131, 7, 4, 10, 0, 0, 1, 0})},
	{"a strict source route", ipOptions(unix.IPPROTO_IP, []byte{137, 7, 4, 10, 0, 0, 1, 0})},
	{"a recorded route", ipOptions(unix.IPPROTO_IP, []byte{7, 7, 4, 0, 0, 0, 0, 0})},
	{"a mark", func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, 1) }},
	{"the device eth0", func(fd int) error { return unix.BindToDevice(fd, "eth0") }},
	{"the device outside", func(fd int) error { return unix.BindToDevice(fd, "outside") }},
	{"no routing", func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DONTROUTE, 1) }},
	{"a foreign sender", bindForeign},
	{"a foreign sender, freely", func(fd int) error {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_FREEBIND, 1)
		return bindForeign(fd)
	}},
	{"a foreign sender, transparently", func(fd int) error {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TRANSPARENT, 1); err != nil {
			return err
		}
		return bindForeign(fd)
	}},
}

func ipOptions(level int, options []byte) func(int) error {
	return func(fd int) error { return unix.SetsockoptString(fd, level, unix.IP_OPTIONS, string(options)) }
}

func bindForeign(fd int) error { return unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{8, 8, 4, 4}}) }

// socketAttempts reach for addresses that no list has.
func socketAttempts() []attempt {
	var all []attempt
	for _, trick := range tricks {
		for _, port := range []uint16{443, 8443} {
			all = append(all, attempt{fmt.Sprintf("%s, to port %d", trick.what, port), func() error {
				return reach(unix.SOCK_STREAM, netip.AddrPortFrom(netip.MustParseAddr("8.8.8.8"), port), trick.do)
			}})
		}
		all = append(all, attempt{trick.what + ", a datagram", func() error {
			return reach(unix.SOCK_DGRAM, netip.MustParseAddrPort("8.8.8.8:443"), trick.do)
		}})
	}
	for _, host := range []string{
		"0.0.0.0", "0.1.2.3", "198.18.0.1", "198.18.0.2", "198.18.255.254", "198.18.255.255", "198.19.0.1",
		"198.19.255.252", "198.19.255.253", "198.19.255.255", "10.0.0.1", "169.254.169.254", "224.0.0.251",
		"240.0.0.1", "255.255.255.255",
		"::ffff:8.8.8.8", "::ffff:169.254.169.254", "::ffff:198.18.0.1", "::8.8.8.8", "64:ff9b::808:808",
		"2001:4860:4860::8888", "fe80::1", "fd00:ec2::254", "ff02::fb", "2002:808:808::1", "::",
	} {
		at := netip.AddrPortFrom(netip.MustParseAddr(host), 443)
		for kind, name := range map[int]string{unix.SOCK_STREAM: "TCP", unix.SOCK_DGRAM: "UDP"} {
			all = append(all, attempt{fmt.Sprint(name, " to ", host), func() error {
				return reach(kind, at, tricks[0].do)
			}})
		}
	}
	return append(all, attempt{"its own server at a public address", ownServer},
		attempt{"two sockets that connect to each other's public addresses", eachOther})
}

// reachTime bounds an attempt: who is refused hears of it at once.
const reachTime = 5 * time.Second

// reach connects a prepared socket, and speaks. Nobody may answer but the daemon, which refuses. Silence counts as a way
// out.
func reach(kind int, at netip.AddrPort, prepare func(fd int) error) error {
	family := unix.AF_INET
	var to unix.Sockaddr = &unix.SockaddrInet4{Port: int(at.Port())}
	if a := at.Addr(); a.Is4() {
		to.(*unix.SockaddrInet4).Addr = a.As4()
	} else {
		family, to = unix.AF_INET6, &unix.SockaddrInet6{Port: int(at.Port()), Addr: a.As16()}
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	limit := unix.NsecToTimeval(reachTime.Nanoseconds())
	for _, which := range []int{unix.SO_SNDTIMEO, unix.SO_RCVTIMEO} {
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, which, &limit); err != nil {
			return moot("bounding the time: %v", err)
		}
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1)
	if err := prepare(fd); err != nil {
		return err
	}
	if err := unix.Connect(fd, to); err != nil {
		return late(err)
	}
	if _, err := unix.Write(fd, []byte("GET / HTTP/1.0\r\n\r\n")); err != nil {
		return late(err)
	}
	b := make([]byte, 512)
	n, err := unix.Read(fd, b)
	switch {
	case err != nil:
		return late(err)
	case n == 0:
		return errors.New("refused: the connection was ended")
	case b[0] == 0x15:
		return errors.New("refused: a TLS alert")
	}
	return through("%.60q", b[:n])
}

// late returns the error of a call that was refused, or that waited in vain: its packets went somewhere.
func late(err error) error {
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINPROGRESS) || errors.Is(err, unix.ETIMEDOUT) {
		return through("nobody refused it: %v", err)
	}
	return err
}

// ownServer listens at an address that is public elsewhere, and connects there: the daemon must get it, or other
// programs of the container could be told that they speak with that host.
func ownServer() error {
	l, err := net.Listen("tcp4", "8.8.8.8:443")
	if err != nil {
		return err
	}
	defer l.Close()
	return reach(unix.SOCK_STREAM, netip.MustParseAddrPort("8.8.8.8:443"), tricks[0].do)
}

// eachOther opens one connection from both ends at once, so that none of them ever listens.
func eachOther() error {
	ends := []netip.AddrPort{netip.MustParseAddrPort("8.8.8.8:5000"), netip.MustParseAddrPort("9.9.9.9:5001")}
	var fds []int
	for _, own := range ends {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: own.Addr().As4(), Port: int(own.Port())}); err != nil {
			return err
		}
		fds = append(fds, fd)
	}
	for i, fd := range fds {
		other := ends[1-i]
		err := unix.Connect(fd, &unix.SockaddrInet4{Addr: other.Addr().As4(), Port: int(other.Port())})
		if err != nil && !errors.Is(err, unix.EINPROGRESS) {
			return err
		}
	}
	for _, fd := range fds {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN | unix.POLLHUP}}
		if n, err := unix.Poll(p, int(reachTime.Milliseconds())); err != nil || n == 0 {
			return through("a connection is held: %d, %v", n, err)
		}
		if n, err := unix.Read(fd, make([]byte, 1)); n > 0 {
			return through("it was answered: %v", err)
		}
	}
	return errors.New("refused: both were ended")
}

// packetsInNetwork are packetAttempts where packets may have somewhere to go, with those that need an answer to show
// that they went.
func packetsInNetwork() []attempt {
	var all []attempt
	for _, a := range packetAttempts() {
		if a.what != "a ping without rights" { // in class gvisor it can be sent
			all = append(all, a)
		}
	}
	for _, host := range [][4]byte{{8, 8, 8, 8}, {10, 0, 0, 1}, {198, 18, 0, 1}, {198, 19, 255, 253}} {
		all = append(all, attempt{fmt.Sprint("ping ", netip.AddrFrom4(host)), func() error { return ping(host) }})
	}
	return all
}

// ping asks a host for an echo, as programs without rights may.
func ping(host [4]byte) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	limit := unix.NsecToTimeval(time.Second.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		return moot("bounding the time: %v", err)
	}
	echo := []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0} // with its checksum
	if err := unix.Sendto(fd, echo, 0, &unix.SockaddrInet4{Addr: host}); err != nil {
		return err
	}
	if n, _, err := unix.Recvfrom(fd, make([]byte, 64), 0); err == nil {
		return through("an answer of %d bytes", n)
	}
	return errors.New("nobody answers")
}

// routeAttempts change the network of the container.
func routeAttempts() []attempt {
	route := func(kind uint16, flags uint16, body ...byte) func() error {
		return func() error { return askNetlink(kind, flags, body) }
	}
	address := []byte{8, 0, 1, 0, 10, 1, 1, 1} // RTA_DST or IFA_ADDRESS, and so on: 10.1.1.1
	device := []byte{8, 0, 4, 0, 1, 0, 0, 0}   // RTA_OIF: the first
	const made = unix.NLM_F_CREATE | unix.NLM_F_REPLACE
	newRoute := append(append([]byte{unix.AF_INET, 32, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0}, address...), device...)
	noRoute := []byte{unix.AF_INET, 0, 0, 0, 255, 0, 0, 0, 0, 0, 0, 0}
	newAddress := append([]byte{unix.AF_INET, 32, 0, 0, 1, 0, 0, 0}, address...)
	link := make([]byte, 16)
	link[4] = 1
	return []attempt{
		{"add a route", route(unix.RTM_NEWROUTE, made, newRoute...)},
		{"remove the route for all", route(unix.RTM_DELROUTE, 0, noRoute...)},
		{"add an address", route(unix.RTM_NEWADDR, made, newAddress...)},
		{"add a rule", route(unix.RTM_NEWRULE, made, unix.AF_INET, 0, 0, 0, 254, 0, 0, 1, 0, 0, 0, 0)},
		{"add a device", route(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, make([]byte, 16)...)},
		{"remove the first device", route(unix.RTM_DELLINK, 0, link...)},
		{"set the first device", route(unix.RTM_SETLINK, 0, link...)},
		{"a network of its own", func() error { return inNewNetwork(unix.CLONE_NEWNET) }},
		{"a network and users of its own", func() error { return inNewNetwork(unix.CLONE_NEWNET | unix.CLONE_NEWUSER) }},
		{"a TUN device", makeTUN},
		{"what the kernel lets it set", settings},
	}
}

// askNetlink sends a request by routing netlink. The answer is a message with an error number.
func askNetlink(kind, flags uint16, body []byte) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	m := binary.NativeEndian.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+len(body)))
	m = binary.NativeEndian.AppendUint16(m, kind)
	m = binary.NativeEndian.AppendUint16(m, unix.NLM_F_REQUEST|unix.NLM_F_ACK|flags)
	m = append(append(m, 1, 0, 0, 0, 0, 0, 0, 0), body...) // number and sender
	if err := unix.Sendto(fd, m, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	limit := unix.NsecToTimeval(reachTime.Nanoseconds())
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit)
	b := make([]byte, 4096)
	n, err := unix.Read(fd, b)
	if err != nil || n < unix.NLMSG_HDRLEN+4 {
		return moot("the kernel did not answer: %v", err)
	}
	if code := int32(binary.NativeEndian.Uint32(b[unix.NLMSG_HDRLEN:])); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}

// inNewNetwork makes namespaces for the process, which makes the next attempts in them if it works.
func inNewNetwork(flags int) error { return unix.Unshare(flags) }

// makeTUN makes a device that a program answers for.
func makeTUN() error {
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	var request struct {
		name  [unix.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}
	copy(request.name[:], "tun7")
	request.flags = unix.IFF_TUN | unix.IFF_NO_PI
	_, _, no := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.TUNSETIFF, uintptr(unsafe.Pointer(&request)))
	if no != 0 {
		return no
	}
	return nil
}

// settings sets what concerns routes, as far as it can be written, and then connects past the list.
func settings() error {
	var set []string
	for name, value := range map[string]string{"ipv4/ip_forward": "1", "ipv4/ip_nonlocal_bind": "1",
		"ipv4/conf/all/route_localnet": "1", "ipv4/conf/all/accept_source_route": "1", "ipv4/conf/all/accept_local": "1",
		"ipv4/conf/all/rp_filter": "0", "ipv4/conf/all/proxy_arp": "1", "ipv4/icmp_echo_ignore_all": "0",
		"ipv6/conf/all/disable_ipv6": "0", "ipv6/conf/all/forwarding": "1", "ipv4/ping_group_range": "0 2147483647"} {
		if os.WriteFile("/proc/sys/net/"+name, []byte(value), 0) == nil {
			set = append(set, name)
		}
	}
	for _, a := range socketAttempts() {
		err := a.do()
		if err == nil || errors.Is(err, errThrough) {
			return through("with %v, %s: %v", set, a.what, err)
		}
	}
	return fmt.Errorf("refused with %v", set)
}
