// Package gateway runs model turns: it lets any model behind an HTTP API work in a container.
//
//	turn          one request: rounds with the upstream, and the tool calls that run between them. If the client
//	              repeats the request, the turn continues, and no call runs twice
//	round         one answer of the upstream
//	journal       what the ledger stores of a turn, so that a later daemon can continue it
//	Conversation  the turn in the dialect of its client
//	Containers    where calls run
//
// The package owns turns, the journal, and the container of a turn. It does not know request and answer
// formats, which a Conversation translates (package messages). It does not run tools, which a Container does (package
// containers). An edge calls a dialect's package, which calls Gateway.Answer.
package gateway

import (
	"cmp"
	"context"
	"encoding/hex"
	"log/slog"
	"slices"
	"sync"
	"time"

	"berth/proto"
	"berth/state/ledger"

	"github.com/google/uuid"
)

// Config configures a Gateway. All fields except the limits and Log must be set.
type Config struct {
	Containers Containers
	Files      Files
	Ledger     *ledger.DB // stores turns that a later daemon may have to continue

	MaxRounds int           // maximum rounds of one turn; 0 is 50
	MaxTurn   time.Duration // a turn starts no further round after this time; 0 is 10 minutes
	Log       *slog.Logger  // nil: slog.Default
}

// A Gateway runs turns. It remembers each turn that a client may repeat.
type Gateway struct {
	cfg     Config
	deletes sync.WaitGroup // running deletions of containers

	mu        sync.Mutex // guards the fields below
	known     map[string]*turn
	idle      []*turn // known turns that no request uses, oldest first
	idleBytes int
	closed    bool
	previous  map[string]turnRecord // turns of earlier daemons that no request has repeated yet, by key
}

// New returns a Gateway. It reads from the ledger the turns of earlier daemons.
func New(cfg Config) *Gateway {
	cfg.MaxRounds = cmp.Or(cfg.MaxRounds, 50)
	cfg.MaxTurn = cmp.Or(cfg.MaxTurn, 10*time.Minute)
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	g := &Gateway{cfg: cfg, known: map[string]*turn{}}
	g.previous = g.readRecords()
	return g
}

// Close forgets the turns that are not in the ledger, and waits until their containers are deleted. The next daemon
// continues the other turns.
func (g *Gateway) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for _, t := range g.idle {
		if !t.journal.written {
			g.forget(t)
		}
	}
	g.idle = nil
	g.deletes.Wait()
	return nil
}

// A Request holds what the gateway needs from a client's request.
type Request struct {
	Owner     string           // owner of the API key
	Key       [32]byte         // hash of everything that identifies the turn
	Repeated  bool             // the client reports that it may have sent the request before
	Size      int              // bytes of the request's body
	Container string           // container ID; "": a container is created when one is needed
	Skills    []proto.SkillRef // to mount into the container
	Files     []RequestFile    // stored files to put into the container

	// Ping is called before each call, to tell the client that the turn is alive. nil: the client cannot be told.
	Ping func()

	// Output receives the output of a running call. nil: the client does not want it.
	Output func(Call, Output) error

	// Draining is closed when the daemon is about to end. Running commands are then left to the next daemon. nil:
	// never closed.
	Draining <-chan struct{}
}

// A RequestFile is a stored file that a request puts into the container.
type RequestFile struct {
	ID      string
	Current bool // the request's last messages name the file, so it must exist; an older file may have been deleted
}

// An Output is a piece of a call's output.
type Output struct {
	Stream string // "stdout" or "stderr"
	Text   string
	Bytes  []byte // used instead of Text if the output is not UTF-8
}

// Answer runs the turn of a request. If the request is Repeated, that is the turn of the earlier request with the
// same key. attach connects the turn to the client. Answer returns nil once the client has its answer. A failure
// after work was done is an *Interruption.
func (g *Gateway) Answer(ctx context.Context, r Request, attach Attach) error {
	t := g.enterTurn(r)
	defer g.leaveTurn(t)
	select {
	case t.lock <- struct{}{}:
		defer func() { <-t.lock }()
	case <-ctx.Done():
		return ctx.Err()
	}
	conv, detach := attach(t.conv, &t.answer)
	defer detach()
	t.request, t.conv, t.progress.began, t.progress.rounds = r, conv, time.Now(), 0
	return t.outcome(ctx, t.run(ctx))
}

// enterTurn returns the turn of a request. If the request is repeated, that is the existing turn, which may be one of
// an earlier daemon. Otherwise it is a new one. The caller must call leaveTurn.
func (g *Gateway) enterTurn(r Request) *turn {
	key := hex.EncodeToString(r.Key[:])
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.known[key]
	if t == nil || !r.Repeated {
		t = &turn{g: g, id: uuid.NewString(), key: key, lock: make(chan struct{}, 1)}
		g.known[key] = t
		old, ok := g.previous[key]
		delete(g.previous, key)
		switch {
		case ok && r.Repeated:
			if rec := g.readRecord(key); rec != nil {
				t.id, t.journal.saved, t.journal.written, t.container.told = rec.ID, rec, true, rec.Heard
			}
		case ok:
			g.dropRecord(key, old)
		}
	}
	if t.users++; !t.idleSince.IsZero() {
		g.removeIdle(t)
	}
	return t
}

// Limits for the turns that are remembered while no request uses them: their number and their bytes.
const (
	maxIdle      = 1000
	maxIdleBytes = 128 << 20
)

// leaveTurn ends the use that enterTurn began. It forgets a turn that did nothing.
func (g *Gateway) leaveTurn(t *turn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t.users--; t.users > 0 {
		return
	}
	if len(t.answer.Content) == 0 && !t.container.created || g.closed || g.known[t.key] != t {
		g.forget(t)
		return
	}
	t.bytes, t.idleSince = t.shrink(), time.Now()
	g.idle, g.idleBytes = append(g.idle, t), g.idleBytes+t.bytes
	g.trim(maxIdle, maxIdleBytes)
}

// trim forgets the oldest idle turns until the limits hold. The caller holds mu.
func (g *Gateway) trim(count, bytes int) {
	for len(g.idle) > 0 && (len(g.idle) > count || g.idleBytes > bytes) {
		oldest := g.idle[0]
		g.removeIdle(oldest)
		g.forget(oldest)
	}
}

// removeIdle removes a turn from the idle ones. The caller holds mu.
func (g *Gateway) removeIdle(t *turn) {
	if i := slices.Index(g.idle, t); i >= 0 {
		g.idle = slices.Delete(g.idle, i, i+1)
		g.idleBytes -= t.bytes
	}
	t.idleSince = time.Time{}
}

// forget drops a turn. It also deletes the container that was created for the turn, if the client was not told the
// container's ID. The caller holds mu.
func (g *Gateway) forget(t *turn) {
	if g.known[t.key] == t {
		delete(g.known, t.key)
		if t.journal.written && !g.closed {
			g.eraseRecord(t.key)
		}
	}
	if t.container.created && !t.container.told {
		g.deletes.Go(func() { g.deleteContainer(t.container.c) })
	}
}

// RepeatTime is how long an unused turn is remembered so that a client can repeat its request.
const RepeatTime = 10 * time.Minute

// Forget drops turns that were not repeated for that long, and returns how many.
func (g *Gateway) Forget(after time.Duration) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.idle) > 0 && time.Since(g.idle[0].idleSince) >= after {
		n++
		g.trim(len(g.idle)-1, g.idleBytes)
	}
	for key, rec := range g.previous {
		if time.Since(rec.At) >= after {
			delete(g.previous, key)
			g.dropRecord(key, rec)
			n++
		}
	}
	return n
}
