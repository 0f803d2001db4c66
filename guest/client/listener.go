package client

import (
	"context"
	"io"
	"net"
	"sync"

	"berth/guest/wire"
)

// A Listener is a connection to the guest that waits for somebody in the container to connect to its loopback.
type Listener struct {
	client *Client
	conn   *wire.Conn
}

// Listen has the guest listen on a port of the container's loopback, if it does not yet, and lends it a line for
// whoever connects there. Each line serves one connection.
func (c *Client) Listen(ctx context.Context, port uint16) (*Listener, error) {
	nc, err := c.dial(ctx) // a new one: those that are idle are for commands
	if err != nil {
		return nil, dialError(ctx, err)
	}
	w, err := c.add(wire.NewConn(nc, false))
	if err != nil {
		return nil, err
	}
	l := &Listener{c, w}
	release := w.Bound(ctx, wire.ShortWait)
	if err = w.SendRequest(&wire.Request{Op: wire.OpListen, Port: port}, nil); err == nil {
		err = w.ReadReply(nil)
	}
	if err = w.Unbound(release, err); err != nil {
		l.Close()
		return nil, preferContextError(ctx, err)
	}
	return l, nil
}

// Close takes the line back.
func (l *Listener) Close() {
	l.client.mu.Lock()
	delete(l.client.live, l.conn)
	l.client.mu.Unlock()
	_ = l.conn.Close()
}

// Await waits until somebody connects. The line is closed if nobody does before ctx ends, or the guest goes away.
func (l *Listener) Await(ctx context.Context) (*Conn, error) {
	release := l.conn.Bound(ctx, queueWait)
	if err := l.conn.Unbound(release, l.conn.ReadReply(nil)); err != nil {
		l.Close()
		return nil, preferContextError(ctx, err)
	}
	return &Conn{Conn: l.conn.Conn, line: l}, nil
}

// A Conn is a connection that somebody made inside the container, seen from its other end. One goroutine may read and
// another write.
type Conn struct {
	net.Conn // for deadlines and addresses
	line     *Listener
	left     int  // bytes of the frame that is being read
	over     bool // they have said all
	closing  sync.Once
}

// Read reads what was said inside. Nothing is buffered: what a guest announces takes no memory.
func (c *Conn) Read(b []byte) (int, error) {
	if c.over {
		return 0, io.EOF
	}
	for c.left == 0 {
		kind, n, err := wire.ReadHeader(c.line.conn.Reader)
		switch {
		case err != nil:
			return 0, err
		case kind == wire.FrameClose && n == 0:
			c.over = true
			return 0, io.EOF
		case kind != wire.FrameBody || n == 0:
			return 0, wire.ErrFrame
		}
		c.left = n
	}
	n, err := c.line.conn.Reader.Read(b[:min(len(b), c.left)])
	c.left -= n
	return n, wire.UnexpectedEOF(err)
}

// Write says something to whoever called.
func (c *Conn) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		piece := b[:min(len(b), wire.RelayPiece)]
		if err := c.line.conn.Send(wire.FrameBody, piece); err != nil {
			return n, err
		}
		n, b = n+len(piece), b[len(piece):]
	}
	return n, nil
}

// CloseWrite says that nothing more comes.
func (c *Conn) CloseWrite() error { return c.line.conn.Send(wire.FrameClose, nil) }

// Close ends the connection inside, too.
func (c *Conn) Close() error {
	c.closing.Do(c.line.Close)
	return nil
}
