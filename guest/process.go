package guest

import (
	"context"
	"net"
	"runtime"
	"sync"
	"syscall"
	"time"

	"berth/guest/output"
	"berth/proto"
)

// queueWait is how long Start may take where the caller's context says nothing
// shorter: a call may stand in the queue of a persistent shell for long.
const queueWait = 30 * 24 * time.Hour

// A Sink receives output, of which the first byte is at this offset of its stream: behind the last one, or
// further where output of a command that is kept was lost. It is called in order, from one goroutine at a
// time; b is valid only during the call. While it does not return, the command is held up.
type Sink func(s proto.Stream, at int64, b []byte)

// A BufferSink is a Sink for a buffer that is full, which it may keep.
type BufferSink func(s proto.Stream, at int64, b *output.Buffer) (kept bool)

// A Process is a command that runs in the container, or has run. Its methods are
// safe for concurrent use.
type Process struct {
	client *Client
	conn   *conn
	first  started
	sink   Sink
	whole  BufferSink // Command.Whole
	sinkMu sync.Mutex // one call of sink at a time; guards at
	at     [2]int64   // how much of each stream there was
	kept   bool       // it does not end with its connection
	again  bool       // it was started over another connection, before
	pipes  *plumbing  // nil where output comes as frames
	pumps  []*pump
	stdin  *stdin // nil if the command reads nothing

	mu       sync.Mutex
	last     uint32                // control number
	controls map[uint32]chan error // sent and not yet acknowledged

	using sync.Mutex // held to send; see send
	over  bool       // the connection is no longer ours

	done chan struct{}
	exit Exit
	err  error
}

// Start runs cmd and returns once it exists, or says why it could not be started. On a persistent
// shell that is busy it waits for its turn. ctx bounds the start alone; what runs then
// ends by itself, by Kill, or with the connection.
func (c *Client) Start(ctx context.Context, cmd Command, sink Sink) (*Process, error) {
	how := unsupported
	if cmd.TTY == nil && cmd.Shell == "" && cmd.Keep == 0 {
		var err error
		if how, err = c.crossing(ctx); err != nil {
			return nil, never{err}
		}
	}
	p := &Process{kept: cmd.Keep > 0, whole: cmd.Whole}
	return c.begin(ctx, p, sink, cmd.Stdin, func() error { return p.start(&cmd, how >= supported) })
}

// begin has start ask for p on a connection, and listens to it from then on.
func (c *Client) begin(ctx context.Context, p *Process, sink Sink, stdin bool, start func() error) (*Process, error) {
	w, err := c.sure(ctx)
	if err != nil {
		return nil, never{err}
	}
	p.client, p.conn, p.sink, p.controls, p.done = c, w, sink, map[uint32]chan error{}, make(chan struct{})
	release := w.bound(ctx, queueWait)
	if err = w.unbound(release, start()); err == nil {
		err = p.attach(stdin)
	}
	if err != nil {
		if p.kept && !p.again && w.broken {
			p.giveUp() // it may have been started, and nobody will know of it
		}
		p.close()
		c.put(w)
		return nil, said(ctx, err)
	}
	return p, nil
}

// start sends the request and waits until the process exists.
func (p *Process) start(cmd *Command, cross bool) error {
	if cross {
		var err error
		if p.pipes, err = takePlumbing(cmd.Stdin); err != nil {
			return never{proto.Errorf(proto.TooMany, "exec", "", "the daemon has no file descriptors left; try later")}
		}
		err = p.conn.sendRequest(&request{Op: opExec, Command: cmd, Pipes: len(p.pipes.send)}, p.pipes.send)
		p.pipes.sent()
		if err != nil {
			return never{broken(p.conn, err)}
		}
	} else if err := p.conn.sendRequest(&request{Op: opExec, Command: cmd}, nil); err != nil {
		return never{broken(p.conn, err)}
	}
	if cmd.Sent != nil {
		cmd.Sent()
	}
	return p.answer(cross)
}

// answer reads what the guest says to a request for a process.
func (p *Process) answer(cross bool) error {
	kind, body, err := p.conn.message(maxReply)
	switch {
	case err != nil:
		return broken(p.conn, err)
	case kind == frameError:
		return never{p.conn.remote(body)}
	case kind != frameStarted || decode(body, &p.first) != nil || p.first.Pipes != cross:
		return broken(p.conn, errFrame)
	}
	return nil
}

// attach starts the readers of what the command writes.
func (p *Process) attach(stdin bool) error {
	if !p.client.addReader() {
		return broken(p.conn, net.ErrClosed)
	}
	if p.pipes != nil {
		for i, f := range p.pipes.out {
			stream := proto.Stdout + proto.Stream(i)
			pump, err := newPump(f, false, func(b []byte) error { p.deliver(stream, b); return nil },
				p.wholesale(stream))
			if err != nil {
				p.client.wg.Done()
				p.conn.broken = true
				return proto.Errorf(proto.Internal, "exec", "", "reading the output of a command")
			}
			p.pumps = append(p.pumps, pump)
		}
	}
	if stdin {
		p.stdin = newStdin(p)
		p.stdin.closed = p.first.NoInput
	}
	go p.run()
	return nil
}

// deliver hands output to the sink.
func (p *Process) deliver(s proto.Stream, b []byte) {
	p.sinkMu.Lock()
	defer p.sinkMu.Unlock()
	p.sink(s, p.at[s-1], b)
	p.at[s-1] += int64(len(b))
}

// wholesale is deliver for buffers that are full, if somebody takes those; nil if not.
func (p *Process) wholesale(s proto.Stream) func(*output.Buffer) (kept bool) {
	if p.whole == nil {
		return nil
	}
	return func(b *output.Buffer) (kept bool) {
		p.sinkMu.Lock()
		defer p.sinkMu.Unlock()
		at := p.at[s-1]
		p.at[s-1] += output.BufferBytes
		return p.whole(s, at, b)
	}
}

// run reads what the guest says of the process until its end.
func (p *Process) run() {
	defer p.client.wg.Done()
	var d done
	err := p.listen(&d)
	for _, pump := range p.pumps {
		pump.finish()
	}
	if err == nil && d.Open && p.conn.send(frameDrained, nil) != nil {
		p.conn.broken = true
	}
	p.end(d.Exit, err)
}

// listen handles frames until the one that ends the command.
func (p *Process) listen(d *done) error {
	for {
		kind, body, err := p.conn.message(MaxFrame)
		if err != nil {
			return broken(p.conn, err)
		}
		switch kind {
		case frameStdout, frameStderr:
			if p.pipes != nil || p.kept {
				return broken(p.conn, errFrame)
			}
			stream := proto.Stdout
			if kind == frameStderr {
				stream = proto.Stderr
			}
			p.deliver(stream, body)
		case frameKept:
			if !p.kept || !p.jump(body) {
				return broken(p.conn, errFrame)
			}
		case frameCredit, frameAck:
			if err := p.answered(kind, body); err != nil {
				return broken(p.conn, err)
			}
		case frameDone:
			if err := decode(body, d); err != nil || !d.plausible() {
				return broken(p.conn, errFrame)
			}
			return nil
		default:
			return broken(p.conn, errFrame)
		}
	}
}

// maxSeen is more than the length of any gist, in bytes.
const maxSeen = 64

// plausible reports whether an exit can be true.
func (d *done) plausible() bool {
	return d.Code >= 0 && d.Code <= 255 && d.Signal >= 0 && d.Signal <= 64 &&
		d.Leftover >= 0 && d.Leftover < 1<<23 && d.Full&^allShort == 0 && d.FullBefore&^allShort == 0 && d.CPU >= 0 &&
		d.PeakBytes >= 0 && d.Ago >= 0 && len(d.Seen) <= maxSeen
}

// answered handles credit for stdin and acknowledged controls.
func (p *Process) answered(kind frameKind, body []byte) error {
	n, rest, err := numbers(body, 1)
	if err != nil {
		return err
	}
	if kind == frameCredit {
		if p.stdin == nil || !p.stdin.credit(n[0]) {
			return errFrame
		}
		return nil
	}
	p.mu.Lock()
	wait := p.controls[n[0]]
	delete(p.controls, n[0])
	p.mu.Unlock()
	if wait == nil {
		return errFrame
	}
	if len(rest) == 0 {
		wait <- nil
	} else {
		wait <- p.conn.remote(rest)
	}
	return nil
}

// send writes a frame unless the process is over: its connection may serve another one
// by then. The lock is held while writing for that reason; the guest reads at all times, so
// a write that takes long means that it is lost.
func (p *Process) send(kind frameKind, body []byte) error {
	p.using.Lock()
	defer p.using.Unlock()
	if p.over {
		return hasEnded()
	}
	_ = p.conn.SetWriteDeadline(time.Now().Add(shortWait))
	if err := p.conn.send(kind, body); err != nil {
		_ = p.conn.Close()
		return proto.Errorf(proto.Unavailable, "guest", "", "the container's guest went away")
	}
	return nil
}

// end publishes how it ended and gives the connection back.
func (p *Process) end(x Exit, err error) {
	p.using.Lock()
	p.over = true
	p.using.Unlock()
	p.mu.Lock()
	p.exit, p.err = x, err
	// An acknowledgement that is still to come would be taken for the next command's.
	if len(p.controls) > 0 {
		p.conn.broken = true
	}
	p.mu.Unlock()
	p.client.put(p.conn)
	close(p.done)
	runtime.Gosched() // to whoever waited for that: nobody waits for what follows
	p.close()
	if p.pipes != nil {
		layPlumbing()
	}
}

// close closes the files of the process.
func (p *Process) close() {
	if p.pipes != nil {
		p.pipes.drop()
	}
}

// PID is the process's in the container's own numbering. For a call on a persistent shell it is the shell's.
func (p *Process) PID() int { return p.first.PID }

// Fresh reports whether a persistent shell was started for this call.
func (p *Process) Fresh() bool { return p.first.Fresh }

// Done is closed when Wait would return at once.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait returns how the process ended, after all its output went to the sink. Any
// error but ctx's means that the guest was lost and how it ended is not known.
func (p *Process) Wait(ctx context.Context) (Exit, error) {
	select {
	case <-p.done:
		return p.exit, p.err
	case <-ctx.Done():
		return Exit{}, ctx.Err()
	}
}

// Signal sends sig to the process and its process group. On a persistent shell it goes to what the
// shell runs, not to the shell. Conflict says that it has ended.
func (p *Process) Signal(ctx context.Context, sig syscall.Signal) error {
	return p.control(ctx, frameSignal, uint32(sig))
}

// Kill ends the process and all that it started, however it was hidden, and returns when that is done. What has taken
// the mark of a later command passes for that one's. What has ended already is no error. A persistent shell ends with
// it.
func (p *Process) Kill(ctx context.Context) error {
	err := p.control(ctx, frameKill)
	if proto.CodeOf(err) == proto.Conflict {
		return nil
	}
	return err
}

// Resize tells the terminal its new size.
func (p *Process) Resize(ctx context.Context, size proto.WindowSize) error {
	return p.control(ctx, frameResize, uint32(size.Rows), uint32(size.Cols))
}

// Drop gives up on the process: the connection is closed, which makes the guest kill it, and forget it.
// Wait then says that it was lost, unless its end was known already.
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
func (p *Process) control(ctx context.Context, kind frameKind, args ...uint32) error {
	p.mu.Lock()
	p.last++
	n, wait := p.last, make(chan error, 1)
	p.controls[n] = wait
	p.mu.Unlock()
	if err := p.send(kind, pack(append([]uint32{n}, args...)...)); err != nil {
		return err
	}
	return p.acknowledged(ctx, wait)
}

// acknowledged waits for what the guest says of a control frame, which it does before it tells of the end.
func (p *Process) acknowledged(ctx context.Context, wait <-chan error) error {
	select {
	case err := <-wait:
		return err
	case <-p.done:
		select {
		case err := <-wait: // it has ended of it, perhaps
			return err
		default:
			return hasEnded()
		}
	case <-ctx.Done():
		return ctx.Err()
	}
}

func hasEnded() error {
	return proto.Errorf(proto.Conflict, "exec", "", "the command has ended already")
}
