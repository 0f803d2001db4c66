package bridge

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"berth/proto"
	"berth/session"
	"berth/session/loopback"
	"berth/state/ledger"
	"berth/tools/approval"
	"berth/tools/bridge/provider"
)

// Config is what Open needs. Ledger must be set.
type Config struct {
	Ledger *ledger.DB
	// Reach reports whether the operator allows calls to the server at host:port, and Dial connects to one. nil: no
	// server is called.
	Reach func(hostPort string) error
	Dial  func(ctx context.Context, network, hostPort string) (net.Conn, error)

	Ready    func() error  // returns why nothing can be recorded; then no tool is called. nil: always ready
	ParkTime time.Duration // how long a call waits for approval; 0 is 24 hours
	// how long a call waits for its code, or a disconnected client's functions, to come back; 0 is 15 s
	Grace  time.Duration
	PerMin int              // calls of one container per minute; further calls wait. 0 is 1200
	Log    *slog.Logger     // nil: slog.Default
	Now    func() time.Time // nil: time.Now
}

// A Bridge connects code in containers with all tools of a daemon. It implements session.Tools.
type Bridge struct {
	cfg    Config
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	server *http.Server
	guests guestListener
	held   atomic.Int64 // bytes of inputs and results in memory

	sessions *session.Sessions
	attached chan struct{} // closed when sessions is set

	mu          sync.Mutex // guards what follows
	dispatchers map[string]*dispatcher
	closed      bool
	sweeper     approval.Sweeper
}

// Open makes a bridge. Code in containers waits until Attach names the sessions.
func Open(cfg Config) *Bridge {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Ready == nil {
		cfg.Ready = func() error { return nil }
	}
	cfg.Log, cfg.ParkTime = cmp.Or(cfg.Log, slog.Default()), cmp.Or(cfg.ParkTime, 24*time.Hour)
	cfg.Grace, cfg.PerMin = cmp.Or(cfg.Grace, 15*time.Second), cmp.Or(cfg.PerMin, 1200)
	b := &Bridge{cfg: cfg, dispatchers: map[string]*dispatcher{}, attached: make(chan struct{})}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.startServer()
	return b
}

// Attach names the sessions. It is called once: the sessions need the bridge before they are open.
func (b *Bridge) Attach(ss *session.Sessions) {
	b.sessions = ss
	close(b.attached)
}

// Close ends what is under way. Waiting calls continue with the next daemon if their code does.
func (b *Bridge) Close() error {
	b.mu.Lock()
	b.closed = true
	all := slices.Collect(maps.Values(b.dispatchers))
	b.mu.Unlock()
	b.cancel()
	err := b.server.Close()
	for _, d := range all {
		d.close()
	}
	b.wg.Wait()
	return err
}

// track runs fn on a goroutine that Close waits for, unless Close has begun.
func (b *Bridge) track(fn func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.wg.Go(fn)
	return true
}

// enter adds a request to those that Close waits for, unless Close has begun. If it reports true, the caller calls
// wg.Done.
func (b *Bridge) enter() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.wg.Add(1)
	}
	return !b.closed
}

// AllowList implements session.Tools.
func (b *Bridge) AllowList(asked proto.CodeTools) (proto.CodeTools, error) {
	return provider.AllowList(asked, b.cfg.Reach)
}

// Service is the server that a container's code finds on its loopback.
func (b *Bridge) Service(s *session.Session) loopback.Service { return &service{b.dispatcher(s)} }

// dispatcher returns the container's dispatcher, which is made at first use.
func (b *Bridge) dispatcher(s *session.Session) *dispatcher {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := b.dispatchers[s.ID()]
	if d == nil {
		d = newDispatcher(b, s)
		b.dispatchers[s.ID()] = d
	}
	return d
}

// find returns the dispatcher of an owner's usable container.
func (b *Bridge) find(owner, container string) (*dispatcher, error) {
	select {
	case <-b.attached:
	case <-b.ctx.Done():
		return nil, proto.Errorf(proto.Unavailable, "", container, "the daemon is shutting down")
	}
	s, err := b.sessions.Get(owner, container)
	if err != nil {
		return nil, err
	}
	d := b.dispatcher(s)
	return d, d.load()
}
