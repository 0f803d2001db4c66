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
)

// Config is what Open needs. Ledger must be set.
type Config struct {
	Ledger *ledger.DB
	// Reach says whether the operator lets calls go to a server at host:port, and Dial connects to one. nil: calls go
	// to no server.
	Reach func(hostPort string) error
	Dial  func(ctx context.Context, network, hostPort string) (net.Conn, error)

	Ready    func() error  // why nothing can be written down, if so; then no tool is called. nil: all can
	ParkTime time.Duration // how long a call waits for approval; 0 is 24 hours
	// how long a call waits for the code, or a client for its functions, to come back; 0 is 15 s
	Grace  time.Duration
	PerMin int              // calls of one container in a minute; more wait. 0 is 1200
	Log    *slog.Logger     // nil: slog.Default
	Now    func() time.Time // nil: time.Now
}

// A Tool is something that code can call.
type Tool struct {
	Name         string          `json:"name"`
	Description  string          `json:"description,omitempty"`
	InputSchema  json.RawMessage `json:"input_schema,omitempty"`
	OutputSchema json.RawMessage `json:"output_schema,omitempty"`
	// Python gets an async function that takes one dict and gives a string
	Async    bool   `json:"async,omitempty"`
	Approval string `json:"approval,omitempty"` // proto.ApprovalAllow (default) or proto.ApprovalReview
}

func toolOf(s proto.ToolSpec) Tool {
	return Tool{Name: s.Name, Description: s.Description, InputSchema: s.InputSchema, OutputSchema: s.OutputSchema}
}

// A Bridge is the way to all tools of a daemon. It is session.Tools.
type Bridge struct {
	cfg    Config
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	server *http.Server
	door   door
	held   atomic.Int64 // bytes of inputs and results in memory

	sessions *session.Sessions
	attached chan struct{} // closed when sessions is set

	mu     sync.Mutex // guards what follows
	desks  map[string]*desk
	closed bool
	pruned time.Time // when old calls were last looked for
}

// Open makes a bridge. Containers' code waits until Attach says which containers there are.
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
	b := &Bridge{cfg: cfg, desks: map[string]*desk{}, attached: make(chan struct{})}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.serve()
	return b
}

// Attach says which sessions there are. It is called once: the sessions need the bridge before they are open.
func (b *Bridge) Attach(ss *session.Sessions) {
	b.sessions = ss
	close(b.attached)
}

// Close ends what is under way. What waits goes on with the next daemon, if the code does.
func (b *Bridge) Close() error {
	b.mu.Lock()
	b.closed = true
	desks := make([]*desk, 0, len(b.desks))
	for _, d := range b.desks {
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

// track runs fn on a goroutine that Close waits for, unless it has begun.
func (b *Bridge) track(fn func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.wg.Go(fn)
	return true
}

// enter counts a request among what Close waits for, unless it has begun. Whoever is let in calls wg.Done.
func (b *Bridge) enter() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.wg.Add(1)
	}
	return !b.closed
}

// Service is what a container's code finds on its loopback.
func (b *Bridge) Service(s *session.Session) session.Service { return &service{b.desk(s)} }

// desk is the container's, made at first use.
func (b *Bridge) desk(s *session.Session) *desk {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := b.desks[s.ID()]
	if d == nil {
		d = newDesk(b, s)
		b.desks[s.ID()] = d
	}
	return d
}

// find is the desk of an owner's container that can be used.
func (b *Bridge) find(owner, container string) (*desk, error) {
	select {
	case <-b.attached:
	case <-b.ctx.Done():
		return nil, proto.Errorf(proto.Unavailable, "", container, "the daemon is shutting down")
	}
	s, err := b.sessions.Get(owner, container)
	if err != nil {
		return nil, err
	}
	d := b.desk(s)
	return d, d.load()
}
