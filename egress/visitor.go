package egress

import (
	"bufio"
	"context"
	"io"
	"net"
	"runtime/debug"
	"time"
)

// A Conn is a connection that somebody in the container made.
type Conn interface {
	net.Conn
	CloseWrite() error // nothing more will be written; the other direction goes on
}

// A visitor is one connection from a container.
type visitor struct {
	gate   *Gate
	conn   Conn
	r      *bufio.Reader // of conn
	cancel context.CancelFunc
	timer  *time.Timer // ends it when nothing goes any more

	within *Target  // in a CONNECT, where that went; all that is asked for must be there
	ready  *passage // to within, for the first request; nil later
	opened bool     // it is inside of TLS, whose other end is the host's
}

// headBytes bounds the head of a request, and is what is kept of it in memory.
const headBytes = 32 << 10

// Serve answers one connection of the container, and closes it. It returns when ctx ends, at the latest.
func (g *Gate) Serve(ctx context.Context, c Conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	v := &visitor{gate: g, conn: c, cancel: cancel, timer: time.AfterFunc(g.proxy.cfg.IdleTimeout, cancel)}
	defer v.timer.Stop()
	defer v.survive()
	select {
	case g.proxy.places <- struct{}{}:
		defer func() { <-g.proxy.places }()
	case <-ctx.Done():
		return
	}
	v.r = bufio.NewReaderSize(c, headBytes)
	v.hurry()
	first, err := v.r.Peek(1)
	switch {
	case err != nil: // it went as it came
	case first[0] == socksVersion:
		v.socks(ctx)
	default:
		v.http(ctx)
	}
}

// survive is deferred wherever code runs for a visitor: what one brings about must not end the daemon, and with it
// the work of all others.
func (v *visitor) survive() {
	if p := recover(); p != nil {
		v.gate.proxy.cfg.Log.Error("a container's connection was served badly", "panic", p, "stack",
			string(debug.Stack()))
		v.cancel()
	}
}

// alive puts the end for want of traffic off.
func (v *visitor) alive() { v.timer.Reset(v.gate.proxy.cfg.IdleTimeout) }

// hurry bounds how long the client may take to say what it wants, and calm takes that back.
func (v *visitor) hurry() { _ = v.conn.SetReadDeadline(time.Now().Add(v.gate.proxy.cfg.HeadTimeout)) }

func (v *visitor) calm() { _ = v.conn.SetReadDeadline(time.Time{}) }

// open takes the next request's turn and opens its passage.
func (v *visitor) open(ctx context.Context, method string, t Target, err error) (*passage, error) {
	if err := v.gate.rate.Wait(ctx); err != nil {
		return nil, err
	}
	if err != nil {
		return nil, v.gate.refused(method, t, err)
	}
	return v.gate.open(ctx, method, t, v.alive)
}

// pump carries bytes both ways until both sides have said all. A side that is done leaves the other to finish; one
// that fails ends both.
func (v *visitor) pump(p Conn, client io.Reader, host io.Reader) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer v.survive()
		v.carry(v.conn, host)
	}()
	v.carry(p, client)
	<-done
}

// carry carries one direction.
func (v *visitor) carry(to Conn, from io.Reader) {
	_, err := io.Copy(writerOnly{to}, from)
	if err == nil {
		err = to.CloseWrite()
	}
	if err != nil {
		v.cancel()
	}
}

// writerOnly keeps io.Copy from ways around Write.
type writerOnly struct{ io.Writer }
