package bridge

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"time"

	"berth/proto"
	"berth/state/ledger"
	"berth/tools/bridge/codeapi"
	"berth/tools/bridge/provider"
)

// anyClient stands for the holders of all sessions that API clients open.
const anyClient = "~client"

// A ProviderSession is a set of tools that its holder answers. Its methods are safe for concurrent use.
type ProviderSession struct {
	dispatcher *dispatcher
	holder     string
	client     bool // an API client's: the container's allow-list applies to it
	tools      map[string]*provider.Prepared
	wait       time.Duration
	more       chan struct{} // has a token when queue is not empty or the session is over

	// What follows is guarded by dispatcher.mu.
	queue   [][]*call        // batches that the holder has not fetched
	pending map[string]*call // calls without an answer, by ID
	dropped []string         // calls that the holder has and that no request waits for any more
	over    bool             // closed or replaced
	// the holder is connected; false for a session of an earlier daemon, or of a client that is gone for a moment
	here    bool
	leaving *time.Timer // ends the session unless its holder comes back
}

// storedSession is the ledger's record of a provider session.
type storedSession struct {
	Tools []provider.Tool `json:"tools"`
	Wait  time.Duration   `json:"wait"`
}

// holderName is the pattern of a holder's name: it is part of a key in the ledger.
var holderName = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,128}$`)

// maxWait bounds how long a call may wait for its answer.
const maxWait = 24 * time.Hour

func (d *dispatcher) newSession(holder string, tools map[string]*provider.Prepared,
	wait time.Duration) *ProviderSession {
	return &ProviderSession{dispatcher: d, holder: holder, tools: tools, wait: wait, more: make(chan struct{}, 1),
		pending: map[string]*call{}}
}

// Provide lets the code of a container call these tools, which the holder of the session answers. The new session
// replaces an earlier one of the same holder, also one of an earlier daemon: Next returns its unanswered calls again,
// with the same IDs. A call waits for at most wait. The container need not have been created with tools, and its
// allow-list does not apply to these. A later daemon keeps the session for as long as a call may wait, unless its
// holder comes back.
func (b *Bridge) Provide(owner, containerID, holder string, tools []provider.Tool, wait time.Duration) (
	*ProviderSession,
	error) {
	if !holderName.MatchString(holder) || wait <= 0 || wait > maxWait {
		return nil, proto.Invalid("holder",
			"a provider session needs a holder's name of letters, digits, '_', '.', ':' "+
				"and '-', and a wait of at most %s for each call", maxWait)
	}
	ready, err := provider.PrepareAll("tools", tools)
	if err != nil {
		return nil, err
	}
	d, err := b.find(owner, containerID)
	if err != nil {
		return nil, err
	}
	if err := d.s.OpenTools(b.ctx); err != nil {
		return nil, err
	}
	err = b.cfg.Ledger.UpdateAsync(func(tx *ledger.Tx) error {
		return tx.Put(bucketSessions, d.s.ID()+"/"+holder, storedSession{tools, wait})
	})
	if err != nil {
		return nil, err
	}
	o := d.newSession(holder, ready, wait)
	d.install(o, func(old *ProviderSession) bool { return !old.client && old.holder == holder })
	return o, nil
}

// install puts a session in the place of earlier ones, and gives it their unanswered calls.
func (d *dispatcher) install(o *ProviderSession, replaces func(*ProviderSession) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	o.here = true
	var batch []*call
	d.providers = slices.DeleteFunc(d.providers, func(old *ProviderSession) bool {
		if !replaces(old) {
			return false
		}
		batch = append(batch, old.yield(o)...)
		return true
	})
	d.providers = slices.Insert(d.providers, 0, o)
	if len(batch) > 0 {
		o.push(byID(batch))
	}
	d.handOver()
}

// byID sorts calls by the order in which they were made.
func byID(batch []*call) []*call {
	slices.SortFunc(batch, func(a, b *call) int { return strings.Compare(a.rec.ID, b.rec.ID) })
	return batch
}

// yield ends a session in favour of another and returns the calls that the other gets. Calls of tools that the other
// lacks fail. The caller holds the dispatcher's mu.
func (o *ProviderSession) yield(to *ProviderSession) (batch []*call) {
	for id, c := range o.pending {
		delete(o.pending, id)
		if t := to.tools[c.to.Name]; t != nil {
			c.to.Prepared, c.to.from = t, to
			batch = append(batch, c)
		} else {
			c.answered <- outcome{failure: gone(c.to.Name)}
		}
	}
	o.end()
	return batch
}

// gone is the failure of a call of a tool that no longer has a provider.
func gone(name string) *codeapi.Failure {
	return codeapi.Fail(codeapi.RuntimeError, "the tool %s is no longer served: its provider has gone", name)
}

// end makes Next report the end of the session. The caller holds the dispatcher's mu.
func (o *ProviderSession) end() {
	o.over, o.here, o.queue = true, false, nil // unfetched calls belong to another session now, or have failed
	if o.leaving != nil {
		o.leaving.Stop()
	}
	o.wake()
}

func (o *ProviderSession) wake() {
	select {
	case o.more <- struct{}{}:
	default:
	}
}

// push hands calls to the holder as one batch. The caller holds the dispatcher's mu.
func (o *ProviderSession) push(batch []*call) {
	for _, c := range batch {
		c.queued = true
		if o.over {
			c.answered <- outcome{failure: gone(c.to.Name)}
			continue
		}
		o.pending[c.rec.ID] = c
	}
	if o.over {
		return
	}
	o.queue = append(o.queue, batch)
	o.wake()
	if o.client && !o.here { // it has gone since it was found
		o.dispatcher.handOver()
	}
}

// answer waits for the holder's answer. It hands the holder the call, unless that was done in a batch.
func (o *ProviderSession) answer(ctx context.Context, c *call) ([]byte, *codeapi.Failure) {
	d := o.dispatcher
	d.mu.Lock()
	if !c.queued {
		c.to.from.(*ProviderSession).push([]*call{c})
	}
	d.mu.Unlock()
	select {
	case out := <-c.answered:
		return out.result, out.failure
	case <-ctx.Done():
		d.mu.Lock()
		defer d.mu.Unlock()
		c.to.from.(*ProviderSession).drop(c)
		return nil, nil
	}
}

// drop takes a call back. The caller holds the dispatcher's mu.
func (o *ProviderSession) drop(c *call) {
	if o.pending[c.rec.ID] == nil {
		return
	}
	delete(o.pending, c.rec.ID)
	if !o.unqueue(c) && o.client {
		o.dropped = append(o.dropped, c.rec.ID)
		o.wake()
	}
}

// unqueue removes a call from the queue and reports whether it was there. If not, the holder has fetched it. The
// caller holds the dispatcher's mu.
func (o *ProviderSession) unqueue(c *call) bool {
	for i, batch := range o.queue {
		if at := slices.Index(batch, c); at >= 0 {
			o.queue[i] = slices.Delete(batch, at, at+1)
			return true
		}
	}
	return false
}

// Next waits for calls: all calls of one request that go to this session, at once. It returns an error when ctx ends
// or the session is over.
func (o *ProviderSession) Next(ctx context.Context) ([]provider.Call, error) {
	for {
		batch, _, err := o.next(ctx)
		if err != nil || len(batch) > 0 {
			return batch, err
		}
	}
}

// next is Next that also returns the IDs of calls whose answer is no longer needed.
func (o *ProviderSession) next(ctx context.Context) (batch []provider.Call, dropped []string, err error) {
	for {
		o.dispatcher.mu.Lock()
		over := o.over
		for len(o.queue) > 0 && len(batch) == 0 {
			for _, c := range o.queue[0] {
				batch = append(batch, c.forProvider())
			}
			o.queue = o.queue[1:]
		}
		if len(o.queue) > 0 {
			o.wake()
		}
		dropped, o.dropped = o.dropped, nil
		o.dispatcher.mu.Unlock()
		switch {
		case len(batch) > 0 || len(dropped) > 0:
			return batch, dropped, nil
		case over:
			return nil, nil, proto.Errorf(proto.Canceled, "", o.holder, "the provider session is over")
		}
		select {
		case <-o.more:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-o.dispatcher.b.ctx.Done():
			return nil, nil, proto.Errorf(proto.Unavailable, "", "", "the daemon is shutting down")
		}
	}
}

// Answer ends a call, once: with a failure or with its result. The error is NotFound for a call that this session
// does not have or that has ended. It is TooLarge for a result that is too large; the call then fails.
func (o *ProviderSession) Answer(id string, result json.RawMessage, failure *codeapi.Failure) error {
	if failure != nil {
		failure = codeapi.Bounded(failure)
	}
	var err error
	switch {
	case failure != nil:
	case len(result) > provider.MaxResult:
		err = proto.Errorf(proto.TooLarge, "", id, "the result has %d bytes; %d is the limit; return less, or "+
			"put it into a file", len(result), provider.MaxResult)
		failure = codeapi.Fail(codeapi.RuntimeError, "the result has %d bytes; %d is the limit", len(result),
			provider.MaxResult)
	case !json.Valid(result):
		err = proto.Invalid("result", "the result of call %.80q is not JSON", id)
		failure = codeapi.Fail(codeapi.RuntimeError, "the tool returned something that is not JSON")
	}
	o.dispatcher.mu.Lock()
	defer o.dispatcher.mu.Unlock()
	c := o.pending[id]
	if c == nil {
		return proto.Errorf(proto.NotFound, "", proto.Shorten(id, 80), "call %.80q does not wait for an answer "+
			"here; it may "+
			"have ended or timed out", id)
	}
	delete(o.pending, id)
	c.answered <- outcome{result: result, failure: failure}
	return err
}

// Close ends the session. Its waiting calls fail.
func (o *ProviderSession) Close() {
	d := o.dispatcher
	d.mu.Lock()
	if o.over {
		d.mu.Unlock()
		return
	}
	d.providers = slices.DeleteFunc(d.providers, func(other *ProviderSession) bool { return other == o })
	o.yield(&ProviderSession{})
	if o.client {
		d.mu.Unlock()
		d.b.cfg.Ledger.UpdateLater(func(tx *ledger.Tx) error { return d.putClients(tx, nil) })
		return
	}
	same := func(other *ProviderSession) bool { return other.holder == o.holder }
	if slices.ContainsFunc(d.providers, same) {
		d.mu.Unlock()
		return
	}
	d.mu.Unlock()
	d.b.cfg.Ledger.UpdateLater(func(tx *ledger.Tx) error { return tx.Delete(bucketSessions, d.s.ID()+"/"+o.holder) })
}
