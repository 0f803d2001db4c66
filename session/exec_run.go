package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"syscall"
	"time"

	"berth/guest"
	"berth/guest/output"
	"berth/proto"

	"golang.org/x/sys/unix"
)

// startExec is Exec for a command that nobody asked for before.
func (s *Session) startExec(ctx context.Context, cmd proto.Cmd, r retry) (_ *Exec, err error) {
	defer s.hideIn(cmd, &err)
	if err := s.record().unsealErr; err != nil {
		return nil, err
	}
	if err := s.core.cfg.checkCmd(&cmd, s.record().Job); err != nil {
		return nil, err
	}
	if err := s.core.cfg.mayRun(ctx); err != nil {
		return nil, err
	}
	ctx = InGeneration(ctx, cmd.Generation)
	release, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	e, err := s.begin(ctx, cmd, r)
	if err != nil {
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

// addExec gives a command its exec and a place in the session's list.
func (s *Session) addExec(cmd proto.Cmd, r retry) (*Exec, error) {
	e := &Exec{
		redactor: s.redactorFor(cmd),
		s:        s, id: proto.NewID(proto.ExecPrefix), cmd: cmd, retry: r, out: output.New(cmd.MaxOutputBytes,
			s.core.memory),
		endRequests: make(chan endRequest, 1), ended: make(chan struct{}), leftRunning: make(chan struct{}),
	}
	if cmd.OnOutputLimit == proto.OutputWait {
		e.out.Hold()
	}
	e.info = proto.Exec{
		ID: e.id, ContainerID: s.id, JobID: cmd.JobID, Command: cmd.Command, Argv: cmd.Argv, Shell: cmd.Shell,
		User:       cmd.User,
		Background: cmd.Background, State: proto.ExecRunning, StartedAt: proto.At(s.core.cfg.Now()),
	}
	if cmd.Shown != "" {
		e.info.Command, e.info.Argv = cmd.Shown, nil
	}
	e.redactor.HideExec(&e.info)
	s.mu.Lock()
	defer s.mu.Unlock()
	e.info.Generation = s.rec.Generation
	if n := s.runningExecs(false); n >= s.core.cfg.MaxExecs {
		return nil, proto.Errorf(proto.TooMany, "", s.id, "container %s runs %d commands, which is its limit; wait "+
			"for one to end", s.id, n)
	}
	s.execs, s.running = append(s.execs, e), append(s.running, e)
	return e, nil
}

// begin takes a place among the running execs and starts the process. If that fails, the
// exec was never there.
func (s *Session) begin(ctx context.Context, cmd proto.Cmd, r retry) (*Exec, error) {
	e, err := s.addExec(cmd, r)
	if err != nil {
		return nil, err
	}
	e.key, e.by = proto.CallerOf(ctx).KeyID, auditEntryFor(ctx)
	if err := e.startProcess(ctx); err != nil {
		s.removeExec(e)
		return nil, err
	}
	return e, nil
}

func (e *Exec) startProcess(ctx context.Context) error {
	if err := e.s.core.cfg.Jobs.Begin(ctx, e.s, e.cmd.Files); err != nil {
		return err
	}
	g, err := e.s.clientFor(ctx, e)
	if err != nil {
		return err
	}
	err = e.startAndRecord(ctx, g)
	if proto.CodeOf(err) != proto.Unavailable || !e.s.confirmLost(ctx, g) {
		return e.lostIfStarted(err)
	}
	if !guest.NotStarted(err) { // it may have run, and must not do so twice
		e.endWithoutProcess = proto.End{Reason: proto.EndLost, ReturnCode: -1,
			Message: "the container ended while the " +
				"command was starting; it may have begun"}
		return nil
	}
	if err := e.s.stoppedOnRequest(g); err != nil {
		return err
	}
	if g, err = e.s.restartFor(ctx, e); err == nil {
		err = e.lostIfStarted(e.startAndRecord(ctx, g))
	}
	return err
}

// startAndRecord starts the process and writes that down, both at once; but one that somebody may ask for again, and
// must get then, is on disk before it can do anything.
func (e *Exec) startAndRecord(ctx context.Context, g *guest.Client) error {
	recorded := e.recordStart()
	if e.retry.Key != "" {
		if err := recorded(); err != nil {
			return fmt.Errorf("recording the exec: %w", err)
		}
	}
	if err := e.requestProcess(ctx, g); err != nil {
		return err
	}
	if err := recorded(); err != nil {
		e.abort()
		return fmt.Errorf("recording the exec: %w", err)
	}
	return nil
}

// lostIfStarted is the error of a start that failed. Where the command may have begun nevertheless, and somebody may
// ask for it again, it is a lost exec instead: to be told so is better than to run it twice.
func (e *Exec) lostIfStarted(err error) error {
	if err == nil || e.retry.Key == "" || !e.mayHaveStarted || guest.NotStarted(err) {
		return err
	}
	e.endWithoutProcess = proto.End{Reason: proto.EndLost, ReturnCode: -1,
		Message: "the command was given up while it was " +
			"starting; it may have begun"}
	return nil
}

// requestProcess asks the guest for the process. A program that cannot be run is a result, as it is in a
// shell: 127 not found, 126 not executable.
func (e *Exec) requestProcess(ctx context.Context, g *guest.Client) error {
	e.mayHaveStarted = true
	cmd := e.command()
	cmd.Whole = e.sinkBuffer
	cmd.Sent = func() { // while the guest prepares what it starts
		before := e.s.measure()
		e.before = &before
	}
	proc, err := g.Start(ctx, cmd, e.sink)
	if code := e.notExecutable(err); code != 0 {
		e.sink(proto.Stderr, 0, []byte(proto.AsError(err).Message+"\n"))
		e.endWithoutProcess = proto.End{Reason: proto.EndNotStarted, ReturnCode: code, Message: proto.AsError(
			err).Message}
		proc, err = nil, nil
	}
	if err != nil {
		return err
	}
	e.mu.Lock()
	e.guest, e.proc = g, proc
	e.mu.Unlock()
	if proc == nil || e.cmd.Stdin == "" || durable(e.cmd) {
		return nil
	}
	err = e.s.core.goTracked(nil, func() { // it may be slow to read; the kernel ends the write when it dies
		_, _ = proc.Write(context.Background(), []byte(e.cmd.Stdin))
		_ = proc.CloseStdin()
	})
	if err != nil {
		e.abort()
	}
	return err
}

// notExecutable is the return code of a program that could not be executed, or 0.
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

// command is what the guest is asked to run.
func (e *Exec) command() guest.Command {
	dir := proto.JobDir(e.cmd.JobID)
	out := proto.OutputDir(e.cmd.JobID, e.id)
	c := guest.Command{
		ID: e.id, Argv: e.cmd.Argv, Text: e.cmd.Command, Shell: e.cmd.Shell, Dir: dir, Output: out, Job: dir,
		User: e.cmd.User, Stdin: e.cmd.OpenStdin || e.cmd.Stdin != "" || e.cmd.TTY != nil, TTY: e.cmd.TTY,
	}
	if durable(e.cmd) {
		c.Keep = e.cmd.MaxOutputBytes
		if e.cmd.Stdin != "" { // the guest has all of it: it need not wait for a daemon
			c.Stdin, c.Input = false, []byte(e.cmd.Stdin)
		}
	}
	switch {
	case strings.HasPrefix(e.cmd.Cwd, "/"):
		c.Dir = e.cmd.Cwd
	case e.cmd.Cwd != "":
		c.Dir = dir + "/" + e.cmd.Cwd
	}
	env := e.environment()
	c.Lists = toolLists(env)
	maps.Copy(env, map[string]string{"INPUT_DIR": proto.InputDir, "OUTPUT_DIR": out, "JOB_DIR": dir,
		"JOB_ID": e.cmd.JobID})
	for k, v := range env {
		c.Env = append(c.Env, k+"="+v)
	}
	return c
}

// environment is what a command gets of its container's and its own, the narrower over the wider and secrets over the
// rest.
func (e *Exec) environment() map[string]string {
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
		addCAVariables(env)
	}
	return env
}

// abort ends a process that nobody will hear of.
func (e *Exec) abort() {
	e.out.Finish() // else what it has written may wait for a reader
	if p := e.process(); p != nil {
		p.Drop()
	}
}

// publishStart numbers an exec that has started and wakes those who wait for new ones.
func (s *Session) publishStart(e *Exec) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started++
	e.number = s.started
	close(s.execStarted)
	s.execStarted = make(chan struct{})
}

// sink takes output from the guest. It blocks where nothing may be lost and whoever follows the exec is behind, and
// nowhere else.
func (e *Exec) sink(s proto.Stream, at int64, b []byte) {
	e.limitOutput(e.out.WriteAt(s, at, b))
}

// sinkBuffer is sink for a buffer full of output, which it may keep.
func (e *Exec) sinkBuffer(s proto.Stream, at int64, b *output.Buffer) (kept bool) {
	var room [64]byte
	b.Prefix(proto.AppendOutput(room[:0], e.id, s, at, nil))
	kept, over := e.out.WriteBuffer(s, at, b)
	e.limitOutput(over)
	return kept
}

// limitOutput ends a command that has written too much, if it is to end then.
func (e *Exec) limitOutput(over bool) {
	if over && e.cmd.OnOutputLimit == proto.OutputFail {
		e.Cancel(proto.EndOutputLimit, "it wrote more than max_output_bytes")
	}
}

// setDeadline says when the command must end, and why then: its own limit, or the session's cap. It counts from when
// the process was started, however long it takes until somebody sees to it.
func (e *Exec) setDeadline() {
	left := e.s.record().cap().Sub(e.s.core.clock.now())
	limit, proc := seconds(e.cmd.TimeoutSeconds)-e.ran, e.process()
	if e.cmd.TimeoutSeconds == 0 || left < limit || proc != nil && proc.Ended() {
		e.due, e.overdue = time.Now().Add(left), endRequest{proto.EndExpired, "the container's time was over"}
		return
	}
	e.due, e.overdue = time.Now().Add(limit), endRequest{proto.EndTimeout, "it ran longer than timeout_seconds"}
}

// killGrace is how long a killed command may take to be gone before its guest counts as lost.
const killGrace = 10 * time.Second

// runToEnd sees the command to its end, and lets go of the session.
func (e *Exec) runToEnd(release func()) {
	end, ok := e.await()
	if !ok {
		close(e.leftRunning)
		release()
		return
	}
	end = e.explainEnd(end)
	e.out.Finish()
	e.conclude(end, release)
	e.forgetInGuest()
}

// await waits for the process to end, or makes it. False means that it goes on without this daemon.
func (e *Exec) await() (end proto.End, ok bool) {
	proc := e.process()
	if proc == nil {
		return e.endWithoutProcess, true
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
	case <-e.leaving():
		return end, false
	}
}

// leaving is closed when this daemon ends and the command goes on without it; nil for one that ends with it.
func (e *Exec) leaving() <-chan struct{} {
	if !durable(e.cmd) {
		return nil
	}
	return e.s.core.ctx.Done()
}

// exited is how a process that is done ended.
func (e *Exec) exited(proc *guest.Process) proto.End {
	x, err := proc.Wait(context.Background())
	e.mu.Lock()
	e.ago, e.dirState = x.Ago, DirectoryState{Fingerprint: x.Seen}
	e.mu.Unlock()
	return endOf(x, err)
}

// kill ends the whole process tree and waits until it is gone. A guest that does not manage
// that in time is lost.
func (e *Exec) kill(proc *guest.Process, want endRequest) proto.End {
	ctx, cancel := context.WithTimeout(context.Background(), killGrace)
	defer cancel()
	e.out.Release()     // or the guest could not get rid of what it has
	_ = e.s.resume(ctx) // what stands still does not die
	_ = proc.Kill(ctx)  // what counts is that it exits
	select {
	case <-proc.Done():
		return endedOnRequest(e.exited(proc), want)
	case <-ctx.Done():
		proc.Drop() // nothing of it may come after the end
		return endedOnRequest(endOf(guest.Exit{}, ctx.Err()), want)
	}
}

// endedOnRequest is an end that was brought about for want.
func endedOnRequest(end proto.End, want endRequest) proto.End {
	if end.ReturnCode < 0 || end.ReturnCode == 128+int(syscall.SIGKILL) || end.Reason == proto.EndLost {
		end.ReturnCode, end.Signal = 128+int(syscall.SIGKILL), unix.SignalName(syscall.SIGKILL)
	}
	end.Reason, end.Message = want.reason, want.why
	return end
}

// preferRequestedEnd is the end of a process that was over before it was killed. Where its sandbox was taken from
// under it on request, or it had written too much by then, that is the reason.
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

// endOf puts what the guest says of an exit into words.
func endOf(x guest.Exit, err error) proto.End {
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

// recordTimeout bounds what is done after a command has ended: publishing outputs, the manifest.
const recordTimeout = 2 * time.Minute

// conclude books the end: outputs, manifest, ledger, audit; then it lets go of the session, and everybody may know:
// whoever has been told finds the session as it is without the command.
func (e *Exec) conclude(end proto.End, release func()) {
	now := e.s.core.cfg.Now()
	e.mu.Lock()
	info := e.info
	now = later(now.Add(-e.ago), info.StartedAt.Time)
	e.mu.Unlock()
	info.State, info.EndedAt, info.End = proto.ExecEnded, proto.AtOrNil(now), &end
	info.StdoutBytes, info.StderrBytes = e.out.Totals()

	made := e.produced(info)
	e.conceal(info.End, &made)
	res := e.resultOf(e.out, &info, made)
	e.charge(info) // before the end is written, so that no end is known that was not paid for
	e.store(info, made)
	e.auditEnd(info, made)

	e.mu.Lock()
	made.Paths = nil // the job's books and the audit log have them
	e.info, e.made, e.result = info, made, &res
	e.mu.Unlock()
	e.s.trimEnded(e)
	e.s.core.freeMemory(e) // before the next command may begin, which needs the memory
	// before it lets go: a pause that came between would take whatever else uses the session for the command
	e.s.removeRunning(e)
	release()
	close(e.ended)
}

// later is the later one of two times.
func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// produced has the job's books brought up to date, if the guest is still there to ask.
func (e *Exec) produced(info proto.Exec) Produced {
	switch info.End.Reason {
	case proto.EndLost, proto.EndHostRestart, proto.EndStopped, proto.EndExpired:
		return Produced{}
	}
	ctx, cancel := context.WithTimeout(context.Background(), recordTimeout)
	defer cancel()
	e.mu.Lock()
	g, sight := e.guest, e.dirState
	e.mu.Unlock()
	// outputs count against its quota
	ctx = proto.WithCaller(forBooks(ctx, g), proto.Caller{Owner: e.s.owner, KeyID: e.key})
	return e.s.core.cfg.Jobs.End(ctx, e.s, info, e.tail(proto.Stderr, stderrTail), sight)
}

// stderrTail is how much of standard error a manifest quotes, in bytes.
const stderrTail = 2 << 10

// conceal hides secrets in what an exec leaves behind, but for its output.
func (e *Exec) conceal(end *proto.End, made *Produced) {
	end.Message = e.redactor.Hide(end.Message)
	made.Notes = e.redactor.HideAll(made.Notes)
}

// charge has the API key that started the exec pay for it. A guest, which is not trusted, cannot make it more than the
// container's CPUs had in that time.
func (e *Exec) charge(info proto.Exec) {
	most := info.Duration(time.Time{}).Seconds() * e.s.record().Limits.CPUs
	e.s.core.cfg.Quotas.Ran(e.key, min(info.End.CPUSeconds, most+grain))
}

// grain is what the kernel's count of CPU time may be ahead of the clock, in seconds.
const grain = 0.1
