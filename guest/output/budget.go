package output

import "sync/atomic"

// squeezed is how many bytes of each stream an output may keep at least, however little memory there is. Its pieces
// may take as much again.
const squeezed = 128 << 10

// A Budget bounds the memory of many outputs together. Those that are written to while it is
// exceeded keep 128 KiB of each stream from then on, which is told like any output that was left out.
type Budget struct {
	limit int64
	used  atomic.Int64
}

// NewBudget makes a budget of limit bytes.
func NewBudget(limit int64) *Budget { return &Budget{limit: limit} }

// Used is how many bytes the outputs hold now.
func (b *Budget) Used() int64 { return b.used.Load() }

// Take counts n bytes of something else that is kept, unless that would be too much. What was taken is given back
// with a negative n.
func (b *Budget) Take(n int64) bool {
	if b.used.Add(n) <= b.limit || n <= 0 {
		return true
	}
	b.used.Add(-n)
	return false
}

// Forget gives the memory back of an output that nobody will ask for any more. It stays while somebody who has it
// reads, and counts no longer.
func (o *Output) Forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.budget == nil {
		return
	}
	o.budget.used.Add(-o.counted)
	o.budget, o.counted = nil, 0
}

// account tells the budget what the output holds, and makes do with less if that is too much. Called with mu held.
func (o *Output) account() {
	if o.budget == nil {
		return
	}
	if o.count() > o.budget.limit && !o.tight {
		o.tight, o.room = true, min(o.room, squeezed)
		o.squeeze()
		o.count()
	}
}

// count brings the budget up to date and is what all outputs hold. Called with mu held.
func (o *Output) count() int64 {
	size := o.size()
	grown := size - o.counted
	o.counted = size
	return o.budget.used.Add(grown)
}

// squeeze drops what there is no room for any more. An output that is held keeps what its readers want. Called
// with mu held.
func (o *Output) squeeze() {
	if o.lossless {
		return
	}
	for i := range o.streams {
		st := &o.streams[i]
		list := st.head.chunks
		for n := len(list) - 1; n > 0 && (st.head.size-int64(len(list[n].data)) >= o.room/2 || n >= o.most()); n-- {
			st.head.size -= int64(len(list[n].data))
			list[n] = nil
			st.head.chunks, st.split = list[:n], true
		}
		st.trim(o.room/2, o.most())
		st.spare = nil
	}
}
