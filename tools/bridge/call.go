package bridge

import (
	"context"
	"encoding/json"
	"time"

	"berth/proto"
	"berth/session"
	"berth/state/ledger"
	"berth/tools/approval"
	"berth/tools/bridge/codeapi"
	"berth/tools/bridge/provider"
)

// Audit actions: a call is over or was refused; a call waits for approval.
const (
	actCall = "tools.call"
	actPark = "tool_call.park"
)

// An outcome is how a call ended: a result or a failure.
type outcome struct {
	result  []byte
	failure *codeapi.Failure
}

// A call is one call under way. Each identifier that the code uses has one call, however often the code repeats it.
type call struct {
	dispatcher *dispatcher
	exec       *session.Exec
	key        callKey
	input      json.RawMessage
	hash       string

	refused *codeapi.Failure // the call was refused before it was checked

	// Writes into the audit log, once, that the call waits for approval, which is before any decision. It is set before
	// the call is recorded, and nil for a call that needs no approval or was parked under an earlier daemon.
	tellParked func()

	ctx    context.Context // ends when no request waits for the call any more
	cancel context.CancelFunc

	verdict  chan record  // a person's decision; buffered
	answered chan outcome // the provider's answer; buffered

	// What follows is guarded by dispatcher.mu.
	rec      record // its ID is set before another goroutine sees it
	recorded bool   // in the ledger
	to       target
	queued   bool  // it was handed to its provider
	held     int64 // bytes of its input
	kept     int64 // bytes of its result
	watchers map[chan<- *call]bool
	grace    *time.Timer // ends the call if the code does not come back
	over     bool
	end      outcome
}

func (d *dispatcher) newCall(e *session.Exec, key callKey, a codeapi.Call, hash string) *call {
	c := &call{
		dispatcher: d, exec: e, key: key, input: a.Input, hash: hash, held: int64(len(a.Input)),
		verdict: make(chan record, 1), answered: make(chan outcome, 1), watchers: map[chan<- *call]bool{},
	}
	c.ctx, c.cancel = context.WithCancel(d.b.ctx)
	c.rec = record{Client: key.client, Hash: hash, ToolCall: ToolCall{
		ID: proto.NewID(callPrefix), ContainerID: d.s.ID(), ExecID: e.ID(), Tool: a.Tool,
		InputBytes: a.Size(), CreatedAt: proto.At(d.b.cfg.Now()),
	}}
	return c
}

func (c *call) isOver() bool {
	c.dispatcher.mu.Lock()
	defer c.dispatcher.mu.Unlock()
	return c.over
}

// forProvider is the call in the form that a provider gets.
func (c *call) forProvider() provider.Call {
	return provider.Call{ID: c.rec.ID, Tool: c.rec.Tool, Input: c.input, ContainerID: c.rec.ContainerID,
		ExecID: c.rec.ExecID}
}

// take reserves bytes for a call's result as they arrive.
func (c *call) take(n int) error {
	c.dispatcher.mu.Lock()
	defer c.dispatcher.mu.Unlock()
	if c.over || !c.dispatcher.keep(c, c.kept+int64(n)) {
		return codeapi.AsError(noMemory(c.rec.Tool))
	}
	return nil
}

// noMemory is the failure of a call whose result exceeds the available memory.
func noMemory(tool string) *codeapi.Failure {
	return codeapi.Fail(codeapi.RuntimeError, "%s returned its result, but the results that the code has not fetched "+
		"have reached the limit of %d bytes; fetch some of them first", tool, maxUntaken)
}

// watch makes the call signal its end. The caller holds the dispatcher's mu.
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

// leave stops watching a call. A call whose end was delivered is forgotten. A call without watchers ends unless its
// code comes back.
func (d *dispatcher) leave(c *call, ended chan<- *call, delivered bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(c.watchers, ended)
	switch {
	case c.over && delivered:
		d.forget(c)
	case len(c.watchers) == 0:
		c.grace = time.AfterFunc(d.b.cfg.Grace, func() { d.abandon(c) })
	}
}

// forget drops a call from memory. The caller holds mu.
func (d *dispatcher) forget(c *call) {
	d.kept -= c.kept
	d.b.held.Add(-c.kept)
	if c.kept = 0; len(c.watchers) == 0 {
		c.end = outcome{}
	}
	if d.calls[c.key] == c {
		delete(d.calls, c.key)
	}
}

// abandon ends a call whose code did not come back. Time in which the container is paused does not count.
func (d *dispatcher) abandon(c *call) {
	paused := d.s.Paused()
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case len(c.watchers) > 0:
	case paused:
		c.grace = time.AfterFunc(d.b.cfg.Grace, func() { d.abandon(c) })
	case c.over:
		d.forget(c)
	default:
		c.grace = nil // otherwise the ended call would stay for code that comes back
		c.cancel()
	}
}

// run carries a call to its end.
func (c *call) run() {
	go func() { // a command that has ended needs no result
		select {
		case <-c.exec.Done():
			c.cancel()
		case <-c.ctx.Done():
		}
	}()
	out := c.perform()
	if c.dispatcher.b.ctx.Err() != nil { // the next daemon continues it
		return
	}
	if c.ctx.Err() != nil && out.failure == nil && out.result == nil {
		out.failure = codeapi.Fail(codeapi.RuntimeError, "the code no longer waits for the call of %s", c.rec.Tool)
	}
	c.dispatcher.finish(c, out)
}

// perform has the call approved if needed, answered and checked.
func (c *call) perform() outcome {
	if failure, ok := c.approved(); !ok {
		return outcome{failure: failure}
	}
	to := c.target()
	left := to.wait
	if c.rec.StartedAt != nil { // perhaps under an earlier daemon
		left = min(left, c.rec.StartedAt.Add(to.wait).Sub(c.dispatcher.b.cfg.Now()))
	}
	ctx, cancel := context.WithTimeout(c.ctx, left)
	defer cancel()
	var out outcome
	out.result, out.failure = to.from.answer(ctx, c)
	switch {
	case out.failure != nil:
		out.result = nil
	case out.result == nil && c.ctx.Err() == nil:
		out.failure = codeapi.Fail(codeapi.TimeoutError, "Calling tool ['%s'] timed out (no response after %gs).",
			c.rec.Tool, to.wait.Seconds())
	case out.result != nil:
		if err := c.target().Output.Check("result", out.result); err != nil {
			out = outcome{failure: codeapi.Fail(codeapi.RuntimeError, "the result of %s does not match its schema: %s",
				c.rec.Tool, err)}
		}
	}
	return out
}

// target is the current provider of the call: another holder of the same tool may take over.
func (c *call) target() target {
	c.dispatcher.mu.Lock()
	defer c.dispatcher.mu.Unlock()
	return c.to
}

// approved waits until a person approves the call, if one has to, and reports whether it may go on.
func (c *call) approved() (*codeapi.Failure, bool) {
	r, err := c.decision()
	if err != nil {
		return codeapi.Fail(codeapi.RuntimeError, "the code no longer waits for the call of %s", c.rec.Tool), false
	}
	switch r.State {
	case proto.CallExpired:
		c.change(func(mine *record) { *mine = r })
		return codeapi.Fail(codeapi.PermissionError, "the call of %s was not approved in time", r.Tool), false
	case proto.CallCanceled, proto.CallLost: // a sweep ended it before its code came back
		c.change(func(mine *record) { *mine = r })
		return codeapi.Fail(codeapi.RuntimeError, "the call of %s was canceled before it was made", r.Tool), false
	case proto.CallRefused:
		c.change(func(mine *record) { *mine = r })
		return r.refusal(), false
	case proto.CallApproved:
		r.State, r.StartedAt = proto.CallRunning, proto.AtOrNil(c.dispatcher.b.cfg.Now())
		c.change(func(mine *record) { *mine = r })
		if err := c.dispatcher.b.cfg.Ledger.UpdateAsync(r.put); err != nil {
			return codeapi.Fail(codeapi.RuntimeError, "the call of %s cannot be recorded now, so it is not made",
				r.Tool), false
		}
		return c.findProvider() // the provider may have gone since the call was made
	}
	return nil, true
}

// decision returns the call's record once a person has decided or the time is over. It returns an error if no request
// waits for the call any more.
func (c *call) decision() (r record, err error) {
	if c.rec.State != proto.CallParked {
		return c.rec, nil
	}
	// It may have been decided after it was read, and before this daemon knew the call.
	err = c.dispatcher.b.cfg.Ledger.View(func(tx *ledger.Tx) error {
		r, err = findCall(tx, c.rec.ContainerID, c.rec.ID)
		return err
	})
	if err == nil && c.tellParked != nil {
		c.tellParked()
	}
	if err != nil || r.State != proto.CallParked {
		return r, err
	}
	timer := time.NewTimer(r.ExpiresAt.Sub(c.dispatcher.b.cfg.Now()))
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

// expire ends the wait for approval and returns the record. A decision at the last moment counts.
func (c *call) expire() (r record) {
	b := c.dispatcher.b
	err := b.cfg.Ledger.Update(func(tx *ledger.Tx) (err error) {
		if r, err = findCall(tx, c.rec.ContainerID, c.rec.ID); err != nil || r.State != proto.CallParked {
			return err
		}
		r.State, r.EndedAt = proto.CallExpired, proto.AtOrNil(b.cfg.Now())
		return r.put(tx)
	})
	if err != nil { // the decision is unknown, so the call was not approved
		b.cfg.Log.Error("ending the wait for approval", "call", c.rec.ID, "error", err)
		r = c.rec
		r.State = proto.CallExpired
	}
	return r
}

// findProvider finds the current provider of the call.
func (c *call) findProvider() (*codeapi.Failure, bool) {
	ctx, cancel := context.WithTimeout(c.ctx, listTime)
	defer cancel()
	to, failure := c.dispatcher.find(ctx, c.rec.Tool)
	if failure != nil {
		return failure, false
	}
	c.dispatcher.mu.Lock()
	defer c.dispatcher.mu.Unlock()
	c.to = to
	return nil, true
}

func (c *call) change(fn func(*record)) {
	c.dispatcher.mu.Lock()
	defer c.dispatcher.mu.Unlock()
	fn(&c.rec)
}

// decided delivers a person's decision to a call that is in memory.
func (d *dispatcher) decided(r record) {
	d.mu.Lock()
	c := d.calls[callKey{r.ExecID, r.Client}]
	if c != nil && c.rec.ID != r.ID {
		c = nil
	}
	d.mu.Unlock()
	if c == nil {
		return
	}
	if c.tellParked != nil {
		c.tellParked() // a decision may be faster than the call's own goroutine
	}
	select {
	case c.verdict <- r:
	default: // it has a decision already
	}
}

// finish ends a call. The end is recorded before the code learns it.
func (d *dispatcher) finish(c *call, out outcome) {
	d.mu.Lock()
	r, recorded := c.rec, c.recorded
	if !d.keep(c, int64(len(out.result))) {
		out = outcome{failure: noMemory(r.Tool)}
		d.keep(c, 0)
	}
	d.mu.Unlock()
	now := d.b.cfg.Now()
	switch {
	case r.State.Over(): // the state is set already
	case out.failure == nil:
		r.State = proto.CallSucceeded
	case c.ctx.Err() != nil:
		r.State = proto.CallCanceled
	default:
		r.State = proto.CallFailed
	}
	r.EndedAt, r.ResultBytes = proto.AtOrNil(now), int64(len(out.result))
	if out.failure != nil {
		r.Error = &CallError{Type: out.failure.Type, Message: proto.Shorten(d.s.Hide(out.failure.Message),
			approval.MaxReason)}
	}
	if recorded {
		if err := d.b.cfg.Ledger.UpdateAsync(r.close); err != nil {
			d.b.cfg.Log.Error("recording the end of a tool's call", "call", r.ID, "error", err)
		}
	}
	d.audit(r, recorded)
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
	c.cancel() // otherwise the daemon's context keeps it until the daemon ends
}

// audit writes a call's end into the audit log.
func (d *dispatcher) audit(r record, recorded bool) {
	x := proto.AuditCall{Tool: proto.Shorten(d.s.Hide(r.Tool), proto.MaxToolName), Sent: r.InputBytes,
		Got: r.ResultBytes}
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

// outcomes are the audit log's codes for failures.
var outcomes = map[string]proto.Code{
	codeapi.PermissionError: proto.PermissionDenied, codeapi.NameError: proto.NotFound,
	codeapi.ValueError: proto.InvalidArgument, codeapi.TimeoutError: proto.TimedOut,
	codeapi.RuntimeError: proto.Unavailable,
}
