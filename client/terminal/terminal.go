// Package terminal opens terminals in containers: shells and other programs that people type into. It is above package
// client, whose live connections it uses. Commands without a terminal are in package client alone.
package terminal

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"sync"
	"time"

	"berth/client"
	"berth/proto"
)

const (
	ref              = "terminal"
	reconnectSeconds = 30 // that the command goes on while the client connects again
	killMost         = 10 * time.Second
)

// A Terminal is a command with a terminal. Read gives what it shows, and Write types. It survives a broken connection
// and a restart of the daemon. Only one goroutine may call Read; the other methods are safe for concurrent use.
type Terminal struct {
	ID string // of the command

	client    *client.Client
	container string
	detach    bool
	shown     *io.PipeReader
	stop      context.CancelFunc
	done      chan struct{} // closed when result and err are set
	result    proto.ExecResult
	err       error

	mu   sync.Mutex // guards live and size
	live *client.Live
	size proto.WindowSize
}

// Open starts a command with a terminal, by default a login shell in /workspace with 24 rows and 80 columns. It ends
// with ctx. Call Close to end it, and read until io.EOF: a command waits for its reader.
func Open(ctx context.Context, c *client.Client, container string, cmd proto.Cmd) (*Terminal, error) {
	if cmd.Command == "" && len(cmd.Argv) == 0 {
		cmd.Argv = []string{"bash", "-l"}
	}
	if cmd.Cwd == "" && cmd.JobID == "" {
		cmd.Cwd = "/workspace"
	}
	if cmd.TTY == nil {
		cmd.TTY = &proto.WindowSize{Rows: 24, Cols: 80}
	}
	if cmd.IdempotencyKey == "" && !cmd.Detach {
		cmd.IdempotencyKey, cmd.ReconnectSeconds = "once_"+rand.Text(), reconnectSeconds
	}
	cmd.OpenStdin = true
	ctx, stop := context.WithCancel(ctx)
	shown, show := io.Pipe()
	t := &Terminal{client: c, container: container, detach: cmd.Detach, shown: shown, stop: stop,
		done: make(chan struct{}), size: *cmd.TTY}
	started, err := t.begin(ctx, cmd)
	if err != nil {
		stop()
		return nil, err
	}
	t.ID = started.ExecID
	go func() {
		defer close(t.done)
		defer stop()
		t.result, t.err = t.follow(ctx, show)
		show.CloseWithError(t.err) // nil is io.EOF
	}()
	return t, nil
}

// begin starts the command and returns its first event.
func (t *Terminal) begin(ctx context.Context, cmd proto.Cmd) (ev proto.Event, err error) {
	if t.live, err = t.client.Live(ctx, t.container); err != nil {
		return ev, err
	}
	if err = t.live.Exec(ref, cmd); err == nil {
		for err == nil && ev.Type != proto.EventStart {
			if ev, err = t.live.Next(ctx); ev.Type == proto.EventError {
				err = ev.Error
			}
		}
	}
	if err != nil {
		t.live.Close()
	}
	return ev, err
}

// follow writes what the terminal shows until the command has ended.
func (t *Terminal) follow(ctx context.Context, show io.Writer) (proto.ExecResult, error) {
	defer func() { t.current().Close() }()
	var had int64 // bytes that were shown
	for {
		ev, err := t.current().Next(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return proto.ExecResult{}, ctx.Err()
			}
			if err := t.reconnect(ctx, had); err != nil {
				return proto.ExecResult{}, err
			}
			continue
		}
		switch ev.Type {
		case proto.EventStdout:
			data := ev.DataBase64
			if data == nil {
				data = []byte(ev.Data)
			}
			had = ev.Offset + int64(len(data))
			if _, err := show.Write(data); err != nil && !errors.Is(err, io.ErrClosedPipe) {
				return proto.ExecResult{}, err
			}
		case proto.EventGap:
			had = ev.Until
		case proto.EventExit:
			return *ev.Result, nil
		}
	}
}

// reconnect attaches to the command from a byte of its output on.
func (t *Terminal) reconnect(ctx context.Context, had int64) error {
	t.current().Close()
	live, err := t.client.Live(ctx, t.container) // it waits for a daemon that is away
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.live = live
	if err := live.Attach(ref, t.ID, had, 0); err != nil {
		return err
	}
	return live.Resize(t.ID, t.size)
}

// current returns the present connection.
func (t *Terminal) current() *client.Live {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.live
}

// Read reads what the terminal shows. It returns io.EOF when the command has ended.
func (t *Terminal) Read(b []byte) (int, error) { return t.shown.Read(b) }

// Write types bytes. An error says that the connection broke meanwhile: some of them may have come.
func (t *Terminal) Write(b []byte) (int, error) {
	if err := t.current().Type(t.ID, b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Resize sets the size of the terminal, also for later connections.
func (t *Terminal) Resize(size proto.WindowSize) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.size = size
	return t.live.Resize(t.ID, size)
}

// Wait waits for the command's end. What it shows must be read meanwhile.
func (t *Terminal) Wait(ctx context.Context) (proto.ExecResult, error) {
	select {
	case <-t.done:
		return t.result, t.err
	case <-ctx.Done():
		return proto.ExecResult{}, ctx.Err()
	}
}

// Close ends the command, if it has not ended, and the connection. One that was started with Detach goes on.
func (t *Terminal) Close() (err error) {
	t.shown.Close() // what it shows from now on has no reader
	select {
	case <-t.done:
	default:
		err = t.kill()
	}
	t.stop()
	<-t.done
	return err
}

// kill ends the command, unless it is meant to go on.
func (t *Terminal) kill() error {
	if t.detach {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), killMost)
	defer cancel()
	_, err := t.client.Signal(ctx, t.container, t.ID, "SIGKILL")
	var known *proto.Error
	if errors.As(err, &known) && (known.Code == proto.Conflict || known.Code == proto.NotFound ||
		known.Code == proto.Expired) { // it has ended, or its container has
		return nil
	}
	return err
}
