package code

import (
	"context"
	"errors"
	"time"

	"berth/proto"
	"berth/session"
)

// Times of a cell that is to end: how long it has to heed an interrupt before its interpreter is ended, and how long
// after that its end may take.
const (
	heedTime = 2 * time.Second
	killTime = 15 * time.Second
)

// Cell runs code in a context, which is made if it is not there. Cells of a context take turns, in no promised order.
// When ctx ends, the cell is interrupted; one that does not heed that ends with its interpreter. each, which may be
// nil, gets what the code prints while it runs.
func (r *Runner) Cell(ctx context.Context, owner, container, name string, req Cell, each func(Progress) error) (
	Outcome, error) {
	s, err := r.sessions.Get(owner, container) // first, so that nobody learns more of another's
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
	release, err := n.take(ctx)
	if err != nil {
		return Outcome{}, err
	}
	defer release()
	res, err := n.run(ctx, r, req, each)
	if err != nil && made && n.info().ExecID == "" { // its interpreter never began
		r.forget(n)
	}
	return res, err
}

func checkCell(req Cell) error {
	_, err := Program{Program: proto.Program{Code: req.Code, Language: req.Language,
		TimeoutSeconds: req.TimeoutSeconds, MaxOutputBytes: req.MaxOutputBytes}}.check()
	return err
}

// run is Cell with the turn.
func (n *notebook) run(ctx context.Context, r *Runner, req Cell, each func(Progress) error) (Outcome, error) {
	letGo, err := n.s.Hold(ctx, req.Files)
	if err != nil {
		return Outcome{}, err
	}
	defer letGo()
	in, notes, err := n.live(ctx, r)
	if err != nil {
		return Outcome{}, err
	}
	n.setBusy(true)
	defer n.setBusy(false)
	in.exec.AuditText(ctx, actCell, n.lang.name+" context "+n.ask.Name+": "+req.Code)
	began := time.Now()
	c := newCell(n.s, req.MaxOutputBytes)
	defer c.close()
	why, err := n.see(ctx, in, c, req, r.limit(req.TimeoutSeconds), each)
	if err != nil {
		return Outcome{}, err
	}
	res := c.result()
	res.Notes = append(notes, res.Notes...)
	if in.over() {
		if err := in.ready(n.s); err != nil {
			return Outcome{}, err
		}
		in.obituary(&res)
	}
	if why != "" {
		failOutcome(&res, ErrorDetail{Name: why, Message: "the cell ran longer than timeout_seconds", Traceback: tracebackOf(
			res)})
	}
	ref := n.s.Ref()
	res.Container, res.Context, res.ExecID, res.DurationMS = &ref, n.ask.Name, in.exec.ID(),
		milliseconds(time.Since(began))
	return res, nil
}

// actCell is what the audit log calls a cell.
const actCell = "code.cell"

// tracebackOf is where a cell was when it was interrupted.
func tracebackOf(res Outcome) string {
	if res.ErrorDetail == nil {
		return ""
	}
	return res.ErrorDetail.Traceback
}

// limit is how long a cell may take.
func (r *Runner) limit(seconds float64) time.Duration {
	if seconds == 0 {
		return r.timeout
	}
	return time.Duration(seconds * float64(time.Second))
}

// see sends a cell to its interpreter and waits until it has ended, or ends it. why is the reason that there was for
// that, if it was its time.
func (n *notebook) see(ctx context.Context, in *interpreter, c *cell, req Cell, limit time.Duration,
	each func(Progress) error) (why string, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	number := in.take(c)
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		if err := c.follow(ctx, in.exec.ID(), each); err != nil {
			cancel(err) // who does not listen any more wants no more
		}
	}()
	sent := make(chan error, 1)
	go func() { sent <- in.exec.Write(ctx, request(c.nonce, number, modeCell, req.Code)) }()
	why, err = n.await(ctx, in, c, sent, limit)
	in.drop()
	if err != nil {
		cancel(err)
	}
	<-heard
	return why, err
}

// await is see once the cell is on its way.
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
			if err != nil && ctx.Err() == nil { // half of it may be there
				in.exec.Cancel(proto.EndLost, "a cell could not be sent to it")
				<-in.ended
				return "", in.err
			}
			sent = nil
		case <-timer.C:
			return string(proto.EndTimeout), n.stop(in, c)
		case <-ctx.Done():
			return "", errors.Join(context.Cause(ctx), n.stop(in, c))
		}
	}
}

// stop has a cell end: by an interrupt, and if that is not heeded with its interpreter.
func (n *notebook) stop(in *interpreter, c *cell) error {
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

// interrupt is what Ctrl-C does to the cell that runs, if one does.
func (n *notebook) interrupt(ctx context.Context) error {
	n.mu.Lock()
	in, busy := n.in, n.busy
	n.mu.Unlock()
	if in == nil || !busy || in.over() {
		return nil
	}
	return in.exec.Signal(ctx, "SIGINT")
}

// obituary adds to a result that its interpreter ended.
func (in *interpreter) obituary(res *Outcome) {
	if in.last != nil {
		describeOutcome(res, *in.last)
	}
	res.Notes = append(res.Notes, "the interpreter of this context ended: "+in.why()+"; the next cell begins a "+
		"fresh one, without what was defined")
}

// ready fails where the interpreter could not be begun, since the image has none.
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
	if in.last != nil && in.absent() {
		return in.lang.missing(s.Info().Image)
	}
	return nil
}

// follow gives what a cell prints to each, until there is no more.
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
