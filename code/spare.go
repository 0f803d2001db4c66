package code

import (
	"cmp"
	"context"
	"time"

	"berth/proto"
	"berth/session"
)

// A spare is a container with an interpreter that has started and waits for its one program. To start both is nearly
// all of what a small program takes, so who has just run one has another ready for the next.
type spare struct {
	s     *session.Session
	in    *interpreter
	ready chan struct{} // closed when s and in are set, or err
	err   error
	old   *time.Timer // gives it up when nobody came for it
}

// A spareKey says whom a spare is for. It is made with that API key, so that it counts, and is in the audit log, as
// what it is.
type spareKey struct{ owner, key, image, language string }

// Bounds of spares: how long one waits, and how many there are. spareIdle is the net under their deletion.
const (
	spareTime = time.Minute
	maxSpares = 8
	spareIdle = 5 * time.Minute
)

// spareFor is whom a spare would have to be for to run a program, if one may.
func (r *Runner) spareFor(ctx context.Context, owner string, req Program, lang language) (spareKey, bool) {
	k := spareKey{owner, proto.CallerOf(ctx).KeyID, req.Image, lang.name}
	plain := req.Container == "" && len(req.Env)+len(req.Secrets)+len(req.NetworkSecrets) == 0 && req.Network.IsZero()
	return k, r.spare != nil && plain && r.spare(k.key)
}

// claim is the spare for k, which is the caller's then; nil if there is none. It waits for one that is just being made.
func (r *Runner) claim(ctx context.Context, k spareKey) *spare {
	r.mu.Lock()
	sp := r.spares[k]
	delete(r.spares, k)
	r.mu.Unlock()
	if sp == nil {
		return nil
	}
	sp.old.Stop()
	select {
	case <-sp.ready:
	case <-ctx.Done():
		r.wg.Go(func() { r.drop(sp) })
		return nil
	}
	if sp.err != nil || sp.in.over() {
		r.drop(sp)
		return nil
	}
	return sp
}

// refill makes a spare for k, unless there is one, or there are enough.
func (r *Runner) refill(ctx context.Context, k spareKey, lang language) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.spares[k] != nil || len(r.spares) >= maxSpares || r.ctx.Err() != nil {
		return
	}
	sp := &spare{ready: make(chan struct{})}
	sp.old = time.AfterFunc(spareTime, func() { r.giveUp(k, sp) })
	r.spares[k] = sp
	on := proto.WithCaller(r.ctx, proto.CallerOf(ctx))
	r.wg.Go(func() {
		defer close(sp.ready)
		sp.err = r.prepare(on, k, lang, sp)
	})
}

// prepare starts what a spare is.
func (r *Runner) prepare(ctx context.Context, k spareKey, lang language, sp *spare) (err error) {
	sp.s, err = r.sessions.Create(ctx, k.owner, proto.CreateContainer{
		Image: k.image, Labels: map[string]string{"berth.for": "run_code"}, Fleeting: true, IdleTimeoutSeconds: int64(
			spareIdle.Seconds()), MaxLifetimeSeconds: int64(freshLifetime.Seconds()),
	})
	if err != nil {
		return err
	}
	cmd := lang.command()
	cmd.Shown, cmd.OpenStdin, cmd.Resident = lang.name+" interpreter for run_code", true, true
	if sp.in, err = launch(ctx, sp.s, lang, cmd); err != nil {
		return err
	}
	r.wg.Go(func() { sp.in.follow(r.ctx) })
	return nil
}

// giveUp deletes a spare that nobody came for.
func (r *Runner) giveUp(k spareKey, sp *spare) {
	r.mu.Lock()
	mine := r.spares[k] == sp && r.ctx.Err() == nil
	if mine {
		delete(r.spares, k)
		r.wg.Go(func() { r.drop(sp) })
	}
	r.mu.Unlock()
}

// drop deletes a spare once it is made.
func (r *Runner) drop(sp *spare) {
	<-sp.ready
	if sp.s != nil {
		r.discard(context.Background(), sp.s.Owner(), sp.s)
	}
}

// dropSpares is for Close.
func (r *Runner) dropSpares() {
	r.mu.Lock()
	all := r.spares
	r.spares = map[spareKey]*spare{}
	r.mu.Unlock()
	for _, sp := range all {
		sp.old.Stop()
		r.drop(sp)
	}
}

// with runs a program in a spare.
func (r *Runner) with(ctx context.Context, sp *spare, req Program) (Outcome, error) {
	release, err := sp.s.Hold(ctx, req.Files)
	if err != nil {
		return Outcome{}, err
	}
	defer release()
	began := time.Now()
	in, c := sp.in, newCell(sp.s, req.MaxOutputBytes)
	defer c.close()
	in.exec.AuditText(ctx, actCell, cmp.Or(req.Shown, in.lang.name+": "+req.Code))
	number := in.take(c)
	go func() { // it ends with the interpreter
		err := in.exec.Write(r.ctx, request(c.nonce, number, modeOnce, req.Code))
		if err == nil {
			err = in.exec.CloseStdin()
		}
		if err != nil { // where that is so because it has ended, this does nothing
			in.exec.Cancel(proto.EndLost, "the code could not be sent to its interpreter")
		}
	}()
	timer := time.NewTimer(r.limit(req.TimeoutSeconds))
	defer timer.Stop()
	select {
	case <-in.ended:
	case <-timer.C:
		in.exec.Cancel(proto.EndTimeout, "it ran longer than timeout_seconds")
		<-in.ended
	case <-ctx.Done():
		return Outcome{}, ctx.Err()
	}
	in.drop()
	if in.last == nil {
		return Outcome{}, in.err
	}
	res := c.result()
	describeOutcome(&res, *in.last)
	res.DurationMS = milliseconds(time.Since(began))
	return res, nil
}
