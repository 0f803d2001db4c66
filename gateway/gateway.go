package gateway

import (
	"cmp"
	"context"
	"log/slog"
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

// A Gateway runs turns.
type Gateway struct {
	cfg      Config
	attempts *attempts
}

// New returns a Gateway. It reads from the ledger the turns of earlier daemons.
func New(cfg Config) *Gateway {
	cfg.MaxRounds = cmp.Or(cfg.MaxRounds, 50)
	cfg.MaxTurn = cmp.Or(cfg.MaxTurn, 10*time.Minute)
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	g := &Gateway{cfg: cfg}
	g.attempts = newAttempts(g)
	return g
}

// Close forgets the turns that are not in the ledger, and waits until their containers are deleted.
func (g *Gateway) Close() error {
	g.attempts.close()
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
	a := g.attempts.enter(r)
	defer g.attempts.leave(a)
	release, err := a.acquire(ctx)
	if err != nil {
		return err
	}
	defer release()
	t := a.turn
	conv, detach := attach(t.conv, &t.answer)
	defer detach()
	t.request, t.conv, t.progress.began, t.progress.rounds = r, conv, time.Now(), 0
	return t.outcome(ctx, t.run(ctx))
}

// Forget drops turns that were not repeated for that long, and returns how many.
func (g *Gateway) Forget(after time.Duration) int { return g.attempts.expire(after) }
