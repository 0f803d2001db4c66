package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"

	"berth/guest/client"
	"berth/guest/output"
	"berth/guest/wire"
	"berth/proto"
	"berth/proto/span"
	"berth/session/loopback"
	"berth/session/presence"
	"berth/session/secrets"
	"berth/session/validate"
	"berth/state/ledger"
)

// This file has the start of a command, in order: startExec checks it, uses the session, lists the exec and starts the
// process. exec_end.go waits for its end.

// startExec starts a command that no earlier request with the same key has started. The exec is in the session's list
// when it returns.
func (s *Session) startExec(ctx context.Context, cmd proto.Cmd, r retry) (_ *Exec, err error) {
	redactor := s.redactorFor(cmd)
	defer func() { err = redactor.Error(err) }()
	ctx, sp := startExecSpan(ctx, cmd)
	defer func() {
		if err != nil {
			sp.End(err)
		}
	}()
	if err := s.checkExec(ctx, &cmd); err != nil {
		return nil, err
	}
	release, err := s.use(ctx, cmd.Generation)
	if err != nil {
		return nil, err
	}
	e := s.newExec(cmd, r, redactor)
	e.key, e.by, e.span = proto.CallerOf(ctx).KeyID, auditEntryFor(ctx), sp
	e.describeSpan()
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
	e.clients.Begin()
	err = s.core.goTracked(func() { s.publishStart(e) }, func() {
		e.auditExec(actionExecBegin, e.Info(), Produced{})
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

// checkExec checks whether the session may run the command now, and fills in its defaults.
func (s *Session) checkExec(ctx context.Context, cmd *proto.Cmd) error {
	rec, cfg := s.record(), &s.core.cfg
	if rec.unsealErr != nil {
		return rec.unsealErr
	}
	setDefault(&cmd.JobID, rec.Job)
	setDefault(&cmd.User, proto.UserDefault)
	setDefault(&cmd.MaxOutputBytes, cfg.MaxOutput)
	setDefault(&cmd.OnOutputLimit, proto.OutputTruncate)
	if cmd.TimeoutSeconds == 0 && !cmd.Background && !cmd.Resident {
		cmd.TimeoutSeconds = cfg.ExecTimeout.Seconds()
	}
	if err := validate.Command(cmd); err != nil {
		return err
	}
	return cfg.mayRun(ctx)
}

// mayRun fails with TooMany if the API key of ctx has no CPU time left. Running commands go on.
func (c Config) mayRun(ctx context.Context) error {
	if key := proto.CallerOf(ctx).KeyID; key != "" {
		return c.Quotas.MayRun(key)
	}
	return nil
}

// newExec makes the exec of a command that is about to start.
func (s *Session) newExec(cmd proto.Cmd, r retry, redactor *secrets.Redactor) *Exec {
	id := proto.NewID(proto.ExecPrefix)
	e := &Exec{
		s: s, id: id, cmd: cmd, retry: r, redactor: redactor,
		out:         s.core.outputs.New(id, cmd.MaxOutputBytes, s.core.memory),
		endRequests: make(chan endRequest, 1), ended: make(chan struct{}), leftRunning: make(chan struct{}),
	}
	e.begin()
	e.info = proto.Exec{
		ID: e.id, ContainerID: s.id, JobID: cmd.JobID, Command: cmd.Command, Argv: cmd.Argv, Shell: cmd.Shell,
		User: cmd.User, Background: cmd.Background, State: proto.ExecRunning, StartedAt: proto.At(s.core.cfg.Now()),
		Terminal: cmd.TTY != nil, OpenStdin: cmd.OpenStdin,
	}
	if cmd.Shown != "" {
		e.info.Command, e.info.Argv = cmd.Shown, nil
	}
	redactor.HideExec(&e.info)
	return e
}

// begin prepares the output and the clients of a command. The output is lossless if it asked for that.
func (e *Exec) begin() {
	e.clients = presence.New(seconds(e.cmd.ReconnectSeconds), func() {
		if !e.s.core.leaving.Load() { // else its client comes back to the next daemon
			e.Cancel(proto.EndCanceled, "its client went away and did not come back")
		}
	}, e.out.Release) // for a client that waits and does not read
	switch {
	case e.cmd.OnOutputLimit != proto.OutputWait:
	case e.clients != nil:
		e.out.HoldForReturn()
	case e.cmd.Outlives() && !e.cmd.Followed:
		e.out.HoldWhileFollowed()
	default:
		e.out.Hold()
	}
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
	if err := s.core.cfg.Jobs.Begin(ctx, s.InGeneration(e.cmd.Generation), e.cmd.Files); err != nil {
		return err
	}
	g, err := s.clientFor(e.cmd.Generation, e)
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
	// start it again, unless the command is for the lost generation
	if _, err := s.clientFor(e.cmd.Generation, nil); err != nil {
		return err
	}
	if err := s.ensureStarted(ctx); err != nil {
		return err
	}
	if g, err = s.clientFor(e.cmd.Generation, e); err != nil {
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
	proc, err := g.StartWith(ctx, e.guestCommand(ctx), e.sink, client.StartOptions{
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
	if proc != nil {
		e.info.PID = proc.PID()
	}
	e.mu.Unlock()
	if proc != nil && e.cmd.Stdin != "" && !e.cmd.Outlives() {
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
	if e.cmd.Outlives() {
		return e.s.core.cfg.Ledger.StartUpdate(put)
	}
	return func() error { return e.s.core.cfg.Ledger.UpdateAsync(put) }
}

// putExec writes an exec's record, unless its session is being removed: then the record would never be removed.
func (s *Session) putExec(rec execRecord) func(*ledger.Tx) error {
	return func(tx *ledger.Tx) error {
		r := s.record()
		if s.is(&s.removed) || r.Delete || r.State == proto.StateExpired {
			return proto.Errorf(proto.NotFound, "", s.id, "container %s does not exist any more", s.id)
		}
		return tx.Put(bucketExecs, execKey(s.id, rec.Exec.ID), rec)
	}
}

// storedCmd returns the part of a command that a later daemon needs to wait for its end. Parts that may hold secrets
// stay out.
func storedCmd(cmd proto.Cmd) *proto.Cmd {
	if !cmd.Outlives() {
		return nil
	}
	return &proto.Cmd{
		OpenStdin: cmd.OpenStdin, TTY: cmd.TTY, Background: cmd.Background, Detach: cmd.Detach,
		IdempotencyKey: cmd.IdempotencyKey, TimeoutSeconds: cmd.TimeoutSeconds, MaxOutputBytes: cmd.MaxOutputBytes,
		OnOutputLimit: cmd.OnOutputLimit, ReconnectSeconds: cmd.ReconnectSeconds,
	}
}

// sealEnvironment seals the command's own environment and secrets. A later daemon, under which the command may end,
// needs them to hide them.
func (e *Exec) sealEnvironment() string {
	if !e.cmd.Outlives() || len(e.cmd.Env)+len(e.cmd.Secrets) == 0 {
		return ""
	}
	text, err := json.Marshal(sealedFields{Env: e.cmd.Env, Secrets: e.cmd.Secrets})
	var sealed string
	if err == nil {
		sealed, err = e.s.core.cfg.Vault.Seal(e.id, text)
	}
	if err != nil {
		e.s.core.cfg.Log.Warn("sealing the environment of a command", "exec", e.id, "error", err)
	}
	return sealed
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
func (e *Exec) guestCommand(ctx context.Context) wire.Command {
	dir := proto.JobDir(e.cmd.JobID)
	out := proto.OutputDir(e.cmd.JobID, e.id)
	c := wire.Command{
		ID: e.id, Argv: e.cmd.Argv, Text: e.cmd.Command, Shell: e.cmd.Shell, Dir: dir, Output: out, Job: dir,
		User: e.cmd.User, Stdin: e.cmd.OpenStdin || e.cmd.Stdin != "" || e.cmd.TTY != nil, TTY: e.cmd.TTY,
		CPUs: int(math.Ceil(e.s.record().Limits.CPUs)),
	}
	if e.cmd.Outlives() {
		c.Keep = e.cmd.MaxOutputBytes
		if c.Wait = e.clients != nil && e.cmd.OnOutputLimit == proto.OutputWait; c.Wait {
			c.Keep *= 2 // with what this daemon has and its client has not
		}
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
	if !e.cmd.Resident { // which serves many requests
		span.Environ(ctx, env)
	}
	for _, part := range []map[string]string{r.Env, r.Secrets, r.placeholders(), e.cmd.Env, e.cmd.Secrets} {
		maps.Copy(env, part)
	}
	if r.connected() {
		loopback.AddProxy(env)
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
