package output

import "berth/proto"

// The writer of an output that is held waits before it would drop what a reader has not had. So the kept
// output is a window that readers move.

// Hold makes the output one of which nothing may be lost, until Release. Before the first reader has
// come, all of it is still wanted.
func (o *Output) Hold() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lossless = true
}

// Attach makes c count as a reader until Detach. Its owner goes on to read with it.
func (o *Output) Attach(c *Cursor) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.readers[c] = struct{}{}
	o.followed = true
	o.advance()
}

// Followed reports whether somebody reads it now.
func (o *Output) Followed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.readers) > 0
}

// Detach ends Attach.
func (o *Output) Detach(c *Cursor) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.readers, c)
	c.giveBack()
	o.advance()
}

// Release ends all waiting, and Hold: the command is being ended, or nobody follows it.
func (o *Output) Release() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.advance()
	o.lossless = false
}

// advance wakes a writer that waits. Called with mu held.
func (o *Output) advance() {
	if o.lossless || o.done {
		close(o.progress)
		o.progress = make(chan struct{})
	}
}

// awaitReaders waits while another chunk of that size in s would drop what a reader has not had. Called with mu held,
// which it gives up while it waits.
func (o *Output) awaitReaders(s proto.Stream, size int64) {
	for o.lossless && !o.done && o.wouldLose(s, size) {
		o.signal() // they may not know yet of what this very write has placed
		wait := o.progress
		o.mu.Unlock()
		<-wait
		o.mu.Lock()
	}
}

// wouldLose reports whether another chunk of that size in the tail would push out something that is still wanted.
// Before the first reader has come, all of it is. Called with mu held.
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

// removed is the offset up to which trim may drop the tail once one more chunk of more bytes is in it; 0 is nothing.
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
