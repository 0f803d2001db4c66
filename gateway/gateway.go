package gateway

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"berth/proto"
	"berth/state/ledger"
)

// Config configures a Gateway. All fields but the limits and Log must be set.
type Config struct {
	Containers Containers
	Files      Files
	Ledger     *ledger.DB // keeps turns that a later daemon may have to continue

	MaxRounds int           // rounds of one turn with the upstream; 0 is 50
	MaxTurn   time.Duration // after this time a turn starts no further round; 0 is 10 minutes
	Log       *slog.Logger  // nil: slog.Default
}

// A Gateway runs turns.
type Gateway struct {
	cfg      Config
	attempts *attempts
}

// New returns a Gateway. It reads which turns earlier daemons have left in the ledger.
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

// Close forgets the turns that could still be sent again and waits until their containers are deleted.
func (g *Gateway) Close() error {
	g.attempts.close()
	return nil
}

// A Request is what the gateway needs to know of a client's request.
type Request struct {
	Owner     string           // of the API key
	Key       [32]byte         // hash of everything that makes two requests the same turn
	Repeated  bool             // the client says that it may have sent the request before
	Size      int              // of the request's body, in bytes
	Container string           // ID; "": a container is created once it is needed
	Skills    []proto.SkillRef // to be mounted into the container
	Files     []RequestFile    // stored files to be put into the container

	// Ping tells the client that the turn is alive, before each call; nil: the client cannot be told.
	Ping func()

	// Output receives what a call writes while it runs; nil: the client does not want it.
	Output func(Call, Output) error

	// Draining is closed when the daemon is about to end: commands are then left to the next one. nil: never.
	Draining <-chan struct{}
}

// A RequestFile is a stored file that a request puts into the container.
type RequestFile struct {
	ID      string
	Current bool // the request's last messages name it: it must exist. An older file may have been deleted since
}

// An Output is a piece of what a call writes.
type Output struct {
	Stream string // "stdout" or "stderr"
	Text   string
	Bytes  []byte // instead of Text where the output is not UTF-8
}

// Answer runs the turn of a request: a new one, or the one of an earlier request with the same key that is Repeated.
// attach connects the turn to the client. Answer returns nil once the client has its answer. A failure after work was
// done is an *Interruption.
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

// Forget drops turns that no client has repeated for that long, and returns how many.
func (g *Gateway) Forget(after time.Duration) int { return g.attempts.expire(after) }
