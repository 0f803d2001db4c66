package client

import (
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// pair returns the descriptor of a connection to a port of loopback, the port, and the other end.
func pair(t *testing.T) (fd int, port uint16, other net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	must(t, err)
	defer c.Close()
	other, err = ln.Accept()
	must(t, err)
	t.Cleanup(func() { other.Close() })
	f, err := c.(*net.TCPConn).File()
	must(t, err)
	defer f.Close()
	fd, err = unix.Dup(int(f.Fd()))
	must(t, err)
	return fd, uint16(ln.Addr().(*net.TCPAddr).Port), other
}

// TestOnlyConnectionsAreTaken checks that a guest cannot hand over anything else than a connection to the port.
func TestOnlyConnectionsAreTaken(t *testing.T) {
	fd, port, _ := pair(t)
	defer unix.Close(fd)
	if !isConnected(fd, port) {
		t.Error("a connection is refused")
	}
	if isConnected(fd, port+1) {
		t.Error("a connection to another port is taken")
	}
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	defer w.Close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer ln.Close()
	listening, err := ln.(*net.TCPListener).File()
	must(t, err)
	defer listening.Close()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	must(t, err)
	defer unix.Close(ends[0])
	defer unix.Close(ends[1])
	for name, bad := range map[string]int{"a pipe": int(r.Fd()), "a listener": int(listening.Fd()),
		"a unix socket": ends[0]} {
		if isConnected(bad, port) {
			t.Errorf("%s is taken", name)
		}
	}
}

// TestBlockingSocketCloses checks that a connection closes while a read waits in the kernel. Code in the container has
// the same socket and can make it blocking.
func TestBlockingSocketCloses(t *testing.T) {
	fd, _, _ := pair(t)
	theirs, err := unix.Dup(fd)
	must(t, err)
	defer unix.Close(theirs)
	c := NewClient(nil)
	conn, err := c.adopt(fd)
	must(t, err)
	must(t, unix.SetNonblock(theirs, false))
	reading, read := make(chan struct{}), make(chan error, 1)
	go func() {
		close(reading)
		_, err := conn.Read(make([]byte, 1))
		read <- err
	}()
	<-reading
	must(t, c.Close())
	if err := <-read; err == nil {
		t.Error("it reads on after the close")
	}
}
