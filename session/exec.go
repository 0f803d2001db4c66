package session

import (
	"context"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"berth/guest/client"
	"berth/guest/output"
	"berth/proto"
	"berth/session/secrets"
)

// An Exec is one command of a session: running, or ended and remembered.
type Exec struct {
	s        *Session
	id       string
	key      string            // API key it was started with
	by       proto.AuditEntry  // who began it; set before run
	redactor *secrets.Redactor // hides its secrets and its session's
	cmd      proto.Cmd
	out      *output.Output

	endRequests chan endRequest // the first wish to end it early
	ended       chan struct{}   // closed when result is set
	leftRunning chan struct{}   // closed when this daemon ends and the command goes on

	host, boot string // of an earlier daemon's: boot of the host and of the guest it was started in

	due     time.Time  // when it is ended, by the monotonic clock; this and overdue set before run
	overdue endRequest // why then

	before *Reading // the meters when it began; nil if they were not read; set before run

	retry             retry     // the key that somebody may ask for it with again
	mayHaveStarted    bool      // its guest may have got it; set before run
	endWithoutProcess proto.End // how it ended, if there never was a process; set before run

	number  int  // in the order of starting, from 1; 0 while it starts; guarded by s.mu
	counted bool // its output counts in s.kept; guarded by s.mu

	keeping   sync.Mutex // held while its output is moved to disk, or goes from there; locked before mu
	forgotten bool       // nobody will ask for its output; guarded by keeping

	mu             sync.Mutex     // guards what follows
	guest          *client.Client // of the generation it runs in; nil until it has started
	proc           *client.Process
	info           proto.Exec
	ran            time.Duration  // before this daemon attached to it
	ago            time.Duration  // how long it had ended when that was told
	dirState       DirectoryState // of its job's directory then
	made           Produced
	result         *proto.ExecResult
	clientInformed bool // somebody has had the result

	unstored bool    // it has ended, and its end or output found no room on disk
	saved    int64   // bytes of its output on disk
	spooled  bool    // the output is there alone, and result is made from it for whoever asks
	again    *reread // it is in memory for those who follow it; nil: nobody does
}

// An endRequest is why somebody wants an exec to end before it does by itself.
type endRequest struct {
	reason proto.EndReason
	why    string
}

// Exec starts a command and returns once its process exists. The command does not end with
// ctx; whoever wants that calls Cancel. One with a key that was asked for before is not started again.
func (s *Session) Exec(ctx context.Context, cmd proto.Cmd) (*Exec, error) {
	e, _, err := s.ExecOnce(ctx, cmd)
	return e, err
}

// ExecOnce is Exec that tells whether the exec is one of an earlier request with the same key.
func (s *Session) ExecOnce(ctx context.Context, cmd proto.Cmd) (e *Exec, replayed bool, err error) {
	if cmd.IdempotencyKey == "" {
		e, err = s.startExec(ctx, cmd, retry{})
		return e, false, err
	}
	asked := cmd
	asked.IdempotencyKey = ""
	r, err := s.core.newRetry(cmd.IdempotencyKey, asked)
	if err != nil {
		return nil, false, err
	}
	for {
		e, t, err := s.findOrReserveExec(r)
		switch {
		case err != nil:
			return nil, false, err
		case e != nil:
			return e, true, nil
		case t == nil:
			e, err := s.startKeyed(ctx, cmd, r)
			return e, false, err
		}
		select {
		case <-t.done:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
}

// startKeyed starts a command that is ours to start, whether or not its client waits for that, as it may have to for
// long: for a shell.
func (s *Session) startKeyed(ctx context.Context, cmd proto.Cmd, r retry) (*Exec, error) {
	var e *Exec
	started := make(chan error, 1)
	err := s.core.goTracked(nil, func() {
		defer s.finishPendingExec(r)
		var err error
		e, err = s.startExec(withCallerOf(s.core.ctx, ctx), cmd, r)
		started <- err
	})
	if err != nil {
		s.finishPendingExec(r)
		return nil, err
	}
	select {
	case err := <-started:
		return e, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// findOrReserveExec finds the exec of an earlier request, or the try to start it. If there is neither, the caller's
// is the first, and tried ends it.
func (s *Session) findOrReserveExec(r retry) (*Exec, *pendingRequest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usableLocked(); err != nil {
		return nil, nil, err
	}
	if t := s.pendingExecs[r.Key]; t != nil {
		return nil, t, t.same(r)
	}
	for _, e := range s.execs {
		if e.number > 0 && e.retry.Key == r.Key {
			return e, nil, e.retry.same(r)
		}
	}
	s.pendingExecs[r.Key] = &pendingRequest{r, make(chan struct{})}
	return nil, nil, nil
}

func (s *Session) finishPendingExec(r retry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.pendingExecs[r.Key].done)
	delete(s.pendingExecs, r.Key)
}

// Run is Exec and Wait. When ctx ends first, the command is ended too unless it is detached,
// and the error is ctx's.
func (s *Session) Run(ctx context.Context, cmd proto.Cmd) (proto.ExecResult, error) {
	e, err := s.Exec(ctx, cmd)
	if err != nil {
		return proto.ExecResult{}, err
	}
	return e.Finish(ctx)
}

// Execs lists the running and the remembered execs, in the order they began. One that is just being
// started is not among them; it fails by itself if its session goes.
func (s *Session) Execs() []*Exec {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.execs), func(e *Exec) bool { return e.number == 0 })
}

// FindExec finds one of them by its ID.
func (s *Session) FindExec(id string) (*Exec, error) {
	for _, e := range s.Execs() {
		if e.id == id {
			return e, nil
		}
	}
	return nil, proto.Errorf(proto.NotFound, "", id, "exec %.80q does not exist in container %s; a container "+
		"remembers its last %d", id, s.id, keptExecs)
}

// NextExecs waits for execs that began after the first seen, and returns them with the new count.
// Begin with seen 0 for those remembered too, or with Begun.
func (s *Session) NextExecs(ctx context.Context, seen int) ([]*Exec, int, error) {
	for {
		s.mu.Lock()
		begun, more := s.started, s.execStarted
		var fresh []*Exec
		for _, e := range s.execs {
			if e.number > seen {
				fresh = append(fresh, e)
			}
		}
		s.mu.Unlock()
		if begun > seen {
			return fresh, begun, nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil, seen, ctx.Err()
		}
	}
}

// Begun is how many execs ever began.
func (s *Session) Begun() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.started
}

// ID is the exec's ID.
func (e *Exec) ID() string { return e.id }

// Info describes the exec as it is now.
func (e *Exec) Info() proto.Exec {
	stdout, stderr := e.out.Totals()
	e.mu.Lock()
	defer e.mu.Unlock()
	info := e.info
	if info.State == proto.ExecRunning {
		info.StdoutBytes, info.StderrBytes = stdout, stderr
	}
	return info
}

// Outlives reports whether the exec goes on when its client, or the daemon, goes away.
func (e *Exec) Outlives() bool { return durable(e.cmd) }

// Done is closed when everybody may know that the exec has ended.
func (e *Exec) Done() <-chan struct{} { return e.ended }

// Wait waits for the end and returns the result. It may be called any number of times.
func (e *Exec) Wait(ctx context.Context) (proto.ExecResult, error) {
	select {
	case <-e.ended:
	case <-e.leftRunning:
		return proto.ExecResult{}, shuttingDown()
	case <-ctx.Done():
		return proto.ExecResult{}, ctx.Err()
	}
	res := e.readResult()
	res.Container = e.s.Ref()
	return res, nil
}

// Finish is Wait for whoever started the exec and does not follow it: when ctx ends first, it is ended too, unless it
// outlives its client: see Abandon.
func (e *Exec) Finish(ctx context.Context) (proto.ExecResult, error) {
	e.out.Release() // nobody follows it from the start
	res, err := e.Wait(ctx)
	if err != nil && !e.Outlives() {
		e.Abandon(ctx)
	}
	return res, err
}

// readResult is the result of an exec that has ended.
func (e *Exec) readResult() proto.ExecResult {
	e.mu.Lock()
	e.clientInformed = true
	if !e.spooled {
		defer e.mu.Unlock()
		return *e.result
	}
	info, made := e.info, e.made
	e.mu.Unlock()
	return e.resultOf(e.readOutput(info), &info, made)
}

// This file has what may be done from outside to an exec that runs.

// Cancel ends the command with its whole process tree. The first reason given counts; the end
// is told by Wait.
func (e *Exec) Cancel(reason proto.EndReason, why string) {
	select {
	case e.endRequests <- endRequest{reason, why}:
	default:
	}
	if e.s.isPaused() { // if it began under another daemon, nobody here sees to its end before it is awake
		_ = e.s.core.goTracked(nil, func() { _ = e.s.resume(e.s.core.ctx) })
	}
}

// Abandon is for whoever follows an exec for a client whose ctx has ended. The exec is ended too, unless the daemon's
// shutdown is the cause of that: then it is the daemon that has gone, and Close ends what cannot outlive it, and says
// so.
func (e *Exec) Abandon(ctx context.Context) {
	if proto.CodeOf(context.Cause(ctx)) != proto.Unavailable {
		e.Cancel(proto.EndCanceled, "the client went away")
	}
}

// Signal sends a signal by name ("SIGTERM", "TERM") to the command's process group. SIGKILL
// ends the whole process tree, wherever its parts have gone.
func (e *Exec) Signal(ctx context.Context, name string) error {
	p, err := e.running(ctx)
	if err != nil {
		return err
	}
	full := strings.ToUpper(name)
	if !strings.HasPrefix(full, "SIG") {
		full = "SIG" + full
	}
	sig := unix.SignalNum(full)
	switch {
	case sig == 0:
		return invalid("signal", "signal %.32q is not known; use a name such as SIGTERM", name)
	case sig == syscall.SIGKILL:
		e.Cancel(proto.EndKilled, "it was killed through the API")
		return nil
	}
	return p.Signal(ctx, sig)
}

// Write sends bytes to standard input; it blocks while the command does not read, or until ctx ends.
func (e *Exec) Write(ctx context.Context, b []byte) error {
	p, err := e.running(ctx)
	if err != nil {
		return err
	}
	if !e.cmd.OpenStdin && e.cmd.TTY == nil {
		return proto.Errorf(proto.Conflict, "", e.id, "exec %s was started without open_stdin", e.id)
	}
	_, err = p.Write(ctx, b)
	return err
}

// CloseStdin ends standard input.
func (e *Exec) CloseStdin() error {
	ctx, cancel := context.WithTimeout(e.s.core.ctx, helloTimeout)
	defer cancel()
	p, err := e.running(ctx)
	if err != nil {
		return err
	}
	return p.CloseStdin()
}

// Resize tells the command's terminal its size.
func (e *Exec) Resize(ctx context.Context, size proto.WindowSize) error {
	p, err := e.running(ctx)
	if err != nil {
		return err
	}
	if e.cmd.TTY == nil {
		return proto.Errorf(proto.Conflict, "", e.id, "exec %s has no terminal", e.id)
	}
	return p.Resize(ctx, size)
}

// running is the process to act on, awake, or the error that says it has ended.
func (e *Exec) running(ctx context.Context) (*client.Process, error) {
	if err := e.s.resume(ctx); err != nil {
		return nil, err
	}
	if p := e.process(); p != nil && !e.hasEnded() {
		return p, nil
	}
	return nil, proto.Errorf(proto.Conflict, "", e.id, "exec %s has ended", e.id)
}

func (e *Exec) process() *client.Process {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.proc
}

// hasEnded reports whether everybody may know that the exec has.
func (e *Exec) hasEnded() bool {
	select {
	case <-e.ended:
		return true
	default:
		return false
	}
}

// durable reports whether a command outlives its client and the daemon: its guest keeps it until a daemon has stored
// its end. Whoever gives a key says that they may come back for it.
func durable(cmd proto.Cmd) bool { return cmd.Detach || cmd.Background || cmd.IdempotencyKey != "" }
