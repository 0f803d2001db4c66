package session

import (
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"berth/guest"
	"berth/guest/output"
	"berth/proto"
)

// durable reports whether a command outlives its client and the daemon: its guest keeps it until a daemon has stored
// its end. Whoever gives a key says that they may come back for it.
func durable(cmd proto.Cmd) bool { return cmd.Detach || cmd.Background || cmd.IdempotencyKey != "" }

// Outlives reports whether the exec goes on when its client, or the daemon, goes away.
func (e *Exec) Outlives() bool { return durable(e.cmd) }

// Why an exec is gone, for people. What a restart of the host, the daemon or the container did is told apart.
const (
	hostRestarted   = "the host was restarted while it ran"
	daemonRestarted = "the daemon was restarted while it ran, and it was not started with detach or background"
	guestRestarted  = "the container ended while the daemon was not there"
	neverStarted    = "the daemon was restarted before it had started; it did not run"
)

// claimTimeout bounds asking a guest what it keeps: it ends what nobody knows of before it answers.
const claimTimeout = 30 * time.Second

// forgetTimeout bounds telling it that an end is stored. What it keeps longer is claimed by nobody later.
const forgetTimeout = 5 * time.Second

// hostBoot names this boot of the host; "" if the kernel does not tell.
func hostBoot() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// keepable is what of a command a later daemon needs to see it to its end. What may hold secrets stays out.
func keepable(cmd proto.Cmd) *proto.Cmd {
	if !durable(cmd) {
		return nil
	}
	return &proto.Cmd{
		OpenStdin: cmd.OpenStdin, TTY: cmd.TTY, Background: cmd.Background, Detach: cmd.Detach,
		IdempotencyKey: cmd.IdempotencyKey, TimeoutSeconds: cmd.TimeoutSeconds, MaxOutputBytes: cmd.MaxOutputBytes,
		OnOutputLimit: cmd.OnOutputLimit,
	}
}

// lostSince is the end of an exec that ran in one boot of the host and is found gone in another, or in the same one for
// the reason given. Boots that are not known do not differ.
func lostSince(boot, now, why string) proto.End {
	if boot != "" && now != "" && boot != now {
		return proto.End{Reason: proto.EndHostRestart, ReturnCode: -1, Message: hostRestarted}
	}
	return proto.End{Reason: proto.EndLost, ReturnCode: -1, Message: why}
}

// recallRunning makes a running exec of its record. It has no process until it is attached to again.
func (s *Session) recallRunning(r execRecord) *Exec {
	s.dropEarly(r)
	e := &Exec{
		veil: s.recallVeil(r),
		s:    s, id: r.Exec.ID, key: r.Key, retry: r.Retry, cmd: *r.Run, info: r.Exec, boot: r.Guest, host: r.Host,
		out: output.New(r.Run.MaxOutputBytes, s.core.memory), ask: make(chan ending, 1), ended: make(chan struct{}),
		left: make(chan struct{}),
	}
	e.cmd.Command, e.cmd.Argv, e.cmd.Shell, e.cmd.JobID, e.cmd.User = r.Exec.Command, r.Exec.Argv, r.Exec.Shell,
		r.Exec.JobID, r.Exec.User
	return e
}

// orphans are the durable execs that have no process here, since an earlier daemon started them.
func (s *Session) orphans() []*Exec {
	return slices.DeleteFunc(s.Execs(), func(e *Exec) bool {
		return e.hasEnded() || e.process() != nil
	})
}

// rejoin goes on with the execs of an earlier daemon, in a sandbox that is still there. The guest is asked even
// where there are none: what it keeps for nobody ends. If it fails, they may run on, and nobody can reach them.
func (s *Session) rejoin(ctx context.Context, hello guest.Hello) error {
	s.setBoot(hello.Boot)
	orphans := s.orphans()
	ids := make([]string, len(orphans))
	for i, e := range orphans {
		ids[i] = e.id
	}
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	kept, err := s.client().Claim(ctx, ids)
	if s.core.ctx.Err() != nil || err != nil {
		return err
	}
	for _, e := range orphans {
		switch {
		case slices.Contains(kept, e.id):
			e.resume(ctx)
		case e.boot == hello.Boot:
			e.vanish(neverStarted)
		default:
			e.vanish(guestRestarted)
		}
	}
	return nil
}

// resume attaches to a process that an earlier daemon started, and sees it to its end as if nothing had been.
func (e *Exec) resume(ctx context.Context) {
	g := e.s.client()
	proc, err := g.Attach(ctx, e.id, [2]int64{}, e.cmd.OpenStdin || e.cmd.TTY != nil, e.sink)
	if err != nil {
		if e.s.core.ctx.Err() != nil { // it is the next daemon's
			return
		}
		e.s.core.cfg.Log.Warn("attaching to a command again", "exec", e.id, "error", err)
		forgetIn(g, e.id) // else it may run on
		e.vanish("the container's guest could not be attached to again")
		return
	}
	e.mu.Lock()
	e.guest, e.proc = g, proc
	e.ran = proc.Ran()
	e.mu.Unlock()
	e.setDeadline()
	e.s.mu.Lock()
	e.s.users++
	e.s.mu.Unlock()
	err = e.s.core.track(nil, func() {
		e.run(e.s.release)
	})
	if err != nil { // nobody can close what is being opened
		e.s.release()
	}
}

// vanish ends an exec of an earlier daemon that has no process any more.
func (e *Exec) vanish(why string) {
	e.out.Finish()
	e.conclude(lostSince(e.host, e.s.core.host, why), func() {})
}

// desert ends the execs of an earlier daemon whose sandbox is gone.
func (s *Session) desert() {
	for _, e := range s.orphans() {
		e.vanish(guestRestarted)
	}
}

// leaving is closed when this daemon ends and the command goes on without it; nil for one that ends with it.
func (e *Exec) leaving() <-chan struct{} {
	if !durable(e.cmd) {
		return nil
	}
	return e.s.core.ctx.Done()
}

// forget has the guest drop what it keeps of a command whose end is stored.
func (e *Exec) forget() {
	e.mu.Lock()
	g, proc, keep := e.guest, e.proc, e.unstored
	e.mu.Unlock()
	if !durable(e.cmd) || proc == nil || keep {
		return
	}
	forgetIn(g, e.id)
}

// forgetIn has a guest end a command that it keeps, if it runs, and drop it.
func forgetIn(g *guest.Client, id string) {
	ctx, cancel := context.WithTimeout(context.Background(), forgetTimeout)
	defer cancel()
	_ = g.Forget(ctx, id) // if that fails, the guest is gone, or the next daemon's claim does it
}

// lostExec is the record of an exec that ran when the last daemon ended, as it is told from now on.
func (s *Session) lostExec(r execRecord) execRecord {
	r.Exec.State, r.Exec.EndedAt = proto.ExecEnded, proto.AtOrNil(s.core.cfg.Now())
	end := lostSince(r.Host, s.core.host, daemonRestarted)
	r.Exec.End = &end
	r.Run = nil
	s.dropEarly(r)
	s.core.cfg.Ledger.Later(s.putExec(r))
	return r
}

// dropEarly removes the output of an exec that was kept before its end was written down, which a crash prevented: its
// record says nothing of what is in there, and what still runs is asked anew.
func (s *Session) dropEarly(r execRecord) {
	e := Exec{s: s, id: r.Exec.ID}
	if err := e.removeOutput(); err != nil {
		s.core.cfg.Log.Warn("removing output of an exec whose end is not known", "exec", e.id, "error", err)
	}
}
