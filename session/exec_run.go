package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"syscall"
	"time"

	"berth/guest/client"
	"berth/guest/output"
	"berth/guest/wire"
	"berth/proto"
	"berth/session/secrets"

	"golang.org/x/sys/unix"
)

// This file has the life of one command, in order:
//
//	startExec    checks the command, uses the session, lists the exec, starts the process
//	runToEnd     waits for the process, or ends it
//	recordEnd    records the end, publishes it and releases the session
//
// exec_end.go finds out what an end means. exec_store.go keeps ended execs.

// startExec starts a command that no earlier request with the same key has started. The exec is in the session's list
// when it returns.
func (s *Session) startExec(ctx context.Context, cmd proto.Cmd, r retry) (_ *Exec, err error) {
	redactor := s.redactorFor(cmd)
	defer func() { err = redactor.Error(err) }()
	if err := s.checkExec(ctx, &cmd); err != nil {
		return nil, err
	}
	ctx = InGeneration(ctx, cmd.Generation)
	release, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	e := s.newExec(cmd, r, redactor)
	e.key, e.by = proto.CallerOf(ctx).KeyID, auditEntryFor(ctx)
	if err := s.addExec(e); err != nil {
		release()
		return nil, err
	}
	if err := e.startProcess(ctx); err != nil {
		s.removeExec(e)
		release()
		return nil, err
	}
	if cmd.Resident {
		release()
		release = func() {}
	}
	e.setDeadline()
	err = s.core.goTracked(func() { s.publishStart(e) }, func() {
		e.auditStart()
		e.runToEnd(release)
	})
	if err != nil {
		e.abort()
		s.removeExec(e)
		release()
		return nil, err
	}
	return e, nil
}

// newExec makes the exec of a command that is about to start.
func (s *Session) newExec(cmd proto.Cmd, r retry, redactor *secrets.Redactor) *Exec {
	e := &Exec{
		s: s, id: proto.NewID(proto.ExecPrefix), cmd: cmd, retry: r, redactor: redactor,
		out:         output.New(cmd.MaxOutputBytes, s.core.memory),
		endRequests: make(chan endRequest, 1), ended: make(chan struct{}), leftRunning: make(chan struct{}),
	}
	if cmd.OnOutputLimit == proto.OutputWait {
		e.out.Hold()
	}
	e.info = proto.Exec{
		ID: e.id, ContainerID: s.id, JobID: cmd.JobID, Command: cmd.Command, Argv: cmd.Argv, Shell: cmd.Shell,
		User: cmd.User, Background: cmd.Background, State: proto.ExecRunning, StartedAt: proto.At(s.core.cfg.Now()),
	}
	if cmd.Shown != "" {
		e.info.Command, e.info.Argv = cmd.Shown, nil
	}
	redactor.HideExec(&e.info)
	return e
}

// addExec takes a slot among the running execs. The exec has no number until publishStart, so clients do not see it
// before.
func (s *Session) addExec(e *Exec) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.info.Generation = s.rec.Generation
	if n := s.runningExecs(false); n >= s.core.cfg.MaxExecs {
		return proto.Errorf(proto.TooMany, "", s.id, "container %s runs %d commands, which is its limit; wait "+
			"for one to end", s.id, n)
	}
	s.execs, s.running = append(s.execs, e), append(s.running, e)
	return nil
}

// startProcess puts the inputs in place and starts the process. If the sandbox turns out to be gone, it starts the
// container again and tries once more, unless the process may have run. Then the exec counts as lost, as
// endWithoutProcess says.
func (e *Exec) startProcess(ctx context.Context) error {
	s := e.s
	if err := s.core.cfg.Jobs.Begin(ctx, s, e.cmd.Files); err != nil {
		return err
	}
	g, err := s.clientFor(ctx, e)
	if err != nil {
		return err
	}
	err = e.startAndRecord(ctx, g)
	if proto.CodeOf(err) != proto.Unavailable || !s.confirmLost(ctx, g) {
		return e.lostIfStarted(err)
	}
	if !client.NotStarted(err) { // it may have run, and must not run twice
		e.endWithoutProcess = proto.End{Reason: proto.EndLost, ReturnCode: -1,
			Message: "the container ended while the command was starting; it may have begun"}
		return nil
	}
	if err := s.stoppedOnRequest(g); err != nil {
		return err
	}
	if g, err = s.restartFor(ctx, e); err != nil {
		return err
	}
	return e.lostIfStarted(e.startAndRecord(ctx, g))
}

// startAndRecord starts the process and records that, both at once. The record of an exec with a key is on disk
// before its process exists, since a retry must find it. A program that cannot be executed is a result, as in a
// shell: 127 for not found, 126 for not executable.
func (e *Exec) startAndRecord(ctx context.Context, g *client.Client) error {
	recorded := e.recordStart()
	if e.retry.Key != "" {
		if err := recorded(); err != nil {
			return fmt.Errorf("recording the exec: %w", err)
		}
	}
	e.mayHaveStarted = true
	proc, err := g.StartWith(ctx, e.guestCommand(), e.sink, client.StartOptions{
		Buffers: e.sinkBuffer,
		Sent: func() { // while the guest prepares the process
			before := e.s.measure()
			e.before = &before
		},
	})
	if code := e.notExecutable(err); code != 0 {
		message := proto.AsError(err).Message
		e.sink(proto.Stderr, 0, []byte(message+"\n"))
		e.endWithoutProcess = proto.End{Reason: proto.EndNotStarted, ReturnCode: code, Message: message}
		proc, err = nil, nil
	}
	if err != nil {
		return err
	}
	e.mu.Lock()
	e.guest, e.proc = g, proc
	e.mu.Unlock()
	if proc != nil && e.cmd.Stdin != "" && !durable(e.cmd) {
		err := e.s.core.goTracked(nil, func() { // the process may read slowly; its death ends the write
			_, _ = proc.Write(context.Background(), []byte(e.cmd.Stdin))
			_ = proc.CloseStdin()
		})
		if err != nil {
			e.abort()
			return err
		}
	}
	if err := recorded(); err != nil {
		e.abort()
		return fmt.Errorf("recording the exec: %w", err)
	}
	return nil
}

// recordStart writes down that the command runs; wait returns once that is done. Callers see the exec only after that,
// so an exec that was seen is known after a crash. A durable exec is synced to disk, which happens while the process
// starts. The others end with the daemon, so their record goes to the journal without a sync, once the process runs.
func (e *Exec) recordStart() (wait func() error) {
	put := e.s.putExec(execRecord{Exec: e.Info(), Key: e.key, Retry: e.retry, Run: storedCmd(e.cmd),
		Host: e.s.core.host, Guest: e.s.guestBoot(), Sealed: e.sealEnvironment()})
	if durable(e.cmd) {
		return e.s.core.cfg.Ledger.StartUpdate(put)
	}
	return func() error { return e.s.core.cfg.Ledger.UpdateAsync(put) }
}

// lostIfStarted returns the error of a start that failed. If the process may exist and a retry may ask for it, the
// exec counts as lost instead. A retry must learn that, and not run the command twice.
func (e *Exec) lostIfStarted(err error) error {
	if err == nil || e.retry.Key == "" || !e.mayHaveStarted || client.NotStarted(err) {
		return err
	}
	e.endWithoutProcess = proto.End{Reason: proto.EndLost, ReturnCode: -1,
		Message: "the command was given up while it was starting; it may have begun"}
	return nil
}

// notExecutable returns the return code for a program that could not be executed, or 0.
func (e *Exec) notExecutable(err error) int {
	var pe *proto.Error
	if len(e.cmd.Argv) == 0 || !errors.As(err, &pe) || pe.Item != e.cmd.Argv[0] {
		return 0
	}
	switch pe.Code {
	case proto.NotFound:
		return 127
	case proto.PermissionDenied:
		return 126
	}
	return 0
}

// guestCommand returns the command in the guest's form. The command's environment overrides the container's, and
// secrets override both.
func (e *Exec) guestCommand() wire.Command {
	dir := proto.JobDir(e.cmd.JobID)
	out := proto.OutputDir(e.cmd.JobID, e.id)
	c := wire.Command{
		ID: e.id, Argv: e.cmd.Argv, Text: e.cmd.Command, Shell: e.cmd.Shell, Dir: dir, Output: out, Job: dir,
		User: e.cmd.User, Stdin: e.cmd.OpenStdin || e.cmd.Stdin != "" || e.cmd.TTY != nil, TTY: e.cmd.TTY,
	}
	if durable(e.cmd) {
		c.Keep = e.cmd.MaxOutputBytes
		if e.cmd.Stdin != "" { // the guest has all input and need not wait for a daemon
			c.Stdin, c.Input = false, []byte(e.cmd.Stdin)
		}
	}
	switch {
	case strings.HasPrefix(e.cmd.Cwd, "/"):
		c.Dir = e.cmd.Cwd
	case e.cmd.Cwd != "":
		c.Dir = dir + "/" + e.cmd.Cwd
	}
	r, env := e.s.record(), map[string]string{}
	for _, part := range []map[string]string{r.Env, r.Secrets, r.placeholders(), e.cmd.Env, e.cmd.Secrets} {
		maps.Copy(env, part)
	}
	if r.connected() {
		addProxy(env)
	}
	if r.hasTools() {
		e.addTools(env)
	}
	if len(r.NetworkSecrets) > 0 {
		secrets.AddCAVariables(env)
	}
	c.Lists = toolLists(env)
	maps.Copy(env, map[string]string{"INPUT_DIR": proto.InputDir, "OUTPUT_DIR": out, "JOB_DIR": dir,
		"JOB_ID": e.cmd.JobID})
	for k, v := range env {
		c.Env = append(c.Env, k+"="+v)
	}
	return c
}

// abort drops a process whose exec no client will see.
func (e *Exec) abort() {
	e.out.Finish() // else its output may wait for a reader
	if p := e.process(); p != nil {
		p.Drop()
	}
}

// publishStart numbers a started exec and wakes callers that wait for new execs.
func (s *Session) publishStart(e *Exec) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started++
	e.number = s.started
	close(s.execStarted)
	s.execStarted = make(chan struct{})
}

// sink takes output from the guest. It blocks only if no output may be lost and a follower is behind.
func (e *Exec) sink(s proto.Stream, at int64, b []byte) {
	e.limitOutput(e.out.WriteAt(s, at, b))
}

// sinkBuffer takes a full buffer of output, like sink, and may keep it.
func (e *Exec) sinkBuffer(s proto.Stream, at int64, b *output.Buffer) (kept bool) {
	var room [64]byte
	b.Prefix(proto.AppendOutput(room[:0], e.id, s, at, nil))
	kept, over := e.out.WriteBuffer(s, at, b)
	e.limitOutput(over)
	return kept
}

// limitOutput ends a command that has written too much, if it asked for that.
func (e *Exec) limitOutput(over bool) {
	if over && e.cmd.OnOutputLimit == proto.OutputFail {
		e.Cancel(proto.EndOutputLimit, "it wrote more than max_output_bytes")
	}
}

// setDeadline sets when the command must end, and the reason: its own limit, or the session's cap. The limit counts
// from the start of the process.
func (e *Exec) setDeadline() {
	left := e.s.record().cap().Sub(e.s.core.clock.now())
	limit, proc := seconds(e.cmd.TimeoutSeconds)-e.ran, e.process()
	if e.cmd.TimeoutSeconds == 0 || left < limit || proc != nil && proc.Ended() {
		e.due, e.overdue = time.Now().Add(left), endRequest{proto.EndExpired, "the container's time was over"}
		return
	}
	e.due, e.overdue = time.Now().Add(limit), endRequest{proto.EndTimeout, "it ran longer than timeout_seconds"}
}

// killGrace is how long a killed process may take to exit before its guest counts as lost.
const killGrace = 10 * time.Second

// runToEnd waits for the end of the command, records it and releases the session.
func (e *Exec) runToEnd(release func()) {
	end, ended := e.awaitEnd()
	if !ended {
		close(e.leftRunning)
		release()
		return
	}
	end = e.explainEnd(end)
	e.out.Finish()
	e.recordEnd(end, release)
	e.forgetInGuest()
}

// awaitEnd waits for the process to end, or ends it. It returns false if the command goes on without this daemon.
func (e *Exec) awaitEnd() (end proto.End, ok bool) {
	proc := e.process()
	if proc == nil {
		return e.endWithoutProcess, true
	}
	var leaving <-chan struct{} // closed when this daemon ends and the command goes on without it
	if durable(e.cmd) {
		leaving = e.s.core.ctx.Done()
	}
	timer := time.NewTimer(time.Until(e.due))
	defer timer.Stop()
	select {
	case <-proc.Done():
		return e.preferRequestedEnd(e.exited(proc)), true
	case <-timer.C:
		return e.kill(proc, e.overdue), true
	case want := <-e.endRequests:
		return e.kill(proc, want), true
	case <-leaving:
		return end, false
	}
}

// exited returns the end of a process that has exited.
func (e *Exec) exited(proc *client.Process) proto.End {
	x, err := proc.Wait(context.Background())
	e.mu.Lock()
	e.ago, e.dirState = x.Ago, DirectoryState{Fingerprint: x.Seen}
	e.mu.Unlock()
	return endOf(x, err)
}

// kill kills the whole process tree and waits for its exit. A guest that takes longer than killGrace is lost.
func (e *Exec) kill(proc *client.Process, want endRequest) proto.End {
	ctx, cancel := context.WithTimeout(context.Background(), killGrace)
	defer cancel()
	e.out.Release()     // else the guest could not send the rest of the output
	_ = e.s.resume(ctx) // frozen processes do not exit
	_ = proc.Kill(ctx)  // the exit below is what counts
	select {
	case <-proc.Done():
		return endedOnRequest(e.exited(proc), want)
	case <-ctx.Done():
		proc.Drop() // no output may follow the end
		return endedOnRequest(endOf(wire.Exit{}, ctx.Err()), want)
	}
}

// endedOnRequest returns the end of a process that was ended for want.
func endedOnRequest(end proto.End, want endRequest) proto.End {
	if end.ReturnCode < 0 || end.ReturnCode == 128+int(syscall.SIGKILL) || end.Reason == proto.EndLost {
		end.ReturnCode, end.Signal = 128+int(syscall.SIGKILL), unix.SignalName(syscall.SIGKILL)
	}
	end.Reason, end.Message = want.reason, want.why
	return end
}

// preferRequestedEnd returns the end of a process that exited before it was killed. If its sandbox was stopped on
// request, or it had written too much by then, that is the reason.
func (e *Exec) preferRequestedEnd(end proto.End) proto.End {
	select {
	case want := <-e.endRequests:
		if end.Reason == proto.EndLost || end.Signal == unix.SignalName(syscall.SIGKILL) ||
			want.reason == proto.EndOutputLimit {
			return endedOnRequest(end, want)
		}
	default:
	}
	return end
}

// endOf translates the guest's exit status.
func endOf(x wire.Exit, err error) proto.End {
	if err != nil {
		return proto.End{Reason: proto.EndLost, ReturnCode: -1, Message: "the container ended under it"}
	}
	end := proto.End{Reason: proto.EndExit, ReturnCode: x.Code, Leftover: x.Leftover, CPUSeconds: x.CPU.Seconds(),
		PeakBytes: x.PeakBytes}
	if x.Signal != 0 {
		end.Reason, end.Signal = proto.EndSignal, unix.SignalName(x.Signal)
	}
	if x.OutOfMemory {
		end.Reason, end.Message = proto.EndOutOfMemory, "the container reached its memory limit"
	}
	return end
}

// recordTimeout bounds the work after a command's end: outputs and the manifest.
const recordTimeout = 2 * time.Minute

// recordEnd is the only function that makes an end known. In this order it
//
//   - records: the job's manifest and outputs, the CPU time of the API key, the ledger, the audit log;
//   - publishes: the result that Wait returns;
//   - releases: memory, the place among the running execs, the session.
//
// Then it closes e.ended. A caller that learns of the end finds the session without the command.
func (e *Exec) recordEnd(end proto.End, release func()) {
	e.mu.Lock()
	info := e.info
	at := e.s.core.cfg.Now().Add(-e.ago)
	e.mu.Unlock()
	if at.Before(info.StartedAt.Time) {
		at = info.StartedAt.Time
	}
	info.State, info.EndedAt, info.End = proto.ExecEnded, proto.AtOrNil(at), &end
	info.StdoutBytes, info.StderrBytes = e.out.Totals()

	made := e.recordJob(info)
	end.Message, made.Notes = e.redactor.Hide(end.Message), e.redactor.HideAll(made.Notes)
	res := e.resultOf(e.out, &info, made)
	// The key pays before the end is written, so every known end was paid for. The guest is not trusted: it cannot
	// charge more than the container's CPUs had in that time.
	most := info.Duration(time.Time{}).Seconds()*e.s.record().Limits.CPUs + grain
	e.s.core.cfg.Quotas.Ran(e.key, min(end.CPUSeconds, most))
	e.storeEnd(info, made)
	e.auditEnd(info, made)

	e.mu.Lock()
	made.Paths = nil // the manifest and the audit log have them
	e.info, e.made, e.result = info, made, &res
	e.mu.Unlock()

	e.s.trimEnded(e)
	e.s.core.freeMemory(e) // the next command may need the memory
	// Before the release: a pause between the two would count another user of the session as this command.
	e.s.removeRunning(e)
	release()
	close(e.ended)
}

// storeEnd writes the end, and the output of a durable exec. The end of a durable exec is on disk when it returns;
// other ends survive the death of the daemon. If there is no room, a sweep tries again, and the guest keeps a durable
// exec until then.
func (e *Exec) storeEnd(info proto.Exec, made Produced) {
	rec := execRecord{Exec: info, Key: e.key, Retry: e.retry, Files: made.FileIDs, Error: blockError(info.End.Reason),
		Notes: made.Notes}
	write, kept := e.s.core.cfg.Ledger.UpdateAsync, error(nil)
	if durable(e.cmd) {
		write = e.s.core.cfg.Ledger.Update
		if kept = e.spool(); kept != nil {
			e.s.core.cfg.Log.Error("keeping the output of an exec", "exec", e.id, "error", kept)
		}
	}
	err := write(e.s.putExec(rec))
	if proto.CodeOf(err) == proto.NotFound { // the session goes, so no client will ask
		err = nil
	}
	if err != nil {
		e.s.core.cfg.Log.Error("recording the end of an exec; a sweep will try again", "exec", e.id, "error", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unstored = err != nil || errors.Is(kept, syscall.ENOSPC)
}

// recordJob brings the job's manifest up to date and publishes outputs, if the guest can still be asked.
func (e *Exec) recordJob(info proto.Exec) Produced {
	switch info.End.Reason {
	case proto.EndLost, proto.EndHostRestart, proto.EndStopped, proto.EndExpired:
		return Produced{}
	}
	ctx, cancel := context.WithTimeout(context.Background(), recordTimeout)
	defer cancel()
	e.mu.Lock()
	g, dir := e.guest, e.dirState
	e.mu.Unlock()
	// outputs count against the quota of the exec's key
	ctx = proto.WithCaller(ctx, proto.Caller{Owner: e.s.owner, KeyID: e.key})
	return e.s.core.cfg.Jobs.End(ctx, Files{e.s, g}, info, e.tail(proto.Stderr, stderrTail), dir)
}

// stderrTail is how much of standard error a manifest quotes, in bytes.
const stderrTail = 2 << 10

// grain is what the kernel's count of CPU time may be ahead of the clock, in seconds.
const grain = 0.1
