// Package forward carries connections between the container's loopback and the daemon, in both directions.
//
// Outward, programs in a container reach the daemon: the proxy of a session with a network, and the tools that code may
// call. The guest listens on these ports and passes each connection to the daemon. The daemon opens connections for
// that in advance, which wait here until a program connects. The guest listens only after the daemon has asked for a
// port.
//
// Inward, the daemon reaches programs that listen: Dial connects to a port and hands the connection over.
//
// guest/pid1 calls it; guest/client has the daemon's end.
package forward

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"berth/guest/wire"
	"berth/proto"
)

// Ports are the ports of loopback that the daemon has asked for. The zero value has none.
type Ports struct {
	mu    sync.Mutex
	calls map[uint16]chan *net.TCPConn // connections made in the container, by port
}

// MaxPorts limits the ports. A daemon asks for fewer.
const MaxPorts = 8

// Serve assigns this daemon connection to the next connection made in the container to that port. It returns when
// either side has ended. The daemon connection cannot be used again then. A goroutine that outlives Serve ends with
// ctx, and wg counts it.
func (s *Ports) Serve(ctx context.Context, conn *wire.Conn, port uint16, wg *sync.WaitGroup) error {
	calls, err := s.listen(ctx, port, wg)
	if err := conn.SendReply(struct{}{}, err); err != nil || calls == nil {
		return err
	}
	return newPortForward(conn).run(func(r *portForward) { r.outward(calls) })
}

// listen listens on that port, unless the guest does already, and returns the port's connections.
func (s *Ports) listen(ctx context.Context, port uint16, wg *sync.WaitGroup) (<-chan *net.TCPConn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if calls := s.calls[port]; calls != nil {
		return calls, nil
	}
	if len(s.calls) >= MaxPorts {
		return nil, proto.Errorf(proto.TooMany, "listen", "", "the guest listens on %d ports, which is its limit",
			len(s.calls))
	}
	ln, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(port)})
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, proto.Errorf(proto.Conflict, "listen", "", "port %d of the container's loopback is taken by "+
			"a program of the image", port)
	}
	if err != nil {
		return nil, proto.Errorf(proto.Unavailable, "listen", "", "the guest cannot listen on port %d of loopback",
			port)
	}
	calls := make(chan *net.TCPConn)
	if s.calls == nil {
		s.calls = map[uint16]chan *net.TCPConn{}
	}
	s.calls[port] = calls
	wg.Go(func() { acceptCalls(ctx, ln, calls) })
	return calls, nil
}

// acceptCalls accepts connections and gives each to a waiting portForward. While none waits, connections wait in the
// kernel's queue.
func acceptCalls(ctx context.Context, ln *net.TCPListener, calls chan<- *net.TCPConn) {
	defer context.AfterFunc(ctx, func() { _ = ln.Close() })()
	for {
		c, err := ln.AcceptTCP()
		if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of descriptors, which is temporary
			continue
		}
		select {
		case calls <- c:
		case <-ctx.Done():
			_ = c.Close()
		}
	}
}

// A portForward relays one connection from the container to the daemon.
type portForward struct {
	conn  *wire.Conn
	gone  chan struct{} // closed when the daemon has disconnected
	taken chan struct{} // closed when call is set

	mu   sync.Mutex // guards the fields below until the channels are closed
	call *net.TCPConn
	over bool
}

func newPortForward(conn *wire.Conn) *portForward {
	return &portForward{conn: conn, gone: make(chan struct{}), taken: make(chan struct{})}
}

// run copies the daemon's data until the daemon disconnects, and has outward copy the other direction meanwhile.
func (r *portForward) run(outward func(*portForward)) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		outward(r)
	}()
	err := r.inward()
	r.end()
	<-done
	return err
}

// begin assigns that connection to the portForward. It reports false if the portForward is over already.
func (r *portForward) begin(call *net.TCPConn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		_ = call.Close()
		return false
	}
	r.call = call
	close(r.taken)
	return true
}

func (r *portForward) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.gone)
	if r.over = true; r.call != nil {
		_ = r.call.Close()
	}
}

// outward waits for a connection and copies its data to the daemon.
func (r *portForward) outward(calls <-chan *net.TCPConn) {
	select {
	case call := <-calls:
		if !r.begin(call) || r.conn.SendJSON(wire.FrameReply, struct{}{}) != nil {
			return
		}
	case <-r.gone:
		return
	}
	r.copyOut()
}

// copyOut copies the data of the connection to the daemon.
func (r *portForward) copyOut() {
	buf := make([]byte, wire.RelayPiece)
	for {
		n, err := r.call.Read(buf)
		if n > 0 && r.conn.Send(wire.FrameBody, buf[:n]) != nil {
			return
		}
		if err != nil {
			_ = r.conn.Send(wire.FrameClose, nil)
			return
		}
	}
}

// inward copies the daemon's data to the connection until the daemon disconnects.
func (r *portForward) inward() error {
	for {
		kind, body, err := r.conn.ReadFrame()
		if err != nil {
			return err
		}
		select {
		case <-r.taken:
		default:
			return wire.ErrFrame // data without a connection
		}
		switch kind {
		case wire.FrameBody:
			_ = r.call.SetWriteDeadline(time.Now().Add(wire.LongWait))
			_, err = r.call.Write(body)
		case wire.FrameClose:
			err = r.call.CloseWrite()
		default:
			err = wire.ErrFrame
		}
		if err != nil {
			return io.EOF // a normal end, not an error
		}
	}
}
