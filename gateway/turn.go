package gateway

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"time"

	"berth/proto"
)

// A turn is one request: rounds with the upstream, and the calls that run between them. Only one goroutine at a time
// continues it. A failed turn keeps what it has done, and a repeated request continues from there.
type turn struct {
	g  *Gateway
	id string // part of the idempotency keys of its commands

	key     string // key of its request in the ledger
	journal struct {
		saved   *turnRecord // record of an earlier daemon to continue from; nil: none
		written bool        // the ledger has a record of the turn
	}

	request   Request
	conv      Conversation
	answer    Answer
	container turnContainer

	progress struct {
		prepared bool
		pending  []Call // to run next
		rounds   int
		began    time.Time // when this request began to work on the turn
	}
}

// run continues the turn until there is an answer, and delivers it.
func (t *turn) run(ctx context.Context) error {
	if err := t.prepare(ctx); err != nil {
		return err
	}
	if err := t.conv.Deliver(); err != nil || t.answer.Final != nil {
		return err
	}
	if err := t.resumeJournal(); err != nil {
		return err
	}
	for {
		waiting, err := t.runCalls(ctx)
		if err != nil {
			return err
		}
		if waiting {
			return t.finish(ClientCalled)
		}
		if p := &t.progress; p.rounds > 0 && (p.rounds >= t.g.cfg.MaxRounds || time.Since(p.began) >= t.g.cfg.MaxTurn) {
			return t.finish(Paused)
		}
		round, err := t.conv.Ask(ctx)
		if err != nil {
			return t.interruption(ctx, err)
		}
		t.progress.rounds++
		if round.Done {
			return t.finish(Completed)
		}
		t.progress.pending = round.Calls
	}
}

// prepare finds or creates the container if the request needs one from the beginning, and opens the conversation.
func (t *turn) prepare(ctx context.Context) error {
	if t.progress.prepared {
		return nil
	}
	opening, err := t.prepareContainer(ctx)
	if err != nil {
		return err
	}
	if rec := t.journal.saved; rec != nil {
		t.answer = Answer{Head: rec.Head, Content: rec.Content, Usage: rec.Usage, Final: rec.Final}
	}
	if t.progress.pending, err = t.conv.Open(opening); err != nil {
		return err
	}
	if t.progress.prepared = true; t.journal.saved != nil {
		t.journal.saved.Content, t.journal.saved.Final = nil, nil // t.answer holds them now
	}
	return nil
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
		c := t.progress.pending[0]
		if t.request.Ping != nil {
			t.request.Ping()
		}
		res, err := t.runCall(ctx, c)
		if res == nil {
			return false, err
		}
		t.progress.pending = t.progress.pending[1:] // even if the result cannot be sent to the client
		if err := t.conv.Add(c, res); err != nil {
			return false, err
		}
		if res.Waiting != nil {
			return true, nil
		}
	}
	t.writeRecord("")
	return false, ctx.Err()
}

// runCall runs one call. If the call cannot run, the reason becomes its result, and the conversation continues. A nil
// result means that the turn cannot continue for now.
func (t *turn) runCall(ctx context.Context, c Call) (*Result, error) {
	container, err := t.ensureContainer(ctx)
	if err != nil {
		if ctx.Err() != nil { // a repeated request runs the call
			return nil, ctx.Err()
		}
		return t.failCall(c, err), nil
	}
	t.writeRecord(c.ID)
	r := Run{Call: c, Draining: t.request.Draining}
	if c.Key == "" { // some models use the same ID in each round; the position in the answer makes the key unique
		r.Key = "gateway/" + t.id + "/" + strconv.Itoa(len(t.answer.Content)) + "/" + c.ID
	}
	r.Key = r.Key[:min(len(r.Key), proto.MaxRetryKey)]
	if show := t.request.Output; show != nil {
		r.Output = func(o Output) error { return show(c, o) }
	}
	res, err := container.Run(ctx, r)
	if res != nil && res.Err != nil {
		return t.failCall(c, res.Err), err
	}
	return res, err
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

// finish completes the answer, writes it to the ledger and delivers it.
func (t *turn) finish(reason Reason) error {
	t.conv.Finish(Ending{Reason: reason, Container: t.container.ref(), Skills: t.container.skills})
	if t.container.told = true; t.journal.written {
		t.writeRecord("")
	}
	return t.conv.Deliver()
}

// interruption converts the error of a round. The result names the container if the turn has done work there.
func (t *turn) interruption(ctx context.Context, err error) error {
	var i *Interruption
	switch {
	case errors.Is(err, ErrAnswered):
		return err
	case errors.As(err, &i):
		i.Container = t.container.ref()
		return i
	case ctx.Err() != nil:
		return ctx.Err()
	case len(t.answer.Content) == 0:
		return err
	}
	return &Interruption{Container: t.container.ref(), Err: proto.AsError(err)}
}

// outcome converts the error of the turn to the error that Answer returns.
func (t *turn) outcome(ctx context.Context, err error) error {
	var i *Interruption
	switch {
	case err == nil || errors.Is(err, ErrAnswered):
		return nil
	case ctx.Err() != nil:
		return proto.Errorf(proto.Canceled, "", "", "the client disconnected in the middle of a turn")
	case errors.As(err, &i):
		if t.container.told = true; t.journal.written {
			t.writeRecord("") // record it: a later daemon must not delete a container that the client knows
		}
	}
	return err
}

// shrink drops the state that the turn does not need until its request is repeated. It returns approximately how many
// bytes remain. A finished turn needs only its answer. An unfinished turn keeps its conversation, or, if it was not
// prepared, the record of an earlier daemon.
func (t *turn) shrink() (bytes int) {
	for _, raw := range t.answer.Content {
		bytes += len(raw)
	}
	if rec := t.journal.saved; rec != nil {
		bytes += len(rec.Final)
		for _, raw := range rec.Content {
			bytes += len(raw)
		}
	}
	if t.answer.Final != nil {
		t.conv = nil
		return 2 * bytes
	}
	if t.conv != nil {
		bytes += 3 * t.request.Size
	}
	return bytes
}
