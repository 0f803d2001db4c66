package client

import (
	"context"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"berth/guest/wire"
	"berth/proto"
)

// A PortConn is the daemon's end of a connection to a program that listens in the container. One goroutine may read
// and another write.
type PortConn interface {
	net.Conn
	CloseWrite() error // tells the program that no more data follows
}

// Dial connects to a port of the container's loopback. If nothing listens there, the error is NotFound. The Client
// closes the connection when it is closed itself; ctx bounds the connecting alone.
func (c *Client) Dial(ctx context.Context, port uint16) (PortConn, error) {
	pipes, err := c.crossing(ctx)
	if err != nil {
		return nil, err
	}
	w, err := c.get(ctx)
	if err != nil {
		return nil, err
	}
	handover := pipes >= supported
	var head wire.Dialed
	err = w.Within(ctx, wire.ShortWait, func(w *wire.Conn) error {
		w.TakeDescriptors = handover
		defer func() { w.TakeDescriptors = false }()
		if err := w.SendRequest(&wire.Request{Op: wire.OpDial, Port: port, Handover: handover}, nil); err != nil {
			return wire.Fail(w, err)
		}
		return w.ReadReply(&head)
	})
	switch {
	case err != nil:
		c.put(w)
		return nil, preferContextError(ctx, err)
	case !head.Handover:
		return &Conn{Conn: w.Conn, line: &Listener{c, w}}, nil
	}
	fds := w.Descriptors()
	defer func() { wire.CloseAll(fds) }()
	if !handover || len(fds) != 1 || !isConnected(fds[0], port) {
		err = wire.Fail(w, wire.ErrFrame)
	}
	c.put(w)
	if err != nil {
		return nil, err
	}
	fd := fds[0]
	fds = nil
	return c.adopt(fd)
}

// isConnected reports whether a descriptor from the guest is a TCP connection to that port of loopback. Code in the
// container may have replaced the guest, and may send any descriptor.
func isConnected(fd int, port uint16) bool {
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	protocol, perr := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	if err != nil || perr != nil || kind != unix.SOCK_STREAM || protocol != unix.IPPROTO_TCP {
		return false
	}
	peer, err := unix.Getpeername(fd)
	if err != nil {
		return false
	}
	switch at := peer.(type) {
	case *unix.SockaddrInet4:
		return at.Port == int(port) && net.IP(at.Addr[:]).IsLoopback()
	case *unix.SockaddrInet6:
		return at.Port == int(port) && net.IP(at.Addr[:]).IsLoopback()
	}
	return false
}

// adopt makes a connection of a socket that the guest handed over.
func (c *Client) adopt(fd int) (PortConn, error) {
	// Code in the container may have another descriptor of the socket with its settings. A close must not wait.
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{})
	f := os.NewFile(uintptr(fd), "port")
	defer f.Close() // FileConn copies it
	nc, err := net.FileConn(f)
	if err != nil {
		return nil, proto.Errorf(proto.Unavailable, "guest", "", "the container's connection cannot be used")
	}
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		_ = nc.Close()
		return nil, proto.Errorf(proto.Unavailable, "guest", "", "the container's connection cannot be used")
	}
	s := &socket{TCPConn: tcp, c: c}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		_ = tcp.Close()
		return nil, beingStopped()
	}
	c.live[s] = struct{}{}
	return s, nil
}

// socket is a handed-over connection.
type socket struct {
	*net.TCPConn
	c       *Client
	closing sync.Once
}

// Close ends the connection. It shuts the socket down first: code in the container may have made the socket blocking,
// and a read that waits in the kernel would delay the close.
func (s *socket) Close() error {
	s.closing.Do(func() {
		if raw, err := s.TCPConn.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
		}
		_ = s.TCPConn.Close()
		s.c.mu.Lock()
		defer s.c.mu.Unlock()
		delete(s.c.live, io.Closer(s))
	})
	return nil
}

// maxProgram is more than the length of any process name, in bytes.
const maxProgram = 64

// Listening lists the ports of the container that programs listen on.
func (c *Client) Listening(ctx context.Context) ([]proto.Port, error) {
	var list []proto.Port
	if err := c.call(ctx, wire.ShortWait, &wire.Request{Op: wire.OpPorts}, &list); err != nil {
		return nil, err
	}
	return cutPorts(list, wire.MaxPorts), nil
}

// cutPorts cuts what a guest says of ports to what may be.
func cutPorts(list []proto.Port, most int) []proto.Port {
	list = list[:min(len(list), most)]
	for i, p := range list {
		list[i] = proto.Port{Port: p.Port, Address: shortText(p.Address), PID: max(p.PID, 0),
			Program: shortText(p.Program)}
	}
	return list
}

// shortText cuts a text of the guest to what it may be.
func shortText(s string) string {
	s = s[:min(len(s), maxProgram)]
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "")
	}
	return s
}
