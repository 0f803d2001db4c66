package bridge

import (
	"context"
	"encoding/json"
	"time"

	"berth/proto"
	"berth/session"
	"berth/state/ledger"
)

// actCall is what the audit log calls a call that is over, or was refused.
const actCall = "tools.call"

// An outcome is how a call ended: with a result, or a failure.
type outcome struct {
	result  []byte
	failure *Failure
}

// A call is one on its way. There is one for each identifier that the code's side uses, however often it comes with it.
type call struct {
	desk  *desk
	exec  *session.Exec
	key   callKey
	input json.RawMessage
	hash  string

	refused *Failure // before it was looked at

	ctx    context.Context // ends when nobody wants it any more
	cancel context.CancelFunc

	verdict  chan record  // what a person decided; has room for it
	answered chan outcome // by a holder; has room for it

	// What follows is guarded by desk.mu.
	rec      record // its ID is set before anybody else sees it
	recorded bool   // in the ledger
	to       target
	queued   bool  // its holder was given it
	held     int64 // bytes of its input
	kept     int64 // bytes of its result
	watchers map[chan<- *call]bool
	grace    *time.Timer // ends it when the code does not come back
	over     bool
	end      outcome
}

func (d *desk) newCall(e *session.Exec, key callKey, a ask, hash string) *call {
	c := &call{
		desk: d, exec: e, key: key, input: a.Input, hash: hash, held: int64(len(a.Input)),
		verdict: make(chan record, 1), answered: make(chan outcome, 1), watchers: map[chan<- *call]bool{},
	}
	c.ctx, c.cancel = context.WithCancel(d.b.ctx)
	c.rec = record{Client: key.client, Hash: hash, ToolCall: ToolCall{
		ID: proto.NewID(callPrefix), ContainerID: d.s.ID(), ExecID: e.ID(), Tool: a.Tool,
		InputBytes: a.size, CreatedAt: proto.At(d.b.cfg.Now()),
	}}
	return c
}

func (c *call) isOver() bool {
	c.desk.mu.Lock()
	defer c.desk.mu.Unlock()
	return c.over
}

// shown is the call as whoever answers gets it.
func (c *call) shown() Call {
	return Call{ID: c.rec.ID, Tool: c.rec.Tool, Input: c.input, ContainerID: c.rec.ContainerID, ExecID: c.rec.ExecID}
}

// watch has the call tell of its end. Called with the desk's mu held.
func (c *call) watch(ended chan<- *call) {
	c.watchers[ended] = true
	if c.grace != nil {
		c.grace.Stop()
		c.grace = nil
	}
	if c.over {
		ended <- c
	}
}

// leave is for whoever watched a call and does no more. One that was told is forgotten; one that nobody waits for
// ends, if they do not come back.
func (d *desk) leave(c *call, ended chan<- *call, told bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(c.watchers, ended)
	switch {
	case c.over && told:
		d.forget(c)
	case len(c.watchers) == 0:
		c.grace = time.AfterFunc(d.b.cfg.Grace, func() { d.abandon(c) })
	}
}

// forget drops a call from memory. Called with mu held.
func (d *desk) forget(c *call) {
	d.kept -= c.kept
	d.b.held.Add(-c.kept)
	if c.kept = 0; len(c.watchers) == 0 {
		c.end = outcome{}
	}
	if d.calls[c.key] == c {
		delete(d.calls, c.key)
	}
}

// abandon ends a call that nobody came back for. The time in which the container stands still does not count.
func (d *desk) abandon(c *call) {
	still := d.s.Paused()
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case len(c.watchers) > 0:
	case still:
		c.grace = time.AfterFunc(d.b.cfg.Grace, func() { d.abandon(c) })
	case c.over:
		d.forget(c)
	default:
		c.grace = nil // or it would be kept once it is over, for whoever came back
		c.cancel()
	}
}

// run sees a call to its end.
func (c *call) run() {
	go func() { // a command that has ended wants nothing any more
		select {
		case <-c.exec.Done():
			c.cancel()
		case <-c.ctx.Done():
		}
	}()
	out := c.perform()
	if c.desk.b.ctx.Err() != nil { // the next daemon's
		return
	}
	if c.ctx.Err() != nil && out.failure == nil && out.result == nil {
		out.failure = fail(RuntimeError, "nobody waits for the call of %s any more", c.rec.Tool)
	}
	c.desk.finish(c, out)
}

// perform has the call approved, where that is needed, answered and checked.
func (c *call) perform() outcome {
	if failure, ok := c.approved(); !ok {
		return outcome{failure: failure}
	}
	to := c.target()
	left := to.wait
	if c.rec.StartedAt != nil { // under an earlier daemon, perhaps
		left = min(left, c.rec.StartedAt.Add(to.wait).Sub(c.desk.b.cfg.Now()))
	}
	ctx, cancel := context.WithTimeout(c.ctx, left)
	defer cancel()
	var out outcome
	out.result, out.failure = to.from.answer(ctx, c)
	switch {
	case out.failure != nil:
		out.result = nil
	case out.result == nil && c.ctx.Err() == nil:
		out.failure = late(c.rec.Tool, to.wait.Seconds())
	case out.result != nil:
		if err := c.target().output.check("result", out.result); err != nil {
			out = outcome{failure: fail(RuntimeError, "%s gave back what it should not: %s", c.rec.Tool, err)}
		}
	}
	return out
}

// target is who answers the call now: another holder of the same tool may take over.
func (c *call) target() target {
	c.desk.mu.Lock()
	defer c.desk.mu.Unlock()
	return c.to
}

// approved waits until a person has approved the call, where one has to, and reports whether it may go on.
func (c *call) approved() (*Failure, bool) {
	r, err := c.decision()
	if err != nil {
		return fail(RuntimeError, "nobody waits for the call of %s any more", c.rec.Tool), false
	}
	switch r.State {
	case proto.CallExpired:
		c.change(func(mine *record) { *mine = r })
		return fail(PermissionError, "nobody approved the call of %s in time", r.Tool), false
	case proto.CallCanceled, proto.CallLost: // by a sweep, before its code came back
		c.change(func(mine *record) { *mine = r })
		return fail(RuntimeError, "the call of %s was given up before it was made", r.Tool), false
	case proto.CallRefused:
		c.change(func(mine *record) { *mine = r })
		return r.refusal(), false
	case proto.CallApproved:
		r.State, r.StartedAt = proto.CallRunning, proto.AtOrNil(c.desk.b.cfg.Now())
		c.change(func(mine *record) { *mine = r })
		if err := c.desk.b.cfg.Ledger.UpdateAsync(r.put); err != nil {
			return fail(RuntimeError, "the call of %s cannot be written down now, so it is not made", r.Tool), false
		}
		return c.seek() // it took a person's time: who answered then may be gone
	}
	return nil, true
}

// decision is the call as it is once it waits for nobody: a person has decided, or it is too late for that. Its error
// says that nobody wants it any more.
func (c *call) decision() (r record, err error) {
	if c.rec.State != proto.CallParked {
		return c.rec, nil
	}
	// It may have been decided after it was read, and before it was known here that this is the call.
	err = c.desk.b.cfg.Ledger.View(func(tx *ledger.Tx) error {
		r, err = findCall(tx, c.rec.ContainerID, c.rec.ID)
		return err
	})
	if err != nil || r.State != proto.CallParked {
		return r, err
	}
	timer := time.NewTimer(r.ExpiresAt.Sub(c.desk.b.cfg.Now()))
	defer timer.Stop()
	select {
	case r = <-c.verdict:
	case <-c.ctx.Done():
		return r, c.ctx.Err()
	case <-timer.C:
		r = c.expire()
	}
	return r, nil
}

// expire ends the wait for approval, and is the call as it is then: whoever decided at the last moment is heard.
func (c *call) expire() (r record) {
	b := c.desk.b
	err := b.cfg.Ledger.Update(func(tx *ledger.Tx) (err error) {
		if r, err = findCall(tx, c.rec.ContainerID, c.rec.ID); err != nil || r.State != proto.CallParked {
			return err
		}
		r.State, r.EndedAt = proto.CallExpired, proto.AtOrNil(b.cfg.Now())
		return r.put(tx)
	})
	if err != nil { // it is not known what was decided, so it was not approved
		b.cfg.Log.Error("ending the wait for approval", "call", c.rec.ID, "error", err)
		r = c.rec
		r.State = proto.CallExpired
	}
	return r
}

// seek finds who answers the call now.
func (c *call) seek() (*Failure, bool) {
	ctx, cancel := context.WithTimeout(c.ctx, listTime)
	defer cancel()
	to, failure := c.desk.find(ctx, c.rec.Tool)
	if failure != nil {
		return failure, false
	}
	c.desk.mu.Lock()
	defer c.desk.mu.Unlock()
	c.to = to
	return nil, true
}

func (c *call) change(fn func(*record)) {
	c.desk.mu.Lock()
	defer c.desk.mu.Unlock()
	fn(&c.rec)
}

// decided tells a call that is here what a person decided about it.
func (d *desk) decided(r record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c := d.calls[callKey{r.ExecID, r.Client}]; c != nil && c.rec.ID == r.ID {
		select {
		case c.verdict <- r:
		default: // it was told already
		}
	}
}

// finish ends a call: that is written down before the code hears of it.
func (d *desk) finish(c *call, out outcome) {
	d.mu.Lock()
	r, recorded := c.rec, c.recorded
	if !d.keep(c, int64(len(out.result))) {
		out = outcome{failure: noRoom(r.Tool)}
		d.keep(c, 0)
	}
	d.mu.Unlock()
	now := d.b.cfg.Now()
	switch {
	case r.State.Over(): // it is said already
	case out.failure == nil:
		r.State = proto.CallSucceeded
	case c.ctx.Err() != nil:
		r.State = proto.CallCanceled
	default:
		r.State = proto.CallFailed
	}
	r.EndedAt, r.ResultBytes = proto.AtOrNil(now), int64(len(out.result))
	if out.failure != nil {
		r.Error = &CallError{Type: out.failure.Type, Message: cut(d.s.Hide(out.failure.Message), maxReason)}
	}
	if recorded {
		if err := d.b.cfg.Ledger.UpdateAsync(r.close); err != nil {
			d.b.cfg.Log.Error("recording the end of a tool's call", "call", r.ID, "error", err)
		}
	}
	d.tell(r, recorded)
	d.mu.Lock()
	defer d.mu.Unlock()
	c.rec, c.over, c.end = r, true, out
	d.releaseLocked(c.held)
	c.held, c.input = 0, nil
	for ended := range c.watchers {
		ended <- c
	}
	if len(c.watchers) == 0 && c.grace == nil {
		d.forget(c)
	}
	c.cancel() // or the daemon's context has it for as long as there is a daemon
}

// tell has it audited what became of a call.
func (d *desk) tell(r record, recorded bool) {
	x := proto.AuditCall{Tool: cut(d.s.Hide(r.Tool), maxName), Sent: r.InputBytes, Got: r.ResultBytes}
	entry := proto.AuditEntry{Act: actCall, Outcome: proto.AuditOK, Actor: proto.ActorContainer, ExecID: r.ExecID,
		Call: &x}
	if recorded {
		x.ID, x.Seconds = r.ID, r.EndedAt.Sub(r.CreatedAt.Time).Seconds()
	}
	if r.Error != nil {
		x.Error, entry.Outcome = r.Error.Type, string(outcomes[r.Error.Type])
	}
	if r.Decision != nil {
		entry.Note = string(r.State) + "; decided by " + r.Decision.By
	}
	d.s.AuditCall(entry)
}

// outcomes are what the audit log calls failures.
var outcomes = map[string]proto.Code{
	PermissionError: proto.PermissionDenied, NameError: proto.NotFound, ValueError: proto.InvalidArgument,
	TimeoutError: proto.TimedOut, RuntimeError: proto.Unavailable,
}
