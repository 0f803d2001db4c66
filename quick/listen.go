package quick

import (
	"errors"
	"io"
	"net"
	"sync"
)

// Listen is l whose TCP connections are quick where that is worth it.
func Listen(l net.Listener) net.Listener { return listener{l} }

type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tc, ok := c.(*net.TCPConn); ok {
		if s, err := New(tc); err == nil {
			return &tcp{TCPConn: tc, s: s}, nil
		}
	}
	return c, err
}

// A tcp is a connection that is quick for what is short, and for all else what it was: the kernel sends files over it
// by itself.
type tcp struct {
	*net.TCPConn
	s       *Socket
	in, out sync.Mutex // of the socket
}

func (c *tcp) Read(p []byte) (int, error) {
	if len(p) == 0 || len(p) > Most {
		return c.TCPConn.Read(p)
	}
	c.in.Lock()
	n, _, err := c.s.Receive(p, nil)
	c.in.Unlock()
	if n == 0 && err == nil {
		return 0, io.EOF
	}
	return n, c.as("read", err)
}

func (c *tcp) Write(p []byte) (int, error) {
	if len(p) > Most {
		return c.TCPConn.Write(p)
	}
	c.out.Lock()
	n, err := c.s.Send(p, nil)
	c.out.Unlock()
	return n, c.as("write", err)
}

// as is an error as package net tells it.
func (c *tcp) as(op string, err error) error {
	var told *net.OpError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &told):
		err = told.Err
	}
	return &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}
