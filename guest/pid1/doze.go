package pid1

import (
	"context"
	"net"
	"syscall"
	"time"

	"berth/proto"
)

// An unused guest without state to remember can doze: it executes a small program that only waits. The program starts
// the guest again at the next connection or request, and passes it only its State.

// A Dozer executes a waiting program in place of the guest. The program waits until a client connects to listener or
// data arrives on conn. A Dozer returns only on failure.
type Dozer func(past State, listener, conn syscall.Conn) error

// A State is the part of a guest's state that survives a doze.
type State struct {
	Boot      string // the Boot of Hello
	StartedAt proto.Time
}

// partingTime is the time that the guest may need to notice connections closed by the other side.
const partingTime = 100 * time.Millisecond

// doze replaces the guest by the waiting program. On failure nothing has changed.
func (k *caller) doze(ctx context.Context) error {
	s := k.s
	conn, ok := k.conn.Conn.(*net.UnixConn)
	if !ok || s.opt.Doze == nil || s.acceptGate.ln == nil {
		return k.reply(nil, proto.Errorf(proto.Unsupported, "doze", "", "this guest cannot doze"))
	}
	// Clients that connect from now on wait in the accept queue until the guest wakes.
	open, err := s.acceptGate.close(ctx)
	if err != nil {
		return err
	}
	defer open()
	s.zygotes.Close()
	defer s.zygotes.Reopen()
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

// inUse reports whether there is another connection, or state that only this process has.
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
	n := len(s.shells)
	s.mu.Unlock()
	return n+s.procs.Groups() > 0 || s.keeps.some() || !s.procs.Childless()
}

// connectionDone records the end of a connection.
func (s *Server) connectionDone() {
	s.callers.Add(-1)
	select {
	case s.connectionEnded <- struct{}{}:
	default:
	}
}

// An acceptGate controls whether connections are accepted. While it is shut, they stay in the accept queue.
type acceptGate struct {
	ln       *net.UnixListener // nil if it cannot be shut
	shutting chan struct{}     // holds a token while the gate is shut
	left     chan struct{}     // signals that the accepting goroutine has released the listener
	opened   chan struct{}
}

func newAcceptGate(ln net.Listener) acceptGate {
	un, _ := ln.(*net.UnixListener)
	return acceptGate{un, make(chan struct{}, 1), make(chan struct{}), make(chan struct{})}
}

// close stops accepting connections until open is called.
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
		return nil, ctx.Err() // the server stops, and accepts no more connections
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

// wait returns when the gate is open. The accepting goroutine calls it after its deadline has passed.
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

// some reports whether any command is kept.
func (ks *keptCommands) some() bool {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	return len(ks.all) > 0
}
