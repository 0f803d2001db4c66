package proxy

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"berth/egress"
	"berth/proto"
)

// A hostConn is one request under way: checked, connected and reported. It is the connection to the host; closing it
// reports the end.
type hostConn struct {
	net.Conn
	gate   *Gate
	target egress.Target
	permit *egress.Permit // nil: the list allows it
	report egress.Report
	began  time.Time
	alive  func()    // called whenever bytes move in either direction
	in     io.Reader // nil: Conn
	free   func() bool
	spared func() bool // it no longer ends with its permit; nil: it does not; guarded by gate.mu

	used           atomic.Pointer[[]string] // names of secrets that were inserted
	sent, received atomic.Int64
	why            atomic.Pointer[egress.Refusal] // it was cut for this reason
	over           sync.Once
}

// openHost checks a request, connects to its target, and reports it as allowed or refused. The connection ends with
// ctx.
func (g *Gate) openHost(ctx context.Context, method string, t egress.Target, permit *egress.Permit, alive func()) (
	*hostConn, error) {
	if err := g.proxy.cfg.Ready(); err != nil {
		return nil, noLog()
	}
	var c net.Conn
	dial, cancel := context.WithTimeout(ctx, g.proxy.cfg.DialTimeout)
	defer cancel()
	list, err := g.proxy.resolver.Resolve(dial, t)
	if err == nil {
		c, err = g.proxy.resolver.Dial(dial, t, list)
	}
	if err != nil {
		return nil, g.refused(method, t, err)
	}
	p := &hostConn{Conn: c, gate: g, target: t, permit: permit, began: time.Now(), alive: alive}
	p.free = context.AfterFunc(ctx, func() { _ = c.Close() })
	p.report = egress.Report{Began: true, Outcome: proto.AuditOK, AuditEgress: proto.AuditEgress{Method: method,
		Host: t.Host(), Port: t.Port}}
	if remote, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		p.report.Address = remote.AddrPort().Addr().Unmap().String()
	}
	began := p.report
	if permit != nil {
		began.Note = permit.Note
	}
	g.report(began)
	g.mu.Lock()
	g.live[p] = struct{}{} // from here on it may be ended
	if permit != nil && permit.Life != nil {
		p.spared = context.AfterFunc(permit.Life, func() { p.abort(overPermit(t)) })
	}
	g.mu.Unlock()
	if !g.stands(p) { // what allowed it has changed meanwhile
		p.abort(notAllowed(*g.policy.Load(), t))
		return nil, p.why.Load()
	}
	return p, nil
}

func noLog() error {
	return egress.Refuse(proto.Unavailable, "no_log", "requests of containers cannot be audited now, so they are "+
		"refused")
}

// stands reports whether a request may go on.
func (g *Gate) stands(p *hostConn) bool {
	policy := g.policy.Load()
	return policy.Allows(p.target) || p.permit != nil && !p.permit.Listed && policy.Asks(p.target) &&
		(p.permit.Life == nil || p.permit.Life.Err() == nil)
}

// refused reports a refused request and returns its error. The target is zero if none could be read.
func (g *Gate) refused(method string, t egress.Target, err error) error {
	r := egress.RefusalOf(err)
	v := egress.Report{Outcome: string(r.Code), Note: r.Text, AuditEgress: proto.AuditEgress{Method: method,
		Reason: r.Reason, Port: t.Port}}
	if t.Port != 0 {
		v.Host = t.Host()
	}
	g.report(v)
	return r
}

// forget removes a request from those under way.
func (g *Gate) forget(p *hostConn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.live, p)
	if p.spared != nil {
		p.spared()
	}
}

// Read implements net.Conn and counts.
func (p *hostConn) Read(b []byte) (int, error) {
	if p.in != nil {
		return p.in.Read(b)
	}
	return p.take(b)
}

// take reads from the host itself.
func (p *hostConn) take(b []byte) (int, error) {
	n, err := p.Conn.Read(b)
	p.received.Add(int64(n))
	p.alive()
	return n, err
}

// Write implements net.Conn and counts.
func (p *hostConn) Write(b []byte) (int, error) {
	// Counted before it is sent: the host may answer, and the request may end, before the sender runs again.
	p.sent.Add(int64(len(b)))
	n, err := p.Conn.Write(b)
	p.sent.Add(int64(n - len(b)))
	p.alive()
	return n, err
}

// CloseWrite tells the host that nothing more follows.
func (p *hostConn) CloseWrite() error { return p.Conn.(*net.TCPConn).CloseWrite() }

// Close ends the tunnel and reports it, once.
func (p *hostConn) Close() error { return p.end(nil) }

// abort ends the tunnel because the client's traffic does not match its request.
func (p *hostConn) abort(err error) { _ = p.end(egress.RefusalOf(err)) }

func (p *hostConn) end(why *egress.Refusal) error {
	p.free()
	p.why.CompareAndSwap(nil, why) // before the connection is closed: who carries it then ends it for no reason
	err := p.Conn.Close()
	p.over.Do(func() {
		v := p.report
		v.Began, v.Over = false, true
		if used := p.used.Load(); used != nil {
			v.Secrets = *used
		}
		v.Sent, v.Received, v.Seconds = p.sent.Load(), p.received.Load(), time.Since(p.began).Seconds()
		if why := p.why.Load(); why != nil {
			v.Outcome, v.Reason, v.Note = string(why.Code), why.Reason, why.Text
		}
		p.gate.forget(p)
		p.gate.report(v)
	})
	return err
}
