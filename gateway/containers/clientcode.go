package containers

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"berth/code"
	"berth/gateway"
	"berth/proto"
	"berth/tools/bridge"
	"berth/tools/bridge/codeapi"
	"berth/tools/bridge/provider"
)

// callTime is how long code waits for the client's answer to one call.
const callTime = 270 * time.Second

// clientCodeTime is the interpreter's time limit for code that calls client tools. The budget of a codeRun, which
// does not count the waiting, normally ends the code earlier.
const clientCodeTime = 12 * time.Hour

// holderName is the name of a codeRun's tools in the bridge.
const holderName = "messages"

// A codeRun is running Python code that may call client tools. Its interpreter keeps running while the client
// prepares its answers. Between the answer that contains the calls and the request with their results, only codeRuns
// refers to it. A request finds its codeRun by the IDs of the calls that it answers. No other client has these IDs.
type codeRun struct {
	containerID, callID string
	newID               func() string        // returns a new call ID for the client
	batches             chan []provider.Call // calls that are to be sent to the client
	provider            *bridge.ProviderSession
	cancel              context.CancelFunc
	done                chan struct{} // closed when result is set
	result              *gateway.Result
	budget              *time.Timer   // interrupts the code
	lock                chan struct{} // holds one token: the right to serve the code
	waiting             []waitingCall // calls sent to the client and not answered yet; guarded by lock
	asked               sync.Map      // IDs of all calls that were ever sent to the client
	idleSince           time.Time     // zero while a turn serves it; guarded by codeRuns.mu

	listenerMu sync.Mutex // held while listener runs
	listener   func(code.Progress) error
}

// A waitingCall is a call with its ID for the client.
type waitingCall struct {
	id   string
	call provider.Call
}

// runClientCode serves code that calls client tools: it starts the code, or gives it the client's answers. It returns
// when the code has a result, or when the code needs answers from the client. So a turn serves each piece of code
// once.
func (c container) runClientCode(ctx context.Context, r gateway.Run, text string, progress func(code.Progress) error) (
	*gateway.Result, error) {
	run, err := c.acquireCode(ctx, r, text)
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return &gateway.Result{Err: err}, nil
	}
	defer c.h.runs.release(run)
	run.setListener(progress)
	defer run.setListener(nil)
	result, calls, err := run.await(ctx)
	if calls == nil {
		return result, err
	}
	asks := make([]gateway.ClientCall, len(calls))
	for i, w := range calls {
		asks[i] = gateway.ClientCall{ID: w.id, Tool: w.call.Tool, Input: w.call.Input}
	}
	return &gateway.Result{Waiting: asks}, nil
}

// acquireCode returns the codeRun of a call and holds its lock. If the code has called tools already, it waits for
// their answers, or it is lost. Otherwise acquireCode starts it.
func (c container) acquireCode(ctx context.Context, r gateway.Run, text string) (*codeRun, error) {
	if !r.Tools.Resumed {
		return c.startClientCode(ctx, r, text)
	}
	run := c.h.runs.find(c.s.ID(), r)
	if run == nil {
		return nil, proto.Errorf(proto.Unavailable, "", r.ID, "the code that made these calls no longer runs")
	}
	if err := c.h.runs.acquire(ctx, run); err != nil {
		return nil, err
	}
	run.giveAnswers(r.Tools.Answers)
	return run, nil
}

// startClientCode starts code and returns its codeRun with the lock held.
func (c container) startClientCode(ctx context.Context, r gateway.Run, text string) (*codeRun, error) {
	h, s := c.h, c.s
	runCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	run := &codeRun{containerID: s.ID(), callID: r.ID, newID: r.Tools.NewID, batches: make(chan []provider.Call),
		cancel: cancel, done: make(chan struct{}), lock: make(chan struct{}, 1)}
	run.lock <- struct{}{}
	if err := h.runs.makeRoom(s.ID(), r.ID, run); err != nil {
		return nil, err
	}
	tools := make([]provider.Tool, len(r.Tools.Tools))
	for i, t := range r.Tools.Tools {
		tools[i] = bridgeTool(t)
	}
	var err error
	if run.provider, err = h.cfg.Bridge.Provide(s.Owner(), s.ID(), holderName, tools, callTime); err != nil {
		h.runs.remove(run)
		return nil, err
	}
	// Interrupt fails only if the code has ended.
	run.startBudget(func() { _, _ = h.cfg.Code.Interrupt(runCtx, s.Owner(), s.ID(), contextName) })
	h.runs.all.Go(func() { // receive the calls of the code from the bridge
		for {
			batch, err := run.provider.Next(runCtx)
			if err != nil {
				return
			}
			select {
			case run.batches <- batch:
			case <-run.done:
				return
			case <-runCtx.Done():
				return
			}
		}
	})
	h.runs.all.Go(func() {
		defer close(run.done)
		defer run.provider.Close()
		defer run.budget.Stop()
		cell := code.Cell{Code: text, TimeoutSeconds: clientCodeTime.Seconds()}
		run.result = c.runCell(runCtx, cell, run.print)
	})
	return run, nil
}

// startBudget interrupts the code when its time budget is used up. It does not interrupt code that has ended: other
// code may be running in the same interpreter.
func (run *codeRun) startBudget(interrupt func()) {
	run.budget = time.AfterFunc(cellTime, func() {
		if !run.ended() {
			interrupt()
		}
	})
}

// await waits until the code ends or calls tools. It returns the result of the code or the calls. If ctx ends first,
// await ends the code.
func (run *codeRun) await(ctx context.Context) (result *gateway.Result, calls []waitingCall, err error) {
	switch {
	case run.ended(): // unanswered calls have timed out
		return run.result, nil, nil
	case len(run.waiting) > 0:
		return nil, run.waiting, nil
	}
	run.budget.Reset(cellTime)
	select {
	case <-run.done:
		return run.result, nil, nil
	case batch := <-run.batches:
		run.budget.Reset(callTime + cellTime)
		for _, c := range batch {
			w := waitingCall{run.newID(), c}
			run.waiting = append(run.waiting, w)
			run.asked.Store(w.id, true)
		}
		return nil, run.waiting, nil
	case <-ctx.Done():
		run.cancel()
		<-run.done
		return run.result, nil, ctx.Err()
	}
}

// giveAnswers passes the client's answers to the code. The bridge refuses answers that come too late.
func (run *codeRun) giveAnswers(answers map[string]gateway.ClientAnswer) {
	var rest []waitingCall
	for _, w := range run.waiting {
		a, ok := answers[w.id]
		switch {
		case !ok:
			rest = append(rest, w)
		case a.Failed:
			_ = run.provider.Answer(w.call.ID, nil, &codeapi.Failure{Type: codeapi.RuntimeError, Message: a.Text})
		default:
			text, _ := json.Marshal(a.Text) // cannot fail: a string
			_ = run.provider.Answer(w.call.ID, text, nil)
		}
	}
	run.waiting = rest
}

// ended reports whether the code has a result.
func (run *codeRun) ended() bool {
	select {
	case <-run.done:
		return true
	default:
		return false
	}
}

// setListener sets the function that receives the code's output from now on; nil: none.
func (run *codeRun) setListener(fn func(code.Progress) error) {
	run.listenerMu.Lock()
	defer run.listenerMu.Unlock()
	run.listener = fn
}

// print passes output of the code to the listener. A listener that returns an error receives no more output; the
// client still gets the result.
func (run *codeRun) print(p code.Progress) error {
	run.listenerMu.Lock()
	defer run.listenerMu.Unlock()
	if run.listener != nil && run.listener(p) != nil {
		run.listener = nil
	}
	return nil
}

// codeRuns holds each codeRun that a client may still answer. At most one per container is still running.
type codeRuns struct {
	mu    sync.Mutex // guards known
	known []*codeRun
	all   sync.WaitGroup
}

// find returns the codeRun whose calls a request answers, or nil if it no longer exists.
func (cs *codeRuns) find(containerID string, r gateway.Run) *codeRun {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, run := range cs.known {
		for id := range r.Tools.Answers {
			if _, ok := run.asked.Load(id); ok && run.containerID == containerID && run.callID == r.ID {
				return run
			}
		}
	}
	return nil
}

// acquire waits for the right to serve a codeRun. The caller must call release.
func (cs *codeRuns) acquire(ctx context.Context, run *codeRun) error {
	select {
	case run.lock <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	run.idleSince = time.Time{}
	return nil
}

// release returns the right that acquire gave.
func (cs *codeRuns) release(run *codeRun) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	run.idleSince = time.Now()
	<-run.lock
}

// remove removes a codeRun that could not start.
func (cs *codeRuns) remove(run *codeRun) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.known = slices.DeleteFunc(cs.known, func(other *codeRun) bool { return other == run })
}

// makeRoom ends code of the same container that waits for its client, since other code needs the interpreter. It
// fails if a turn is serving that code. next is the codeRun of the other code, or nil. makeRoom registers next, so
// that of two concurrent calls one is refused.
func (cs *codeRuns) makeRoom(containerID, callID string, next *codeRun) error {
	var idle []*codeRun
	cs.mu.Lock()
	for _, run := range cs.known {
		switch {
		case run.containerID != containerID || run.ended():
		case run.idleSince.IsZero():
			cs.mu.Unlock()
			return proto.Errorf(proto.TooMany, "", callID, "other code is running in the interpreter")
		default:
			idle = append(idle, run)
		}
	}
	cs.known = slices.DeleteFunc(cs.known, func(run *codeRun) bool { return slices.Contains(idle, run) })
	if next != nil {
		cs.known = append(cs.known, next)
	}
	cs.mu.Unlock()
	for _, run := range idle {
		run.cancel()
		<-run.done
	}
	return nil
}

// expire ends code whose client did not return within that time. 0 ends all code. It returns how many pieces it
// ended.
func (cs *codeRuns) expire(after time.Duration) (n int) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.known = slices.DeleteFunc(cs.known, func(run *codeRun) bool {
		if after != 0 && (run.idleSince.IsZero() || time.Since(run.idleSince) < after) {
			return false
		}
		run.cancel()
		n++
		return true
	})
	return n
}
