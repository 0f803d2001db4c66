package client

import (
	"context"
	"encoding/binary"
	"slices"
	"time"

	"berth/guest/wire"
	"berth/proto"
)

// maxOffset is more than any command can write, in bytes: what a guest claims beyond is a lie.
const maxOffset = 1 << 60

// Attach goes on with a command that the guest keeps, of which the caller has so many bytes of stdout
// and stderr already. stdin is whether it was started with one. Whoever was attached to it before is cut
// off. NotFound says that the guest does not keep it. However it fails, the command goes on and is kept.
func (c *Client) Attach(ctx context.Context, id string, have [2]int64, stdin bool, sink Sink) (*Process, error) {
	p := &Process{kept: true, again: true, at: have}
	return c.startProcess(ctx, p, sink, stdin, func() error {
		if err := p.conn.SendRequest(&wire.Request{Op: wire.OpAttach, ID: id, Have: have}, nil); err != nil {
			return wire.Fail(p.conn, err)
		}
		return p.answer(false)
	})
}

// Claim tells the guest which commands the caller knows of, and returns those of them that it keeps. Of the
// others none will ever start, however late the request for it arrives, and what is kept beside ends and
// is forgotten. It is for a daemon that has just begun.
func (c *Client) Claim(ctx context.Context, ids []string) (have []string, err error) {
	err = c.call(ctx, wire.ShortWait, &wire.Request{Op: wire.OpClaim, IDs: ids}, &have)
	if err != nil {
		return nil, err
	}
	for _, id := range have {
		if !slices.Contains(ids, id) {
			return nil, proto.Errorf(proto.Unavailable, "guest", "", "the container's guest answered nonsense; "+
				"restart the container")
		}
	}
	return have, nil
}

// Forget has the guest drop what it keeps of these commands. Those that still run are ended.
func (c *Client) Forget(ctx context.Context, ids ...string) error {
	return c.call(ctx, wire.ShortWait, &wire.Request{Op: wire.OpForget, IDs: ids}, nil)
}

// jump handles output of a command that is kept. False means that it cannot be true.
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

// giveUp has the guest end a command with its connection although it is kept.
func (p *Process) giveUp() {
	_ = p.conn.SetWriteDeadline(time.Now().Add(time.Second))
	_ = p.conn.Send(wire.FrameGiveUp, nil)
}

// Ran is how long a command that was attached to had run before that.
func (p *Process) Ran() time.Duration { return max(0, p.first.Ran) }

// Written is how much of each stream a command that was attached to had written before that. It arrives from then on.
func (p *Process) Written() (stdout, stderr int64) {
	within := func(n int64) int64 { return max(0, min(n, maxOffset)) }
	return within(p.first.Out[0]), within(p.first.Out[1])
}

// Ended reports whether a command that was attached to had ended before that.
func (p *Process) Ended() bool { return p.first.Ended }
