package session

import (
	"context"
	"strings"
	"syscall"

	"berth/guest"
	"berth/proto"

	"golang.org/x/sys/unix"
)

// This file has what may be done from outside to an exec that runs.

// Cancel ends the command with its whole process tree. The first reason given counts; the end
// is told by Wait.
func (e *Exec) Cancel(reason proto.EndReason, why string) {
	select {
	case e.ask <- ending{reason, why}:
	default:
	}
	if e.s.isPaused() { // if it began under another daemon, nobody here sees to its end before it is awake
		_ = e.s.core.track(nil, func() { _ = e.s.wake(e.s.core.ctx) })
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

// running is the process to act on, awake, or the error that says it has ended.
func (e *Exec) running(ctx context.Context) (*guest.Process, error) {
	if err := e.s.wake(ctx); err != nil {
		return nil, err
	}
	if p := e.process(); p != nil && !e.hasEnded() {
		return p, nil
	}
	return nil, proto.Errorf(proto.Conflict, "", e.id, "exec %s has ended", e.id)
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
