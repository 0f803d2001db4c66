package code

import (
	"context"
	"errors"
	"fmt"
	"time"

	"berth/code/cell"
	"berth/proto"
	"berth/proto/span"
)

// How long a cell has to react to an interrupt before its interpreter is ended, and how long that end may take.
const (
	interruptTime = 2 * time.Second
	killTime      = 15 * time.Second
)

// actCell is the audit log's name of a cell.
const actCell = "code.cell"

// Cell runs code in a context, which is created if it does not exist. Cells of a context run one after the other, in
// no guaranteed order. When ctx ends, Cell interrupts the code. Code that ignores the interrupt ends with its
// interpreter. each receives what the code prints while it runs; it may be nil.
func (r *Runner) Cell(ctx context.Context, owner, container, name string, req Cell, each func(Progress) error) (
	res Outcome, err error) {
	s, err := r.sessions.Get(owner, container) // first: other owners' contexts must not be revealed
	if err != nil {
		return Outcome{}, err
	}
	if _, err := checkProgram(proto.Program{Code: req.Code, Language: req.Language, TimeoutSeconds: req.TimeoutSeconds,
		MaxOutputBytes: req.MaxOutputBytes}); err != nil {
		return Outcome{}, err
	}
	n, made, err := r.open(s, NewContext{Name: name, Language: req.Language})
	if err != nil {
		return Outcome{}, err
	}
	if err := checkSettings(n.lang, req.Env, req.Cwd); err != nil {
		if made {
			r.forget(n)
		}
		return Outcome{}, err
	}
	ctx, sp := span.Start(ctx, "code.cell")
	sp.String(span.Language, n.lang.name)
	sp.String(span.ContainerID, s.ID())
	sp.String(span.ContextID, name)
	defer func() { sp.End(err) }()
	release, err := n.acquire(ctx)
	if err != nil {
		return Outcome{}, err
	}
	defer release()
	req.Env = withTrace(ctx, req.Env)
	res, err = n.runCell(ctx, r, req, each)
	if err != nil && made && (n.info().ExecID == "" || proto.CodeOf(err) == proto.Unsupported) {
		r.forget(n) // its interpreter never started
	}
	return res, err
}

// runCell is Cell once the notebook is acquired.
func (n *notebook) runCell(ctx context.Context, r *Runner, req Cell, each func(Progress) error) (Outcome, error) {
	releaseFiles, err := n.s.Hold(ctx, req.Files)
	if err != nil {
		return Outcome{}, err
	}
	defer releaseFiles()
	in, notes, err := n.liveInterpreter(ctx, r)
	if err != nil {
		return Outcome{}, err
	}
	n.setBusy(true)
	defer n.setBusy(false)
	in.exec.AuditText(ctx, actCell, n.lang.name+" context "+n.ask.Name+": "+req.Code)
	began := time.Now()
	c := cell.New(req.MaxOutputBytes, n.s.OutputBudget())
	defer c.Close()
	number := in.nextNumber()
	timedOut, err := in.runCell(ctx, c, c.RequestWith(number, req.Code, req.Env, req.Cwd),
		r.timeLimit(req.TimeoutSeconds), numbered(number, each))
	if err != nil {
		return Outcome{}, err
	}
	res := c.Outcome()
	res.Notes = append(notes, res.Notes...)
	if in.over() {
		if err := in.checkInstalled(n.s); err != nil {
			return Outcome{}, err
		}
		if in.last != nil {
			describeEnd(&res, *in.last)
		}
		res.Notes = append(res.Notes, fmt.Sprintf("the interpreter of this context ended: %s; the next cell starts a "+
			"fresh one, without the variables defined so far", in.endReason()))
	}
	if timedOut {
		traceback := "" // where the cell was when it was interrupted
		if res.ErrorDetail != nil {
			traceback = res.ErrorDetail.Traceback
		}
		cell.SetError(&res, ErrorDetail{Name: string(proto.EndTimeout), Traceback: traceback,
			Message: "the cell ran longer than timeout_seconds"})
	}
	nameMissing(&res, n.s)
	res.Notes = append(res.Notes, n.s.Refused(began)...)
	ref := n.s.Ref()
	res.Container, res.Context, res.ExecID, res.ExecutionCount = &ref, n.ask.Name, in.exec.ID(), number
	res.DurationMS = milliseconds(time.Since(began))
	return res, nil
}

// timeLimit returns the time limit of code that asks for that many seconds; 0 is the default.
func (r *Runner) timeLimit(seconds float64) time.Duration {
	if seconds == 0 {
		return r.timeout
	}
	return time.Duration(seconds * float64(time.Second))
}

// numbered returns each with the number of its cell in the first message.
func numbered(number int, each func(Progress) error) func(Progress) error {
	if each == nil {
		return nil
	}
	return func(p Progress) error {
		if p.Type == proto.ProgressStart {
			p.ExecutionCount = number
		}
		return each(p)
	}
}

// runCell sends the request of a cell to its interpreter and waits until the cell ends, or ends it.
func (in *interpreter) runCell(ctx context.Context, c *cell.Cell, request []byte, limit time.Duration,
	each func(Progress) error) (timedOut bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if each != nil {
		c.KeepDisplays()
	}
	in.attachCell(c)
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		if err := followCell(ctx, c, in.exec.ID(), each); err != nil {
			cancel(err) // without a listener the code need not go on
		}
	}()
	sent := make(chan error, 1)
	go func() { sent <- in.exec.Write(ctx, request) }()
	timedOut, err = in.awaitCell(ctx, c, sent, limit)
	in.detachCell()
	if err != nil {
		cancel(err)
	}
	<-followed
	return timedOut, err
}

// awaitCell waits for a cell that is being sent.
func (in *interpreter) awaitCell(ctx context.Context, c *cell.Cell, sent <-chan error, limit time.Duration) (
	timedOut bool, err error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case <-c.Done:
			return false, nil
		case <-in.ended:
			return false, in.err
		case err := <-sent:
			if err != nil && ctx.Err() == nil {
				in.endUnsendable()
				return false, in.err
			}
			sent = nil
		case <-timer.C:
			return true, in.stopCell(c)
		case <-ctx.Done():
			return false, errors.Join(context.Cause(ctx), in.stopCell(c))
		}
	}
}

// stopCell interrupts a cell. A cell that ignores the interrupt ends with its interpreter.
func (in *interpreter) stopCell(c *cell.Cell) error {
	ctx, cancel := context.WithTimeout(context.Background(), killTime)
	defer cancel()
	if in.exec.Signal(ctx, "SIGINT") == nil {
		timer := time.NewTimer(interruptTime)
		defer timer.Stop()
		select {
		case <-c.Done:
			return nil
		case <-in.ended:
			return nil
		case <-timer.C:
		}
	}
	in.exec.Cancel(proto.EndTimeout, "a cell had to be ended and ignored the interrupt")
	select {
	case <-in.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
