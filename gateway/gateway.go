// Package gateway runs model turns: it lets any model behind an HTTP API work in a container.
//
//	turn          one request: rounds with the upstream, and the tool calls that run between them
//	index         the turns that a later request may continue, so that no call runs twice
//	round         one answer of the upstream
//	calls         the tool calls of a round, which run at the same time where they can
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
	"log/slog"
	"sync"
	"time"

	"berth/proto"
	"berth/state/ledger"
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

	mu        sync.Mutex         // guards the fields below
	known     map[string][]*turn // by identity.index
	idle      []*turn            // known turns that no request uses, oldest first
	idleBytes int
	closed    bool
	previous  map[string]turnRecord // turns of earlier daemons that no request has continued yet, by key in the ledger
}

// New returns a Gateway. It reads from the ledger the turns of earlier daemons.
func New(cfg Config) *Gateway {
	cfg.MaxRounds = cmp.Or(cfg.MaxRounds, 50)
	cfg.MaxTurn = cmp.Or(cfg.MaxTurn, 10*time.Minute)
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	g := &Gateway{cfg: cfg, known: map[string][]*turn{}}
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
			_ = g.forget(t) // waited for below
		}
	}
	g.idle = nil
	g.deletes.Wait()
	return nil
}

// A Request holds what the gateway needs from a client's request.
type Request struct {
	Owner       string            // owner of the API key
	Key         [32]byte          // hash of Owner, RetryKey and the body
	RetryKey    string            // idempotency key of the client; "": none
	Client      [32]byte          // hash of what the repetitions of a request have in common besides the body
	Attempt     int               // how many times the client has sent the request before, as it reports
	Size        int               // bytes of the request's body
	Container   string            // container ID; "": a container is created when one is needed
	Confinement proto.Confinement // of the container that is created
	Skills      []proto.SkillRef  // to mount into the container
	Files       []RequestFile     // stored files to put into the container

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

// Answer runs the turn of a request. That is a new turn, or the one that the request continues, which may be one of an
// earlier daemon: with a RetryKey, the turn of that key; without one, a turn that its client left before it had its
// answer. attach connects the turn to the client. Answer returns nil once the client has its answer. A failure after
// work was done is an *Interruption.
func (g *Gateway) Answer(ctx context.Context, r Request, attach Attach) error {
	for {
		t, err := g.enterTurn(ctx, r)
		if err != nil {
			return err
		}
		over, err := g.answer(ctx, t, r, attach)
		g.leaveTurn(ctx, t)
		if !over {
			return err
		}
	}
}

// answer continues a turn for a request. over means that the turn is not the request's, because the client that seemed
// to have left it has its answer.
func (g *Gateway) answer(ctx context.Context, t *turn, r Request, attach Attach) (over bool, err error) {
	select {
	case t.lock <- struct{}{}:
		defer func() { <-t.lock }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	if t.isOver() {
		return true, nil
	}
	conv, detach := attach(t.conv, &t.answer)
	defer detach()
	t.request, t.conv, t.progress.began, t.progress.rounds = r, conv, time.Now(), 0
	err = t.outcome(ctx, t.run(ctx))
	g.mu.Lock()
	defer g.mu.Unlock()
	t.over = t.identity.retryKey == "" && t.answered(err)
	return false, err
}
