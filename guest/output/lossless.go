package output

import "berth/proto"

// The writer of a held output waits instead of dropping output that a reader has not read. So the kept output is a
// window that moves with the readers.

// Hold makes the output lossless until Release. Until the first reader attaches, the output keeps everything.
func (o *Output) Hold() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lossless, o.whole = true, true
}

// HoldWhileFollowed makes the output lossless while it has a reader, until Release. Without a reader it keeps the head
// and the tail, like any other.
func (o *Output) HoldWhileFollowed() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lossless, o.whole, o.followed = true, true, true
}

// HoldForReturn works like Hold. In addition, while the last reader is away, what it had not read counts as needed.
func (o *Output) HoldForReturn() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lossless, o.whole, o.returns = true, true, true
}

// Attach counts c as a reader until Detach. The caller then reads with c.
func (o *Output) Attach(c *Cursor) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.readers[c] = struct{}{}
	o.followed = true
	delete(o.readers, o.away)
	o.away = nil
	o.advance()
}

// Followed reports whether the output has a reader now.
func (o *Output) Followed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.readers) > 0 && o.away == nil
}

// Detach ends Attach.
func (o *Output) Detach(c *Cursor) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, reads := o.readers[c]; reads && o.returns && len(o.readers) == 1 {
		o.away = &Cursor{Stdout: c.Stdout, Stderr: c.Stderr}
		o.readers[o.away] = struct{}{}
	}
	delete(o.readers, c)
	c.giveBack()
	o.advance()
}

// Release ends Hold and wakes every waiting writer. It is called when the command is being ended or has no reader.
func (o *Output) Release() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.advance()
	o.lossless, o.returns = false, false
	delete(o.readers, o.away)
	o.away = nil
}

// advance wakes a waiting writer. Called with mu held.
func (o *Output) advance() {
	if o.lossless || o.done {
		close(o.progress)
		o.progress = make(chan struct{})
	}
}

// awaitReaders waits while another chunk of that size in s would drop output that a reader has not read. Called with
// mu held; it releases mu while it waits.
func (o *Output) awaitReaders(s proto.Stream, size int64) {
	for o.lossless && !o.done && o.wouldLose(s, size) {
		o.signal() // the readers may not know yet what this write has added
		wait := o.progress
		o.mu.Unlock()
		<-wait
		o.mu.Lock()
	}
}

// wouldLose reports whether another chunk of that size in the tail would drop output that is still needed. Until the
// first reader attaches, all output is needed. Called with mu held.
func (o *Output) wouldLose(s proto.Stream, size int64) bool {
	end := o.streams[s-1].removed(size, o.room/2, o.most())
	if end == 0 {
		return false
	}
	for c := range o.readers {
		if *c.of(s) < end {
			return true
		}
	}
	return !o.followed
}

// removed returns the offset up to which trim may drop the tail once the tail has one more chunk of more bytes; 0
// means nothing.
func (st *streamOutput) removed(more, limit int64, most int) (end int64) {
	list, size := st.tail.chunks, st.tail.size+more
	for n, c := range list {
		if size -= int64(len(c.data)); size < limit && len(list)+1-n <= most {
			break
		}
		end = c.off + int64(len(c.data))
	}
	return end
}
