package client

import (
	"context"
	"net"
	"runtime"
	"sync"
	"syscall"
	"time"

	"berth/guest/output"
	"berth/guest/wire"
	"berth/proto"
)

// queueWait bounds Start if the caller's context sets no shorter limit. A call may wait long in the queue of a
// persistent shell.
const queueWait = 30 * 24 * time.Hour

// Sink receives output. at is the offset of the first byte in its stream. It is the end of the previous output, or
// later if output of a kept command was lost. The calls come in order, from one goroutine at a time. b is valid only
// during the call. The command is blocked until the call returns.
type Sink func(s proto.Stream, at int64, b []byte)

// BufferSink is a Sink for a full buffer, which it may keep.
type BufferSink func(s proto.Stream, at int64, b *output.Buffer) (kept bool)

// Process is a command that runs or has run in the container. Its methods are safe for concurrent use.
type Process struct {
	client  *Client
	conn    *wire.Conn
	first   wire.Started
	sink    Sink
	buffers BufferSink    // StartOptions.Buffers
	sinkMu  sync.Mutex    // serializes calls of sink; guards at
	at      [2]int64      // bytes received of each stream
	kept    bool          // the process does not end with its connection
	again   bool          // the process was started earlier, over another connection
	pipes   *commandPipes // nil if output comes as frames
	pumps   []*output.Pump
	stdin   *stdin // nil if the command has no standard input

	mu       sync.Mutex
	last     uint32                // number of the last control
	controls map[uint32]chan error // sent and not yet acknowledged

	using sync.Mutex // held to send; see send
	over  bool       // the process no longer uses the connection

	done chan struct{}
	exit wire.Exit
	err  error
}

// Start runs cmd and returns once the process exists, or returns why it could not start. On a busy persistent shell
// it waits for its turn. ctx bounds the start only. The process then ends by itself, by Kill, or with the connection.
func (c *Client) Start(ctx context.Context, cmd wire.Command, sink Sink) (*Process, error) {
	return c.StartWith(ctx, cmd, sink, StartOptions{})
}

// StartOptions are further options of StartWith.
type StartOptions struct {
	Buffers BufferSink // receives full buffers instead of the sink; may be nil
	// called once the request is sent, so that slow work can run while the guest starts the process; may be nil
	Sent func()
}

// StartWith is Start with options.
func (c *Client) StartWith(ctx context.Context, cmd wire.Command, sink Sink, opt StartOptions) (*Process, error) {
	how := unsupported
	if cmd.TTY == nil && cmd.Shell == "" && cmd.Keep == 0 {
		var err error
		if how, err = c.crossing(ctx); err != nil {
			return nil, notStartedError{err}
		}
	}
	p := &Process{kept: cmd.Keep > 0, buffers: opt.Buffers}
	return c.startProcess(ctx, p, sink, cmd.Stdin, func() error {
		return p.sendStart(&cmd, how >= supported,
			opt.Sent)
	})
}

// startProcess calls start to request p on a connection, and then follows the process.
func (c *Client) startProcess(ctx context.Context, p *Process, sink Sink, stdin bool,
	start func() error) (*Process, error) {
	w, err := c.getConfirmed(ctx)
	if err != nil {
		return nil, notStartedError{err}
	}
	p.client, p.conn, p.sink, p.controls, p.done = c, w, sink, map[uint32]chan error{}, make(chan struct{})
	release := w.Bound(ctx, queueWait)
	if err = w.Unbound(release, start()); err == nil {
		err = p.startReaders(stdin)
	}
	if err != nil {
		if p.kept && !p.again && w.Broken {
			p.giveUp() // it may have started, and no caller will know of it
		}
		p.pipes.drop()
		c.put(w)
		return nil, preferContextError(ctx, err)
	}
	return p, nil
}

// sendStart sends the request and waits until the process exists.
func (p *Process) sendStart(cmd *wire.Command, cross bool, sent func()) error {
	if cross {
		var err error
		if p.pipes, err = newCommandPipes(cmd.Stdin); err != nil {
			return notStartedError{proto.Errorf(proto.TooMany, "exec", "", "the daemon has no file descriptors "+
				"left; try later")}
		}
		err = p.conn.SendRequest(&wire.Request{Op: wire.OpExec, Command: cmd, Pipes: len(p.pipes.send)}, p.pipes.send)
		p.pipes.sent()
		if err != nil {
			return notStartedError{wire.Fail(p.conn, err)}
		}
	} else if err := p.conn.SendRequest(&wire.Request{Op: wire.OpExec, Command: cmd}, nil); err != nil {
		return notStartedError{wire.Fail(p.conn, err)}
	}
	if sent != nil {
		sent()
	}
	return p.answer(cross)
}

// answer reads the guest's answer to a request for a process.
func (p *Process) answer(cross bool) error {
	kind, body, err := p.conn.ReadMessage(wire.MaxReply)
	switch {
	case err != nil:
		return wire.Fail(p.conn, err)
	case kind == wire.FrameError:
		return notStartedError{p.conn.ReadError(body)}
	case kind != wire.FrameStarted || wire.Decode(body, &p.first) != nil || p.first.Pipes != cross:
		return wire.Fail(p.conn, wire.ErrFrame)
	}
	return nil
}

// startReaders starts the readers of the command's output.
func (p *Process) startReaders(stdin bool) error {
	if !p.client.addReader() {
		return wire.Fail(p.conn, net.ErrClosed)
	}
	if p.pipes != nil {
		for i, f := range p.pipes.out {
			stream := proto.Stdout + proto.Stream(i)
			pump, err := output.StartPump(f, false, func(b []byte) error { p.deliver(stream, b); return nil },
				p.wholesale(stream))
			if err != nil {
				p.client.wg.Done()
				p.conn.Broken = true
				return proto.Errorf(proto.Internal, "exec", "", "reading the output of a command")
			}
			p.pumps = append(p.pumps, pump)
		}
	}
	if stdin {
		p.stdin = newStdin(p)
		p.stdin.closed = p.first.NoInput
	}
	go p.readToEnd()
	return nil
}

// deliver passes output to the sink.
func (p *Process) deliver(s proto.Stream, b []byte) {
	p.sinkMu.Lock()
	defer p.sinkMu.Unlock()
	p.sink(s, p.at[s-1], b)
	p.at[s-1] += int64(len(b))
}

// wholesale returns deliver for full buffers, or nil if there is no BufferSink.
func (p *Process) wholesale(s proto.Stream) func(*output.Buffer) (kept bool) {
	if p.buffers == nil {
		return nil
	}
	return func(b *output.Buffer) (kept bool) {
		p.sinkMu.Lock()
		defer p.sinkMu.Unlock()
		at := p.at[s-1]
		p.at[s-1] += output.BufferBytes
		return p.buffers(s, at, b)
	}
}

// readToEnd reads the guest's frames about the process until its end.
func (p *Process) readToEnd() {
	defer p.client.wg.Done()
	var d wire.Done
	err := p.listen(&d)
	for _, pump := range p.pumps {
		pump.Finish()
	}
	if err == nil && d.Open && p.conn.Send(wire.FrameDrained, nil) != nil {
		p.conn.Broken = true
	}
	p.end(d.Exit, err)
}

// listen handles frames until the one that ends the command.
func (p *Process) listen(d *wire.Done) error {
	for {
		kind, body, err := p.conn.ReadMessage(wire.MaxFrame)
		if err != nil {
			return wire.Fail(p.conn, err)
		}
		switch kind {
		case wire.FrameStdout, wire.FrameStderr:
			if p.pipes != nil || p.kept {
				return wire.Fail(p.conn, wire.ErrFrame)
			}
			stream := proto.Stdout
			if kind == wire.FrameStderr {
				stream = proto.Stderr
			}
			p.deliver(stream, body)
		case wire.FrameKept:
			if !p.kept || !p.jump(body) {
				return wire.Fail(p.conn, wire.ErrFrame)
			}
		case wire.FrameCredit, wire.FrameAck:
			if err := p.answered(kind, body); err != nil {
				return wire.Fail(p.conn, err)
			}
		case wire.FrameDone:
			if err := wire.Decode(body, d); err != nil || !d.Plausible() {
				return wire.Fail(p.conn, wire.ErrFrame)
			}
			return nil
		default:
			return wire.Fail(p.conn, wire.ErrFrame)
		}
	}
}

// answered handles stdin credit and control acknowledgements.
func (p *Process) answered(kind wire.FrameKind, body []byte) error {
	n, rest, err := wire.DecodeNumbers(body, 1)
	if err != nil {
		return err
	}
	if kind == wire.FrameCredit {
		if p.stdin == nil || !p.stdin.credit(n[0]) {
			return wire.ErrFrame
		}
		return nil
	}
	p.mu.Lock()
	wait := p.controls[n[0]]
	delete(p.controls, n[0])
	p.mu.Unlock()
	if wait == nil {
		return wire.ErrFrame
	}
	if len(rest) == 0 {
		wait <- nil
	} else {
		wait <- p.conn.ReadError(rest)
	}
	return nil
}

// send writes a frame unless the process is over: another process may use the connection by then. For that reason
// send holds the lock while it writes. The guest always reads, so a write that takes long means that the guest is
// lost.
func (p *Process) send(kind wire.FrameKind, body []byte) error {
	p.using.Lock()
	defer p.using.Unlock()
	if p.over {
		return wire.CommandEnded()
	}
	_ = p.conn.SetWriteDeadline(time.Now().Add(wire.ShortWait))
	if err := p.conn.Send(kind, body); err != nil {
		_ = p.conn.Close()
		return proto.Errorf(proto.Unavailable, "guest", "", "the container's guest went away")
	}
	return nil
}

// end publishes how the process ended and gives the connection back.
func (p *Process) end(x wire.Exit, err error) {
	p.using.Lock()
	p.over = true
	p.using.Unlock()
	p.mu.Lock()
	p.exit, p.err = x, err
	// An acknowledgement that is still to come would be mistaken for one of the next command.
	if len(p.controls) > 0 {
		p.conn.Broken = true
	}
	p.mu.Unlock()
	p.client.put(p.conn)
	close(p.done)
	runtime.Gosched() // yield to the waiters first: no caller waits for the code below
	p.pipes.drop()
}

// PID returns the process ID in the container's own numbering. For a call on a persistent shell it is the shell's.
func (p *Process) PID() int { return p.first.PID }

// Fresh reports whether a persistent shell was started for this call.
func (p *Process) Fresh() bool { return p.first.Fresh }

// Done returns a channel that is closed when Wait would return at once.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait returns how the process ended, after all its output went to the sink. Any error other than ctx's means that
// the guest was lost and the exit is unknown.
func (p *Process) Wait(ctx context.Context) (wire.Exit, error) {
	select {
	case <-p.done:
		return p.exit, p.err
	case <-ctx.Done():
		return wire.Exit{}, ctx.Err()
	}
}

// Signal sends sig to the process and its process group. On a persistent shell it signals what the shell runs, not
// the shell. It returns Conflict if the process has ended.
func (p *Process) Signal(ctx context.Context, sig syscall.Signal) error {
	return p.control(ctx, wire.FrameSignal, uint32(sig))
}

// Kill ends the process and all processes that it started, however hidden, and returns when that is done. A process
// that has taken the tag of a later command counts as part of that command. Kill of an ended process is no error.
// Kill also ends a persistent shell.
func (p *Process) Kill(ctx context.Context) error {
	err := p.control(ctx, wire.FrameKill)
	if proto.CodeOf(err) == proto.Conflict {
		return nil
	}
	return err
}

// Resize sets the terminal's size.
func (p *Process) Resize(ctx context.Context, size proto.WindowSize) error {
	return p.control(ctx, wire.FrameResize, uint32(size.Rows), uint32(size.Cols))
}

// Drop gives up the process. It closes the connection, which makes the guest kill and forget the process. Wait then
// reports the process as lost, unless its end was known already.
func (p *Process) Drop() {
	p.using.Lock()
	defer p.using.Unlock()
	if !p.over {
		if p.kept {
			p.giveUp()
		}
		_ = p.conn.Close()
	}
}

// control sends a numbered frame and waits for its acknowledgement.
func (p *Process) control(ctx context.Context, kind wire.FrameKind, args ...uint32) error {
	p.mu.Lock()
	p.last++
	n, wait := p.last, make(chan error, 1)
	p.controls[n] = wait
	p.mu.Unlock()
	if err := p.send(kind, wire.EncodeNumbers(append([]uint32{n}, args...)...)); err != nil {
		return err
	}
	return p.acknowledged(ctx, wait)
}

// acknowledged waits for the guest's answer to a control frame. The guest sends the answer before it reports the end.
func (p *Process) acknowledged(ctx context.Context, wait <-chan error) error {
	select {
	case err := <-wait:
		return err
	case <-p.done:
		select {
		case err := <-wait: // the control may have ended the process
			return err
		default:
			return wire.CommandEnded()
		}
	case <-ctx.Done():
		return ctx.Err()
	}
}
