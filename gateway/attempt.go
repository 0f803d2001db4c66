package gateway

import (
	"context"
	"encoding/hex"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
)

// AttemptTime is how long an unused turn is kept so that a client can repeat its request.
const AttemptTime = 10 * time.Minute

// Limits for the turns that are kept: their number and their bytes.
const (
	maxAttempts  = 1000
	attemptBytes = 128 << 20
)

// An attempt is a turn that a repeated request can join: it continues the turn or gets its answer.
type attempt struct {
	key  [32]byte
	turn *turn
	lock chan struct{} // holds one token: the right to continue the turn

	// Guarded by attempts.mu.
	users     int       // requests that use it
	idleSince time.Time // zero while in use
	bytes     int
}

// attempts holds the turns that can be repeated.
type attempts struct {
	g       *Gateway
	deletes sync.WaitGroup // running deletions of containers

	mu       sync.Mutex // guards the fields below
	known    map[[32]byte]*attempt
	idle     []*attempt // not in use, oldest first
	bytes    int        // of the idle ones
	closed   bool
	previous map[string]turnRecord // turns of earlier daemons that no request has repeated yet, by key
}

func newAttempts(g *Gateway) *attempts {
	return &attempts{g: g, known: map[[32]byte]*attempt{}, previous: g.readRecords()}
}

// enter returns the attempt of a request: the existing one if the request is repeated, or else a new one. The caller
// must call leave.
func (as *attempts) enter(r Request) *attempt {
	as.mu.Lock()
	defer as.mu.Unlock()
	a := as.known[r.Key]
	if a == nil || !r.Repeated {
		a = &attempt{key: r.Key, turn: as.newTurn(hex.EncodeToString(r.Key[:]), r.Repeated), lock: make(chan struct{},
			1)}
		as.known[r.Key] = a
	}
	if a.users++; !a.idleSince.IsZero() {
		as.removeIdle(a)
	}
	return a
}

// newTurn returns a new turn, or continues a turn of an earlier daemon if its request is repeated. The caller holds
// mu.
func (as *attempts) newTurn(key string, repeated bool) *turn {
	t := &turn{g: as.g, id: uuid.NewString(), key: key}
	old, ok := as.previous[key]
	delete(as.previous, key)
	switch {
	case ok && repeated:
		if rec := as.g.readRecord(key); rec != nil {
			t.id, t.journal.saved, t.journal.written, t.container.told = rec.ID, rec, true, rec.Heard
		}
	case ok:
		as.dropRecord(key, old)
	}
	return t
}

// acquire waits for the right to continue the turn. The caller must call release.
func (a *attempt) acquire(ctx context.Context) (release func(), err error) {
	select {
	case a.lock <- struct{}{}:
		return func() { <-a.lock }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// leave ends the use that enter began. It forgets a turn that did nothing.
func (as *attempts) leave(a *attempt) {
	as.mu.Lock()
	defer as.mu.Unlock()
	if a.users--; a.users > 0 {
		return
	}
	if len(a.turn.answer.Content) == 0 && !a.turn.container.created || as.closed || as.known[a.key] != a {
		as.forget(a)
		return
	}
	a.bytes = a.turn.shrink()
	as.idle, as.bytes = append(as.idle, a), as.bytes+a.bytes
	a.idleSince = time.Now()
	as.trim(maxAttempts, attemptBytes)
}

// trim forgets the oldest idle attempts until the limits hold. The caller holds mu.
func (as *attempts) trim(count, bytes int) {
	for len(as.idle) > 0 && (len(as.idle) > count || as.bytes > bytes) {
		oldest := as.idle[0]
		as.removeIdle(oldest)
		as.forget(oldest)
	}
}

// removeIdle removes an attempt from the idle ones. The caller holds mu.
func (as *attempts) removeIdle(a *attempt) {
	if i := slices.Index(as.idle, a); i >= 0 {
		as.idle = slices.Delete(as.idle, i, i+1)
		as.bytes -= a.bytes
	}
	a.idleSince = time.Time{}
}

// forget drops an attempt. It also deletes the container that was created for it, if the client was not told the
// container's ID. The caller holds mu.
func (as *attempts) forget(a *attempt) {
	t := a.turn
	if as.known[a.key] == a {
		delete(as.known, a.key)
		if t.journal.written && !as.closed {
			as.g.eraseRecord(t.key)
		}
	}
	if t.container.created && !t.container.told {
		as.deletes.Go(func() { as.g.deleteContainer(t.container.c) })
	}
}

// expire forgets the turns that were not repeated for that long, and returns how many.
func (as *attempts) expire(after time.Duration) (n int) {
	as.mu.Lock()
	defer as.mu.Unlock()
	for len(as.idle) > 0 && time.Since(as.idle[0].idleSince) >= after {
		n++
		as.trim(len(as.idle)-1, as.bytes)
	}
	for key, rec := range as.previous {
		if time.Since(rec.At) >= after {
			delete(as.previous, key)
			as.dropRecord(key, rec)
			n++
		}
	}
	return n
}

// close forgets the turns that are not in the ledger. The next daemon continues the others.
func (as *attempts) close() {
	as.mu.Lock()
	defer as.mu.Unlock()
	as.closed = true
	for _, a := range as.idle {
		if !a.turn.journal.written {
			as.forget(a)
		}
	}
	as.idle = nil
	as.deletes.Wait()
}
