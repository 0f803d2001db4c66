package proxy

import (
	"bufio"
	"context"
	"io"
	"runtime/debug"
	"time"

	"berth/egress"
	"berth/egress/sniff"
)

// A clientConn is one connection from a container.
type clientConn struct {
	gate   *Gate
	conn   egress.Conn
	r      *bufio.Reader // of conn
	cancel context.CancelFunc
	timer  *time.Timer // ends the connection when it is idle for too long

	within *egress.Target // in a CONNECT, its target; all requests must go there
	ready  *hostConn      // the tunnel to within, for the first request; nil later
	opened bool           // it is inside TLS that the proxy ends
}

// Serve answers one connection of the container and closes it. It returns when ctx ends, at the latest.
func (g *Gate) Serve(ctx context.Context, c egress.Conn) {
	g.serve(ctx, c, func(ctx context.Context, v *clientConn) {
		v.setHeadDeadline()
		first, err := v.r.Peek(1)
		switch {
		case err != nil: // the client left without a request
		case first[0] == socksVersion:
			v.socks(ctx)
		default:
			v.http(ctx)
		}
	})
}

// serve has answer answer one connection, once there is a place for it, and closes it.
func (g *Gate) serve(ctx context.Context, c egress.Conn, answer func(context.Context, *clientConn)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	v := &clientConn{gate: g, conn: c, cancel: cancel, timer: time.AfterFunc(g.proxy.cfg.IdleTimeout, cancel)}
	defer v.timer.Stop()
	defer v.recoverPanic()
	select {
	case g.proxy.places <- struct{}{}:
		defer func() { <-g.proxy.places }()
	case <-ctx.Done():
		return
	}
	v.r = bufio.NewReaderSize(c, sniff.HeadBytes)
	answer(ctx, v)
}

// recoverPanic is deferred wherever code runs for a client: a panic there must not end the daemon and the work of all
// others.
func (v *clientConn) recoverPanic() {
	if p := recover(); p != nil {
		v.gate.proxy.cfg.Log.Error("serving a container's connection panicked", "panic", p, "stack",
			string(debug.Stack()))
		v.cancel()
	}
}

// alive restarts the idle timer.
func (v *clientConn) alive() { v.timer.Reset(v.gate.proxy.cfg.IdleTimeout) }

// setHeadDeadline bounds the time for a request's head; clearDeadline removes the bound.
func (v *clientConn) setHeadDeadline() {
	_ = v.conn.SetReadDeadline(time.Now().Add(v.gate.proxy.cfg.HeadTimeout))
}

func (v *clientConn) clearDeadline() { _ = v.conn.SetReadDeadline(time.Time{}) }

// openHost waits for the next request's turn and opens its tunnel.
func (v *clientConn) openHost(ctx context.Context, method string, t egress.Target, err error) (*hostConn, error) {
	if err := v.gate.rate.Wait(ctx); err != nil {
		return nil, err
	}
	if err != nil {
		return nil, v.gate.refused(method, t, err)
	}
	permit, err := v.permit(ctx, method, t)
	if err != nil {
		return nil, v.gate.refused(method, t, err)
	}
	return v.gate.openHost(ctx, method, t, permit, v.alive)
}

// pump carries bytes both ways until both sides have ended. A side that ends lets the other finish; one that fails
// ends both.
func (v *clientConn) pump(p egress.Conn, client io.Reader, host io.Reader) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer v.recoverPanic()
		v.carry(v.conn, host)
	}()
	v.carry(p, client)
	<-done
}

// carry carries one direction.
func (v *clientConn) carry(to egress.Conn, from io.Reader) {
	_, err := io.Copy(writerOnly{to}, from)
	if err == nil {
		err = to.CloseWrite()
	}
	if err != nil {
		v.cancel()
	}
}

// writerOnly makes io.Copy use Write.
type writerOnly struct{ io.Writer }
