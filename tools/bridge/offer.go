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
)

// maxResult bounds what a call gives back, in bytes.
const maxResult = 4 << 20

// anyClient stands for the holders of offers that clients of the API make.
const anyClient = "~client"

// A Call is one call as whoever answers it gets it.
type Call struct {
	ID          string          `json:"call_id"`
	Tool        string          `json:"tool"`
	Input       json.RawMessage `json:"input"`
	ContainerID string          `json:"container_id"`
	ExecID      string          `json:"exec_id"`
}

// An Offer is tools that its holder answers. Its methods are safe for concurrent use.
type Offer struct {
	desk   *desk
	holder string
	client bool // of the API: the container's list holds for it
	tools  map[string]*tool
	wait   time.Duration
	more   chan struct{} // has a token when there is something in queue, or it is over

	// What follows is guarded by desk.mu.
	queue   [][]*call        // batches that nobody has had
	pending map[string]*call // without an answer, by ID
	dropped []string         // calls that the holder had, and that nobody waits for any more
	over    bool             // closed or replaced
	here    bool             // somebody holds it; false for one of an earlier daemon's, or of a client that is gone for a moment
	leaving *time.Timer      // ends it unless its holder comes back
}

// storedOffer is what the ledger keeps of an offer.
type storedOffer struct {
	Tools []Tool        `json:"tools"`
	Wait  time.Duration `json:"wait"`
}

// holderName is what a holder may be called: it is part of a key in the ledger.
var holderName = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,128}$`)

// maxWait bounds how long a call may wait for its answer.
const maxWait = 24 * time.Hour

func (d *desk) newOffer(holder string, tools map[string]*tool, wait time.Duration) *Offer {
	return &Offer{desk: d, holder: holder, tools: tools, wait: wait, more: make(chan struct{}, 1),
		pending: map[string]*call{}}
}

// Offer has the code of a container call these tools, which whoever holds the offer answers. It takes the place of an
// earlier offer of the same holder, also of one under an earlier daemon: what that one has not answered is given to
// Next again, with the same IDs. Calls pend for at most wait. The container need not have been created with tools,
// and its own list does not hold for these. Under a later daemon the offer is there for as long as a call may pend,
// unless its holder comes again.
func (b *Bridge) Offer(owner, containerID, holder string, tools []Tool, wait time.Duration) (*Offer, error) {
	if !holderName.MatchString(holder) || wait <= 0 || wait > maxWait {
		return nil, invalid("holder", "an offer needs a holder's name of letters, digits, '_', '.', ':' and '-', "+
			"and up to %s for each call", maxWait)
	}
	ready, err := prepareAll("tools", tools)
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
		return tx.Put(bucketOffers, d.s.ID()+"/"+holder, storedOffer{tools, wait})
	})
	if err != nil {
		return nil, err
	}
	o := d.newOffer(holder, ready, wait)
	d.install(o, func(old *Offer) bool { return !old.client && old.holder == holder })
	return o, nil
}

// Check refuses a tool that no offer would take; at names it.
func Check(at string, t Tool) error {
	_, err := prepare(at, t)
	return err
}

// install puts an offer in the place of earlier ones, and gives it what those have not answered.
func (d *desk) install(o *Offer, replaces func(*Offer) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	o.here = true
	var batch []*call
	d.offers = slices.DeleteFunc(d.offers, func(old *Offer) bool {
		if !replaces(old) {
			return false
		}
		batch = append(batch, old.yield(o)...)
		return true
	})
	d.offers = slices.Insert(d.offers, 0, o)
	if len(batch) > 0 {
		o.push(byID(batch))
	}
	d.handOver()
}

// byID are calls in the order in which they were made.
func byID(batch []*call) []*call {
	slices.SortFunc(batch, func(a, b *call) int { return strings.Compare(a.rec.ID, b.rec.ID) })
	return batch
}

// yield ends an offer in favour of another, and is the calls that the other gets. Those that it does not have fail.
// Called with the desk's mu held.
func (o *Offer) yield(to *Offer) (batch []*call) {
	for id, c := range o.pending {
		delete(o.pending, id)
		if t := to.tools[c.to.Name]; t != nil {
			c.to.tool, c.to.from = t, to
			batch = append(batch, c)
		} else {
			c.answered <- outcome{failure: gone(c.to.Name)}
		}
	}
	o.end()
	return batch
}

// gone is the failure of a call of a tool that nobody answers any more.
func gone(name string) *Failure {
	return fail(RuntimeError, "the tool %s is not served any more: who answered it has gone", name)
}

// end has Next say that it is over. Called with the desk's mu held.
func (o *Offer) end() {
	o.over, o.here, o.queue = true, false, nil // what nobody has had is somebody else's now, or has failed
	if o.leaving != nil {
		o.leaving.Stop()
	}
	o.wake()
}

func (o *Offer) wake() {
	select {
	case o.more <- struct{}{}:
	default:
	}
}

// push gives calls to the holder as one batch. Called with the desk's mu held.
func (o *Offer) push(batch []*call) {
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
		o.desk.handOver()
	}
}

// answer waits for the holder's, having it given the call if that was not done with others.
func (o *Offer) answer(ctx context.Context, c *call) ([]byte, *Failure) {
	d := o.desk
	d.mu.Lock()
	if !c.queued {
		c.to.from.(*Offer).push([]*call{c})
	}
	d.mu.Unlock()
	select {
	case out := <-c.answered:
		return out.result, out.failure
	case <-ctx.Done():
		d.mu.Lock()
		defer d.mu.Unlock()
		c.to.from.(*Offer).drop(c)
		return nil, nil
	}
}

// drop takes a call back. Called with the desk's mu held.
func (o *Offer) drop(c *call) {
	if o.pending[c.rec.ID] == nil {
		return
	}
	delete(o.pending, c.rec.ID)
	if !o.unqueue(c) && o.client {
		o.dropped = append(o.dropped, c.rec.ID)
		o.wake()
	}
}

// unqueue takes a call out of what the holder is to get, and reports whether it was there: else the holder has had
// it. Called with the desk's mu held.
func (o *Offer) unqueue(c *call) bool {
	for i, batch := range o.queue {
		if at := slices.Index(batch, c); at >= 0 {
			o.queue[i] = slices.Delete(batch, at, at+1)
			return true
		}
	}
	return false
}

// Next waits for calls: all those of one request of the code's that go to this offer at once. Its error says that ctx
// has ended, or that the offer is over.
func (o *Offer) Next(ctx context.Context) ([]Call, error) {
	for {
		batch, _, err := o.next(ctx)
		if err != nil || len(batch) > 0 {
			return batch, err
		}
	}
}

// next is Next that also gives the IDs of calls that the holder need not answer any more.
func (o *Offer) next(ctx context.Context) (batch []Call, dropped []string, err error) {
	for {
		o.desk.mu.Lock()
		over := o.over
		for len(o.queue) > 0 && len(batch) == 0 {
			for _, c := range o.queue[0] {
				batch = append(batch, c.shown())
			}
			o.queue = o.queue[1:]
		}
		if len(o.queue) > 0 {
			o.wake()
		}
		dropped, o.dropped = o.dropped, nil
		o.desk.mu.Unlock()
		switch {
		case len(batch) > 0 || len(dropped) > 0:
			return batch, dropped, nil
		case over:
			return nil, nil, proto.Errorf(proto.Canceled, "", o.holder, "the offer is over")
		}
		select {
		case <-o.more:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-o.desk.b.ctx.Done():
			return nil, nil, proto.Errorf(proto.Unavailable, "", "", "the daemon is shutting down")
		}
	}
}

// Answer ends a call, once: with a failure, or with its result. The error is NotFound for a call that this offer does
// not have, or that has ended, and TooLarge for a result that is too large, with which the call fails.
func (o *Offer) Answer(id string, result json.RawMessage, failure *Failure) error {
	if failure != nil {
		failure = failure.bounded()
	}
	var err error
	switch {
	case failure != nil:
	case len(result) > maxResult:
		err = proto.Errorf(proto.TooLarge, "", id, "the result has %d bytes; %d is the limit; give back less, or "+
			"put it into a file", len(result), maxResult)
		failure = fail(RuntimeError, "the result has %d bytes; %d is the limit", len(result), maxResult)
	case !json.Valid(result):
		err = invalid("result", "the result of call %.80q is not JSON", id)
		failure = fail(RuntimeError, "the tool gave back something that is not JSON")
	}
	o.desk.mu.Lock()
	defer o.desk.mu.Unlock()
	c := o.pending[id]
	if c == nil {
		return proto.Errorf(proto.NotFound, "", cut(id, 80), "call %.80q is not one that waits for an answer here; "+
			"it may have ended or timed out", id)
	}
	delete(o.pending, id)
	c.answered <- outcome{result: result, failure: failure}
	return err
}

// Close takes the offer back. Calls that pend fail.
func (o *Offer) Close() {
	d := o.desk
	d.mu.Lock()
	if o.over {
		d.mu.Unlock()
		return
	}
	d.offers = slices.DeleteFunc(d.offers, func(other *Offer) bool { return other == o })
	o.yield(&Offer{})
	if o.client {
		d.mu.Unlock()
		d.b.cfg.Ledger.UpdateLater(func(tx *ledger.Tx) error { return d.putClients(tx, nil) })
		return
	}
	same := func(other *Offer) bool { return other.holder == o.holder }
	if slices.ContainsFunc(d.offers, same) {
		d.mu.Unlock()
		return
	}
	d.mu.Unlock()
	d.b.cfg.Ledger.UpdateLater(func(tx *ledger.Tx) error { return tx.Delete(bucketOffers, d.s.ID()+"/"+o.holder) })
}
