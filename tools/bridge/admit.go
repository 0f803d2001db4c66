package bridge

import (
	"context"
	"encoding/json"
	"sync"

	"berth/proto"
	"berth/session"
	"berth/state/ledger"
	"berth/tools/bridge/codeapi"
)

// startCalls finds the calls that a request names, or makes them. Each call signals ended when it is over. The caller
// must leave each call in the end.
func (d *dispatcher) startCalls(ctx context.Context, e *session.Exec, asked []codeapi.Call,
	ended chan<- *call) []*call {
	calls, fresh := d.register(e, asked, ended)
	if len(fresh) == 0 {
		return calls
	}
	if err := d.admitAll(ctx, fresh); err != nil {
		for _, c := range fresh {
			if !c.isOver() {
				d.finish(c, outcome{failure: codeapi.Fail(codeapi.RuntimeError, "calls cannot be recorded now, so no "+
					"tool is called")})
			}
		}
		d.b.cfg.Log.Error("recording calls of tools", "container", d.s.ID(), "error", err)
		return calls
	}
	d.launch(fresh)
	return calls
}

// register returns the calls that a request names, and which of them are new here.
func (d *dispatcher) register(e *session.Exec, asked []codeapi.Call, ended chan<- *call) (calls, fresh []*call) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range asked {
		key := callKey{e.ID(), a.ID}
		hash := d.s.Digest("tools.call\x00" + a.Tool + "\x00" + string(a.Input))
		c := d.calls[key]
		if c != nil && c.hash == hash {
			d.releaseLocked(int64(len(a.Input))) // this call is here already
		} else {
			other := c
			c = d.newCall(e, key, a, hash)
			c.refused = a.Refusal()
			fresh = append(fresh, c)
			switch {
			case other != nil:
				c.refused = reused(a.ID)
			case len(d.calls) >= maxFlight:
				c.refused = codeapi.Fail(codeapi.RuntimeError,
					"%d calls are under way, which is the limit; await some "+
						"of them first", maxFlight)
			default:
				d.calls[key] = c
			}
		}
		calls = append(calls, c)
		c.watch(ended)
	}
	return calls, fresh
}

func reused(id string) *codeapi.Failure {
	return codeapi.Fail(codeapi.ValueError, "the id %.80q was used for another call; use a new one for each", id)
}

// admitAll checks new calls, approval excepted, and records those that go on. The others are over.
func (d *dispatcher) admitAll(ctx context.Context, fresh []*call) error {
	if err := d.b.cfg.Ready(); err != nil {
		return err
	}
	known := make([]*record, len(fresh))
	err := d.b.cfg.Ledger.View(func(tx *ledger.Tx) (err error) {
		for i, c := range fresh {
			if known[i], err = recall(tx, c.rec); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, listTime) // the provider may have to be asked for its tools
	defer cancel()
	var write []record
	for i, c := range fresh {
		failure := d.admit(ctx, c, known[i])
		switch {
		case failure != nil:
			d.finish(c, outcome{failure: failure})
		case known[i] == nil: // otherwise it is recorded, and may have been decided since it was read
			write = append(write, c.rec)
			c.recorded = true
		}
	}
	if len(write) == 0 {
		return nil
	}
	return d.b.cfg.Ledger.UpdateAsync(func(tx *ledger.Tx) error {
		for _, r := range write {
			if err := r.put(tx); err != nil {
				return err
			}
		}
		return nil
	})
}

// admit checks one call. known is the record that an earlier daemon made, or nil.
func (d *dispatcher) admit(ctx context.Context, c *call, known *record) *codeapi.Failure {
	if c.refused != nil {
		return c.refused
	}
	if known != nil {
		if failure := c.resume(known); failure != nil {
			return failure
		}
	}
	to, failure := d.find(ctx, c.rec.Tool)
	if failure != nil {
		return failure
	}
	if len(c.input) == 0 || c.input[0] != '{' {
		return codeapi.Fail(codeapi.ValueError, "the input of %s must be an object", c.rec.Tool)
	}
	if err := to.Input.Check("input", c.input); err != nil {
		return codeapi.Fail(codeapi.ValueError, "the input of %s does not match its schema: %s", c.rec.Tool, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	c.to = to
	if known != nil {
		return nil
	}
	if d.spent[c.key.exec] >= int(to.most) {
		return codeapi.Fail(codeapi.RuntimeError, "this command has made %d calls, which is its limit", to.most)
	}
	d.spent[c.key.exec]++
	c.rec.Holder, c.rec.Shared = to.holder, to.shared
	if c.rec.State = proto.CallRunning; to.review {
		return c.awaitApproval()
	}
	c.rec.StartedAt = proto.AtOrNil(d.b.cfg.Now())
	return nil
}

// maxReviewed bounds the input of a call that a person has to read, in bytes.
const maxReviewed = 64 << 10

// awaitApproval makes the call wait for approval. The caller holds the dispatcher's mu.
func (c *call) awaitApproval() *codeapi.Failure {
	if len(c.input) > maxReviewed {
		return codeapi.Fail(codeapi.ValueError, "a person reads each call of %s, so its input may have at most %d "+
			"bytes, not %d",
			c.rec.Tool, maxReviewed, len(c.input))
	}
	b, s := c.dispatcher.b, c.dispatcher.s
	entry := proto.AuditEntry{Act: actPark, Outcome: proto.AuditOK, Actor: proto.ActorContainer, ExecID: c.rec.ExecID,
		Item: c.rec.ID, Call: &proto.AuditCall{ID: c.rec.ID, Sent: c.rec.InputBytes,
			Tool: proto.Shorten(s.Hide(c.rec.Tool), proto.MaxToolName)}}
	c.tellParked = sync.OnceFunc(func() { s.AuditCall(entry) })
	c.rec.State, c.rec.ExpiresAt = proto.CallParked, proto.AtOrNil(b.cfg.Now().Add(b.cfg.ParkTime))
	hidden := s.Hide(string(c.input))
	if c.rec.Input = json.RawMessage(hidden); !json.Valid(c.rec.Input) {
		c.rec.Input, _ = json.Marshal(hidden)
	}
	return nil
}

// resume continues a call that an earlier daemon recorded, if possible.
func (c *call) resume(known *record) *codeapi.Failure {
	c.dispatcher.mu.Lock()
	defer c.dispatcher.mu.Unlock()
	switch {
	case known.Hash != c.hash:
		return reused(c.key.client)
	case known.State == proto.CallRefused:
		return known.refusal()
	case known.State.Over():
		return codeapi.Fail(codeapi.RuntimeError, "the call of %s has ended, and its result was discarded", known.Tool)
	}
	c.rec, c.recorded = *known, true
	if known.State == proto.CallRunning && !known.Shared {
		c.rec.State = proto.CallLost
		return codeapi.Fail(codeapi.RuntimeError, "the daemon was restarted while %s ran; whether it did anything "+
			"is unknown, so it "+
			"was not called again", known.Tool)
	}
	return nil
}

// launch continues calls that were admitted. Calls that go to one provider session and wait for no approval are sent
// together.
func (d *dispatcher) launch(fresh []*call) {
	d.mu.Lock()
	batches := map[*ProviderSession][]*call{}
	var going []*call
	for _, c := range fresh {
		if c.over {
			continue
		}
		going = append(going, c)
		if o, ok := c.to.from.(*ProviderSession); ok && c.rec.State == proto.CallRunning {
			batches[o] = append(batches[o], c)
		}
	}
	for o, batch := range batches {
		o.push(batch)
	}
	d.mu.Unlock()
	for _, c := range going {
		if !d.b.track(func() { c.run() }) {
			c.cancel()
		}
	}
}
