package session

import (
	"context"
	"unicode/utf8"

	"berth/guest/output"
	"berth/proto"
)

// A Piece is output as written, or a gap in it.
type Piece = output.Piece

// A Cursor is a reader's position: the bytes of each stream that it has read.
type Cursor = output.Cursor

// Follow calls fn with the exec's events from the given position on: its start, all kept output, and its exit, with
// the result that Wait returns. It returns after the exit, when fn fails, or when ctx ends. The command does not wait
// for a slow fn: output that fn misses for good becomes a gap event.
func (e *Exec) Follow(ctx context.Context, from Cursor, fn func(proto.Event) error) error {
	return e.follow(ctx, from, follower{exec: e.id, fn: fn})
}

// rawBytes is how much output FollowRaw gives at a time. Each follower that is behind holds that much memory.
const rawBytes = 128 << 10

// FollowRaw works like Follow, but passes output to out, possibly split within a character, and the rest to fn.
// message is the data after the header of proto.AppendOutput. Both are valid until out returns and must not be
// changed.
func (e *Exec) FollowRaw(ctx context.Context, from Cursor, fn func(proto.Event) error,
	out func(p Piece, message []byte) error) error {
	return e.follow(ctx, from, follower{exec: e.id, fn: fn, raw: out, room: proto.AppendOutput(nil, e.id, 0, 0, nil)})
}

func (e *Exec) follow(ctx context.Context, from Cursor, f follower) error {
	ctx, cancel := e.whileHere(ctx)
	defer cancel()
	out, done, err := e.written(&from)
	if err != nil {
		return err
	}
	defer done()
	info := e.Info()
	if err := f.fn(proto.Event{Type: proto.EventStart, ExecID: e.id, Exec: &info}); err != nil {
		return err
	}
	if err := f.all(ctx, out, &from); err != nil {
		return err
	}
	res, err := e.Wait(ctx)
	if err != nil {
		return err
	}
	return f.fn(proto.Event{Type: proto.EventExit, ExecID: e.id, Result: &res})
}

// CheckCursor fails if a cursor is beyond the output: it belongs to another exec.
func (e *Exec) CheckCursor(c Cursor) error {
	stdout, stderr := e.out.Totals()
	if p := e.process(); p != nil { // after a restart of the daemon the rest is still to come
		o, r := p.Written()
		stdout, stderr = max(stdout, o), max(stderr, r)
	}
	for _, s := range []struct {
		stream   proto.Stream
		at, have int64
	}{{proto.Stdout, c.Stdout, stdout}, {proto.Stderr, c.Stderr, stderr}} {
		if s.at < 0 || s.at > s.have {
			return invalid("offset", "%s of exec %s has %d bytes; offset %d is not among them", s.stream, e.id, s.have,
				s.at)
		}
	}
	return nil
}

// whileHere returns a context that ends with ctx, and when this daemon closes while the command continues.
func (e *Exec) whileHere(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(e.s.core.ctx, func() {
		if durable(e.cmd) {
			cancel()
		}
	})
	return ctx, func() { stop(); cancel() }
}

// A follower turns pieces into events and never splits a character: the first bytes of one wait in held for the rest.
type follower struct {
	exec string
	fn   func(proto.Event) error
	raw  func(p Piece, message []byte) error // takes output unchanged; nil: output becomes events
	room []byte                              // for messages; its length is where the data begin
	held [2][]byte
	at   [2]int64 // offset of held[0]
}

// FollowOutput follows an output that belongs to no exec, until it is finished. Events have id as their exec.
func FollowOutput(ctx context.Context, out *output.Output, id string, fn func(proto.Event) error) error {
	var from Cursor
	f := follower{exec: id, fn: fn}
	return f.all(ctx, out, &from)
}

// all sends all output from a position on.
func (f *follower) all(ctx context.Context, out *output.Output, from *Cursor) error {
	for {
		p, ok, err := f.next(ctx, out, from)
		if err != nil {
			return err
		}
		if !ok {
			return f.flush()
		}
		if err := f.piece(p); err != nil {
			return err
		}
	}
}

func (f *follower) next(ctx context.Context, out *output.Output, from *Cursor) (p Piece, ok bool, err error) {
	if f.raw == nil {
		return out.Next(ctx, from)
	}
	head := len(f.room)
	b, p, ok, err := out.Append(ctx, from, f.room, rawBytes)
	f.room = b[:head]
	return p, ok, err
}

func (f *follower) piece(p output.Piece) error {
	i := p.Stream - 1
	if p.Until > 0 {
		if err := f.flushStream(p.Stream); err != nil {
			return err
		}
		return f.fn(proto.Event{Type: proto.EventGap, ExecID: f.exec, Stream: p.Stream.String(), Offset: p.Offset,
			Until: p.Until})
	}
	if f.raw != nil {
		if p.Whole != nil {
			return f.raw(p, p.Whole)
		}
		proto.AppendOutput(f.room[:0], f.exec, p.Stream, p.Offset, nil)
		return f.raw(p, f.room[:len(f.room)+len(p.Data)])
	}
	data, off := p.Data, p.Offset
	if len(f.held[i]) > 0 {
		data, off = append(f.held[i], data...), f.at[i]
	}
	cut := len(data) - incomplete(data)
	f.held[i], f.at[i] = data[cut:], off+int64(cut)
	return f.emit(p.Stream, off, data[:cut])
}

func (f *follower) flush() error {
	if err := f.flushStream(proto.Stdout); err != nil {
		return err
	}
	return f.flushStream(proto.Stderr)
}

func (f *follower) flushStream(s proto.Stream) error {
	data := f.held[s-1]
	f.held[s-1] = nil
	return f.emit(s, f.at[s-1], data)
}

func (f *follower) emit(s proto.Stream, off int64, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	e := proto.Event{Type: proto.EventType(s.String()), ExecID: f.exec, Offset: off}
	if utf8.Valid(data) {
		e.Data = string(data)
	} else {
		e.DataBase64 = data
	}
	return f.fn(e)
}

// incomplete returns the length of the unfinished character at the end of b, 0 to 3.
func incomplete(b []byte) int {
	for n := 1; n <= min(len(b), utf8.UTFMax-1); n++ {
		if c := b[len(b)-n]; utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(b[len(b)-n:]) {
				return n
			}
			return 0
		}
	}
	return 0
}
