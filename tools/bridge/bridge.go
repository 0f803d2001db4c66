package bridge

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"berth/proto"
	"berth/session"
	"berth/state/ledger"
	"berth/tools/approval"
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

// A Tool is a function that code can call.
type Tool struct {
	Name         string          `json:"name"`
	Description  string          `json:"description,omitempty"`
	InputSchema  json.RawMessage `json:"input_schema,omitempty"`
	OutputSchema json.RawMessage `json:"output_schema,omitempty"`
	// Python gets an async function that takes one dict and returns a string
	Async    bool   `json:"async,omitempty"`
	Approval string `json:"approval,omitempty"` // proto.ApprovalAllow (default) or proto.ApprovalReview
}

func toolOf(s proto.ToolSpec) Tool {
	return Tool{Name: s.Name, Description: s.Description, InputSchema: s.InputSchema, OutputSchema: s.OutputSchema}
}

// A Bridge connects code in containers with all tools of a daemon. It implements session.Tools.
type Bridge struct {
	cfg    Config
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	server *http.Server
	door   guestListener
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
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Ready == nil {
		cfg.Ready = func() error { return nil }
	}
	cfg.ParkTime, cfg.Grace, cfg.PerMin = cmp.Or(cfg.ParkTime, 24*time.Hour), cmp.Or(cfg.Grace, 15*time.Second),
		cmp.Or(cfg.PerMin, 1200)
	b := &Bridge{cfg: cfg, dispatchers: map[string]*dispatcher{}, attached: make(chan struct{})}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.serve()
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
	desks := make([]*dispatcher, 0, len(b.dispatchers))
	for _, d := range b.dispatchers {
		desks = append(desks, d)
	}
	b.mu.Unlock()
	b.cancel()
	err := b.server.Close()
	for _, d := range desks {
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

// Service is the server that a container's code finds on its loopback.
func (b *Bridge) Service(s *session.Session) session.Service { return &service{b.dispatcher(s)} }

// dispatcher returns the container's dispatcher, which is made at first use.
func (b *Bridge) dispatcher(s *session.Session) *dispatcher {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := b.dispatchers[s.ID()]
	if d == nil {
		d = newDesk(b, s)
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
