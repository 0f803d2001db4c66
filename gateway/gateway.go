package gateway

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"time"

	"berth/artifacts"
	"berth/code"
	"berth/files"
	"berth/gateway/upstream"
	"berth/session"
	"berth/state/ledger"
	"berth/tools/bridge"
	"berth/tools/skills"
)

// Config is what New needs. All parts but Log must be set.
type Config struct {
	Upstreams *upstream.Set
	Sessions  *session.Sessions
	Code      *code.Runner
	Files     *files.Store
	Jobs      *artifacts.Jobs
	Bridge    *bridge.Bridge // for code that calls the client's tools
	Skills    *skills.Store
	Ledger    *ledger.DB // for turns that a later daemon may have to go on with

	MaxRounds int           // of one turn with the upstream; 0 is 50
	MaxTurn   time.Duration // after which a turn begins no other round; 0 is 10 minutes
	Log       *slog.Logger  // nil: slog.Default
}

// A Gateway answers Messages requests.
type Gateway struct {
	cfg      Config
	attempts *attempts
	cells    cells
}

// New makes a gateway, which knows the turns of the daemon before. It starts nothing.
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

// Close lets go of the turns that could still be taken up again.
func (g *Gateway) Close() error {
	g.attempts.close()
	g.cells.forget(0)
	g.cells.all.Wait()
	return nil
}

// Messages answers a request. Nothing is written if it fails before the answer has begun. In a stream that has begun,
// an error is told by fail, and the error that comes back is a *Told.
func (g *Gateway) Messages(ctx context.Context, w http.ResponseWriter, r Request, fail func(error) any) error {
	q, err := readQuery(r)
	if err != nil {
		return err
	}
	up, err := g.cfg.Upstreams.For(q.model)
	if err != nil {
		return err
	}
	switch {
	case q.plain():
		return g.pass(ctx, w, up, r.Owner, upstream.Request{Path: r.Path, Query: r.Query, Header: r.Header,
			Body: r.Body})
	case r.Path == upstream.PathCountTokens:
		return g.count(ctx, w, up, q)
	}
	return g.answer(ctx, w, up, q, fail)
}

// A Told is an error that the client has got in its stream.
type Told struct{ Err error }

func (t *Told) Error() string { return t.Err.Error() }

// Unwrap is what it was.
func (t *Told) Unwrap() error { return t.Err }
