// Package output keeps the output of a command: two bounded streams, read by offset. The daemon keeps the output of
// every exec this way. The guest keeps the output of commands that outlive a daemon.
package output

import (
	"context"
	"slices"
	"sort"
	"sync"

	"berth/proto"
)

// ChunkBytes is the size up to which a chunk of output grows before a new chunk begins. Small writes share a chunk,
// so that a command that writes single bytes costs no more memory than others.
const ChunkBytes = 32 << 10

// maxChunks bounds the chunks in the head and in the tail of a stream. A command that switches streams with every
// byte makes one chunk per byte.
const maxChunks = 8192

// chunkCost is the memory overhead of a chunk in bytes: 48 for the chunk itself, a pointer to it, and what the
// allocator adds to a few bytes of data. It is more than the chunk's header in a file.
const chunkCost = 64

// Output is the bounded output of one command. It keeps the first and the last half of limit for each stream and
// drops the middle. Any number of readers follow it at their own pace, each from its own position, and need no memory
// here. A writer does not wait for readers, unless the output is held.
type Output struct {
	mu      sync.Mutex
	limit   int64   // requested bytes of each stream to keep
	room    int64   // bytes of each stream that memory allows; at most limit
	tight   bool    // memory was short: room, and the result of most, are lower from then on
	budget  *Budget // nil: no further bound
	counted int64   // bytes counted in the budget
	streams [2]streamOutput
	seq     int64         // number of the next chunk
	changed chan struct{} // closed at the next change
	done    bool          // nothing more will come

	// The fields below are for lossless output; see lossless.go.
	lossless bool
	whole    bool                 // it has been lossless: also late readers get all that is kept
	followed bool                 // there has been a reader
	returns  bool                 // the last reader comes back; see HoldForReturn
	away     *Cursor              // where it was; one of the readers while it is away, else nil
	readers  map[*Cursor]struct{} // the current readers
	progress chan struct{}        // closed when a reader advances, attaches or detaches
}

// streamOutput is the state of one stream.
type streamOutput struct {
	total int64 // bytes written so far, kept or not
	split bool  // output after the head was dropped; new output goes to the tail
	head  section
	tail  section
	spare []byte // buffer of the last dropped chunk, reused for the next one
}

// section is a run of chunks and the number of bytes in them.
type section struct {
	chunks []*chunk
	size   int64
}

type chunk struct {
	seq  int64
	off  int64 // offset of data[0] in its stream
	data []byte

	buffer *Buffer // the Buffer that holds data; nil if data has its own memory
}

// New makes an output that keeps limit bytes of each stream, or less if budget requires it. Budget may be nil.
func New(limit int64, budget *Budget) *Output {
	return &Output{limit: limit, room: limit, budget: budget, changed: make(chan struct{}),
		readers: map[*Cursor]struct{}{}, progress: make(chan struct{})}
}

// Write appends b. It never blocks on a reader, unless the output is held. It reports whether the
// stream is over the limit.
func (o *Output) Write(s proto.Stream, b []byte) (over bool) {
	return o.WriteAt(s, 0, b)
}

// WriteAt is Write for bytes at offset at of the stream. The offset is the stream's end or later. The bytes between
// were lost on the way and show as a gap.
func (o *Output) WriteAt(s proto.Stream, at int64, b []byte) (over bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.streams[s-1].skip(at)
	return o.write(s, b)
}

// skip moves the end of a stream to at. A stream has at most one gap, so skip drops what follows an earlier gap.
func (st *streamOutput) skip(at int64) {
	if at <= st.total {
		return
	}
	st.total, st.split, st.tail = at, true, section{}
}

func (o *Output) write(s proto.Stream, b []byte) (over bool) {
	st := &o.streams[s-1]
	for len(b) > 0 {
		o.awaitReaders(s, ChunkBytes)
		n := o.place(st, b)
		b = b[n:]
	}
	o.account()
	o.signal()
	return st.total > o.limit
}

// place puts as much of b as fits into one chunk and returns how many bytes that is. Called with mu held.
func (o *Output) place(st *streamOutput, b []byte) int {
	sec := &st.head
	last := o.growable(sec)
	if st.split || sec.size >= o.room/2 || last == nil && len(sec.chunks) >= o.most() {
		o.split(st)
		sec = &st.tail
		last = o.growable(sec)
	}
	if last == nil {
		last = o.begin(st, sec, &chunk{data: st.spare[:0]})
		st.spare = nil
	}
	n := min(len(b), ChunkBytes-len(last.data))
	last.data = append(last.data, b[:n]...)
	sec.size += int64(n)
	st.total += int64(n)
	st.trim(o.room/2, o.most())
	return n
}

// split ends the head of a stream. A character that has begun there moves to the tail, so that dropping output between
// the two divides none. Called with mu held.
func (o *Output) split(st *streamOutput) {
	if st.split {
		return
	}
	st.split = true
	if len(st.head.chunks) == 0 {
		return
	}
	last := st.head.chunks[len(st.head.chunks)-1]
	if n := Incomplete(last.data); n > 0 {
		begun := last.data[len(last.data)-n:]
		last.data = last.data[:len(last.data)-n]
		st.head.size -= int64(n)
		st.total -= int64(n)
		o.begin(st, &st.tail, &chunk{data: slices.Clone(begun)})
		st.tail.size += int64(n)
		st.total += int64(n)
	}
}

// begin adds a new chunk after all others. Called with mu held.
func (o *Output) begin(st *streamOutput, sec *section, c *chunk) *chunk {
	c.seq, c.off = o.seq, st.total
	o.seq++
	sec.chunks = append(sec.chunks, c)
	return c
}

// growable returns the section's last chunk if it is also the newest chunk of both streams and has room. Otherwise
// the order between the streams would be lost.
func (o *Output) growable(sec *section) *chunk {
	if len(sec.chunks) == 0 {
		return nil
	}
	if last := sec.chunks[len(sec.chunks)-1]; last.seq == o.seq-1 && len(last.data) < ChunkBytes {
		return last
	}
	return nil
}

// most returns the maximum number of chunks in the head and in the tail of a stream. Called with mu held.
func (o *Output) most() int {
	if o.tight {
		return squeezed / 2 / chunkCost
	}
	return maxChunks
}

// trim drops the oldest tail chunks until the rest fits, but never the newest chunk.
func (st *streamOutput) trim(limit int64, most int) {
	list, n := st.tail.chunks, 0
	for n < len(list)-1 && (st.tail.size-int64(len(list[n].data)) >= limit || len(list)-n > most) {
		st.tail.size -= int64(len(list[n].data))
		if b := list[n].buffer; b != nil {
			b.leave()
		} else {
			st.spare = list[n].data
		}
		n++
	}
	if n > 0 {
		kept := copy(list, list[n:])
		clear(list[kept:])
		st.tail.chunks = list[:kept]
	}
}

// Finish marks the output as complete.
func (o *Output) Finish() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.done {
		o.done = true
		o.signal()
		o.advance()
	}
}

// signal wakes the readers. Called with mu held.
func (o *Output) signal() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// Drop frees the memory. Readers then see a gap.
func (o *Output) Drop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.streams {
		st := &o.streams[i]
		*st = streamOutput{total: st.total, split: true}
	}
	o.account()
}

// Totals returns the bytes written to stdout and stderr.
func (o *Output) Totals() (stdout, stderr int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.streams[0].total, o.streams[1].total
}

// Kept returns the bytes that the output uses in memory. In a file it uses at most as many.
func (o *Output) Kept() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.size()
}

// size returns the result of Kept. Called with mu held.
func (o *Output) size() (n int64) {
	for i := range o.streams {
		for _, sec := range []*section{&o.streams[i].head, &o.streams[i].tail} {
			n += sec.size + int64(len(sec.chunks))*chunkCost
		}
	}
	return n
}

// Cursor is a reader's position: the number of bytes that it has read of each stream. The zero Cursor is the start.
type Cursor struct {
	Stdout, Stderr int64

	seq   int64
	lent  *Buffer // the buffer of the last piece
	begun bool
	cuts  [2]cut // by stream
}

// Piece is the next part for a reader: output, or a gap from Offset to Until that is no longer kept.
type Piece struct {
	Stream proto.Stream
	Offset int64
	Until  int64 // end of a gap; 0 for output
	Data   []byte
	Whole  []byte // prefix and Data, if the reader was lent a Buffer
}

// Next waits for the output after c and moves c past it. ok is false when the reader has read everything and the
// output is complete.
func (o *Output) Next(ctx context.Context, c *Cursor) (p Piece, ok bool, err error) {
	_, p, ok, err = o.next(ctx, c, nil, ChunkBytes, false)
	return p, ok, err
}

// Append is Next that appends at most most bytes of output to b and returns the extended b; Data is its end. So a
// slow reader takes much at once, into its own memory. Output that is kept in a Buffer is lent instead: the reader
// may use the Buffer until it asks for more or is detached, and b stays unchanged.
func (o *Output) Append(ctx context.Context, c *Cursor, b []byte, most int) (_ []byte, p Piece, ok bool, err error) {
	return o.next(ctx, c, b, most, true)
}

func (o *Output) next(ctx context.Context, c *Cursor, b []byte, most int, lend bool) (_ []byte, p Piece, ok bool,
	err error) {
	for {
		o.mu.Lock()
		c.giveBack()
		if !c.begun {
			o.admit(c)
		}
		b, p, ok = o.take(c, b, most, lend)
		o.advance()
		done, changed := o.done, o.changed
		o.mu.Unlock()
		if ok || done {
			return b, p, ok, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return b, Piece{}, false, ctx.Err()
		}
	}
}

// admit begins to read for c. A reader who comes after the end gets what a result shows. Called with mu held.
func (o *Output) admit(c *Cursor) {
	c.begun, c.cuts = true, [2]cut{noCut, noCut}
	if o.done && !o.whole {
		o.limited(c)
	}
}

// take is Append without the wait. Called with mu held.
func (o *Output) take(c *Cursor, b []byte, most int, lend bool) ([]byte, Piece, bool) {
	for {
		s, ch := o.first(c.seq)
		if ch == nil {
			p, ok := o.lost(c)
			return b, p, ok
		}
		have := c.of(s)
		end := ch.off + int64(len(ch.data))
		left := c.cuts[s-1]
		switch {
		case ch.off > *have || *have >= left.head && *have < left.tail: // the middle was dropped
			p := Piece{Stream: s, Offset: *have, Until: max(o.streams[s-1].forward(ch.off), left.tail)}
			*have = p.Until
			return b, p, true
		case end > *have:
			p, at := Piece{Stream: s, Offset: *have}, len(b)
			if lend && ch.buffer != nil && ch.off == *have {
				*have, c.seq, p.Data, p.Whole = end, ch.seq, ch.data, c.lend(ch)
				return b, p, true
			}
			if *have < left.head {
				most = int(min(int64(most), left.head-*have))
			}
			for ok := true; ok; ch, ok = o.after(ch, s, most-(len(b)-at)) {
				more := ch.data[*have-ch.off:]
				more = more[:min(len(more), most-(len(b)-at))]
				b = append(b, more...)
				*have, c.seq = *have+int64(len(more)), ch.seq
			}
			p.Data = b[at:]
			return b, p, true
		}
		if ch.seq == o.seq-1 { // this chunk may still grow
			p, ok := o.lost(c)
			return b, p, ok
		}
		c.seq = ch.seq + 1
	}
}

// after returns the chunk that continues ch in its stream. It returns none if a chunk of the other stream comes
// first, or if the next chunk exceeds room bytes or is a buffer.
func (o *Output) after(ch *chunk, s proto.Stream, room int) (*chunk, bool) {
	to, next := o.first(ch.seq + 1)
	ok := next != nil && to == s && next.off == ch.off+int64(len(ch.data)) && len(next.data) <= room &&
		next.buffer == nil
	return next, ok
}

// lost reports output that was dropped after everything still kept.
func (o *Output) lost(c *Cursor) (Piece, bool) {
	for i := range o.streams {
		s := proto.Stream(i + 1)
		st, have := &o.streams[i], c.of(s)
		if st.total > *have && *have >= st.end() && st.end() < st.total {
			p := Piece{Stream: s, Offset: *have, Until: st.total}
			*have = st.total
			return p, true
		}
	}
	return Piece{}, false
}

// end returns the offset after the last kept byte of a stream.
func (st *streamOutput) end() int64 {
	for _, list := range [][]*chunk{st.tail.chunks, st.head.chunks} {
		if n := len(list); n > 0 {
			return list[n-1].off + int64(len(list[n-1].data))
		}
	}
	return 0
}

// first returns the earliest chunk with a number of at least seq.
func (o *Output) first(seq int64) (s proto.Stream, best *chunk) {
	for i := range o.streams {
		for _, list := range [][]*chunk{o.streams[i].head.chunks, o.streams[i].tail.chunks} {
			n := sort.Search(len(list), func(k int) bool { return list[k].seq >= seq })
			if n < len(list) && (best == nil || list[n].seq < best.seq) {
				s, best = proto.Stream(i+1), list[n]
			}
		}
	}
	return s, best
}

func (c *Cursor) of(s proto.Stream) *int64 {
	if s == proto.Stderr {
		return &c.Stderr
	}
	return &c.Stdout
}
