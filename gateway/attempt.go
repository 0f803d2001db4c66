package gateway

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"berth/gateway/upstream"
	"berth/proto"
	"berth/session"

	"github.com/google/uuid"
)

// How long a turn that is over can be sent again, how many are kept for that, and how many bytes of answers.
const (
	attemptTime  = 10 * time.Minute
	maxAttempts  = 1000
	attemptBytes = 128 << 20
)

// An attempt is a turn that the same request again goes on with, or gets the answer of.
type attempt struct {
	key  [32]byte
	t    *turn
	turn chan struct{} // holds one token: the right to go on with it

	// What follows is guarded by attempts.mu.
	users int         // requests that have it
	timer *time.Timer // forgets it; nil while it is used
	bytes int
}

// attempts are those of the last minutes.
type attempts struct {
	discard func(*session.Session)

	mu     sync.Mutex // guards what follows
	known  map[[32]byte]*attempt
	idle   []*attempt // nobody uses them; the oldest first
	bytes  int        // of their answers
	closed bool
}

func newAttempts(discard func(*session.Session)) *attempts {
	return &attempts{discard: discard, known: map[[32]byte]*attempt{}}
}

// repeated reports whether an SDK says that it sends a request again.
func repeated(h http.Header) bool {
	n, err := strconv.Atoi(h.Get("X-Stainless-Retry-Count"))
	return err == nil && n > 0
}

// enter is the attempt that a request belongs to: a new one, unless an SDK sends it again. Whoever enters leaves.
func (as *attempts) enter(q *query, fresh func() *turn) *attempt {
	key := sha256.Sum256([]byte(q.Owner + "\x00" + string(q.Body)))
	as.mu.Lock()
	defer as.mu.Unlock()
	a := as.known[key]
	if a == nil || !repeated(q.Header) {
		a = &attempt{key: key, t: fresh(), turn: make(chan struct{}, 1)}
		as.known[key] = a
	}
	if a.users++; a.timer != nil {
		a.timer.Stop()
		as.unlist(a)
	}
	return a
}

// take is the right to go on with the turn, until release.
func (a *attempt) take(ctx context.Context) (release func(), err error) {
	select {
	case a.turn <- struct{}{}:
		return func() { <-a.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// leave ends what enter began. A turn that did nothing is forgotten at once.
func (as *attempts) leave(a *attempt) {
	as.mu.Lock()
	defer as.mu.Unlock()
	if a.users--; a.users > 0 {
		return
	}
	if len(a.t.content) == 0 && !a.t.box.made || as.closed || as.known[a.key] != a {
		as.forget(a)
		return
	}
	a.bytes = 0
	for _, raw := range a.t.content {
		a.bytes += len(raw)
	}
	as.idle, as.bytes = append(as.idle, a), as.bytes+a.bytes
	a.timer = time.AfterFunc(attemptTime, func() {
		as.mu.Lock()
		defer as.mu.Unlock()
		if a.timer != nil {
			as.unlist(a)
			as.forget(a)
		}
	})
	for len(as.idle) > maxAttempts || as.bytes > attemptBytes {
		oldest := as.idle[0]
		oldest.timer.Stop()
		as.unlist(oldest)
		as.forget(oldest)
	}
}

// unlist takes an attempt from the idle ones. Called with mu held.
func (as *attempts) unlist(a *attempt) {
	for i, other := range as.idle {
		if other == a {
			as.idle = append(as.idle[:i], as.idle[i+1:]...)
			as.bytes -= a.bytes
			break
		}
	}
	a.timer = nil
}

// forget drops an attempt, and the container that was made for it and that nobody was told of. Called with mu held.
func (as *attempts) forget(a *attempt) {
	if as.known[a.key] == a {
		delete(as.known, a.key)
	}
	if b := a.t.box; b.made && !a.t.heard {
		go as.discard(b.s)
	}
}

// close forgets all.
func (as *attempts) close() {
	as.mu.Lock()
	defer as.mu.Unlock()
	as.closed = true
	for _, a := range as.idle {
		a.timer.Stop()
		a.timer = nil
	}
	as.idle = nil
}

// answer is Messages for a request with the tool.
func (g *Gateway) answer(ctx context.Context, w http.ResponseWriter, up *upstream.Upstream, q *query, fail func(error) any) error {
	a := g.attempts.enter(q, func() *turn { return &turn{g: g, id: uuid.NewString()} })
	defer g.attempts.leave(a)
	release, err := a.take(ctx)
	if err != nil {
		return err
	}
	defer release()
	t := a.t
	t.q, t.up, t.w, t.out, t.began, t.rounds = q, up, w, nil, time.Now(), 0
	if q.stream {
		t.out = newStream(w)
		defer t.out.beat()()
	}
	return t.tell(ctx, t.resume(ctx), fail)
}

// resume goes on with a turn from where it is.
func (t *turn) resume(ctx context.Context) error {
	if err := t.repeat(); err != nil {
		return err
	}
	if t.final.get("content") != nil {
		return t.deliver(nil)
	}
	return t.run(ctx)
}

// tell lets the client know how the turn failed, if it can still hear it.
func (t *turn) tell(ctx context.Context, err error, fail func(error) any) error {
	var i *Interruption
	switch {
	case err == nil || errors.Is(err, errAnswered):
		return nil
	case ctx.Err() != nil:
		return proto.Errorf(proto.Canceled, "", "", "the client went away in the middle of a turn")
	case errors.As(err, &i):
		t.heard = true
	}
	if t.out == nil || !t.out.sent() {
		return err
	}
	if sent := t.out.send("error", mustJSON(fail(err))); sent != nil {
		return err
	}
	return &Told{err}
}

// newID makes an ID that sorts by time of making.
func newID(prefix string) string { return proto.ID(prefix, uuid.Must(uuid.NewV7())) }
