package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

	"berth/proto"

	"github.com/google/uuid"
)

// An identity says which requests may continue a turn.
type identity struct {
	request  string // Request.Key in hex
	retryKey string // hash of the owner and the idempotency key, in hex; "": the client sent no key
	client   string // Request.Client in hex; "": not known
}

func identityOf(r Request) identity {
	id := identity{request: hex.EncodeToString(r.Key[:]), client: hex.EncodeToString(r.Client[:])}
	if r.RetryKey != "" {
		sum := sha256.Sum256([]byte(r.Owner + "\x00" + r.RetryKey))
		id.retryKey = hex.EncodeToString(sum[:])
	}
	return id
}

// index returns the key of a turn in Gateway.known. An idempotency key has one turn. A request without one may have
// many.
func (id identity) index() string {
	if id.retryKey != "" {
		return id.retryKey
	}
	return id.request
}

// continues reports whether a request continues a turn that no client uses. Without an idempotency key, it must be a
// later attempt of the same client.
func (id identity) continues(t identity, attempt, attemptOfTurn int) bool {
	if id.request != t.request || id.retryKey != t.retryKey {
		return false
	}
	return id.retryKey != "" || attempt > attemptOfTurn && (t.client == "" || id.client == t.client)
}

// conflicts reports whether a request has the idempotency key of another request.
func (id identity) conflicts(t identity) bool {
	return id.retryKey != "" && id.retryKey == t.retryKey && id.request != t.request
}

// errOtherRequest is the error for a request that conflicts with another one.
func errOtherRequest(key string) error {
	return proto.Errorf(proto.Conflict, "", key, "Idempotency-Key %q was used for another request; use a new key for "+
		"each new request.", key)
}

// noticeWait is how long a repeated request waits until the end of its earlier attempt is noticed. A client closes the
// old connection before it asks again, and the two may overtake each other.
const noticeWait = time.Second

// enterTurn returns the turn that a request continues, or a new one. The caller must call leaveTurn.
func (g *Gateway) enterTurn(ctx context.Context, r Request) (*turn, error) {
	id := identityOf(r)
	if err := g.awaitEarlier(ctx, id, r); err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	t, err := g.findTurn(id, r)
	if err != nil {
		return nil, err
	}
	if t == nil {
		if t, err = g.newTurn(id, r); err != nil {
			return nil, err
		}
		g.known[id.index()] = append(g.known[id.index()], t)
	}
	if t.users++; !t.idleSince.IsZero() {
		g.removeIdle(t)
	}
	t.client, t.attempt = ctx, r.Attempt
	return t, nil
}

// awaitEarlier waits until a client has left a turn that the request may take over. It does not wait for turns that
// the request shares, and gives up after noticeWait: those in use may be equal questions.
func (g *Gateway) awaitEarlier(ctx context.Context, id identity, r Request) error {
	inUse := g.earlierClients(id, r)
	if len(inUse) == 0 {
		return nil
	}
	left, leave := context.WithCancel(ctx)
	defer leave()
	for _, client := range inUse {
		defer context.AfterFunc(client, leave)()
	}
	late := time.NewTimer(noticeWait)
	defer late.Stop()
	select {
	case <-left.Done():
	case <-late.C:
	}
	return ctx.Err()
}

// earlierClients returns the clients of the turns that a request would take over if they left. There are none if it can
// take over a turn now.
func (g *Gateway) earlierClients(id identity, r Request) (clients []context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if id.retryKey != "" {
		return nil
	}
	for _, t := range g.known[id.index()] {
		switch {
		case t.over || !id.continues(t.identity, r.Attempt, t.attempt):
		case t.isLeft():
			return nil
		default:
			clients = append(clients, t.client)
		}
	}
	return clients
}

// isLeft reports whether no client waits for the turn. The caller holds mu.
func (t *turn) isLeft() bool { return t.users == 0 || t.users == 1 && t.client.Err() != nil }

// isOver reports whether the client of the turn has its answer, so that no other request may continue the turn.
func (t *turn) isOver() bool {
	t.g.mu.Lock()
	defer t.g.mu.Unlock()
	return t.over
}

// isWanted reports whether another request waits for the turn.
func (t *turn) isWanted() bool {
	t.g.mu.Lock()
	defer t.g.mu.Unlock()
	return t.users > 1
}

// unwanted returns a channel that is closed when no other request waits for the turn.
func (t *turn) unwanted() <-chan struct{} {
	t.g.mu.Lock()
	defer t.g.mu.Unlock()
	if t.alone == nil {
		t.alone = make(chan struct{})
	}
	alone := t.alone
	t.noteUsers()
	return alone
}

// noteUsers closes alone if the turn has one user or none. The caller holds mu.
func (t *turn) noteUsers() {
	if t.users <= 1 && t.alone != nil {
		close(t.alone)
		t.alone = nil
	}
}

// whileWanted returns a context that ends when the client of ctx has disconnected and no other request waits for the
// turn.
func (t *turn) whileWanted(ctx context.Context) (context.Context, context.CancelFunc) {
	wanted, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-t.unwanted():
			cancel()
		case <-wanted.Done():
		}
	})
	return wanted, func() { stop(); cancel() }
}

// findTurn returns the known turn that a request continues, or nil. A request with an idempotency key may share a turn
// with others. One without may only take over a turn that its client has left. Of several such turns it takes the one
// with the latest attempt before it. The caller holds mu.
func (g *Gateway) findTurn(id identity, r Request) (found *turn, err error) {
	for _, t := range g.known[id.index()] {
		if id.conflicts(t.identity) {
			return nil, errOtherRequest(r.RetryKey)
		}
		if t.over || id.retryKey == "" && !t.isLeft() || !id.continues(t.identity, r.Attempt, t.attempt) {
			continue
		}
		if found == nil || t.attempt > found.attempt {
			found = t
		}
	}
	return found, nil
}

// newTurn returns a new turn, or one of an earlier daemon that a request continues. The caller holds mu.
func (g *Gateway) newTurn(id identity, r Request) (*turn, error) {
	t := &turn{g: g, identity: id, id: uuid.NewString(), lock: make(chan struct{}, 1)}
	t.key = t.id
	var found string
	for key, rec := range g.previous {
		was := rec.identity(key, id)
		if id.conflicts(was) {
			return nil, errOtherRequest(r.RetryKey)
		}
		later := found == "" || rec.Attempt > g.previous[found].Attempt
		if later && !rec.over(id) && id.continues(was, r.Attempt, rec.Attempt) {
			found = key
		}
	}
	if found == "" {
		return t, nil
	}
	delete(g.previous, found)
	if rec := g.readRecord(found); rec != nil {
		t.key, t.id, t.container.told = found, rec.ID, rec.Heard
		t.journal.saved, t.journal.written = rec, true
	}
	return t, nil
}

// Limits for the turns that are remembered while no request uses them: their number and their bytes.
const (
	maxIdle      = 1000
	maxIdleBytes = 128 << 20
)

// deleteWait is how long a request waits until its container is deleted. The deletion goes on after that.
const deleteWait = 10 * time.Second

// leaveTurn ends the use that enterTurn began. It forgets a turn that is over, or that did nothing. It returns when
// the container is deleted that no client knows, so that a client with an error has no container left.
func (g *Gateway) leaveTurn(ctx context.Context, t *turn) {
	deleted := g.release(t)
	if deleted == nil {
		return
	}
	late := time.NewTimer(deleteWait)
	defer late.Stop()
	select {
	case <-deleted:
	case <-late.C:
	case <-ctx.Done():
	}
}

// release is leaveTurn without the wait. deleted is closed when the turn's container is deleted. It is nil if there is
// none to delete.
func (g *Gateway) release(t *turn) (deleted <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t.users--
	t.noteUsers()
	if t.users > 0 {
		return nil
	}
	switch {
	case g.closed && t.journal.written: // the next daemon continues it
		return nil
	case t.over || !t.hasWork() || g.closed:
		return g.forget(t)
	}
	t.bytes, t.idleSince = t.shrink(), time.Now()
	g.idle, g.idleBytes = append(g.idle, t), g.idleBytes+t.bytes
	g.trim(maxIdle, maxIdleBytes)
	return nil
}

// trim forgets the oldest idle turns until the limits hold. The caller holds mu.
func (g *Gateway) trim(count, bytes int) {
	for len(g.idle) > 0 && (len(g.idle) > count || g.idleBytes > bytes) {
		oldest := g.idle[0]
		g.removeIdle(oldest)
		_ = g.forget(oldest) // nothing waits for its container
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
// container's ID. deleted is closed then; it is nil if nothing is to be deleted. The caller holds mu.
func (g *Gateway) forget(t *turn) (deleted <-chan struct{}) {
	index := t.identity.index()
	list := slices.DeleteFunc(g.known[index], func(other *turn) bool { return other == t })
	if g.known[index] = list; len(list) == 0 {
		delete(g.known, index)
	}
	if t.journal.written {
		g.eraseRecord(t.key)
	}
	if !t.container.created || t.container.told {
		return nil
	}
	done := make(chan struct{})
	g.deletes.Go(func() {
		defer close(done)
		g.deleteContainer(t.container.c)
	})
	return done
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
