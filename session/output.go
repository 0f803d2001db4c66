package session

import (
	"context"
	"sort"
	"sync"

	"berth/proto"
)

// chunkSize is how large a piece of output grows before a new one is begun. Small writes
// share a piece, so that a command that writes single bytes costs no more memory than others.
const chunkSize = 32 << 10

// chunkOverhead is counted for each piece, so that their number is bounded too.
const chunkOverhead = 128

// output is what one exec wrote, bounded: of each stream the first and the last half of
// limit are kept and what lies between is dropped. Any number of readers follow it at their own
// pace, each from its own position; a writer never waits for one and none costs memory here.
type output struct {
	mu      sync.Mutex
	limit   int64
	streams [2]streamOutput
	seq     int64         // of the next chunk
	changed chan struct{} // closed at the next change
	done    bool          // nothing more will come
}

// streamOutput is one stream's part.
type streamOutput struct {
	total int64 // bytes written so far, kept or not
	head  []*chunk
	tail  []*chunk
	sizes [2]int64 // bytes counted in head and tail, overhead included
	spare []byte   // buffer of the last chunk dropped, for the next one
}

type chunk struct {
	seq  int64
	off  int64 // of data[0] in its stream
	data []byte
}

func newOutput(limit int64) *output {
	return &output{limit: limit, changed: make(chan struct{})}
}

// write appends b. It never blocks on a reader. It reports whether the stream is over the limit.
func (o *output) write(s proto.Stream, b []byte) (over bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	st := &o.streams[s-1]
	for len(b) > 0 {
		n := o.place(st, b)
		b = b[n:]
	}
	o.signal()
	return st.total > o.limit
}

// place puts as much of b as fits into one chunk. Called with mu held.
func (o *output) place(st *streamOutput, b []byte) int {
	inTail := st.sizes[0] >= o.limit/2
	list, size := &st.head, &st.sizes[0]
	if inTail {
		list, size = &st.tail, &st.sizes[1]
	}
	last := o.growable(*list)
	if last == nil {
		last = &chunk{seq: o.seq, off: st.total, data: st.spare[:0]}
		st.spare = nil
		o.seq++
		*list = append(*list, last)
		*size += chunkOverhead
	}
	n := min(len(b), chunkSize-len(last.data))
	last.data = append(last.data, b[:n]...)
	*size += int64(n)
	st.total += int64(n)
	if inTail {
		st.trim(o.limit / 2)
	}
	return n
}

// growable is the list's last chunk if it is also the newest of all and has room; order
// between the streams would be lost otherwise.
func (o *output) growable(list []*chunk) *chunk {
	if len(list) == 0 {
		return nil
	}
	if last := list[len(list)-1]; last.seq == o.seq-1 && len(last.data) < chunkSize {
		return last
	}
	return nil
}

// trim drops the oldest tail chunks until the rest fits, but never the newest.
func (st *streamOutput) trim(limit int64) {
	n := 0
	for n < len(st.tail)-1 && st.sizes[1]-cost(st.tail[n]) >= limit {
		st.sizes[1] -= cost(st.tail[n])
		st.spare = st.tail[n].data
		n++
	}
	if n > 0 {
		kept := copy(st.tail, st.tail[n:])
		clear(st.tail[kept:])
		st.tail = st.tail[:kept]
	}
}

func cost(c *chunk) int64 { return int64(len(c.data)) + chunkOverhead }

// finish says that nothing more will come.
func (o *output) finish() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.done {
		o.done = true
		o.signal()
	}
}

// signal wakes the readers. Called with mu held.
func (o *output) signal() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// drop gives the memory back; readers then see a gap.
func (o *output) drop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.streams {
		st := &o.streams[i]
		*st = streamOutput{total: st.total}
	}
}

// totals are the bytes written to stdout and stderr.
func (o *output) totals() (stdout, stderr int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.streams[0].total, o.streams[1].total
}

// kept is the memory that it holds.
func (o *output) kept() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	var n int64
	for _, st := range o.streams {
		n += st.sizes[0] + st.sizes[1]
	}
	return n
}

// text is what is kept of a stream, with head and tail apart and the count of
// bytes dropped between them.
func (o *output) text(s proto.Stream) (head, tail []byte, dropped int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	st := &o.streams[s-1]
	for _, c := range st.head {
		head = append(head, c.data...)
	}
	for _, c := range st.tail {
		tail = append(tail, c.data...)
	}
	return head, tail, st.total - int64(len(head)) - int64(len(tail))
}

// A Cursor is a reader's position: how many bytes of each stream it has had.
// The zero Cursor is the start.
type Cursor struct {
	Stdout, Stderr int64

	seq int64
}

// A Piece is what a reader gets next: output, or a gap from Offset to Until that is no longer kept.
type Piece struct {
	Stream proto.Stream
	Offset int64
	Until  int64 // end of a gap; 0 for output
	Data   []byte
}

// next waits for what follows c and moves c past it. ok is false when all has been read and
// nothing more will come.
func (o *output) next(ctx context.Context, c *Cursor) (p Piece, ok bool, err error) {
	for {
		o.mu.Lock()
		p, ok = o.take(c)
		done, changed := o.done, o.changed
		o.mu.Unlock()
		if ok || done {
			return p, ok, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Piece{}, false, ctx.Err()
		}
	}
}

// take is next without the wait. Called with mu held.
func (o *output) take(c *Cursor) (Piece, bool) {
	for {
		s, ch := o.first(c.seq)
		if ch == nil {
			return o.lost(c)
		}
		have := c.of(s)
		end := ch.off + int64(len(ch.data))
		switch {
		case ch.off > *have: // the middle was dropped
			p := Piece{Stream: s, Offset: *have, Until: ch.off}
			*have = ch.off
			return p, true
		case end > *have:
			p := Piece{Stream: s, Offset: *have, Data: append([]byte(nil), ch.data[*have-ch.off:]...)}
			*have = end
			return p, true
		}
		if ch.seq == o.seq-1 { // it may still grow
			return o.lost(c)
		}
		c.seq = ch.seq + 1
	}
}

// lost reports output that was dropped after everything still kept.
func (o *output) lost(c *Cursor) (Piece, bool) {
	for i := range o.streams {
		s := proto.Stream(i + 1)
		st, have := &o.streams[i], c.of(s)
		if len(st.head)+len(st.tail) == 0 && st.total > *have {
			p := Piece{Stream: s, Offset: *have, Until: st.total}
			*have = st.total
			return p, true
		}
	}
	return Piece{}, false
}

// first is the earliest chunk with a number of at least seq.
func (o *output) first(seq int64) (s proto.Stream, best *chunk) {
	for i := range o.streams {
		for _, list := range [][]*chunk{o.streams[i].head, o.streams[i].tail} {
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
