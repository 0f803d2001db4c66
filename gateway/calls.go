package gateway

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"sync"

	"berth/proto"
	"berth/proto/span"
)

// A pendingCall is a call of a turn without a result in the answer.
type pendingCall struct {
	Call
	res  *Result // nil: it has not ended
	err  error   // why it has not
	done chan struct{}
}

// setPending sets the calls to run next. The keys of commands are the same under each daemon: results come in the order
// of the calls, so the place of a call's result is known before. The ID of a call does not suffix: models may reuse it.
func (t *turn) setPending(calls []Call) {
	t.progress.pending = nil
	for i, c := range calls {
		if c.Key == "" {
			c.Key = "gateway/" + t.id + "/" + strconv.Itoa(len(t.answer.Content)+i) + "/" + c.ID
		}
		c.Key = c.Key[:min(len(c.Key), proto.MaxRetryKey)]
		t.progress.pending = append(t.progress.pending, &pendingCall{Call: c})
	}
}

// resumeJournal gives up the calls that were running when an earlier daemon ended. It does not give up commands: a
// command has an idempotency key, so running the call again returns the result of the first run.
func (t *turn) resumeJournal() {
	rec := t.journal.saved
	if rec == nil {
		return
	}
	t.journal.saved = nil
	for _, c := range t.progress.pending {
		if c.Tool != Bash && (slices.Contains(rec.Running, c.ID) || rec.Begun == c.ID) {
			c.res = t.failCall(c.Call, proto.Errorf(proto.Unavailable, "", c.ID,
				"the daemon was restarted while the call ran"))
		}
	}
}

// runCalls runs each pending call once and adds its result to the answer. It reports whether code waits for the
// client.
func (t *turn) runCalls(ctx context.Context) (waiting bool, err error) {
	if len(t.progress.pending) == 0 {
		return false, ctx.Err()
	}
	for len(t.progress.pending) > 0 {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if t.request.Ping != nil {
			t.request.Ping()
		}
		if waiting, err := t.runBatch(ctx, t.progress.pending[:batchSize(t.progress.pending)]); waiting || err != nil {
			return waiting, err
		}
	}
	t.writeRecord()
	return false, ctx.Err()
}

// batchSize returns how many of the next calls run at the same time. Commands and programs that the model has sent
// together do. The editor's calls are quick, and a command beside them may need their files, so they run in order. Code
// that may call client tools runs alone, since it may end the turn.
func batchSize(calls []*pendingCall) int {
	alone := func(c *pendingCall) bool { return c.Tool == Editor || c.Tools != nil }
	if n := slices.IndexFunc(calls, alone); n >= 0 {
		return max(n, 1)
	}
	return len(calls)
}

// maxParallel is the maximum number of calls of a turn that run at the same time.
const maxParallel = 16

// runBatch runs calls at the same time, and adds their results in order, each as soon as it can. If the client leaves,
// the calls go on as long as another request waits for the turn, which then has their results.
func (t *turn) runBatch(ctx context.Context, batch []*pendingCall) (waiting bool, err error) {
	container, err := t.ensureContainer(ctx)
	if err != nil && ctx.Err() != nil { // a repeated request runs the calls
		return false, ctx.Err()
	}
	for _, c := range batch {
		if c.done = make(chan struct{}); err != nil && c.res == nil {
			c.res = t.failCall(c.Call, err)
		}
	}
	ctx, cancel := t.whileWanted(ctx)
	var running sync.WaitGroup
	defer running.Wait() // calls that have ended keep their results for a repeated request
	defer cancel()
	t.writeRecord(batch...)
	t.startBatch(ctx, container, batch, &running)
	var left error // the client has left
	for i, c := range batch {
		if <-c.done; c.res == nil {
			return false, c.err
		}
		t.progress.pending = t.progress.pending[1:] // even if the result cannot be sent to the client
		// other results have no place for a note
		if c.Tool != Editor && c.res.Err == nil && c.res.Waiting == nil {
			if note := t.container.note; note != "" {
				c.res.Notes, t.container.note = append([]string{note}, c.res.Notes...), ""
			}
		}
		switch err := t.conv.Add(c.Call, c.res); {
		case c.res.Waiting != nil:
			return err == nil, err
		case err != nil && !t.isWanted():
			return false, err
		case err != nil:
			left = err
		}
		if rest := batch[i+1:]; len(rest) > 0 {
			t.writeRecord(rest...)
		}
	}
	return false, left
}

// startBatch starts calls. It closes the done of each when it has ended. Python code has one interpreter, so it runs
// in order.
func (t *turn) startBatch(ctx context.Context, container Container, batch []*pendingCall, running *sync.WaitGroup) {
	slots := make(chan struct{}, maxParallel)
	var python []*pendingCall
	for _, c := range batch {
		switch {
		case c.res != nil:
			close(c.done)
		case c.Tool == Python:
			python = append(python, c)
		default:
			running.Go(func() {
				slots <- struct{}{}
				t.runCall(ctx, container, c)
				<-slots
			})
		}
	}
	running.Go(func() {
		for _, c := range python {
			t.runCall(ctx, container, c)
		}
	})
}

// runCall runs one call. If the call cannot run, the reason becomes its result, and the conversation continues. Without
// a result, the turn cannot continue for now.
func (t *turn) runCall(ctx context.Context, container Container, c *pendingCall) {
	defer close(c.done)
	if c.err = ctx.Err(); c.err != nil {
		return
	}
	ctx, sp := span.Start(ctx, span.OperationTool+" "+string(c.Tool))
	sp.String(span.Operation, span.OperationTool)
	sp.String(span.ToolName, string(c.Tool))
	sp.String(span.ToolCallID, c.ID)
	r := Run{Call: c.Call, Draining: t.request.Draining}
	if show := t.request.Output; show != nil {
		r.Output = func(o Output) error { return show(c.Call, o) }
	}
	c.res, c.err = container.Run(ctx, r)
	if c.res != nil && c.res.Err != nil {
		c.res = t.failCall(c.Call, c.res.Err)
		sp.Fail(string(proto.CodeOf(c.res.Err)))
	}
	sp.End(c.err)
}

// failCall returns the result of a call that could not run, or whose outcome is unknown.
func (t *turn) failCall(c Call, err error) *Result {
	level := slog.LevelWarn // logged, since not every result has a field for the reason
	switch proto.CodeOf(err) {
	case proto.InvalidArgument, proto.TooLarge, proto.Canceled:
		level = slog.LevelDebug
	}
	t.g.cfg.Log.Log(context.Background(), level, "running a call of a turn", "tool", c.Tool, "error", err)
	return &Result{Err: err}
}
