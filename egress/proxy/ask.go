package proxy

import (
	"context"
	"errors"
	"time"

	"berth/egress"
	"berth/proto"
)

// permit checks a target against the container's list. Where the list lacks it, a person may be asked: the connection
// waits meanwhile. Nothing of it leaves the daemon before, not even a question for the name.
func (v *clientConn) permit(ctx context.Context, method string, t egress.Target) (*egress.Permit, error) {
	g := v.gate
	for asked := false; ; asked = true {
		g.mu.Lock()
		policy, changed := *g.policy.Load(), g.changed
		g.mu.Unlock()
		err := g.granted()
		if g.proxy.cfg.Ready() != nil {
			err = noLog()
		}
		switch {
		case err != nil:
			return nil, err
		case policy.Allows(t) && asked:
			return &egress.Permit{Listed: true, Note: t.String() + " was added to the list while the connection " +
				"waited"}, nil
		case policy.Allows(t):
			return nil, nil
		case g.ask == nil || !policy.Asks(t):
			return nil, notAllowed(policy, t)
		}
		// What no container may reach is refused at once: nobody can allow it.
		if err := g.proxy.resolver.CheckKnown(ctx, t); err != nil {
			return nil, err
		}
		permit, err := v.askFor(ctx, method, t, changed)
		if !errors.Is(err, errChanged) {
			return permit, err
		}
	}
}

// Why a wait for a decision ends.
var (
	errChanged = errors.New("the network has changed")
	errLeft    = errors.New("the program has gone")
)

// askFor waits for a person's decision, until the network changes or the program closes its connection.
func (v *clientConn) askFor(ctx context.Context, method string, t egress.Target, changed <-chan struct{}) (
	*egress.Permit, error) {
	v.timer.Stop() // the time for a decision is bounded by who asks
	defer v.alive()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer v.watch(func() { cancel(errLeft) })()
	go func() {
		select {
		case <-changed:
			cancel(errChanged)
		case <-ctx.Done():
		}
	}()
	permit, err := v.gate.ask(ctx, t, func(id string) {
		v.gate.report(egress.Report{Asked: id, Outcome: proto.AuditOK,
			Note:        t.String() + " is not on this container's list, and waits for a decision about " + id,
			AuditEgress: proto.AuditEgress{Method: method, Host: t.Host(), Port: t.Port}})
	})
	var said *egress.Refusal
	switch cause := context.Cause(ctx); {
	case err == nil || errors.As(err, &said):
		return permit, err
	case errors.Is(cause, errChanged):
		return nil, errChanged
	}
	return nil, egress.Refuse(proto.PermissionDenied, "not_decided", "%s is not on this container's list, and its "+
		"program stopped waiting for a decision", t)
}

// watch calls gone when the program closes its connection, until stop is called. What the program sends meanwhile stays
// in v.r. A program that has sent more than fits is not watched.
func (v *clientConn) watch(gone func()) (stop func()) {
	done := make(chan struct{})
	stopped, end := context.WithCancel(context.Background())
	go func() {
		defer close(done)
		defer v.recoverPanic()
		for v.r.Buffered() < v.r.Size() {
			if _, err := v.r.Peek(v.r.Buffered() + 1); err != nil {
				if stopped.Err() == nil {
					gone()
				}
				return
			}
		}
	}()
	return func() {
		end()
		_ = v.conn.SetReadDeadline(time.Unix(1, 0)) // a read that waits fails
		<-done
		v.clearDeadline()
	}
}

// overPermit refuses the rest of a connection whose permit has ended.
func overPermit(t egress.Target) error {
	return egress.Refuse(proto.PermissionDenied, "permit_over", "%s was allowed until the commands ended that ran then",
		t)
}
