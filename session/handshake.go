package session

import (
	"context"
	"errors"
	"net"

	"berth/guest/client"
	"berth/guest/wire"
)

// A greetedConn is a guest connection after its handshake. A Runtime with pooled sandboxes holds one for each. It
// returns the connection from its first Dial after Start, so the session needs no handshake of its own.
type greetedConn struct {
	net.Conn
	client *client.Client // over Conn
	hello  wire.Hello
}

// Close closes the client and its connections.
func (c *greetedConn) Close() error { return c.client.Close() }

// Handshake asks the guest at the other end of conn who it is, and returns the connection to keep. A Runtime with
// pooled sandboxes calls it after the start of a sandbox. It calls it again with the kept connection to check that
// the guest still answers. A process that has started is not enough: the guest must answer over its socket. It must
// also be PID 1, or it could neither reap orphans nor see all processes. On failure Handshake closes conn.
func Handshake(ctx context.Context, conn net.Conn) (net.Conn, error) {
	c, ok := conn.(*greetedConn)
	if !ok {
		dialled := false
		c = &greetedConn{Conn: conn}
		c.client = client.NewClient(func(context.Context) (net.Conn, error) {
			if dialled {
				return nil, errors.New("the guest's connection broke")
			}
			dialled = true
			return conn, nil
		})
	}
	hello, err := c.client.Hello(ctx)
	if err == nil && hello.PID != 1 {
		err = errors.New("the guest is not the first process of its container")
	}
	if err != nil {
		return nil, errors.Join(err, c.Close(), closeOnce(conn))
	}
	c.hello = hello
	return c, nil
}

// closeOnce closes a connection that the client may have closed already.
func closeOnce(conn net.Conn) error {
	_ = conn.Close()
	return nil
}

// identifyGuest does the handshake with a guest that was just started.
func (s *Session) identifyGuest(ctx context.Context) (wire.Hello, error) {
	conn, err := s.dial(ctx)
	if err != nil {
		return wire.Hello{}, err
	}
	if c, ok := conn.(*greetedConn); ok {
		s.client().TakeOver(c.client)
		return c.hello, nil
	}
	_ = conn.Close() // the client dials itself
	return s.client().Hello(ctx)
}

// Dozes reports whether process pid is the placeholder of a dozing guest. It is for runtimes; see Dozer.
func Dozes(pid int) bool { return client.IsDoze(pid) }
