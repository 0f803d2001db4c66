package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"berth/gateway/upstream"
	"berth/proto"

	"github.com/google/uuid"
)

// AttemptTime is how long a turn that is over can be sent again.
const AttemptTime = 10 * time.Minute

// How many are kept for that, and how many bytes of them.
const (
	maxAttempts  = 1000
	attemptBytes = 128 << 20
)

// An attempt is a turn that the same request again goes on with, or gets the answer of.
type attempt struct {
	key  [32]byte
	t    *turn
	turn chan struct{} // holds one token: the right to go on with it

	// What follows is guarded by attempts.mu.
	users int       // requests that have it
	left  time.Time // when nobody had it any more; zero while it is used
	bytes int
}

// attempts are those of the last minutes.
type attempts struct {
	g        *Gateway
	discards sync.WaitGroup

	mu     sync.Mutex // guards what follows
	known  map[[32]byte]*attempt
	idle   []*attempt // nobody uses them; the oldest first
	bytes  int        // that they take
	closed bool
	before map[string]turnRecord // of the daemon before, that nobody has come for so far
}

func newAttempts(g *Gateway) *attempts {
	return &attempts{g: g, known: map[[32]byte]*attempt{}, before: g.leftovers()}
}

// retryHeader makes a request and all that have the same key and body one turn. SDKs send no such key, but say when
// they send a request again.
const retryHeader = "Idempotency-Key"

// repeated reports whether a request may be one that was sent before.
func repeated(h http.Header) bool {
	n, err := strconv.Atoi(h.Get("X-Stainless-Retry-Count"))
	return err == nil && n > 0 || h.Get(retryHeader) != ""
}

// enter is the attempt that a request belongs to: a new one, unless it is sent again. Whoever enters leaves.
func (as *attempts) enter(q *query) *attempt {
	key := sha256.Sum256([]byte(q.Owner + "\x00" + q.Header.Get(retryHeader) + "\x00" + string(q.Body)))
	as.mu.Lock()
	defer as.mu.Unlock()
	a := as.known[key]
	if a == nil || !repeated(q.Header) {
		a = &attempt{key: key, t: as.turn(hex.EncodeToString(key[:]), repeated(q.Header)), turn: make(chan struct{}, 1)}
		as.known[key] = a
	}
	if a.users++; !a.left.IsZero() {
		as.unlist(a)
	}
	return a
}

// turn is a new one, or one of the daemon before that is sent again. Called with mu held.
func (as *attempts) turn(key string, again bool) *turn {
	t := &turn{g: as.g, id: uuid.NewString(), key: key}
	old, ok := as.before[key]
	delete(as.before, key)
	switch {
	case ok && again:
		if t.rec = as.g.recorded(key); t.rec != nil {
			t.id, t.noted, t.heard = t.rec.ID, true, t.rec.Heard
		}
	case ok:
		as.drop(key, old)
	}
	return t
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
	a.bytes = a.t.rest()
	as.idle, as.bytes = append(as.idle, a), as.bytes+a.bytes
	a.left = time.Now()
	as.trim(maxAttempts, attemptBytes)
}

// rest lets go of what a turn does not need while nobody has it, and gives about how many bytes it keeps. One that
// has its answer needs nothing else; another one goes on with its history, or, if it could not be prepared, with what
// an earlier daemon wrote down of it.
func (t *turn) rest() (bytes int) {
	for _, raw := range t.content {
		bytes += len(raw)
	}
	if t.w, t.out = nil, nil; t.ready {
		t.rec = nil
	}
	if t.rec != nil {
		bytes += len(t.rec.Final)
		for _, raw := range t.rec.Content {
			bytes += len(raw)
		}
	}
	if t.final.get("content") != nil {
		t.q, t.h, t.answers = nil, nil, nil
		return 2 * bytes
	}
	if t.q != nil {
		bytes += 3 * len(t.q.Body)
	}
	return bytes
}

// trim forgets the oldest, until there are no more than that.
func (as *attempts) trim(n, bytes int) {
	for len(as.idle) > 0 && (len(as.idle) > n || as.bytes > bytes) {
		oldest := as.idle[0]
		as.unlist(oldest)
		as.forget(oldest)
	}
}

// unlist takes an attempt from the idle ones. Called with mu held.
func (as *attempts) unlist(a *attempt) {
	if i := slices.Index(as.idle, a); i >= 0 {
		as.idle = slices.Delete(as.idle, i, i+1)
		as.bytes -= a.bytes
	}
	a.left = time.Time{}
}

// forget drops an attempt, and the container that was made for it and that nobody was told of. Called with mu held.
func (as *attempts) forget(a *attempt) {
	if as.known[a.key] == a {
		delete(as.known, a.key)
		if a.t.noted && !as.closed {
			as.g.erase(a.t.key)
		}
	}
	if b := a.t.box; b.made && !a.t.heard {
		as.discards.Go(func() { as.g.discard(b.s) })
	}
}

// Forget forgets the turns, and ends the code in the middle of one, that nobody has come again for in all that time,
// and gives how many.
func (g *Gateway) Forget(after time.Duration) (n int) {
	as := g.attempts
	n = g.cells.forget(after)
	as.mu.Lock()
	defer as.mu.Unlock()
	for len(as.idle) > 0 && time.Since(as.idle[0].left) >= after {
		n++
		as.trim(len(as.idle)-1, as.bytes)
	}
	for key, rec := range as.before {
		if time.Since(rec.At) >= after {
			delete(as.before, key)
			as.drop(key, rec)
			n++
		}
	}
	return n
}

// close forgets all.
func (as *attempts) close() {
	as.mu.Lock()
	defer as.mu.Unlock()
	as.closed = true
	for _, a := range as.idle {
		if !a.t.noted { // what is in the ledger is the next daemon's
			as.forget(a)
		}
	}
	as.idle = nil
	as.discards.Wait()
}

// answer is Messages for a request with the tool.
func (g *Gateway) answer(ctx context.Context, w http.ResponseWriter, up *upstream.Upstream, q *query,
	fail func(error) any) error {
	a := g.attempts.enter(q)
	defer g.attempts.leave(a)
	release, err := a.take(ctx)
	if err != nil {
		return err
	}
	defer release()
	t := a.t
	if t.q != nil { // the same again, described already
		q.tools = t.q.tools
	}
	t.q, t.up, t.w, t.out, t.began, t.rounds = q, up, w, nil, time.Now(), 0
	if q.stream {
		t.out = newStream(w)
		defer t.out.beat()()
	}
	return t.tell(ctx, t.resume(ctx), fail)
}

// resume goes on with a turn from where it is.
func (t *turn) resume(ctx context.Context) error {
	if err := t.prepare(ctx); err != nil {
		return err
	}
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
		if t.heard = true; t.noted {
			t.note("") // a later daemon must not delete what the client knows of
		}
	}
	if t.out == nil || !t.out.sent() {
		return err
	}
	if sent := t.out.send("error", mustJSON(fail(err))); sent != nil {
		return err
	}
	return &Told{err}
}
