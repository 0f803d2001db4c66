package outbound

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"berth/proto"
)

// gVisor has a network stack of its own. What it sends leaves by packets of a device, and the host's kernel must
// receive them. Both ends of a pair of devices are in the sandbox's network namespace: gVisor sends and receives on
// pairInner through a packet socket, and the kernel of the host is at pairOuter, where every address is local. So the
// daemon's sockets receive the same as in the other class.
//
// Of pairInner the host's kernel sees the frames, too, but has no address there, and takes none whose sender is local.
const (
	pairInner = "eth0"
	pairOuter = "outside"
)

// pairMTU is the length of packets in bytes, the most that IPv4 has. With 1,500, a download in gVisor has two thirds of
// the rate.
const pairMTU = 65535

// Addresses of the pair. The container is in no subnet, which would have an address for all in it.
var (
	pairHost = network(proto.ContainerAddress + "/32")
	pairGate = network(proto.GatewayAddress + "/32")
)

// beyond are the networks behind the gateway: all addresses but those of multicast and broadcast. The kernel refuses no
// datagram to these by ICMP, so there is no route for them.
var beyond = []string{"0.0.0.0/1", "128.0.0.0/2", "192.0.0.0/3"}

// NewPair makes the network namespace of a sandbox of gVisor, with its pair of devices. runsc must be started in it. It
// lasts as long as the file is open, or a process is in it.
func NewPair() (*os.File, error) {
	network, err := newNetwork()
	if err != nil {
		return nil, fmt.Errorf("making a network: %w", err)
	}
	if err := within(network, makePair); err != nil {
		return nil, errors.Join(fmt.Errorf("making the devices of a network: %w", err), network.Close())
	}
	return network, nil
}

// makePair makes the devices in the thread's network. gVisor copies the address, the routes and the neighbour of
// pairInner when it starts, and removes the address from it. It leaves out a device without an address.
func makePair() error {
	for _, setting := range [][2]string{
		{"ipv6/conf/default/disable_ipv6", "1"}, // or devices get addresses
		{"ipv4/icmp_ratemask", "0"},             // or all but some six datagrams end in silence
		{"ipv4/icmp_echo_ignore_all", "1"},      // or every address answers a ping, since it is local
	} {
		err := os.WriteFile("/proc/sys/net/"+setting[0], []byte(setting[1]), 0)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // a kernel without IPv6
			return err
		}
	}
	mac := func(last byte) net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 0, last} }
	pair := netlink.NewVeth(netlink.NewLinkAttrs())
	pair.MTU, pair.PeerMTU = pairMTU, pairMTU
	pair.Name, pair.HardwareAddr = pairInner, mac(1)
	pair.PeerName, pair.PeerHardwareAddr = pairOuter, mac(2)
	if err := netlink.LinkAdd(pair); err != nil {
		return err
	}
	inner, err1 := netlink.LinkByName(pairInner)
	outer, err2 := netlink.LinkByName(pairOuter)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	for _, l := range []netlink.Link{inner, outer} {
		if err := netlink.LinkSetUp(l); err != nil {
			return err
		}
	}
	for _, n := range []netlink.Neigh{
		{LinkIndex: inner.Attrs().Index, IP: pairGate.IP, HardwareAddr: mac(2)},
		{LinkIndex: outer.Attrs().Index, IP: pairHost.IP, HardwareAddr: mac(1)},
	} {
		n.State = netlink.NUD_PERMANENT
		if err := netlink.NeighAdd(&n); err != nil {
			return err
		}
	}
	return address(inner)
}

// address gives the near end of the pair its address and its routes.
func address(inner netlink.Link) error {
	err := netlink.AddrAdd(inner, &netlink.Addr{IPNet: pairHost})
	if err == nil {
		err = netlink.RouteAdd(&netlink.Route{LinkIndex: inner.Attrs().Index, Dst: pairGate, Scope: netlink.SCOPE_LINK})
	}
	for _, b := range beyond {
		if err == nil {
			err = netlink.RouteAdd(&netlink.Route{LinkIndex: inner.Attrs().Index, Dst: network(b), Gw: pairGate.IP})
		}
	}
	return err
}

// OpenPair is Open for a network namespace that NewPair has made, in which gVisor has started. It fails with
// errors.ErrUnsupported if it has no pair of devices.
func OpenPair(path string) (*Sockets, error) {
	return openAt(path, netip.MustParseAddr(proto.GatewayAddress), func() error {
		outer, err := netlink.LinkByName(pairOuter)
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			return fmt.Errorf("%w: gVisor has no device there", errors.ErrUnsupported)
		} else if err != nil {
			return err
		}
		// More specific than the route by which every other address is local.
		return netlink.RouteReplace(&netlink.Route{Dst: pairHost, LinkIndex: outer.Attrs().Index,
			Scope: netlink.SCOPE_LINK, Table: unix.RT_TABLE_LOCAL})
	})
}

// Closed reports whether the devices of a network namespace lead nowhere else: it has loopback alone, or a pair whose
// ends are both in it.
func Closed(path string) (closed bool, err error) {
	network, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer network.Close()
	err = within(network, func() error {
		links, err := netlink.LinkList()
		here := map[int]netlink.Link{}
		for _, l := range links {
			here[l.Attrs().Index] = l
		}
		for _, l := range links {
			a := l.Attrs()
			peer := here[a.ParentIndex]
			if a.Flags&net.FlagLoopback == 0 &&
				(l.Type() != "veth" || a.NetNsID >= 0 || peer == nil || peer.Attrs().ParentIndex != a.Index) {
				return err
			}
		}
		closed = err == nil
		return err
	})
	return closed, err
}
