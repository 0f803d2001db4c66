package client

import (
	"context"
	"encoding/binary"
	"slices"
	"time"

	"berth/guest/wire"
	"berth/proto"
)

// maxOffset is more than any command can write, in bytes. A guest that claims more lies.
const maxOffset = 1 << 60

// Attach continues with a command that the guest keeps. The caller already has the number of bytes of stdout and
// stderr in have. stdin says whether the command was started with a standard input. Attach disconnects an earlier
// attachment. It returns NotFound if the guest does not keep the command. On every failure the command goes on and is
// kept.
func (c *Client) Attach(ctx context.Context, id string, have [2]int64, stdin bool, sink Sink) (*Process, error) {
	p := &Process{kept: true, again: true, at: have}
	return c.startProcess(ctx, p, sink, stdin, func() error {
		if err := p.conn.SendRequest(&wire.Request{Op: wire.OpAttach, ID: id, Have: have}, nil); err != nil {
			return wire.Fail(p.conn, err)
		}
		return p.answer(false)
	})
}

// Claim tells the guest which commands the caller knows, and returns those that the guest keeps. None of the missing
// commands will ever start, however late its request arrives. The guest ends and forgets all other kept commands. A
// daemon calls Claim after its start.
func (c *Client) Claim(ctx context.Context, ids []string) (have []string, err error) {
	err = c.call(ctx, wire.ShortWait, &wire.Request{Op: wire.OpClaim, IDs: ids}, &have)
	if err != nil {
		return nil, err
	}
	for _, id := range have {
		if !slices.Contains(ids, id) {
			return nil, proto.Errorf(proto.Unavailable, "guest", "", "the container's guest sent an invalid answer; "+
				"restart the container")
		}
	}
	return have, nil
}

// Forget makes the guest drop what it keeps of these commands. It ends those that still run.
func (c *Client) Forget(ctx context.Context, ids ...string) error {
	return c.call(ctx, wire.ShortWait, &wire.Request{Op: wire.OpForget, IDs: ids}, nil)
}

// jump handles output of a kept command. It returns false if the frame is not plausible.
func (p *Process) jump(body []byte) bool {
	if len(body) <= wire.KeptHeaderBytes {
		return false
	}
	s, at := proto.Stream(body[0]), binary.BigEndian.Uint64(body[1:wire.KeptHeaderBytes])
	if s != proto.Stdout && s != proto.Stderr || at < uint64(p.at[s-1]) || at > maxOffset {
		return false
	}
	p.sinkMu.Lock()
	p.at[s-1] = int64(at)
	p.sinkMu.Unlock()
	p.deliver(s, body[wire.KeptHeaderBytes:])
	return true
}

// giveUp makes the guest end a kept command with its connection.
func (p *Process) giveUp() {
	_ = p.conn.SetWriteDeadline(time.Now().Add(time.Second))
	_ = p.conn.Send(wire.FrameGiveUp, nil)
}

// Ran returns how long the command had run before Attach.
func (p *Process) Ran() time.Duration { return max(0, p.first.Ran) }

// Written returns how much of each stream the command had written before Attach. That output arrives after it.
func (p *Process) Written() (stdout, stderr int64) {
	within := func(n int64) int64 { return max(0, min(n, maxOffset)) }
	return within(p.first.Out[0]), within(p.first.Out[1])
}

// Ended reports whether the command had ended before Attach.
func (p *Process) Ended() bool { return p.first.Ended }
