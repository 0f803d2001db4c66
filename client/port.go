package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"berth/proto"

	"github.com/gorilla/websocket"
)

// Ports lists the ports that programs in a container listen on.
func (c *Client) Ports(ctx context.Context, container string) ([]proto.Port, error) {
	return list[proto.Port](ctx, c, at("containers", container, "ports"), nil)
}

// SignPort asks for a signed URL of a port of a container. It is valid for this long; 0 is the daemon's default.
func (c *Client) SignPort(ctx context.Context, container string, port uint16, valid time.Duration) (proto.PortURL,
	error) {
	return post[proto.PortURL](ctx, c, at("containers", container, "ports", strconv.Itoa(int(port)), "url"),
		proto.SignPort{ExpiresInSeconds: int64(valid.Seconds())})
}

// PublishPort makes a port of a container public, or all of them with "all". It returns the public ports, and the URL
// of that port.
func (c *Client) PublishPort(ctx context.Context, container, port string) (now proto.PublishedPorts, err error) {
	_, err = c.call(ctx, request{method: http.MethodPut, path: at("containers", container, "public-ports",
		port)}, &now)
	return now, err
}

// WithdrawPort makes a port private again, or all of them with "all". It returns the ports that are still public.
func (c *Client) WithdrawPort(ctx context.Context, container, port string) (now proto.PublishedPorts, err error) {
	_, err = c.call(ctx, request{method: http.MethodDelete, path: at("containers", container, "public-ports",
		port)}, &now)
	return now, err
}

// A Tunnel is a TCP connection to a port of a container. One goroutine may read and another write.
type Tunnel struct {
	conn    *websocket.Conn
	stop    func() bool
	rest    io.Reader  // of the message that is being read; nil: none
	over    bool       // the program has sent everything
	writing sync.Mutex // held while writing a message
}

// Tunnel connects to a port of a container, which it wakes. The connection ends with ctx. With Config.Wait it waits for
// a daemon that is away.
func (c *Client) Tunnel(ctx context.Context, container string, port uint16) (*Tunnel, error) {
	t := &Tunnel{}
	err := c.Redo(ctx, func() (err error) { // nothing was sent yet
		t.conn, t.stop, err = c.Socket(ctx, at("containers", container, "tunnel"),
			url.Values{"port": {strconv.Itoa(int(port))}})
		return err
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// Read reads what the program sends.
func (t *Tunnel) Read(b []byte) (int, error) {
	for {
		switch {
		case t.over:
			return 0, io.EOF
		case t.rest == nil:
			_, r, err := t.conn.NextReader()
			if err != nil {
				return 0, err
			}
			t.rest = r
			n, err := r.Read(b)
			if n == 0 && err == io.EOF { // the empty message
				t.over = true
				continue
			}
			return n, t.ended(err)
		}
		if n, err := t.rest.Read(b); n > 0 || err != io.EOF {
			return n, t.ended(err)
		}
		t.rest = nil
	}
}

// ended notes the end of a message, which is not the end of the connection.
func (t *Tunnel) ended(err error) error {
	if err == io.EOF {
		t.rest, err = nil, nil
	}
	return err
}

// tunnelPiece is the size of one message of Write, in bytes.
const tunnelPiece = 32 << 10

// Write sends b to the program.
func (t *Tunnel) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		piece := b[:min(len(b), tunnelPiece)]
		if err := t.send(piece); err != nil {
			return n, err
		}
		n, b = n+len(piece), b[len(piece):]
	}
	return n, nil
}

// CloseWrite tells the program that no more data follows.
func (t *Tunnel) CloseWrite() error { return t.send(nil) }

func (t *Tunnel) send(b []byte) error {
	t.writing.Lock()
	defer t.writing.Unlock()
	return t.conn.WriteMessage(websocket.BinaryMessage, b)
}

// Close ends the connection.
func (t *Tunnel) Close() error {
	t.stop()
	_ = t.conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""),
		time.Now().Add(time.Second))
	return t.conn.Close()
}
