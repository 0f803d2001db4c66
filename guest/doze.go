package guest

import (
	"bytes"
	"context"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	"berth/proto"
)

// A guest that nobody uses and that has nothing to remember can doze: a program that only waits takes its place, and
// gives it back at the next connection or request. All that it has to be told then is its Past.

// A Dozer has a program wait in place of the guest until somebody connects to listener or sends something over conn.
// It returns only if that failed.
type Dozer func(past Past, listener, conn syscall.Conn) error

// A Past is what of a guest outlives its dozing.
type Past struct {
	Boot      string // of Hello
	StartedAt proto.Time
}

// DozeName is what the program is called that waits in a guest's place, as its first argument.
const DozeName = "doze"

// IsDoze reports whether process pid of this machine is called so. It is true of a guest that dozes, and of whatever
// else may call itself that.
func IsDoze(pid int) bool {
	args, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return err == nil && bytes.HasPrefix(args, []byte(DozeName+"\x00"))
}

// partingTime is how long connections that the other side has closed may take to be noticed.
const partingTime = 100 * time.Millisecond

// doze gives the guest's place away. If that cannot be, nothing has changed.
func (k *caller) doze(ctx context.Context) error {
	s := k.s
	conn, ok := k.conn.Conn.(*net.UnixConn)
	if !ok || s.opt.Doze == nil || s.door.ln == nil {
		return k.reply(nil, proto.Errorf(proto.Unsupported, "doze", "", "this guest stays awake"))
	}
	// Who connects from now on is still waiting to be accepted when the guest wakes.
	open, err := s.door.shut(ctx)
	if err != nil {
		return err
	}
	defer open()
	s.zygotes.endAll()
	defer s.zygotes.open()
	if s.needed() {
		return k.reply(nil, proto.Errorf(proto.Conflict, "doze", "", "the container is in use"))
	}
	s.scratch.remove()
	if err := k.reply(nil, nil); err != nil {
		return err
	}
	s.log.Error("dozing", "err", s.opt.Doze(Past{Boot: s.hello.Boot, StartedAt: s.hello.StartedAt}, s.door.ln, conn))
	return nil
}

// needed reports whether there is another connection, or something that only this process knows of.
func (s *Server) needed() bool {
	most := time.NewTimer(partingTime)
	defer most.Stop()
	for s.callers.Load() > 1 {
		select {
		case <-s.parted:
		case <-most.C:
			return true
		}
	}
	s.mu.Lock()
	n := len(s.live) + len(s.shells)
	s.mu.Unlock()
	return n > 0 || s.keeps.some() || !s.childless()
}

// part takes note of the end of a connection.
func (s *Server) part() {
	s.callers.Add(-1)
	select {
	case s.parted <- struct{}{}:
	default:
	}
}

// A door is where connections are accepted. While it is shut they wait outside.
type door struct {
	ln       *net.UnixListener // nil where it cannot be shut
	shutting chan struct{}     // held while it is shut
	left     chan struct{}     // whoever accepts has let go of the listener
	opened   chan struct{}
}

func newDoor(ln net.Listener) door {
	un, _ := ln.(*net.UnixListener)
	return door{un, make(chan struct{}, 1), make(chan struct{}), make(chan struct{})}
}

// shut keeps connections from being accepted until open is called.
func (d *door) shut(ctx context.Context) (open func(), err error) {
	select {
	case d.shutting <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	_ = d.ln.SetDeadline(time.Unix(1, 0))
	select {
	case <-d.left:
	case <-ctx.Done():
		return nil, ctx.Err() // and so nobody accepts any more
	}
	return func() {
		_ = d.ln.SetDeadline(time.Time{})
		select {
		case d.opened <- struct{}{}:
		case <-ctx.Done():
		}
		<-d.shutting
	}, nil
}

// stay is for whoever accepts, once that is over its deadline: it returns when the door is open.
func (d *door) stay(ctx context.Context) {
	select {
	case d.left <- struct{}{}:
	case <-ctx.Done():
		return
	}
	select {
	case <-d.opened:
	case <-ctx.Done():
	}
}

// some reports whether anything is kept.
func (ks *keeps) some() bool {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	return len(ks.all) > 0
}

// Doze has the guest give back nearly all of its memory until it is wanted again, which then takes some milliseconds
// longer. It fails with Conflict if the container is in use, by this client or by whatever runs in it, and with
// Unsupported where its guest stays awake.
func (c *Client) Doze(ctx context.Context) error {
	gets, ok := c.retire()
	if !ok {
		return proto.Errorf(proto.Conflict, "doze", "", "the container is in use")
	}
	if err := c.call(ctx, shortWait, &request{Op: opDoze}, nil); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dozed = gets + 1 // which was the call; whoever has come since has woken it
	return nil
}

// retire closes all connections but one, if none is in use, and returns how often any was taken.
func (c *Client) retire() (gets int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.live) > len(c.idle) {
		return 0, false
	}
	for len(c.idle) > 1 {
		w := c.idle[0]
		c.idle = c.idle[1:]
		delete(c.live, w)
		_ = w.Close()
	}
	return c.gets, true
}

// Dozes reports whether the guest dozes, as far as this client knows, and is there to be woken.
func (c *Client) Dozes() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dozed > 0 && c.dozed == c.gets && len(c.idle) == 1 && c.idle[0].alive()
}
