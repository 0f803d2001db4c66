package session

import (
	"context"
	"errors"
	"net"

	"berth/guest/client"
	"berth/guest/wire"
)

// A greetedConn is a connection to a guest that has said who it is. A Runtime that keeps sandboxes ready holds one for
// each and returns it from its first Dial after Start, so that the session need not ask again.
type greetedConn struct {
	net.Conn
	client *client.Client // over Conn
	hello  wire.Hello
}

// Close closes the client and its connections.
func (c *greetedConn) Close() error { return c.client.Close() }

// Handshake asks the guest at the other end of conn who it is, and returns the connection to keep. It is for a Runtime
// that keeps sandboxes ready: that calls it when it has started one, and then, with the connection that it keeps, to
// find out whether the guest still answers. A sandbox that "started" says little: its guest must answer over its
// socket, and as PID 1, or it could neither reap orphans nor see all processes. On failure conn is closed.
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

// greet finds out who the guest is that has just been started.
func (s *Session) greet(ctx context.Context) (wire.Hello, error) {
	conn, err := s.dial(ctx)
	if err != nil {
		return wire.Hello{}, err
	}
	if c, ok := conn.(*greetedConn); ok {
		s.client().TakeOver(c.client)
		return c.hello, nil
	}
	_ = conn.Close() // the client dials by itself
	return s.client().Hello(ctx)
}

// Dozes reports whether process pid is what waits in the place of a guest that dozes. It is for runtimes; see Dozer.
func Dozes(pid int) bool { return client.IsDoze(pid) }
