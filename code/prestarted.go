package code

import (
	"cmp"
	"context"
	"time"

	"berth/code/cell"
	"berth/proto"
	"berth/session"
	"berth/session/fleeting"
)

// A prestarted is a container with an interpreter that has started and waits for one program. This file is a speed
// layer: after each program that runs in a container of its own, the runner starts a container and an interpreter for
// the key's next program. Starting both takes nearly all the time of a small program: a warm run takes about 20 ms
// in place of 74. Config.MayPrestart nil switches it off; Once then starts both for each program.
type prestarted struct {
	s     *session.Session
	in    *interpreter
	ready chan struct{} // closed when s and in are set, or err
	err   error
	old   *time.Timer // deletes it if no program came for it
}

// A prestartKey says who may use a prestarted interpreter. The container is created with that API key: it counts as
// one of the key's, and the audit log names the key.
type prestartKey struct {
	owner, key, image, language string
	proto.Confinement
}

// Limits of prestarted interpreters: how long one waits, and how many there are. prestartIdle deletes the container
// if all else fails.
const (
	prestartTime  = time.Minute
	maxPrestarted = 8
	prestartIdle  = 5 * time.Minute
)

// prestartKeyFor returns the key of a prestarted interpreter for a program, and whether the program may use one.
func (r *Runner) prestartKeyFor(ctx context.Context, owner string, req proto.Program, lang language) (prestartKey,
	bool) {
	k := prestartKey{owner, proto.CallerOf(ctx).KeyID, req.Image, lang.name, req.Confinement}
	plain := req.Container == "" && len(req.Env)+len(req.Secrets)+len(req.NetworkSecrets) == 0 &&
		req.Network.IsZero() && req.Cwd == ""
	return k, r.mayPrestart != nil && plain && r.mayPrestart(k.key)
}

// takePrestarted returns a prestarted interpreter, which belongs to the caller from then on; nil: there is none. It
// waits for one that is being started.
func (r *Runner) takePrestarted(ctx context.Context, k prestartKey) *prestarted {
	r.mu.Lock()
	sp := r.ready[k]
	delete(r.ready, k)
	r.mu.Unlock()
	if sp == nil {
		return nil
	}
	sp.old.Stop()
	select {
	case <-sp.ready:
	case <-ctx.Done():
		r.wg.Go(func() { r.deletePrestarted(sp) })
		return nil
	}
	if sp.err != nil || sp.in.over() {
		r.deletePrestarted(sp)
		return nil
	}
	return sp
}

// prestart starts an interpreter for k, unless there is one, or too many exist.
func (r *Runner) prestart(ctx context.Context, k prestartKey, lang language) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ready[k] != nil || len(r.ready) >= maxPrestarted || r.ctx.Err() != nil {
		return
	}
	sp := &prestarted{ready: make(chan struct{})}
	sp.old = time.AfterFunc(prestartTime, func() { // no program has used it
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.ready[k] == sp && r.ctx.Err() == nil {
			delete(r.ready, k)
			r.wg.Go(func() { r.deletePrestarted(sp) })
		}
	})
	r.ready[k] = sp
	on := proto.WithCaller(r.ctx, proto.CallerOf(ctx))
	r.wg.Go(func() {
		defer close(sp.ready)
		sp.err = r.startPrestarted(on, k, lang, sp)
	})
}

// startPrestarted creates the container and starts the interpreter.
func (r *Runner) startPrestarted(ctx context.Context, k prestartKey, lang language, sp *prestarted) (err error) {
	sp.s, err = fleeting.Create(ctx, r.sessions, k.owner, proto.CreateContainer{
		Image: k.image, RuntimeClass: k.RuntimeClass, Limits: k.Limits,
		Labels:             map[string]string{"berth.for": "run_code"},
		IdleTimeoutSeconds: int64(prestartIdle.Seconds()),
	})
	if err != nil {
		return err
	}
	cmd := lang.command()
	cmd.Shown = lang.name + " interpreter for run_code"
	sp.in, err = r.startResident(ctx, sp.s, lang, cmd)
	return err
}

// deletePrestarted deletes a prestarted interpreter once it has started.
func (r *Runner) deletePrestarted(sp *prestarted) {
	<-sp.ready
	if sp.s != nil {
		fleeting.Delete(context.Background(), r.sessions, sp.s, r.log)
	}
}

// deleteAllPrestarted deletes all prestarted interpreters.
func (r *Runner) deleteAllPrestarted() {
	r.mu.Lock()
	all := r.ready
	r.ready = map[prestartKey]*prestarted{}
	r.mu.Unlock()
	for _, sp := range all {
		sp.old.Stop()
		r.deletePrestarted(sp)
	}
}

// runPrestarted runs a program in a prestarted interpreter.
func (r *Runner) runPrestarted(ctx context.Context, sp *prestarted, req proto.Program) (Outcome, error) {
	release, err := sp.s.Hold(ctx, req.Files)
	if err != nil {
		return Outcome{}, err
	}
	defer release()
	began := time.Now()
	in, c := sp.in, cell.New(req.MaxOutputBytes, sp.s.OutputBudget())
	defer c.Close()
	in.exec.AuditText(ctx, actCell, cmp.Or(req.Shown, in.lang.name+": "+req.Code))
	number := in.nextNumber()
	in.attachCell(c)
	go func() { // it ends with the interpreter
		err := in.exec.Write(r.ctx, c.Request(number, cell.ModeOnce, req.Code))
		if err == nil {
			err = in.exec.CloseStdin()
		}
		if err != nil {
			in.endUnsendable()
		}
	}()
	timer := time.NewTimer(r.timeLimit(req.TimeoutSeconds))
	defer timer.Stop()
	select {
	case <-in.ended:
	case <-timer.C:
		in.exec.Cancel(proto.EndTimeout, "it ran longer than timeout_seconds")
		<-in.ended
	case <-ctx.Done():
		return Outcome{}, ctx.Err()
	}
	in.detachCell()
	if in.last == nil {
		return Outcome{}, in.err
	}
	if err := in.checkInstalled(sp.s); err != nil {
		return Outcome{}, err
	}
	res := c.Outcome()
	describeEnd(&res, *in.last)
	nameMissing(&res, sp.s)
	res.DurationMS = milliseconds(time.Since(began))
	return res, nil
}
