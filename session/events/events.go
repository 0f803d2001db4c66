// Package events turns the output of a command into events for a client that follows it.
//
// Out of scope: which output a client follows, and the start and exit events around it (session, code).
package events

import (
	"context"
	"unicode/utf8"

	"berth/guest/output"
	"berth/proto"
)

// rawBytes is how much output Raw gets at a time. Each follower that is behind holds that much memory.
const rawBytes = 128 << 10

// A Follower turns pieces of output into events and never splits a character: the first bytes of one wait for the rest.
type Follower struct {
	ID    string // of the exec, for the events
	Event func(proto.Event) error
	// Raw takes output unchanged, possibly split within a character; nil: output becomes events. message is the data
	// after the header of proto.AppendOutput. Both are valid until Raw returns and must not be changed.
	Raw func(p output.Piece, message []byte) error

	room []byte    // for messages; its length is where the data begin
	held [2][]byte // incomplete characters, by stream
	at   [2]int64  // offset of held
}

// Follow sends all output from a position on, until it is finished, Event or Raw fails, or ctx ends.
func (f *Follower) Follow(ctx context.Context, out *output.Output, from *output.Cursor) error {
	if f.Raw != nil {
		f.room = proto.AppendOutput(nil, f.ID, 0, 0, nil)
	}
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

func (f *Follower) next(ctx context.Context, out *output.Output, from *output.Cursor) (p output.Piece, ok bool,
	err error) {
	if f.Raw == nil {
		return out.Next(ctx, from)
	}
	head := len(f.room)
	b, p, ok, err := out.Append(ctx, from, f.room, rawBytes)
	f.room = b[:head]
	return p, ok, err
}

func (f *Follower) piece(p output.Piece) error {
	i := p.Stream - 1
	if p.Until > 0 {
		if len(f.held[i]) > 0 { // the rest of the character is lost
			p.Offset, f.held[i] = f.at[i], nil
		}
		return f.Event(proto.Event{Type: proto.EventGap, ExecID: f.ID, Stream: p.Stream.String(), Offset: p.Offset,
			Until: p.Until})
	}
	if f.Raw != nil {
		if p.Whole != nil {
			return f.Raw(p, p.Whole)
		}
		proto.AppendOutput(f.room[:0], f.ID, p.Stream, p.Offset, nil)
		return f.Raw(p, f.room[:len(f.room)+len(p.Data)])
	}
	data, off := p.Data, p.Offset
	if len(f.held[i]) > 0 {
		data, off = append(f.held[i], data...), f.at[i]
	}
	cut := len(data) - output.Incomplete(data)
	f.held[i], f.at[i] = data[cut:], off+int64(cut)
	return f.emit(p.Stream, off, data[:cut])
}

func (f *Follower) flush() error {
	if err := f.flushStream(proto.Stdout); err != nil {
		return err
	}
	return f.flushStream(proto.Stderr)
}

func (f *Follower) flushStream(s proto.Stream) error {
	data := f.held[s-1]
	f.held[s-1] = nil
	return f.emit(s, f.at[s-1], data)
}

func (f *Follower) emit(s proto.Stream, off int64, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	e := proto.Event{Type: proto.EventType(s.String()), ExecID: f.ID, Offset: off}
	if utf8.Valid(data) {
		e.Data = string(data)
	} else {
		e.DataBase64 = data
	}
	return f.Event(e)
}
