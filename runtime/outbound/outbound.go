package outbound

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"berth/proto"
)

// backlog is how many connections may wait for the daemon in each sandbox.
const backlog = 256

// Sockets receive the outbound traffic of one sandbox.
type Sockets struct {
	tcp   *net.TCPListener
	names *ipv4.PacketConn
	steer *link.NetNsLink

	once sync.Once
	err  error
}

// Open opens the sockets in the network namespace at a path, such as /proc/PID/ns/net. What it changes there lasts as
// long as the namespace; a second call finds it. It fails with errors.ErrUnsupported if the kernel lacks what it takes.
func Open(path string) (*Sockets, error) {
	return openAt(path, netip.MustParseAddr(proto.ContainerAddress), func() error { return nil })
}

// openAt opens the sockets at an address of loopback, after a function has run on a thread in the namespace.
func openAt(path string, address netip.Addr, prepare func() error) (*Sockets, error) {
	network, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer network.Close()
	s := &Sockets{}
	if err := within(network, func() error {
		if err := prepare(); err != nil {
			return err
		}
		return s.open(network, address)
	}); err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("opening the outbound sockets: %w", err)
	}
	return s, nil
}

// Try opens the sockets in a network of its own, to find out whether this machine can.
func Try() error {
	network, err := newNetwork()
	if err != nil {
		return err
	}
	defer network.Close()
	s, err := Open(fmt.Sprint("/proc/self/fd/", network.Fd()))
	if err != nil {
		return err
	}
	return s.Close()
}

// newNetwork makes a network namespace that has loopback alone, as a sandbox's has.
func newNetwork() (network *os.File, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // as in within
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return
		}
		var lo netlink.Link
		if lo, err = netlink.LinkByName("lo"); err == nil {
			err = netlink.LinkSetUp(lo)
		}
		if err == nil {
			network, err = os.Open("/proc/thread-self/ns/net")
		}
	}()
	<-done
	return network, err
}

// within runs a function on a thread in another network namespace. The thread ends with it.
func within(network *os.File, fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: Go ends the thread
		err := unix.Setns(int(network.Fd()), unix.CLONE_NEWNET)
		if err == nil {
			err = fn()
		}
		done <- err
	}()
	return <-done
}

func (s *Sockets) open(network *os.File, address netip.Addr) error {
	if err := makeLocal(address); err != nil {
		return err
	}
	tcp, err := socket(unix.SOCK_STREAM, netip.AddrPortFrom(address, 0))
	if err != nil {
		return err
	}
	defer tcp.Close()
	if err := unix.Listen(int(tcp.Fd()), backlog); err != nil {
		return err
	}
	udp, err := socket(unix.SOCK_DGRAM, netip.AddrPortFrom(address, namesPort))
	if err != nil {
		return err
	}
	defer udp.Close()
	if s.steer, err = attach(network, tcp, udp); err != nil {
		return err
	}
	l, err := net.FileListener(tcp)
	if err != nil {
		return err
	}
	s.tcp = l.(*net.TCPListener)
	c, err := net.FilePacketConn(udp)
	if err != nil {
		return err
	}
	s.names = ipv4.NewPacketConn(c)
	return s.names.SetControlMessage(ipv4.FlagDst, true)
}

// makeLocal gives loopback that address, and makes every other one local, too. The thread is in the
// sandbox's network.
func makeLocal(address netip.Addr) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	own := &net.IPNet{IP: address.AsSlice(), Mask: net.CIDRMask(32, 32)}
	if err := netlink.AddrReplace(lo, &netlink.Addr{IPNet: own}); err != nil {
		return err
	}
	for _, r := range []netlink.Route{
		{Dst: network("0.0.0.0/0"), Type: unix.RTN_LOCAL, LinkIndex: lo.Attrs().Index, Src: own.IP,
			Scope: netlink.SCOPE_HOST},
		// Nobody could refuse a datagram to many: there is no ICMP for it.
		{Dst: network("224.0.0.0/3"), Type: unix.RTN_UNREACHABLE},
	} {
		if r.Table = unix.RT_TABLE_LOCAL; err == nil {
			err = netlink.RouteReplace(&r)
		}
	}
	return err
}

func network(text string) *net.IPNet {
	p := netip.MustParsePrefix(text)
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// socket opens a socket in the thread's network. Package net would make one of MPTCP, which BPF cannot choose.
func socket(kind int, at netip.AddrPort) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "outbound")
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())}); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Accept waits for a connection. Its local address is the one that the program connects to.
func (s *Sockets) Accept() (*net.TCPConn, error) { return s.tcp.AcceptTCP() }

// ReadQuestion waits for a datagram to port 53 of any address.
func (s *Sockets) ReadQuestion(b []byte) (n int, from, to netip.AddrPort, err error) {
	n, at, source, err := s.names.ReadFrom(b)
	if err != nil {
		return 0, from, to, err
	}
	if udp, ok := source.(*net.UDPAddr); ok {
		from = udp.AddrPort()
	}
	if at != nil {
		if a, ok := netip.AddrFromSlice(at.Dst); ok {
			to = netip.AddrPortFrom(a.Unmap(), namesPort)
		}
	}
	return n, from, to, nil
}

// WriteAnswer answers a question, from the address that it was sent to.
func (s *Sockets) WriteAnswer(b []byte, from, to netip.AddrPort) error {
	_, err := s.names.WriteTo(b, &ipv4.ControlMessage{Src: from.Addr().AsSlice()}, net.UDPAddrFromAddrPort(to))
	return err
}

// Close closes the sockets. From then on programs that connect are refused by the kernel.
func (s *Sockets) Close() error {
	s.once.Do(func() {
		if s.steer != nil {
			s.err = s.steer.Close()
		}
		if s.tcp != nil {
			s.err = errors.Join(s.err, s.tcp.Close())
		}
		if s.names != nil {
			s.err = errors.Join(s.err, s.names.Close())
		}
	})
	return s.err
}
