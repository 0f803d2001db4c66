package pid1

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"berth/guest/wire"
	"berth/proto"
)

// A container whose session has a network reaches its proxy on loopback. A container whose code may call tools
// reaches those on loopback too. The guest listens on these ports and passes each connection to the daemon. The
// daemon opens connections for that in advance: they wait here until a client connects. The guest listens only after
// the daemon has asked for a port.

// A listeners has a portListener for each port of loopback that the daemon has asked for.
type listeners struct {
	mu    sync.Mutex // guards the fields below
	ports map[uint16]*portListener
}

// maxPorts limits the ports. A daemon asks for fewer.
const maxPorts = 8

// A portListener accepts the connections to one port of loopback.
type portListener struct {
	ln    *net.TCPListener
	calls chan *net.TCPConn
}

// listen listens on that port, unless the guest does already, and returns the port's connections.
func (s *listeners) listen(ctx context.Context, port uint16, wg *sync.WaitGroup) (<-chan *net.TCPConn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.ports[port]; o != nil {
		return o.calls, nil
	}
	if len(s.ports) >= maxPorts {
		return nil, proto.Errorf(proto.TooMany, "listen", "", "the guest listens on %d ports, which is its limit",
			len(s.ports))
	}
	ln, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}),
		port)))
	if err != nil {
		if errors.Is(err, unix.EADDRINUSE) {
			return nil, proto.Errorf(proto.Conflict, "listen", "", "port %d of the container's loopback is taken by "+
				"a program of the image", port)
		}
		return nil, proto.Errorf(proto.Unavailable, "listen", "", "the guest cannot listen on port %d of loopback",
			port)
	}
	o := &portListener{ln, make(chan *net.TCPConn)}
	if s.ports == nil {
		s.ports = map[uint16]*portListener{}
	}
	s.ports[port] = o
	wg.Go(func() { o.take(ctx) })
	return o.calls, nil
}

// take accepts connections and gives each to a waiting portForward. While none waits, connections wait in the
// kernel's queue.
func (o *portListener) take(ctx context.Context) {
	defer context.AfterFunc(ctx, func() { _ = o.ln.Close() })()
	for {
		c, err := o.ln.AcceptTCP()
		if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of descriptors, which is temporary
			continue
		}
		select {
		case o.calls <- c:
		case <-ctx.Done():
			_ = c.Close()
		}
	}
}

// servePortForward assigns this daemon connection to the next connection made in the container. It returns when
// either side has ended. The daemon connection cannot be used again then.
func (k *caller) servePortForward(ctx context.Context, port uint16) error {
	calls, err := k.s.listeners.listen(ctx, port, &k.s.wg)
	if err := k.reply(struct{}{}, err); err != nil || calls == nil {
		return err
	}
	r := portForward{conn: k.conn, gone: make(chan struct{}), taken: make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.outward(calls)
	}()
	err = r.inward()
	r.end()
	<-done
	return err
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
