package session

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"berth/guest/client"
	"berth/guest/output"
	"berth/proto"
	"berth/proto/span"
	"berth/session/events"
	"berth/session/execstore"
	"berth/session/limits"
	"berth/session/presence"
	"berth/session/retries"
	"berth/session/secrets"
	"berth/session/validate"

	"golang.org/x/sys/unix"
)

// An Exec is one command of a session: running, or ended and remembered.
type Exec struct {
	s        *Session
	id       string
	key      string            // the API key it was started with
	by       proto.AuditEntry  // who started it; set before runToEnd
	span     span.Span         // set before runToEnd
	redactor *secrets.Redactor // hides its secrets and those of its session
	cmd      proto.Cmd
	out      *execstore.Output

	endRequests chan endRequest // holds the first request to end it early
	ended       chan struct{}   // closed when result is set
	leftRunning chan struct{}   // closed when this daemon ends and the command goes on

	host, boot string // of an exec that an earlier daemon started: the boot ID of the host and of its guest

	due     time.Time  // when it is ended, by the monotonic clock; set before runToEnd, as is overdue
	overdue endRequest // why it is ended then

	before *limits.Reading // the resource counters at its start; nil: not read; set before runToEnd

	clients           *presence.Clients // nil: it is not ended when it has none
	retry             retry             // the idempotency key it can be asked for with again
	mayHaveStarted    bool              // the guest may have received it; set before runToEnd
	endWithoutProcess proto.End         // how it ended, if it never had a process; set before runToEnd

	number  int  // in the order of starts, from 1; 0 while it starts; guarded by s.mu
	counted bool // its output counts in s.keptBytes; guarded by s.mu

	mu             sync.Mutex     // guards the fields below
	guest          *client.Client // the guest of its generation; nil until it has started
	proc           *client.Process
	info           proto.Exec
	ran            time.Duration  // how long it ran before this daemon attached to it
	ago            time.Duration  // how long ago it ended when the guest reported that
	dirState       DirectoryState // the state of its job's directory at its end
	shellEnded     bool           // its persistent shell ended with it
	made           Produced
	result         *proto.ExecResult // nil while it runs, and when its output is on disk only: readers then make it
	clientInformed bool              // a client has got the result
	unstored       bool              // it has ended, and its end or output could not be written to disk
}

// An endRequest is a request to end an exec before it ends by itself.
type endRequest struct {
	reason proto.EndReason
	why    string
}

// Exec starts a command and returns once its process exists. The command does not end with ctx; Cancel ends it. A
// command with an idempotency key that was asked for before is not started again.
func (s *Session) Exec(ctx context.Context, cmd proto.Cmd) (*Exec, error) {
	e, _, err := s.ExecOnce(ctx, cmd)
	return e, err
}

// ExecOnce works like Exec and also reports whether the exec comes from an earlier request with the same key.
func (s *Session) ExecOnce(ctx context.Context, cmd proto.Cmd) (e *Exec, replayed bool, err error) {
	if cmd.IdempotencyKey == "" {
		e, err = s.startExec(ctx, cmd, retry{})
		return e, false, err
	}
	asked := cmd
	asked.IdempotencyKey = ""
	r, err := s.core.digests.Identify(cmd.IdempotencyKey, asked)
	if err != nil {
		return nil, false, err
	}
	e, err = retries.FindOrReserve(ctx, func() (*Exec, *pendingRequest, error) { return s.findOrReserveExec(r) })
	if e != nil || err != nil {
		return e, e != nil, err
	}
	e, err = s.startKeyed(ctx, cmd, r)
	return e, false, err
}

// startKeyed starts a command with an idempotency key. It goes on if the client stops waiting, since a start can take
// long: a command may have to wait for its shell.
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

// findOrReserveExec finds the exec of an earlier request with this key, or the start of it that runs. If there is
// neither, it reserves the key for the caller, until finishPendingExec.
func (s *Session) findOrReserveExec(r retry) (*Exec, *pendingRequest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usableLocked(); err != nil {
		return nil, nil, err
	}
	if t := s.pendingExecs[r.Key]; t != nil {
		return nil, t, t.Same(r)
	}
	for _, e := range s.execs {
		if e.number > 0 && e.retry.Key == r.Key {
			return e, nil, e.retry.Same(r)
		}
	}
	s.pendingExecs[r.Key] = &pendingRequest{Retry: r, Done: make(chan struct{})}
	return nil, nil, nil
}

func (s *Session) finishPendingExec(r retry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.pendingExecs[r.Key].Done)
	delete(s.pendingExecs, r.Key)
}

// Run calls Exec and Wait. If ctx ends first, Run returns its error, and ends the command unless it is detached.
func (s *Session) Run(ctx context.Context, cmd proto.Cmd) (proto.ExecResult, error) {
	e, err := s.Exec(ctx, cmd)
	if err != nil {
		return proto.ExecResult{}, err
	}
	return e.Finish(ctx)
}

// Execs lists the running and the remembered execs, in the order of their start. An exec that is being started is not
// in the list; it fails by itself if its session goes.
func (s *Session) Execs() []*Exec {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.execs), func(e *Exec) bool { return e.number == 0 })
}

// FindExec finds an exec of Execs by its ID, or a running one by its process ID in the container. Of several in one
// shell it finds the newest.
func (s *Session) FindExec(id string) (*Exec, error) {
	pid, notPID := strconv.Atoi(id)
	for _, e := range slices.Backward(s.Execs()) {
		if e.id == id {
			return e, nil
		}
		if info := e.Info(); notPID == nil && info.State == proto.ExecRunning && info.PID == pid && pid > 0 {
			return e, nil
		}
	}
	if notPID == nil {
		return nil, proto.Errorf(proto.NotFound, "", id, "no command with the process ID %d runs in container %s", pid,
			s.id)
	}
	return nil, proto.Errorf(proto.NotFound, "", id, "exec %.80q does not exist in container %s; a container "+
		"remembers its last %d", id, s.id, keptExecs)
}

// NextExecs waits for execs that started after the first seen ones, and returns them with the new count. Call it
// first with seen 0 to get the remembered ones too, or with Begun.
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

// Begun returns how many execs ever started.
func (s *Session) Begun() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.started
}

// ID returns the exec's ID.
func (e *Exec) ID() string { return e.id }

// Info describes the exec as of now.
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

// Outlives reports whether the exec goes on when its client or the daemon goes away.
func (e *Exec) Outlives() bool { return e.cmd.Outlives() }

// Done returns a channel that is closed when the exec has ended and its end is recorded.
func (e *Exec) Done() <-chan struct{} { return e.ended }

// Wait waits for the end and returns the result. It may be called any number of times.
func (e *Exec) Wait(ctx context.Context) (proto.ExecResult, error) {
	defer e.clients.Enter()()
	select {
	case <-e.ended:
	case <-e.leftRunning:
		return proto.ExecResult{}, shuttingDown()
	case <-ctx.Done():
		if e.Info().End == nil { // else it ended at the same time
			return proto.ExecResult{}, ctx.Err()
		}
	}
	res := e.readResult()
	res.Container = e.s.Ref()
	return res, nil
}

// Finish works like Wait, for a caller that started the exec and does not follow it. If ctx ends first, Finish ends
// the exec, unless it outlives its client; see Abandon.
func (e *Exec) Finish(ctx context.Context) (proto.ExecResult, error) {
	if !e.Outlives() || e.clients != nil && !e.out.Followed() {
		e.out.Release() // nothing follows it from the start
	}
	res, err := e.Wait(ctx)
	if err != nil && !e.Outlives() {
		e.Abandon(ctx)
	}
	return res, err
}

// readResult returns the result of an exec that has ended.
func (e *Exec) readResult() proto.ExecResult {
	e.mu.Lock()
	e.clientInformed = true
	if e.result != nil {
		defer e.mu.Unlock()
		return *e.result
	}
	info, made := e.info, e.made
	e.mu.Unlock()
	return e.resultOf(e.out.Read(), &info, made)
}

// A Piece is output as written, or a gap in it.
type Piece = output.Piece

// A Cursor is a reader's position: the bytes of each stream that it has read.
type Cursor = output.Cursor

// Follow calls fn with the exec's events from the given position on: its start, all kept output, and its exit, with
// the result that Wait returns. It returns after the exit, when fn fails, or when ctx ends. The command does not wait
// for a slow fn: output that fn misses for good becomes a gap event.
func (e *Exec) Follow(ctx context.Context, from Cursor, fn func(proto.Event) error) error {
	return e.follow(ctx, from, events.Follower{ID: e.id, Event: fn})
}

// FollowRaw works like Follow, but passes output to out, possibly split within a character, and the rest to fn.
// message is the data after the header of proto.AppendOutput. Both are valid until out returns and must not be
// changed.
func (e *Exec) FollowRaw(ctx context.Context, from Cursor, fn func(proto.Event) error,
	out func(p Piece, message []byte) error) error {
	return e.follow(ctx, from, events.Follower{ID: e.id, Event: fn, Raw: out})
}

func (e *Exec) follow(ctx context.Context, from Cursor, f events.Follower) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer e.clients.Follow()()
	defer context.AfterFunc(e.s.core.ctx, func() {
		if e.cmd.Outlives() { // it goes on without this daemon, so no result will come
			cancel()
		}
	})()
	out, done, err := e.out.Open(&from)
	if err != nil {
		return err
	}
	defer done()
	info := e.Info()
	if err := f.Event(proto.Event{Type: proto.EventStart, ExecID: e.id, Exec: &info}); err != nil {
		return err
	}
	if err := f.Follow(ctx, out, &from); err != nil {
		return err
	}
	res, err := e.Wait(ctx)
	if err != nil {
		return err
	}
	return f.Event(proto.Event{Type: proto.EventExit, ExecID: e.id, Result: &res})
}

// Tail returns the position that many bytes before the end of what each stream has so far. n of 0 is the end.
func (e *Exec) Tail(n int64) Cursor {
	stdout, stderr := e.written()
	return Cursor{Stdout: max(0, stdout-n), Stderr: max(0, stderr-n)}
}

// written returns the bytes that the command has written to each stream.
func (e *Exec) written() (stdout, stderr int64) {
	stdout, stderr = e.out.Totals()
	if p := e.process(); p != nil { // after a restart of the daemon the rest is still to come
		o, r := p.Written()
		stdout, stderr = max(stdout, o), max(stderr, r)
	}
	return stdout, stderr
}

// CheckCursor fails if a cursor is beyond the output: it belongs to another exec.
func (e *Exec) CheckCursor(c Cursor) error {
	stdout, stderr := e.written()
	for _, s := range []struct {
		stream   proto.Stream
		at, have int64
	}{{proto.Stdout, c.Stdout, stdout}, {proto.Stderr, c.Stderr, stderr}} {
		if s.at < 0 || s.at > s.have {
			return validate.Error("offset", "%s of exec %s has %d bytes; offset %d is not among them", s.stream, e.id,
				s.have, s.at)
		}
	}
	return nil
}

// Cancel ends the command with its whole process tree. The first reason counts; Wait reports the end.
func (e *Exec) Cancel(reason proto.EndReason, why string) {
	select {
	case e.endRequests <- endRequest{reason, why}:
	default:
	}
	// nothing in this daemon waits for a paused exec of an earlier daemon until its session is resumed
	if e.s.is(&e.s.paused) {
		_ = e.s.core.goTracked(nil, func() { _ = e.s.resume(e.s.core.ctx) })
	}
}

// Abandon ends the exec for a follower whose ctx has ended. If the shutdown of the daemon ended ctx, Abandon does
// nothing: Close then ends what cannot outlive the daemon, with the shutdown as the reason.
func (e *Exec) Abandon(ctx context.Context) {
	if proto.CodeOf(context.Cause(ctx)) != proto.Unavailable {
		e.Cancel(proto.EndCanceled, "the client went away")
	}
}

// Signal sends a signal by name ("SIGTERM", "TERM") to the command's process group. SIGKILL ends the whole process
// tree, including processes that left the group.
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
		return validate.Error("signal", "signal %.32q is not known; use a name such as SIGTERM", name)
	case sig == syscall.SIGKILL:
		e.Cancel(proto.EndKilled, "it was killed through the API")
		return nil
	}
	return p.Signal(ctx, sig)
}

// Write writes bytes to standard input. It blocks while the command does not read, until ctx ends.
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

// CloseStdin closes standard input. That of a command that has ended is closed.
func (e *Exec) CloseStdin() error {
	if e.hasEnded() {
		return nil
	}
	ctx, cancel := context.WithTimeout(e.s.core.ctx, helloTimeout)
	defer cancel()
	p, err := e.running(ctx)
	if err == nil {
		err = p.CloseStdin()
	}
	if e.hasEnded() {
		return nil
	}
	return err
}

// Resize sets the size of the command's terminal.
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

// running resumes the session and returns the exec's process, or an error if the exec has ended.
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

// hasEnded reports whether the exec has ended and its end is recorded.
func (e *Exec) hasEnded() bool {
	select {
	case <-e.ended:
		return true
	default:
		return false
	}
}
