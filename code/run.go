package code

import (
	"context"
	"errors"
	"time"

	"berth/proto"
	"berth/session"
)

// How long a cell has to react to an interrupt before its interpreter is ended, and how long that end may take.
const (
	heedTime = 2 * time.Second
	killTime = 15 * time.Second
)

// Cell runs code in a context, which is created if it does not exist. Cells of a context run one after the other, in
// no guaranteed order. When ctx ends, Cell interrupts the code. Code that ignores the interrupt ends with its
// interpreter. each receives what the code prints while it runs; it may be nil.
func (r *Runner) Cell(ctx context.Context, owner, container, name string, req Cell, each func(Progress) error) (
	Outcome, error) {
	s, err := r.sessions.Get(owner, container) // first: other owners' contexts must not be revealed
	if err != nil {
		return Outcome{}, err
	}
	if err := checkCell(req); err != nil {
		return Outcome{}, err
	}
	n, made, err := r.open(s, NewContext{Name: name, Language: req.Language})
	if err != nil {
		return Outcome{}, err
	}
	release, err := n.acquire(ctx)
	if err != nil {
		return Outcome{}, err
	}
	defer release()
	res, err := n.runCell(ctx, r, req, each)
	if err != nil && made && n.info().ExecID == "" { // its interpreter never started
		r.forget(n)
	}
	return res, err
}

func checkCell(req Cell) error {
	_, err := Program{Program: proto.Program{Code: req.Code, Language: req.Language,
		TimeoutSeconds: req.TimeoutSeconds, MaxOutputBytes: req.MaxOutputBytes}}.check()
	return err
}

// runCell is Cell once the notebook is acquired.
func (n *notebook) runCell(ctx context.Context, r *Runner, req Cell, each func(Progress) error) (Outcome, error) {
	letGo, err := n.s.Hold(ctx, req.Files)
	if err != nil {
		return Outcome{}, err
	}
	defer letGo()
	in, notes, err := n.liveInterpreter(ctx, r)
	if err != nil {
		return Outcome{}, err
	}
	n.setBusy(true)
	defer n.setBusy(false)
	in.exec.AuditText(ctx, actCell, n.lang.name+" context "+n.ask.Name+": "+req.Code)
	began := time.Now()
	c := newCell(n.s, req.MaxOutputBytes)
	defer c.close()
	why, err := n.sendAndAwait(ctx, in, c, req, r.limit(req.TimeoutSeconds), each)
	if err != nil {
		return Outcome{}, err
	}
	res := c.result()
	res.Notes = append(notes, res.Notes...)
	if in.over() {
		if err := in.ready(n.s); err != nil {
			return Outcome{}, err
		}
		in.noteEnd(&res)
	}
	if why != "" {
		failOutcome(&res, ErrorDetail{Name: why, Message: "the cell ran longer than timeout_seconds",
			Traceback: tracebackOf(
				res)})
	}
	ref := n.s.Ref()
	res.Container, res.Context, res.ExecID, res.DurationMS = &ref, n.ask.Name, in.exec.ID(),
		milliseconds(time.Since(began))
	return res, nil
}

// actCell is the audit log's name of a cell.
const actCell = "code.cell"

// tracebackOf says where a cell was when it was interrupted.
func tracebackOf(res Outcome) string {
	if res.ErrorDetail == nil {
		return ""
	}
	return res.ErrorDetail.Traceback
}

// limit returns the time limit of a cell.
func (r *Runner) limit(seconds float64) time.Duration {
	if seconds == 0 {
		return r.timeout
	}
	return time.Duration(seconds * float64(time.Second))
}

// sendAndAwait sends a cell to its interpreter and waits until it has ended, or ends it. why is set if its time was
// over.
func (n *notebook) sendAndAwait(ctx context.Context, in *interpreter, c *cell, req Cell, limit time.Duration,
	each func(Progress) error) (why string, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	number := in.attachCell(c)
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		if err := c.follow(ctx, in.exec.ID(), each); err != nil {
			cancel(err) // without a listener the code need not go on
		}
	}()
	sent := make(chan error, 1)
	go func() { sent <- in.exec.Write(ctx, request(c.nonce, number, modeCell, req.Code)) }()
	why, err = n.await(ctx, in, c, sent, limit)
	in.detachCell()
	if err != nil {
		cancel(err)
	}
	<-heard
	return why, err
}

// await waits for a cell that is being sent.
func (n *notebook) await(ctx context.Context, in *interpreter, c *cell, sent <-chan error, limit time.Duration) (
	why string, err error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case <-c.done:
			return "", nil
		case <-in.ended:
			return "", in.err
		case err := <-sent:
			if err != nil && ctx.Err() == nil { // a part of it may have arrived
				in.exec.Cancel(proto.EndLost, "a cell could not be sent to it")
				<-in.ended
				return "", in.err
			}
			sent = nil
		case <-timer.C:
			return string(proto.EndTimeout), n.stopCell(in, c)
		case <-ctx.Done():
			return "", errors.Join(context.Cause(ctx), n.stopCell(in, c))
		}
	}
}

// stopCell interrupts a cell. A cell that ignores that ends with its interpreter.
func (n *notebook) stopCell(in *interpreter, c *cell) error {
	ctx, cancel := context.WithTimeout(context.Background(), killTime)
	defer cancel()
	if in.exec.Signal(ctx, "SIGINT") == nil {
		heed := time.NewTimer(heedTime)
		defer heed.Stop()
		select {
		case <-c.done:
			return nil
		case <-in.ended:
			return nil
		case <-heed.C:
		}
	}
	in.exec.Cancel(proto.EndTimeout, "a cell had to be ended and did not heed an interrupt")
	select {
	case <-in.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// interrupt interrupts the cell that runs, if there is one, as Ctrl-C does.
func (n *notebook) interrupt(ctx context.Context) error {
	n.mu.Lock()
	in, busy := n.in, n.busy
	n.mu.Unlock()
	if in == nil || !busy || in.over() {
		return nil
	}
	return in.exec.Signal(ctx, "SIGINT")
}

// noteEnd adds to a result that its interpreter ended.
func (in *interpreter) noteEnd(res *Outcome) {
	if in.last != nil {
		describeOutcome(res, *in.last)
	}
	res.Notes = append(res.Notes, "the interpreter of this context ended: "+in.endReason()+"; the next cell begins a "+
		"fresh one, without what was defined")
}

// ready fails if the interpreter could not start because the image has none.
func (n *notebook) ready() error {
	n.mu.Lock()
	in := n.in
	n.mu.Unlock()
	if in == nil || !in.over() {
		return nil
	}
	return in.ready(n.s)
}

func (in *interpreter) ready(s *session.Session) error {
	if in.last != nil && in.isMissing() {
		return in.lang.missing(s.Info().Image)
	}
	return nil
}

// follow gives what a cell prints to each, until its streams end.
func (c *cell) follow(ctx context.Context, exec string, each func(Progress) error) error {
	if each == nil {
		return nil
	}
	if err := each(Progress{Type: proto.ProgressStart, ExecID: exec}); err != nil {
		return err
	}
	return session.FollowOutput(ctx, c.out, exec, func(ev proto.Event) error {
		return each(Progress{Type: string(ev.Type), Stream: ev.Stream, Offset: ev.Offset, Until: ev.Until,
			Data: ev.Data, DataBase64: ev.DataBase64})
	})
}
