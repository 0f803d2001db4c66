package proxy

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"berth/egress"
	"berth/egress/names"
	"berth/proto"
)

// namesPort is the port of name servers.
const namesPort = 53

// mostQuestions bounds the questions of one container that are answered at once; more wait in its socket.
const mostQuestions = 64

// ServeOutbound answers what programs of the container send to any address, and closes the sockets. It returns when ctx
// ends.
func (g *Gate) ServeOutbound(ctx context.Context, o egress.Outbound) {
	stop := context.AfterFunc(ctx, func() { _ = o.Close() })
	defer func() {
		if stop() {
			_ = o.Close()
		}
	}()
	var wg sync.WaitGroup
	wg.Go(func() { g.answerQuestions(ctx, o) })
	wg.Go(func() { g.acceptConnections(ctx, o) })
	wg.Wait()
}

// acceptConnections serves each connection until the sockets are closed.
func (g *Gate) acceptConnections(ctx context.Context, o egress.Outbound) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		leave, err := g.Enter(ctx) // before the accept: a connection without a place waits in the container
		if err != nil {
			return
		}
		c, err := o.Accept()
		if err != nil {
			leave()
			if !g.mayRetry(ctx, err) {
				return
			}
			continue
		}
		wg.Go(func() {
			defer leave()
			g.serve(ctx, c, func(ctx context.Context, v *clientConn) { v.outbound(ctx, c) })
		})
	}
}

// acceptDelay is how long to wait when the daemon has no descriptor for a connection.
const acceptDelay = 100 * time.Millisecond

// mayRetry reports whether the sockets are open after an error, and waits a moment for what is lacking.
func (g *Gate) mayRetry(ctx context.Context, err error) bool {
	if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
		return false
	}
	g.proxy.cfg.Log.Warn("receiving what a container sends", "error", err)
	select {
	case <-ctx.Done():
		return false
	case <-time.After(acceptDelay):
		return true
	}
}

// outbound carries a connection of a program that knows of no proxy. Its local address is what the program has named.
func (v *clientConn) outbound(ctx context.Context, c *net.TCPConn) {
	at := c.LocalAddr().(*net.TCPAddr).AddrPort()
	if at.Port() == namesPort {
		v.answerStream(ctx)
		return
	}
	t, err := v.gate.targetOf(at)
	p, err := v.openHost(ctx, "TCP", t, err)
	if err == nil {
		defer p.Close()
		v.carryTunnel(ctx, t, p)
		return
	}
	switch at.Port() { // tell the program why in its own language, where there is one
	case 80:
		v.sendRefusal(err)
	case 443:
		v.sendLast(accessDenied)
	default:
		_ = c.SetLinger(0) // the connection is reset
	}
}

// targetOf returns what an address stands for: the name that it was given for, or itself.
func (g *Gate) targetOf(at netip.AddrPort) (egress.Target, error) {
	t := egress.Target{Addr: at.Addr().Unmap(), Port: at.Port()}
	if !names.Pool.Contains(t.Addr) {
		return t, nil
	}
	if name := g.names.Name(t.Addr); name != "" {
		return egress.Target{Name: name, Port: t.Port}, nil
	}
	return t, egress.Refuse(proto.PermissionDenied, "old_address", "%s stands for no host any more; ask for the name "+
		"again", t.Addr)
}

// answerQuestions answers questions for names until the sockets are closed.
func (g *Gate) answerQuestions(ctx context.Context, o egress.Outbound) {
	var wg sync.WaitGroup
	defer wg.Wait()
	places := make(chan struct{}, mostQuestions)
	for {
		b := make([]byte, names.MaxMessage)
		n, from, to, err := o.ReadQuestion(b)
		if err != nil {
			if !g.mayRetry(ctx, err) {
				return
			}
			continue
		}
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		wg.Go(func() {
			defer func() { <-places }()
			if answer := g.names.Answer(ctx, b[:n], names.MaxMessage); answer != nil {
				_ = o.WriteAnswer(answer, to, from) // who got no answer asks again
			}
		})
	}
}

// answerStream answers questions on a connection. Each message follows its length.
func (v *clientConn) answerStream(ctx context.Context) {
	for {
		v.setHeadDeadline()
		var size [2]byte
		if _, err := io.ReadFull(v.r, size[:]); err != nil {
			return
		}
		b := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(v.r, b); err != nil {
			return
		}
		v.alive()
		answer := v.gate.names.Answer(ctx, b, names.MaxStream)
		if answer == nil {
			return
		}
		framed := append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)
		if _, err := v.conn.Write(framed); err != nil {
			return
		}
	}
}
