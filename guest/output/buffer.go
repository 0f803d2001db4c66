package output

import (
	"sync"

	"berth/proto"
)

// BufferBytes is how much output a Buffer holds. It is more than a pipe of default size holds, so that one read
// empties the pipe.
const BufferBytes = 128<<10 - dataAt

// dataAt is the offset of the data in a Buffer. It is a multiple of the processor's cache line, and it makes the
// whole a size class of the allocator.
const dataAt = 512

// PrefixBytes is the room before the data of a Buffer, without its two counters.
const PrefixBytes = dataAt - 2*8

// Buffer is a buffer that output is read into. A full Buffer can become a chunk of an Output and reach the readers
// without a copy.
type Buffer struct {
	prefix int // length of the prefix in bytes; it ends where the data begin
	uses   int // uses by the output that keeps it and by its readers; guarded by that output's mu
	b      [PrefixBytes + BufferBytes]byte
}

var buffers = sync.Pool{New: func() any { return new(Buffer) }}

// NewBuffer returns a buffer with arbitrary content.
func NewBuffer() *Buffer { return buffers.Get().(*Buffer) }

// Free gives back a buffer that is no longer in use.
func (b *Buffer) Free() {
	b.prefix, b.uses = 0, 0
	buffers.Put(b)
}

// Data returns the whole data part of the buffer.
func (b *Buffer) Data() []byte { return b.b[PrefixBytes:] }

// Prefix puts p, at most PrefixBytes, before the data, for readers who want both in one slice.
func (b *Buffer) Prefix(p []byte) {
	b.prefix = copy(b.b[PrefixBytes-len(p):], p)
}

// whole returns the prefix and the data.
func (b *Buffer) whole() []byte { return b.b[PrefixBytes-b.prefix:] }

// fewBuffers is the minimum number of buffers that an output must have room for to keep any. Its tail is dropped
// buffer by buffer.
const fewBuffers = 4

// WriteBuffer is WriteAt for the data of a full buffer. It reports whether it has kept the buffer; then the caller no
// longer owns it. It keeps buffers that come after the head, if the output has room for some.
func (o *Output) WriteBuffer(s proto.Stream, at int64, b *Buffer) (kept, over bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	st := &o.streams[s-1]
	st.skip(at)
	if o.takesBuffers(st) {
		o.awaitReaders(s, BufferBytes)
		kept = o.takesBuffers(st) // other outputs may have taken the memory in the meantime
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

// takesBuffers reports whether the next chunk of a stream may be a whole buffer. Called with mu held.
func (o *Output) takesBuffers(st *streamOutput) bool {
	return st.split && !o.tight && o.room/2 >= fewBuffers*BufferBytes
}

// lend lends c the buffer of ch, until c reads more or is detached. Called with mu held.
func (c *Cursor) lend(ch *chunk) []byte {
	ch.buffer.uses++
	c.lent = ch.buffer
	return ch.buffer.whole()
}

// giveBack returns the buffer that c was lent. Called with mu held.
func (c *Cursor) giveBack() {
	if c.lent != nil {
		c.lent.leave()
		c.lent = nil
	}
}

// leave ends one use of the buffer. Called with mu held.
func (b *Buffer) leave() {
	if b.uses--; b.uses == 0 {
		b.Free()
	}
}
