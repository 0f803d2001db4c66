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

// A container whose session has a network finds its proxy on loopback, and one whose code may call tools finds those:
// the guest listens there, and hands each connection over to the daemon. The daemon brings the connections for that,
// ahead of time: they wait here until somebody connects. Nothing of this is there before the daemon asks.

// A listeners has an operator for each port of loopback that the daemon has asked for.
type listeners struct {
	mu    sync.Mutex // guards what follows
	ports map[uint16]*portListener
}

// maxPorts is more than a daemon asks for.
const maxPorts = 8

// A portListener takes what connects to one port of loopback.
type portListener struct {
	ln    *net.TCPListener
	calls chan *net.TCPConn
}

// listen begins to take connections to that port, once.
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

// take accepts connections and gives each to whoever waits for one. Those that come while nobody does wait in the
// kernel.
func (o *portListener) take(ctx context.Context) {
	defer context.AfterFunc(ctx, func() { _ = o.ln.Close() })()
	for {
		c, err := o.ln.AcceptTCP()
		if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of descriptors, which passes
			continue
		}
		select {
		case o.calls <- c:
		case <-ctx.Done():
			_ = c.Close()
		}
	}
}

// servePortForward gives this connection to the next one that is made in the container. It returns when that is over,
// or the daemon has hung up; either way the connection is of no more use.
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

// A portForward is one connection in the container on its way to the daemon.
type portForward struct {
	conn  *wire.Conn
	gone  chan struct{} // closed when the daemon has hung up
	taken chan struct{} // closed when call is set

	mu   sync.Mutex // guards what follows until they are closed
	call *net.TCPConn
	over bool
}

// begin has the relay carry that connection, unless it is over already.
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

// outward waits for a connection and carries what it says to the daemon.
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

// inward carries what the daemon says to the connection, until the daemon hangs up.
func (r *portForward) inward() error {
	for {
		kind, body, err := r.conn.ReadFrame()
		if err != nil {
			return err
		}
		select {
		case <-r.taken:
		default:
			return wire.ErrFrame // to whom?
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
			return io.EOF // it is over, and nobody's fault
		}
	}
}
