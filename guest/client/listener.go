package client

import (
	"context"
	"io"
	"net"
	"sync"

	"berth/guest/wire"
)

// Listener is a connection to the guest that waits for a program in the container to connect to its loopback.
type Listener struct {
	client *Client
	conn   *wire.Conn
}

// Listen makes the guest listen on a port of the container's loopback, if it does not yet, and gives it a connection
// for the next program that connects there. Each Listener serves one connection.
func (c *Client) Listen(ctx context.Context, port uint16) (*Listener, error) {
	w, err := c.connect(ctx) // a new one: idle connections are for commands
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

// Close closes the listener's connection to the guest.
func (l *Listener) Close() {
	l.client.mu.Lock()
	delete(l.client.live, l.conn)
	l.client.mu.Unlock()
	_ = l.conn.Close()
}

// Await waits until a program connects. It closes the Listener if ctx ends first or the guest goes away.
func (l *Listener) Await(ctx context.Context) (*Conn, error) {
	release := l.conn.Bound(ctx, queueWait)
	if err := l.conn.Unbound(release, l.conn.ReadReply(nil)); err != nil {
		l.Close()
		return nil, preferContextError(ctx, err)
	}
	return &Conn{Conn: l.conn.Conn, line: l}, nil
}

// Conn is the daemon's end of a connection that a program made inside the container. One goroutine may read and
// another write.
type Conn struct {
	net.Conn // for deadlines and addresses
	line     *Listener
	left     int  // unread bytes of the current frame
	over     bool // the program has sent everything
	closing  sync.Once
}

// Read reads what the program sent. It buffers nothing, so a frame length that a guest announces takes no memory.
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

// Write sends b to the program.
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

// CloseWrite tells the program that no more data follows.
func (c *Conn) CloseWrite() error { return c.line.conn.Send(wire.FrameClose, nil) }

// Close also ends the connection inside the container.
func (c *Conn) Close() error {
	c.closing.Do(c.line.Close)
	return nil
}
