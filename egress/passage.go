package egress

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"berth/proto"
)

// A passage is one request on its way: judged, connected and told of. It is the connection to the host; closing it
// tells of its end.
type passage struct {
	net.Conn
	gate  *Gate
	visit Visit
	began time.Time
	alive func()    // called whenever something goes either way
	in    io.Reader // nil: Conn
	free  func() bool
	used  []string // names of secrets that were put in

	sent, received atomic.Int64
	over           sync.Once
}

// open judges a request, connects to where it goes, and tells of it, allowed or refused. The passage ends with ctx.
func (g *Gate) open(ctx context.Context, method string, t Target, alive func()) (*passage, error) {
	if err := g.proxy.cfg.Ready(); err != nil {
		return nil, refuse(proto.Unavailable, "no_log", "what goes out of containers cannot be written down now, so "+
			"nothing does")
	}
	var c net.Conn
	dial, cancel := context.WithTimeout(ctx, g.proxy.cfg.DialTimeout)
	defer cancel()
	list, err := g.judge(dial, t)
	if err == nil {
		c, err = g.proxy.dial(dial, t, list)
	}
	if err != nil {
		return nil, g.refused(method, t, err)
	}
	p := &passage{Conn: c, gate: g, began: time.Now(), alive: alive}
	p.free = context.AfterFunc(ctx, func() { _ = c.Close() })
	p.visit = Visit{Began: true, Outcome: proto.AuditOK, AuditEgress: proto.AuditEgress{Method: method, Host: t.Host(),
		Port: t.Port}}
	if remote, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		p.visit.Address = remote.AddrPort().Addr().Unmap().String()
	}
	g.tell(p.visit)
	return p, nil
}

// refused tells of a request that goes nowhere, and is its error. The target is zero where none could be read.
func (g *Gate) refused(method string, t Target, err error) error {
	r := refusalOf(err)
	v := Visit{Outcome: string(r.code), Note: r.text, AuditEgress: proto.AuditEgress{Method: method, Reason: r.reason,
		Port: t.Port}}
	if t.Port != 0 {
		v.Host = t.Host()
	}
	g.tell(v)
	return r
}

// Read is net.Conn's, counted.
func (p *passage) Read(b []byte) (int, error) {
	var n int
	var err error
	if p.in != nil {
		n, err = p.in.Read(b)
	} else {
		n, err = p.take(b)
	}
	return n, err
}

// take reads from the host itself.
func (p *passage) take(b []byte) (int, error) {
	n, err := p.Conn.Read(b)
	p.received.Add(int64(n))
	p.alive()
	return n, err
}

// Write is net.Conn's, counted.
func (p *passage) Write(b []byte) (int, error) {
	// Counted before it is sent: a host may have answered, and all be over, before whoever sends gets to it again.
	p.sent.Add(int64(len(b)))
	n, err := p.Conn.Write(b)
	p.sent.Add(int64(n - len(b)))
	p.alive()
	return n, err
}

// CloseWrite tells the host that nothing more comes.
func (p *passage) CloseWrite() error { return p.Conn.(*net.TCPConn).CloseWrite() }

// Close ends the passage and tells of it, once.
func (p *passage) Close() error { return p.end(nil) }

// cut ends the passage since what the client says in it is not what it asked for.
func (p *passage) cut(err error) { _ = p.end(refusalOf(err)) }

func (p *passage) end(why *refusal) error {
	p.free()
	err := p.Conn.Close()
	p.over.Do(func() {
		v := p.visit
		v.Began, v.Over, v.Secrets = false, true, p.used
		v.Sent, v.Received, v.Seconds = p.sent.Load(), p.received.Load(), time.Since(p.began).Seconds()
		if why != nil {
			v.Outcome, v.Reason, v.Note = string(why.code), why.reason, why.text
		}
		p.gate.tell(v)
	})
	return err
}
