package output

import (
	"sync"

	"berth/proto"
)

// BufferBytes is how much output a Buffer holds: more than a pipe has that nobody has widened, so that one read
// empties it.
const BufferBytes = 128<<10 - dataAt

// dataAt is where in a Buffer its data begin: at a line of the processor's cache, and so that the whole is a size
// that the allocator has.
const dataAt = 512

// PrefixBytes is the room before the data of a Buffer, beside its two counts.
const PrefixBytes = dataAt - 2*8

// A Buffer is what output is read into. One that is full can become a piece of an Output as it is, and reach its
// readers so: what writes much is not copied on its way.
type Buffer struct {
	prefix int // bytes of it, which end where the data begin
	uses   int // by the output that keeps it and by those who read it; guarded by that output's mu
	b      [PrefixBytes + BufferBytes]byte
}

var buffers = sync.Pool{New: func() any { return new(Buffer) }}

// NewBuffer is a buffer with anything in it.
func NewBuffer() *Buffer { return buffers.Get().(*Buffer) }

// Free gives back a buffer that nobody uses.
func (b *Buffer) Free() {
	b.prefix, b.uses = 0, 0
	buffers.Put(b)
}

// Data is all that it holds.
func (b *Buffer) Data() []byte { return b.b[PrefixBytes:] }

// Prefix puts p before the data, at most PrefixBytes, for readers who want both in one piece.
func (b *Buffer) Prefix(p []byte) {
	b.prefix = copy(b.b[PrefixBytes-len(p):], p)
}

// whole is the prefix and the data.
func (b *Buffer) whole() []byte { return b.b[PrefixBytes-b.prefix:] }

// fewBuffers is how many an output has room for, at least, if it keeps any: its tail goes buffer by buffer.
const fewBuffers = 4

// WriteBuffer is WriteAt of the data of a full buffer. It reports whether it has kept that: then it is no longer the
// caller's. It keeps those that come behind the head of an output with room for some.
func (o *Output) WriteBuffer(s proto.Stream, at int64, b *Buffer) (kept, over bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	st := &o.streams[s-1]
	st.skip(at)
	if o.takesBuffers(st) {
		o.awaitReaders(s, BufferBytes)
		kept = o.takesBuffers(st) // others may have taken the memory meanwhile
	}
	if !kept {
		return false, o.write(s, b.Data())
	}
	b.uses = 1
	o.begin(st, &st.tail, &chunk{data: b.Data(), buffer: b})
	st.tail.size += BufferBytes
	st.total += BufferBytes
	st.trim(o.room/2, o.most())
	o.account()
	o.signal()
	return true, st.total > o.limit
}

// takesBuffers reports whether the next piece of a stream may be a whole buffer. Called with mu held.
func (o *Output) takesBuffers(st *streamOutput) bool {
	return st.split && !o.tight && o.room/2 >= fewBuffers*BufferBytes
}

// lend gives c the buffer that ch is, until it asks for more or is detached. Called with mu held.
func (c *Cursor) lend(ch *chunk) []byte {
	ch.buffer.uses++
	c.lent = ch.buffer
	return ch.buffer.whole()
}

// giveBack ends what c was lent. Called with mu held.
func (c *Cursor) giveBack() {
	if c.lent != nil {
		c.lent.leave()
		c.lent = nil
	}
}

// leave ends one use. Called with mu held.
func (b *Buffer) leave() {
	if b.uses--; b.uses == 0 {
		b.Free()
	}
}
