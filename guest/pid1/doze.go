package pid1

import (
	"context"
	"net"
	"syscall"
	"time"

	"berth/proto"
)

// A guest that nobody uses and that has nothing to remember can doze: a program that only waits takes its place, and
// gives it back at the next connection or request. All that it has to be told then is its Past.

// A Dozer has a program wait in place of the guest until somebody connects to listener or sends something over conn.
// It returns only if that failed.
type Dozer func(past State, listener, conn syscall.Conn) error

// A State is what of a guest outlives its dozing.
type State struct {
	Boot      string // of Hello
	StartedAt proto.Time
}

// partingTime is how long connections that the other side has closed may take to be noticed.
const partingTime = 100 * time.Millisecond

// doze gives the guest's place away. If that cannot be, nothing has changed.
func (k *caller) doze(ctx context.Context) error {
	s := k.s
	conn, ok := k.conn.Conn.(*net.UnixConn)
	if !ok || s.opt.Doze == nil || s.acceptGate.ln == nil {
		return k.reply(nil, proto.Errorf(proto.Unsupported, "doze", "", "this guest stays awake"))
	}
	// Who connects from now on is still waiting to be accepted when the guest wakes.
	open, err := s.acceptGate.close(ctx)
	if err != nil {
		return err
	}
	defer open()
	s.zygotes.endAll()
	defer s.zygotes.open()
	if s.inUse() {
		return k.reply(nil, proto.Errorf(proto.Conflict, "doze", "", "the container is in use"))
	}
	s.scratch.remove()
	if err := k.reply(nil, nil); err != nil {
		return err
	}
	err = s.opt.Doze(State{Boot: s.hello.Boot, StartedAt: s.hello.StartedAt}, s.acceptGate.ln, conn)
	s.log.Error("dozing", "err", err)
	return nil
}

// inUse reports whether there is another connection, or something that only this process knows of.
func (s *Server) inUse() bool {
	most := time.NewTimer(partingTime)
	defer most.Stop()
	for s.callers.Load() > 1 {
		select {
		case <-s.connectionEnded:
		case <-most.C:
			return true
		}
	}
	s.mu.Lock()
	n := len(s.live) + len(s.shells)
	s.mu.Unlock()
	return n > 0 || s.keeps.some() || !s.childless()
}

// connectionDone takes note of the end of a connection.
func (s *Server) connectionDone() {
	s.callers.Add(-1)
	select {
	case s.connectionEnded <- struct{}{}:
	default:
	}
}

// An acceptGate is where connections are accepted. While it is shut they wait outside.
type acceptGate struct {
	ln       *net.UnixListener // nil where it cannot be shut
	shutting chan struct{}     // held while it is shut
	left     chan struct{}     // whoever accepts has let go of the listener
	opened   chan struct{}
}

func newAcceptGate(ln net.Listener) acceptGate {
	un, _ := ln.(*net.UnixListener)
	return acceptGate{un, make(chan struct{}, 1), make(chan struct{}), make(chan struct{})}
}

// close keeps connections from being accepted until open is called.
func (d *acceptGate) close(ctx context.Context) (open func(), err error) {
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

// wait is for whoever accepts, once that is over its deadline: it returns when the door is open.
func (d *acceptGate) wait(ctx context.Context) {
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
