package client

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"berth/guest/wire"
	"berth/proto"
)

// stdin is the daemon's end of a command's standard input.
type stdin struct {
	p    *Process
	pipe *os.File // nil if the data travel as frames

	writing chan struct{} // holds a token during a write, so that two writes do not mix

	mu     sync.Mutex
	room   int // bytes that may be sent
	closed bool
	more   chan struct{} // signals that room grew or closed was set
}

func newStdin(p *Process) *stdin {
	s := &stdin{p: p, room: wire.StdinWindow, more: make(chan struct{}, 1), writing: make(chan struct{}, 1)}
	if p.pipes != nil {
		s.pipe = p.pipes.stdin
	}
	return s
}

// Write writes b to the command's standard input. It returns when the data are taken, which depends on the command
// reading, or with ctx's error if ctx ends first. The count is the number of bytes taken. Write fails with Conflict
// once
// the input has no reader.
func (p *Process) Write(ctx context.Context, b []byte) (int, error) {
	if p.stdin == nil {
		return 0, proto.Errorf(proto.Conflict, "exec", "", "the command was started without standard input")
	}
	return p.stdin.write(ctx, b)
}

// CloseStdin ends standard input. A terminal receives an end-of-file character.
func (p *Process) CloseStdin() error {
	if p.stdin == nil {
		return nil
	}
	return p.stdin.Close()
}

func (s *stdin) write(ctx context.Context, b []byte) (int, error) {
	select {
	case s.writing <- struct{}{}:
		defer func() { <-s.writing }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if s.pipe != nil {
		return s.writePipe(ctx, b)
	}
	return s.writeFrames(ctx, b)
}

// writePipe writes to the command's own pipe. When ctx ends, a deadline in the past wakes the write.
func (s *stdin) writePipe(ctx context.Context, b []byte) (int, error) {
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		_ = s.pipe.SetWriteDeadline(time.Unix(1, 0))
	})
	n, err := s.pipe.Write(b)
	if !stop() {
		<-woken
		_ = s.pipe.SetWriteDeadline(time.Time{}) // the next write has its own ctx
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return n, ctx.Err()
	}
	return n, s.explain(err)
}

// writeFrames sends b in frames, as fast as the guest passes them on.
func (s *stdin) writeFrames(ctx context.Context, b []byte) (int, error) {
	total := 0
	for len(b) > 0 {
		n, err := s.take(ctx, min(len(b), 64<<10))
		if err != nil {
			return total, err
		}
		if err := s.p.send(wire.FrameStdin, b[:n]); err != nil {
			return total, err
		}
		total += n
		b = b[n:]
	}
	if s.p.kept {
		return total, s.taken(ctx)
	}
	return total, nil
}

// taken waits until the command's own pipe has all sent data. Then none of it is lost if this daemon dies.
func (s *stdin) taken(ctx context.Context) error {
	return s.awaitRoom(ctx, func() bool { return s.room == wire.StdinWindow })
}

// take waits until there is room to send and takes up to n bytes of the room.
func (s *stdin) take(ctx context.Context, n int) (got int, err error) {
	err = s.awaitRoom(ctx, func() bool {
		got = 0
		if !s.closed {
			got = min(n, s.room)
			s.room -= got
		}
		return got > 0
	})
	return got, err
}

// awaitRoom calls enough with mu held until it returns true. It fails when the input is closed or ctx ends.
func (s *stdin) awaitRoom(ctx context.Context, enough func() bool) error {
	for {
		s.mu.Lock()
		ok, closed := enough(), s.closed
		s.mu.Unlock()
		switch {
		case ok:
			return nil
		case closed:
			return s.explain(os.ErrClosed)
		}
		select {
		case <-s.more:
		case <-s.p.done:
			return wire.CommandEnded()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// credit adds n bytes that the guest passed on; 0 means that the input has no reader any more. It returns false if
// the guest reports more bytes than it got.
func (s *stdin) credit(n uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if int64(s.room)+int64(n) > wire.StdinWindow {
		return false
	}
	s.room += int(n)
	s.closed = s.closed || n == 0
	s.wake()
	return true
}

func (s *stdin) wake() {
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// Close ends standard input. A second call does nothing.
func (s *stdin) Close() error {
	s.mu.Lock()
	was := s.closed
	s.closed = true
	s.wake()
	s.mu.Unlock()
	if was {
		return nil
	}
	if s.pipe != nil {
		_ = s.pipe.Close()
		return nil
	}
	s.writing <- struct{}{} // after the current write, which closed has ended
	defer func() { <-s.writing }()
	err := s.p.send(wire.FrameEOF, nil)
	if proto.CodeOf(err) == proto.Conflict {
		return nil
	}
	return err
}

// explain returns why nothing more can be written.
func (s *stdin) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case wire.PeerGone(err), errors.Is(err, os.ErrClosed):
		return proto.Errorf(proto.Conflict, "exec", "", "the command no longer reads its standard input")
	}
	return proto.Errorf(proto.Unavailable, "guest", "", "the container's guest went away")
}
