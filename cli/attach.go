package cli

import (
	"context"
	"fmt"
	"io"
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

// execRef marks the answers to the one command that a connection here is for.
const execRef = "exec"

// patience is how many times the user asks a command to end before berth leaves it alone, which ends it too.
const patience = 3

// An attachment joins this terminal to one foreground command.
type attachment struct {
	c         *client.Client
	container string
	cmd       proto.Cmd
	print     *printer
	caught    <-chan os.Signal // the command's from run on; of catch

	live    *client.Live
	started bool          // the command exists; set by run
	exec    string        // its ID, from then on
	begun   chan struct{} // closed then
	restore func()        // gives the terminal back

	owed atomic.Bool // some of standard input has not been passed on; from run on
}

// run runs the command and returns its result. Signals are the command's from here on, unless it is one that berth
// only looks after.
func (t *attachment) run(ctx context.Context) (proto.ExecResult, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t.begun = make(chan struct{})
	t.owed.Store(t.cmd.OpenStdin && t.cmd.TTY == nil)
	// From before there is a connection: a daemon may be slow to answer, and the user need not wait for it.
	defer t.forward(ctx, cancel)()
	res, err := t.attend(ctx, cancel)
	// The connection was closed by us then, and its error would tell of that.
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	return res, err
}

// attend is run once signals are seen to.
func (t *attachment) attend(ctx context.Context, give context.CancelCauseFunc) (res proto.ExecResult, err error) {
	if t.live, err = t.c.Live(ctx, t.container); err != nil {
		return res, err
	}
	defer t.live.Close()
	if err := t.live.Exec(execRef, t.cmd); err != nil {
		return res, err
	}
	// The terminal is given back whatever happens; a shell in raw mode shows nothing of what is
	// typed.
	t.restore = func() {}
	defer func() { t.restore() }()
	return t.follow(ctx, give)
}

// follow prints what the command does until it ends.
func (t *attachment) follow(ctx context.Context, give context.CancelCauseFunc) (proto.ExecResult, error) {
	for {
		ev, err := t.live.Next(ctx)
		if err != nil {
			return proto.ExecResult{}, err
		}
		switch ev.Type {
		case proto.EventStart:
			t.started, t.exec = true, ev.ExecID
			close(t.begun)
			if err := t.begin(ctx, give); err != nil {
				return proto.ExecResult{}, err
			}
		case proto.EventExit:
			return *ev.Result, nil
		case proto.EventError:
			// Once it runs, what fails is a key or signal that came too late.
			if !t.started {
				return proto.ExecResult{}, ev.Error
			}
		default:
			if err := t.print.event(ev); err != nil {
				return proto.ExecResult{}, err
			}
		}
	}
}

// begin hands the terminal over to a command that has just started. Standard input is read by a goroutine that nobody
// waits for: a read of a terminal cannot be taken back, and ends with the program.
func (t *attachment) begin(ctx context.Context, give context.CancelCauseFunc) error {
	switch {
	case !t.cmd.OpenStdin:
		return nil
	case t.cmd.TTY == nil:
		// By requests and not by the connection: a pipe may hold more than the daemon keeps for a
		// command that does not read.
		go t.feed(ctx, give)
		return nil
	}
	// Output that nobody reads any more must not end berth before the terminal is given back; writing it fails, and
	// that does.
	signal.Ignore(syscall.SIGPIPE)
	restore, err := term.RawMode(os.Stdin)
	if err != nil {
		return fmt.Errorf("preparing the terminal: %w", err)
	}
	t.restore = restore
	go func() {
		// A key at a time is the rule; this is room for what is pasted.
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

// feed passes standard input on. What cannot be passed on is the end of all: the command would wait for the rest, or
// take what it has for the whole. One that ended before it had read its input is owed nothing.
func (t *attachment) feed(ctx context.Context, give context.CancelCauseFunc) {
	err := t.c.Stdin(ctx, t.container, t.exec, os.Stdin)
	if err != nil && proto.CodeOf(err) != proto.Conflict && proto.CodeOf(err) != proto.NotFound {
		give(fmt.Errorf("passing on standard input: %w", err))
		return
	}
	t.owed.Store(false)
}

// forwarded are the signals that are meant for the command.
// SIGTSTP is not among them: a stopped berth can be continued, and in raw mode ^Z is the command's
// anyway.
var forwarded = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2,
	syscall.SIGWINCH,
}

// catch has the signals that are meant for a command come to a channel until stop is called, and end berth no more.
func catch() (caught chan os.Signal, stop func()) {
	// Package signal drops what finds no room; 16 is more than anybody types in the time of one
	// message.
	caught = make(chan os.Signal, 16)
	signal.Notify(caught, forwarded...)
	return caught, func() { signal.Stop(caught) }
}

// forward passes signals on to the command once it has begun, and gives up on it when the user insists, or leaves one
// that goes on by itself. The function that it returns ends that.
func (t *attachment) forward(ctx context.Context, give context.CancelCauseFunc) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		asked, begun, runs := 0, t.begun, false
		for {
			select {
			case <-begun:
				begun, runs = nil, true
				t.resize() // it may have changed meanwhile
			case sig := <-t.caught:
				if ends(sig) {
					asked++
				}
				// Before the command has begun there is nothing to pass a signal to, so the first
				// one is for us.
				if asked >= patience || ends(sig) && (!runs || t.apart()) {
					give(app.Interruption{Signal: sig.(syscall.Signal)})
					return
				}
				if runs {
					t.pass(sig.(syscall.Signal))
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

// apart reports whether the command goes on without us, so that what ends us is not meant for it. With a terminal it
// is: that is where its signals come from. One that is still owed input would wait for it for ever.
func (t *attachment) apart() bool {
	return t.cmd.IdempotencyKey != "" && t.cmd.TTY == nil && !t.owed.Load()
}

// left is err with the way back, where it is that the user left a command that goes on.
func (t *attachment) left(err error) error {
	if !t.apart() || !app.IsInterrupted(err) {
		return err
	}
	if t.exec == "" {
		return app.WithHint(err, "if the command had begun, it goes on; the same command line again finds it, or begins it")
	}
	return app.WithHint(err, fmt.Sprintf("the command goes on; the same command line again finds it, and `berth kill "+
		"%s %s` ends it", t.container, t.exec))
}

// ends reports whether a signal means that the user wants the end.
func ends(sig os.Signal) bool {
	return sig == syscall.SIGINT || sig == syscall.SIGTERM || sig == syscall.SIGHUP
}

// pass sends one signal on. A connection that has ended is noticed by whoever reads it.
func (t *attachment) pass(sig syscall.Signal) {
	if sig == syscall.SIGWINCH {
		t.resize()
		return
	}
	_ = t.live.Signal(t.exec, unix.SignalName(sig))
}

// resize tells the command's terminal, if it has one, the size of ours.
func (t *attachment) resize() {
	if t.cmd.TTY != nil {
		_ = t.live.Resize(t.exec, term.WindowSize())
	}
}

// A printer writes a command's output as it is, and keeps count of it.
// One goroutine uses it at a time.
type printer struct {
	out, err io.Writer // where the two streams go; nil leaves one out
	had      [2]int64  // bytes of stdout and stderr up to which all came or is lost
	lost     [2]int64
}

// event prints one event of output; others are none of its business.
func (p *printer) event(ev proto.Event) error {
	i, w := 0, p.out
	if ev.Type == proto.EventStderr || ev.Type == proto.EventGap && ev.Stream == proto.Stderr.String() {
		i, w = 1, p.err
	}
	switch ev.Type {
	case proto.EventGap:
		// Counted here and told at the end: a line amid the output could land in the middle of a
		// file that it is piped into.
		p.lost[i] += ev.Until - ev.Offset
		p.had[i] = ev.Until
		return nil
	case proto.EventStdout, proto.EventStderr:
		data := ev.DataBase64
		if ev.Data != "" {
			data = []byte(ev.Data)
		}
		p.had[i] = ev.Offset + int64(len(data))
		// Counted all the same: had is where a new connection goes on.
		if w == nil {
			return nil
		}
		_, err := w.Write(data)
		return err
	}
	return nil
}

// missed says what output did not come, or is empty.
func (p *printer) missed() string {
	switch {
	case p.lost[0] == 0 && p.lost[1] == 0:
		return ""
	case p.lost[1] == 0:
		return fmt.Sprintf("%d bytes of stdout are missing", p.lost[0])
	case p.lost[0] == 0:
		return fmt.Sprintf("%d bytes of stderr are missing", p.lost[1])
	}
	return fmt.Sprintf("%d bytes of stdout and %d of stderr are missing", p.lost[0], p.lost[1])
}
