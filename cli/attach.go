package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"berth/cli/app"
	"berth/cli/term"
	"berth/client"
	"berth/proto"
)

// execRef is the ref of the only command on a connection of this package.
const execRef = "exec"

// patience is the number of termination signals from the user after which berth closes the connection. The daemon
// then ends the command.
const patience = 3

// An attachment connects this terminal to one foreground command.
type attachment struct {
	c         *client.Client
	container string
	cmd       proto.Cmd
	print     *term.Printer
	caught    <-chan os.Signal // signals for the command once run is called; from catchSignals

	live        *client.Live
	started     bool          // the command has started; set by run
	exec        string        // the command's ID, set when it starts
	execStarted chan struct{} // closed when the command starts
	restore     func()        // restores the terminal

	stdinUnsent atomic.Bool // some standard input is not sent yet; valid once run is called
}

// run runs the command and returns its result. From then on signals go to the command, unless it continues without
// berth; see outlivesBerth.
func (t *attachment) run(ctx context.Context) (proto.ExecResult, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t.execStarted = make(chan struct{})
	t.stdinUnsent.Store(t.cmd.OpenStdin && t.cmd.TTY == nil)
	// Handle signals before connecting: a daemon may answer slowly, and the user must be able to interrupt the wait.
	defer t.forward(ctx, cancel)()
	res, err := t.connect(ctx, cancel)
	// We closed the connection for this cause. The connection's own error would only report the closing.
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	return res, err
}

// connect opens the connection, starts the command and follows it. run has set up signals already.
func (t *attachment) connect(ctx context.Context, giveUp context.CancelCauseFunc) (res proto.ExecResult, err error) {
	if t.live, err = t.c.Live(ctx, t.container); err != nil {
		return res, err
	}
	defer t.live.Close()
	if err := t.live.Exec(execRef, t.cmd); err != nil {
		return res, err
	}
	// Always restore the terminal: a shell in raw mode does not echo input.
	t.restore = func() {}
	defer func() { t.restore() }()
	return t.follow(ctx, giveUp)
}

// follow prints the command's output until the command ends.
func (t *attachment) follow(ctx context.Context, giveUp context.CancelCauseFunc) (proto.ExecResult, error) {
	for {
		ev, err := t.live.Next(ctx)
		if err != nil {
			return proto.ExecResult{}, err
		}
		switch ev.Type {
		case proto.EventStart:
			t.started, t.exec = true, ev.ExecID
			close(t.execStarted)
			if err := t.connectTerminal(ctx, giveUp); err != nil {
				return proto.ExecResult{}, err
			}
		case proto.EventExit:
			return *ev.Result, nil
		case proto.EventError:
			// After the start, errors concern keys or signals that arrived after the command's end.
			if !t.started {
				return proto.ExecResult{}, ev.Error
			}
		default:
			if err := t.print.Print(ev); err != nil {
				return proto.ExecResult{}, err
			}
		}
	}
}

// connectTerminal connects the terminal to a command that has just started. No code waits for the goroutine that
// reads standard input: a read from a terminal cannot be cancelled, and ends with the program.
func (t *attachment) connectTerminal(ctx context.Context, giveUp context.CancelCauseFunc) error {
	switch {
	case !t.cmd.OpenStdin:
		return nil
	case t.cmd.TTY == nil:
		// Input goes through HTTP requests, not the connection: a pipe may hold more than the daemon buffers for a
		// command that does not read.
		go t.sendStdin(ctx, giveUp)
		return nil
	}
	// A broken output pipe must not kill berth before the terminal is restored. The failed write then ends berth.
	signal.Ignore(syscall.SIGPIPE)
	restore, err := term.RawMode(os.Stdin)
	if err != nil {
		return fmt.Errorf("preparing the terminal: %w", err)
	}
	t.restore = restore
	go func() {
		// Typed keys arrive one at a time. The buffer is large enough for pasted text.
		buf := make([]byte, 4<<10)
		for {
			n, err := os.Stdin.Read(buf)
			if n > 0 {
				err = t.live.Type(t.exec, buf[:n])
			}
			if err != nil {
				return
			}
		}
	}()
	return nil
}

// sendStdin sends standard input to the command. If that fails, sendStdin ends the attachment: the command would wait
// for the rest, or take the part that it has for the whole. A command that ended before it read all its input is no
// failure.
func (t *attachment) sendStdin(ctx context.Context, giveUp context.CancelCauseFunc) {
	err := t.c.Stdin(ctx, t.container, t.exec, os.Stdin)
	if err != nil && proto.CodeOf(err) != proto.Conflict && proto.CodeOf(err) != proto.NotFound {
		giveUp(fmt.Errorf("passing on standard input: %w", err))
		return
	}
	t.stdinUnsent.Store(false)
}

// forwarded are the signals that berth sends on to the command. SIGTSTP is not one of them: a stopped berth can be
// continued, and in raw mode ^Z reaches the command as a key.
var forwarded = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2,
	syscall.SIGWINCH,
}

// catchSignals sends the forwarded signals to a channel until stop is called. They do not end berth then.
func catchSignals() (caught chan os.Signal, stop func()) {
	// Package signal drops signals when the channel is full. 16 is more than a user types while one message is sent.
	caught = make(chan os.Signal, 16)
	signal.Notify(caught, forwarded...)
	return caught, func() { signal.Stop(caught) }
}

// forward sends signals on to the command once it has started. It cancels the attachment after several termination
// signals, or at the first one if the command continues by itself. The returned function ends the forwarding.
func (t *attachment) forward(ctx context.Context, giveUp context.CancelCauseFunc) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		asked, started, runs := 0, t.execStarted, false
		for {
			select {
			case <-started:
				started, runs = nil, true
				t.resize() // the size may have changed meanwhile
			case sig := <-t.caught:
				if isTermination(sig) {
					asked++
				}
				// Before the start there is no command to signal, so the first termination signal ends berth.
				if asked >= patience || isTermination(sig) && (!runs || t.outlivesBerth()) {
					giveUp(app.Interruption{Signal: sig.(syscall.Signal)})
					return
				}
				if runs {
					t.forwardSignal(sig.(syscall.Signal))
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// outlivesBerth reports whether the command continues without berth, so that signals that end berth do not go to it.
// That takes an idempotency key. It is false for a command with a terminal, whose signals come from this terminal. It
// is also false while input is unsent: the command would wait for it forever.
func (t *attachment) outlivesBerth() bool {
	return t.cmd.IdempotencyKey != "" && t.cmd.TTY == nil && !t.stdinUnsent.Load()
}

// addContinueHint adds a hint to err if the user interrupted berth and the command continues. The hint says how to
// find the command again.
func (t *attachment) addContinueHint(err error) error {
	if !t.outlivesBerth() || !app.IsInterrupted(err) {
		return err
	}
	if t.exec == "" {
		return app.WithHint(
			err, "if the command had started, it continues; the same command line finds it again, or starts it")
	}
	return app.WithHint(err, fmt.Sprintf(
		"the command continues; the same command line finds it again, and `berth kill "+
			"%s %s` ends it", t.container, t.exec))
}

// isTermination reports whether a signal asks for termination.
func isTermination(sig os.Signal) bool {
	return sig == syscall.SIGINT || sig == syscall.SIGTERM || sig == syscall.SIGHUP
}

// forwardSignal sends one signal to the command. It ignores errors: the reader of the connection notices a broken one.
func (t *attachment) forwardSignal(sig syscall.Signal) {
	if sig == syscall.SIGWINCH {
		t.resize()
		return
	}
	_ = t.live.Signal(t.exec, unix.SignalName(sig))
}

// resize sends the size of our terminal to the command's terminal, if it has one.
func (t *attachment) resize() {
	if t.cmd.TTY != nil {
		_ = t.live.Resize(t.exec, term.WindowSize())
	}
}
