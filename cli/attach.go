package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"

	mobyterm "github.com/moby/term"
	"github.com/spf13/cobra"
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

// errDetached ends an attachment whose user typed the detach keys.
var errDetached = errors.New("detached")

// screenTail is how much of a terminal's output is shown when it is attached to, in bytes: more than a full screen with
// colors.
const screenTail = 64 << 10

// An attachment connects this terminal to one command: a new one, or with exec set one that runs. A command with a
// terminal outlives its connection, which is made again when it breaks.
type attachment struct {
	app       *app.App
	c         *client.Client
	container string
	cmd       proto.Cmd
	print     *term.Printer
	caught    <-chan os.Signal // signals for the command once run is called; from catchSignals

	detachKeys  []byte // typed on a terminal, they end the attachment; none: nothing does
	leaves      bool   // signals that end berth do not go to the command
	mu          sync.Mutex
	live        *client.Live  // the present connection; guarded by mu
	started     bool          // the command has started; set by run
	exec        string        // the command's ID, set when it starts, or before run
	execStarted chan struct{} // closed when the command starts
	restore     func()        // restores the terminal
	drawn       atomic.Bool   // the terminal may have been drawn for another size

	stdinUnsent atomic.Bool // some standard input is not sent yet; valid once run is called
}

// run runs the command and returns its result. From then on signals go to the command, unless it continues without
// berth; see outlivesBerth.
func (t *attachment) run(ctx context.Context) (proto.ExecResult, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t.execStarted = make(chan struct{})
	if t.exec == "" {
		t.cmd = t.c.Returning(t.cmd)
	}
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

// connect starts the command, or attaches to it, and follows it. If the connection to a terminal or to a command that
// returns breaks, connect makes another one. run has set up signals already.
func (t *attachment) connect(ctx context.Context, giveUp context.CancelCauseFunc) (res proto.ExecResult, err error) {
	// Always restore the terminal: a shell in raw mode does not echo input.
	t.restore = func() {}
	defer func() { t.restore() }()
	res, err = t.converse(ctx, giveUp)
	if t.present() == nil || t.cmd.TTY == nil && !t.returns() || !t.started && t.cmd.IdempotencyKey == "" ||
		!app.IsDaemonGone(err) {
		return res, err
	}
	err = t.app.RetryWhileDown(ctx, func() (on bool, err error) {
		before := t.print.Had
		res, err = t.converse(ctx, giveUp)
		return t.print.Had != before, err
	})
	return res, err
}

// converse follows the command on one connection.
func (t *attachment) converse(ctx context.Context, giveUp context.CancelCauseFunc) (res proto.ExecResult, err error) {
	live, err := t.c.Live(ctx, t.container)
	if err != nil {
		return res, err
	}
	defer live.Close()
	t.mu.Lock()
	t.live = live
	t.mu.Unlock()
	switch {
	case t.started:
		err = live.Attach(execRef, t.exec, t.print.Had[0], t.print.Had[1])
	case t.exec != "":
		err = live.AttachTail(execRef, t.exec, screenTail)
	default:
		err = live.Exec(execRef, t.cmd)
	}
	if err != nil {
		return res, err
	}
	res, err = t.follow(ctx, live, giveUp)
	if err != nil && t.returns() && !app.IsDaemonGone(err) { // as when nothing more can be printed
		_ = live.Signal(t.exec, "SIGKILL")
	}
	return res, err
}

// present returns the present connection.
func (t *attachment) present() *client.Live {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.live
}

// follow prints the command's output until the command ends.
func (t *attachment) follow(ctx context.Context, live *client.Live, giveUp context.CancelCauseFunc) (proto.ExecResult,
	error) {
	for {
		ev, err := live.Next(ctx)
		if err != nil {
			return proto.ExecResult{}, err
		}
		switch ev.Type {
		case proto.EventStart:
			if t.started { // on a new connection
				t.redraw()
				continue
			}
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
		keys, buf := mobyterm.NewEscapeProxy(os.Stdin, t.detachKeys), make([]byte, 4<<10)
		for {
			n, err := keys.Read(buf)
			if n > 0 {
				_ = t.present().Type(t.exec, buf[:n]) // what is typed while the connection is broken is lost
			}
			if errors.As(err, &mobyterm.EscapeError{}) {
				giveUp(errDetached)
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
		if t.returns() {
			_ = t.present().Signal(t.exec, "SIGKILL")
		}
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
				t.redraw() // the size may have changed meanwhile, and an attached terminal has drawn for another one
			case sig := <-t.caught:
				if isTermination(sig) {
					asked++
				}
				// Before the start there is no command to signal, so the first termination signal ends berth.
				if asked >= patience || isTermination(sig) && (!runs || t.outlivesBerth()) {
					if runs && (t.cmd.Detach || t.returns()) && !t.leaves { // it would go on without berth
						_ = t.present().Signal(t.exec, "SIGKILL")
					}
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
	return t.leaves || t.cmd.IdempotencyKey != "" && t.cmd.TTY == nil && !t.returns() && !t.stdinUnsent.Load()
}

// returns reports whether the command goes on while berth connects again, and ends with berth.
func (t *attachment) returns() bool { return t.cmd.ReconnectSeconds > 0 }

// addContinueHint adds a hint to err if the user interrupted berth and the command continues. The hint says how to
// find the command again.
func (t *attachment) addContinueHint(err error) error {
	if errors.Is(err, errDetached) {
		fmt.Fprintf(t.app.Stderr, "\r\nberth: detached; `berth attach %s %s` attaches again\n", t.container, t.exec)
		return nil
	}
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
	_ = t.present().Signal(t.exec, unix.SignalName(sig))
}

// resize sends the size of our terminal to the command's terminal, if it has one.
func (t *attachment) resize() {
	if t.cmd.TTY != nil {
		_ = t.present().Resize(t.exec, term.WindowSize())
	}
}

// redraw sends the size of our terminal, after a smaller one, so that a program that draws the screen draws it anew.
func (t *attachment) redraw() {
	if size := term.WindowSize(); t.cmd.TTY != nil {
		if size.Rows > 1 && t.drawn.Load() {
			_ = t.present().Resize(t.exec, proto.WindowSize{Rows: size.Rows - 1, Cols: size.Cols})
		}
		_ = t.present().Resize(t.exec, size)
	}
	t.drawn.Store(true)
}

// attachCommand returns `berth attach`.
func attachCommand(a *app.App) *cobra.Command {
	var keys string
	var noStdin bool
	cmd := &cobra.Command{
		Use: "attach [flags] CONTAINER [EXEC]", Short: "Connect this terminal to a running command",
		Args: app.ArgCount(1, 2), ValidArgsFunction: a.CompleteExecs(),
		Long: `Connect this terminal to a running command, by default the newest one that has a terminal, else the newest.
EXEC may be a process ID.

A command with a terminal ("berth exec -it") goes on when its connection breaks or when its user types the detach keys.
attach shows the last part of its output and passes on what is typed. For other commands it shows their output, and
passes on standard input if they take it. An interrupt ends berth and not the command.`,
		Example: "  berth attach web\n  berth attach --detach-keys ctrl-x web 42",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			c, err := a.NewClient()
			if err != nil {
				return err
			}
			t := &attachment{app: a, c: c, leaves: true, print: a.NewPrinter()}
			t.drawn.Store(true)
			if t.detachKeys, err = parseDetachKeys(keys); err != nil {
				return err
			}
			e, err := findAttachable(ctx, a, c, args)
			if err != nil {
				return err
			}
			t.container, t.exec = e.ContainerID, e.ID
			t.cmd.OpenStdin = !noStdin && (e.OpenStdin || e.Terminal)
			if e.Terminal {
				size := term.WindowSize()
				t.cmd.TTY = &size
				t.cmd.OpenStdin = t.cmd.OpenStdin && term.IsTerminal(os.Stdin)
			}
			caught, stop := catchSignals()
			defer stop()
			t.caught = caught
			res, err := t.run(ctx)
			if err != nil {
				return t.addContinueHint(err)
			}
			return concludeExec(a, res, t.print)
		},
	}
	registerDetachKeys(cmd, &keys)
	cmd.Flags().BoolVar(&noStdin, "no-stdin", false, "show output only")
	return cmd
}

// findAttachable finds the running command to attach to.
func findAttachable(ctx context.Context, a *app.App, c *client.Client, args []string) (best proto.Exec, err error) {
	if len(args) > 1 {
		container, exec, err := a.FindContainerAndExec(ctx, c, args)
		if err != nil {
			return best, err
		}
		e, err := c.Exec(ctx, container, exec)
		if err == nil && e.State == proto.ExecEnded {
			err = app.WithHint(proto.Errorf(proto.Conflict, "", e.ID, "exec %s has ended", e.ID),
				fmt.Sprintf("`berth logs %s %s` prints its output", container, e.ID))
		}
		return e, err
	}
	container, err := a.FindContainer(ctx, c, args[0])
	if err != nil {
		return best, err
	}
	list, err := c.Execs(ctx, container)
	if err != nil {
		return best, err
	}
	for _, e := range list { // oldest first
		if e.State == proto.ExecRunning && !app.IsInterpreter(e) && (e.Terminal || !best.Terminal) {
			best = e
		}
	}
	if best.ID == "" {
		return best, app.WithHint(proto.Errorf(proto.NotFound, "", container, "no command runs in container %s",
			container), "`berth exec -it "+container+" bash` starts a shell")
	}
	return best, nil
}

// registerDetachKeys adds the flag for the keys that leave a terminal.
func registerDetachKeys(cmd *cobra.Command, keys *string) {
	cmd.Flags().StringVar(keys, "detach-keys", "ctrl-p,ctrl-q", "keys that leave a terminal, whose command goes on: "+
		"letters, or ctrl- and one of a-z@[\\]^_, separated by commas; empty for none")
}

func parseDetachKeys(keys string) ([]byte, error) {
	if keys == "" {
		return nil, nil
	}
	parsed, err := mobyterm.ToBytes(keys)
	if err != nil {
		return nil, proto.Errorf(proto.InvalidArgument, "", "detach-keys", "--detach-keys %q: %v", keys, err)
	}
	return parsed, nil
}
