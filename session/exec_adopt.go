package session

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"berth/guest/client"
	"berth/guest/wire"
	"berth/proto"
	"berth/session/endlog"
	"berth/session/secrets"
	"berth/state/ledger"
)

// loadExecs loads the execs of an earlier daemon.
func (s *Session) loadExecs(list []execRecord) {
	slices.SortFunc(list, func(a, b execRecord) int { return strings.Compare(a.Exec.ID, b.Exec.ID) })
	for _, r := range list {
		e := s.loadExec(r)
		s.started++
		e.number = s.started
		if s.execs = append(s.execs, e); !e.hasEnded() {
			s.running = append(s.running, e)
		}
	}
	s.trim(keptOutput, nil)
}

// loadExec makes an exec from its record. An exec that was running is lost, since its guest ended it with the
// daemon's connection. A durable one runs on until reconcile finds otherwise.
func (s *Session) loadExec(r execRecord) *Exec {
	switch {
	case r.Exec.State != proto.ExecRunning:
		return s.loadEndedExec(r)
	case r.Run != nil:
		return s.loadRunningExec(r)
	}
	r = s.recordLost(r)
	e := s.loadEndedExec(r)
	e.auditExec(actionExecEnd, r.Exec, e.made)
	return e
}

// loadEndedExec makes an ended exec from its record and its output on disk.
func (s *Session) loadEndedExec(r execRecord) *Exec {
	e := &Exec{
		s: s, redactor: s.redactor, id: r.Exec.ID, key: r.Key, retry: r.Retry, info: r.Exec,
		out:         s.core.outputs.Load(r.Exec.ID, r.Exec.StdoutBytes, r.Exec.StderrBytes),
		made:        Produced{FileIDs: r.Files, Notes: r.Notes},
		endRequests: make(chan endRequest, 1), ended: make(chan struct{}), leftRunning: make(chan struct{}),
	}
	close(e.ended)
	return e
}

// loadRunningExec makes a running exec from its record. It has no process until reattach.
func (s *Session) loadRunningExec(r execRecord) *Exec {
	s.removeUnrecordedOutput(r)
	e := &Exec{
		redactor: s.loadRedactor(r),
		s:        s, id: r.Exec.ID, key: r.Key, retry: r.Retry, cmd: *r.Run, info: r.Exec, boot: r.Guest, host: r.Host,
		out:         s.core.outputs.New(r.Exec.ID, r.Run.MaxOutputBytes, s.core.memory),
		endRequests: make(chan endRequest, 1), ended: make(chan struct{}), leftRunning: make(chan struct{}),
	}
	e.cmd.Command, e.cmd.Argv, e.cmd.Shell, e.cmd.JobID, e.cmd.User = r.Exec.Command, r.Exec.Argv, r.Exec.Shell,
		r.Exec.JobID, r.Exec.User
	e.begin()
	return e
}

// loadRedactor hides what sealEnvironment sealed.
func (s *Session) loadRedactor(r execRecord) *secrets.Redactor {
	if r.Sealed == "" {
		return s.redactor
	}
	var c sealedFields
	text, err := s.core.cfg.Vault.Unseal(r.Exec.ID, r.Sealed)
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil {
		s.core.cfg.Log.Warn("opening the environment of a command", "exec", r.Exec.ID, "error", err)
	}
	return s.redactorFor(proto.Cmd{Env: c.Env, Secrets: c.Secrets})
}

// recordLost records an exec that ran when the last daemon ended as lost.
func (s *Session) recordLost(r execRecord) execRecord {
	r.Exec.State, r.Exec.EndedAt = proto.ExecEnded, proto.AtOrNil(s.core.cfg.Now())
	end := lostSince(r.Host, s.core.host, daemonRestarted)
	r.Exec.End = &end
	r.Run = nil
	s.removeUnrecordedOutput(r)
	s.core.cfg.Ledger.UpdateLater(s.putExec(r))
	return r
}

// removeUnrecordedOutput removes output that was kept before a crash prevented the record of the end. No record
// describes it, and the guest still has the output of what runs.
func (s *Session) removeUnrecordedOutput(r execRecord) {
	if err := s.core.outputs.Remove(r.Exec.ID); err != nil {
		s.core.cfg.Log.Warn("removing output of an exec whose end is not known", "exec", r.Exec.ID, "error", err)
	}
}

// unattachedExecs returns the durable execs of an earlier daemon that this one has no process for.
func (s *Session) unattachedExecs() []*Exec {
	return slices.DeleteFunc(s.Execs(), func(e *Exec) bool {
		return e.hasEnded() || e.process() != nil
	})
}

// adoptTimeout bounds the request for what a guest keeps. The guest ends unknown processes before it answers.
const adoptTimeout = 30 * time.Second

// adoptExecs goes on with the execs of an earlier daemon in a sandbox that still runs. It asks the guest even if
// there are none, so that the guest ends processes that no record names. If it fails, such processes may run on
// without control.
func (s *Session) adoptExecs(ctx context.Context, hello wire.Hello) error {
	s.setBoot(hello.Boot)
	orphans := s.unattachedExecs()
	ids := make([]string, len(orphans))
	for i, e := range orphans {
		ids[i] = e.id
	}
	ctx, cancel := context.WithTimeout(ctx, adoptTimeout)
	defer cancel()
	kept, err := s.Guest().Claim(ctx, ids)
	if s.core.ctx.Err() != nil || err != nil {
		return err
	}
	for _, e := range orphans {
		switch {
		case slices.Contains(kept, e.id):
			e.reattach(ctx)
		case e.boot == hello.Boot:
			e.endLost(neverStarted)
		default:
			e.endLost(guestRestarted)
		}
	}
	return nil
}

// reattach attaches to a process of an earlier daemon and waits for its end like for any other.
func (e *Exec) reattach(ctx context.Context) {
	g := e.s.Guest()
	proc, err := g.Attach(ctx, e.id, [2]int64{}, e.cmd.OpenStdin || e.cmd.TTY != nil, e.sink)
	if err != nil {
		if e.s.core.ctx.Err() != nil { // the next daemon reattaches
			return
		}
		e.s.core.cfg.Log.Warn("attaching to a command again", "exec", e.id, "error", err)
		forgetIn(g, e.id) // else it may run on
		e.endLost("the container's guest could not be attached to again")
		return
	}
	e.mu.Lock()
	e.guest, e.proc = g, proc
	e.ran, e.info.PID = proc.Ran(), proc.PID()
	e.mu.Unlock()
	e.setDeadline()
	e.clients.Begin()
	e.s.mu.Lock()
	e.s.users++
	e.s.mu.Unlock()
	err = e.s.core.goTracked(nil, func() {
		e.runToEnd(e.s.release)
	})
	if err != nil { // the daemon is closing
		e.s.release()
	}
}

// endLost ends an exec of an earlier daemon that has no process any more.
func (e *Exec) endLost(why string) {
	e.out.Finish()
	e.recordEnd(lostSince(e.host, e.s.core.host, why), func() {})
}

// endUnattached ends the execs of an earlier daemon whose sandbox is gone.
func (s *Session) endUnattached() {
	for _, e := range s.unattachedExecs() {
		e.endLost(guestRestarted)
	}
}

// lostSince returns the end of an exec whose process is gone. The reason is a restart of the host if there was one
// since, else why. An unknown boot ID equals every other.
func lostSince(boot, now, why string) proto.End {
	if boot != "" && now != "" && boot != now {
		return proto.End{Reason: proto.EndHostRestart, ReturnCode: -1, Message: hostRestarted}
	}
	return proto.End{Reason: proto.EndLost, ReturnCode: -1, Message: why}
}

// forgetTimeout bounds the message to a guest that an end is stored. A later daemon does not claim what the guest
// still keeps.
const forgetTimeout = 5 * time.Second

// forgetInGuest has the guest drop what it keeps of a command whose end is stored.
func (e *Exec) forgetInGuest() {
	e.mu.Lock()
	g, proc, keep := e.guest, e.proc, e.unstored
	e.mu.Unlock()
	if !e.cmd.Outlives() || proc == nil || keep {
		return
	}
	forgetIn(g, e.id)
}

// forgetIn has a guest end a command that it keeps, if it runs, and drop it.
func forgetIn(g *client.Client, id string) {
	ctx, cancel := context.WithTimeout(context.Background(), forgetTimeout)
	defer cancel()
	_ = g.Forget(ctx, id) // if this fails, the guest is gone, or the adoption by the next daemon does it
}

// Why an exec is lost, for people. A restart of the host, of the daemon and of the container have different texts.
const (
	hostRestarted   = "the host was restarted while it ran"
	daemonRestarted = "the daemon was restarted while it ran, and it was not started with detach or background"
	guestRestarted  = "the container ended while the daemon was not there"
	neverStarted    = "the daemon was restarted before it had started; it did not run"
)

// applyEnd records an end that an older daemon left of a command that the ledger has as running. A command that the
// ledger does not know was deleted, and one that has ended there is up to date.
func applyEnd(tx *ledger.Tx, line endlog.Line[execRecord]) error {
	key := execKey(line.Container, line.Record.Exec.ID)
	var known execRecord
	there, err := tx.Get(bucketExecs, key, &known)
	if err != nil || !there || known.Exec.State != proto.ExecRunning {
		return err
	}
	return tx.Put(bucketExecs, key, line.Record)
}
