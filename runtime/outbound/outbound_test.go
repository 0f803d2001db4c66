package outbound

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"berth/proto"
	"berth/test/needs"
)

// The tests make network namespaces. They need root.
func TestMain(m *testing.M) {
	needs.Main("make network namespaces")
	os.Exit(m.Run())
}

// aNetwork returns a network for a test.
func aNetwork(t *testing.T) *os.File {
	t.Helper()
	network, err := newNetwork()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { network.Close() })
	return network
}

// inside runs a function in a network.
func inside(t *testing.T, network *os.File, fn func() error) {
	t.Helper()
	if err := within(network, fn); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, network *os.File) *Sockets {
	t.Helper()
	s, err := Open(fmt.Sprint("/proc/self/fd/", network.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

const patience = time.Minute

// A connection to any address arrives, and tells which one it was for.
func TestConnections(t *testing.T) {
	network := aNetwork(t)
	s := open(t, network)
	for _, at := range []string{"1.2.3.4:443", "198.18.0.7:5432", "169.254.169.254:80", "8.8.8.8:53", "127.0.0.1:53",
		"10.0.0.1:3128", "223.0.0.1:1"} {
		var c net.Conn
		inside(t, network, func() (err error) {
			c, err = net.DialTimeout("tcp4", at, patience)
			return err
		})
		defer c.Close()
		a, err := s.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		if got := a.LocalAddr().String(); got != at {
			t.Errorf("a connection to %s arrives as one to %s", at, got)
		}
		if host, _, _ := net.SplitHostPort(a.RemoteAddr().String()); host != proto.ContainerAddress &&
			!strings.HasPrefix(at, "127.") {
			t.Errorf("the connection to %s comes from %s", at, host)
		}
		if _, err := io.WriteString(a, "hello"); err != nil {
			t.Fatal(err)
		}
		a.Close()
		if got, err := io.ReadAll(c); err != nil || string(got) != "hello" {
			t.Errorf("%s: %q, %v", at, got, err)
		}
	}
}

// Loopback and the container's own address stay with its programs, listeners there or none.
func TestOwnAddressesStay(t *testing.T) {
	network := aNetwork(t)
	open(t, network)
	for _, host := range []string{"127.0.0.1", "127.9.9.9", proto.ContainerAddress} {
		inside(t, network, func() error {
			l, err := net.Listen("tcp4", host+":0")
			if err != nil {
				return err
			}
			c, err := net.DialTimeout("tcp4", l.Addr().String(), patience)
			if err != nil {
				return err
			}
			defer c.Close()
			got, err := l.Accept()
			if err != nil {
				return err
			}
			got.Close()
			l.Close()
			if _, err := net.DialTimeout("tcp4", l.Addr().String(), patience); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("a port of %s on which nobody listens: %v", host, err)
			}
			return nil
		})
	}
}

// Questions to any name server arrive, and are answered from its address. Other datagrams are refused at once.
func TestDatagrams(t *testing.T) {
	network := aNetwork(t)
	s := open(t, network)
	for _, at := range []string{proto.ContainerAddress + ":53", "8.8.8.8:53", "127.0.0.1:53"} {
		var c net.Conn
		inside(t, network, func() (err error) {
			c, err = net.Dial("udp4", at) // connected: it takes answers from that address alone
			return err
		})
		defer c.Close()
		if _, err := io.WriteString(c, "who?"); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 100)
		n, from, to, err := s.ReadQuestion(b)
		if err != nil || string(b[:n]) != "who?" || to.String() != at || from.String() != c.LocalAddr().String() {
			t.Fatalf("a question to %s: %q from %v to %v, %v", at, b[:n], from, to, err)
		}
		if err := s.WriteAnswer([]byte("me"), to, from); err != nil {
			t.Fatalf("%s: %v", at, err)
		}
		_ = c.SetReadDeadline(time.Now().Add(patience))
		if n, err := c.Read(b); err != nil || string(b[:n]) != "me" {
			t.Errorf("the answer from %s: %q, %v", at, b[:n], err)
		}
	}
	inside(t, network, func() error {
		refuses(t, "1.2.3.4:123")
		for _, many := range []string{"224.0.0.251:5353", "255.255.255.255:67", "240.0.0.1:443"} {
			if _, err := net.Dial("udp4", many); err == nil {
				t.Errorf("a datagram can be sent to %s", many)
			}
		}
		return nil
	})
}

// refuses checks that a datagram to an address is refused at once.
func refuses(t *testing.T, at string) {
	c, err := net.Dial("udp4", at)
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	if _, err := io.WriteString(c, "time?"); err != nil {
		t.Error(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if _, err := c.Read(make([]byte, 10)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a datagram to %s: %v", at, err)
	}
}

// silent checks that nobody answers a ping. The refusal of a datagram that was sent later has come by then.
func silent(t *testing.T, host string) error {
	c, err := net.Dial("ip4:icmp", host)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Write([]byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0}); err != nil {
		return err
	}
	refuses(t, host+":123")
	_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
	for b := make([]byte, 100); ; {
		n, _, err := c.(*net.IPConn).ReadFrom(b)
		if err != nil {
			return nil
		}
		if n > 0 && b[0] == 0 {
			t.Errorf("%s answers a ping", host)
		}
	}
}

// There is no way out by IPv6.
func TestIPv6(t *testing.T) {
	network := aNetwork(t)
	open(t, network)
	inside(t, network, func() error {
		c, err := net.DialTimeout("tcp6", "[2001:4860:4860::8888]:53", patience)
		if err == nil {
			c.Close()
			t.Error("a connection by IPv6 was accepted")
		}
		return nil
	})
}

// The sockets of the next daemon take the place of those that are closed, or whose daemon has ended.
func TestOpenAgain(t *testing.T) {
	network := aNetwork(t)
	first := open(t, network)
	if err := errors.Join(first.Close(), first.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Accept(); err == nil {
		t.Error("a closed socket accepts")
	}
	inside(t, network, func() error {
		if _, err := net.DialTimeout("tcp4", "1.2.3.4:443", patience); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("with closed sockets: %v", err)
		}
		return nil
	})
	second := open(t, network)
	inside(t, network, func() error {
		c, err := net.DialTimeout("tcp4", "1.2.3.4:443", patience)
		if err == nil {
			defer c.Close()
		}
		return err
	})
	c, err := second.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if _, err := Open("/proc/self/fd/none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a network that is not there: %v", err)
	}
}

func TestTry(t *testing.T) {
	if err := Try(); err != nil {
		t.Error(err)
	}
}

// A pair of devices leads to the sockets, too. Here another namespace stands for gVisor's stack, with the addresses
// and routes that gVisor copies.
func TestPair(t *testing.T) {
	network, err := NewPair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { network.Close() })
	path := fmt.Sprint("/proc/self/fd/", network.Fd())
	if closed, err := Closed(path); err != nil || !closed {
		t.Errorf("closed: %v, %v", closed, err)
	}
	stack := aNetwork(t)
	inside(t, network, func() error {
		inner, err := netlink.LinkByName(pairInner)
		if err != nil {
			return err
		}
		if routes, err := netlink.RouteList(inner, netlink.FAMILY_V4); err != nil || len(routes) != 1+len(beyond) {
			t.Errorf("its routes: %v, %v", routes, err)
		}
		return netlink.LinkSetNsFd(inner, int(stack.Fd()))
	})
	if closed, err := Closed(path); err != nil || closed {
		t.Errorf("with a device that leads to another network: closed %v, %v", closed, err)
	}
	inside(t, stack, func() error {
		inner, err := netlink.LinkByName(pairInner)
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetUp(inner), address(inner))
	})
	s, err := OpenPair(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	var c net.Conn
	inside(t, stack, func() (err error) {
		c, err = net.DialTimeout("tcp4", "1.2.3.4:443", patience)
		return err
	})
	defer c.Close()
	a, err := s.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if got, from := a.LocalAddr().String(), a.RemoteAddr().(*net.TCPAddr).IP.String(); got != "1.2.3.4:443" ||
		from != proto.ContainerAddress {
		t.Errorf("a connection to 1.2.3.4:443 arrives as one to %s from %s", got, from)
	}
	inside(t, stack, func() error {
		for range 200 { // more than the kernel usually refuses at once
			refuses(t, "1.2.3.4:123")
		}
		return silent(t, "1.2.3.4")
	})
	s.Close()
	inside(t, stack, func() error {
		if _, err := net.DialTimeout("tcp4", "1.2.3.4:443", patience); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("with closed sockets: %v", err)
		}
		return nil
	})
	alone := aNetwork(t)
	if _, err := OpenPair(fmt.Sprint("/proc/self/fd/", alone.Fd())); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a network without a pair: %v", err)
	}
}
