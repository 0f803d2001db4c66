// Package handshake asks the guest of a new sandbox who it is, and keeps the connection for the session that gets the
// sandbox.
//
// Out of scope: what a session does with the guest. Package session calls it, and through it the Runtime.
package handshake

import (
	"context"
	"errors"
	"net"

	"berth/guest/client"
	"berth/guest/wire"
)

// A Conn is a guest connection after its handshake. A Runtime with pooled sandboxes holds one for each. It
// returns the connection from its first Dial after Start, so the session needs no handshake of its own.
type Conn struct {
	net.Conn
	Client *client.Client // over Conn
	Hello  wire.Hello
}

// Close closes the client and its connections.
func (c *Conn) Close() error { return c.Client.Close() }

// Do asks the guest at the other end of conn who it is, and returns the connection to keep. A Runtime with
// pooled sandboxes calls it after the start of a sandbox. It calls it again with the kept connection to check that
// the guest still answers. A process that has started is not enough: the guest must answer over its socket. It must
// also be PID 1, or it could neither reap orphans nor see all processes. On failure Do closes conn.
func Do(ctx context.Context, conn net.Conn) (net.Conn, error) {
	c, ok := conn.(*Conn)
	if !ok {
		dialled := false
		c = &Conn{Conn: conn}
		c.Client = client.NewClient(func(context.Context) (net.Conn, error) {
			if dialled {
				return nil, errors.New("the guest's connection broke")
			}
			dialled = true
			return conn, nil
		})
	}
	hello, err := c.Client.Hello(ctx)
	if err == nil && hello.PID != 1 {
		err = errors.New("the guest is not the first process of its container")
	}
	if err != nil {
		err = errors.Join(err, c.Close())
		_ = conn.Close() // the client may have closed it already
		return nil, err
	}
	c.Hello = hello
	return c, nil
}
