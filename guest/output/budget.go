package output

import "sync/atomic"

// squeezed is the number of bytes of each stream that an output may always keep, even when memory is short. The
// overhead of its chunks may take the same amount again.
const squeezed = 128 << 10

// Budget bounds the total memory of many outputs. An output that is written to while the budget is exceeded keeps 128
// KiB of each stream from then on. The rest is reported like any dropped output.
type Budget struct {
	limit int64
	used  atomic.Int64
}

// NewBudget makes a budget of limit bytes.
func NewBudget(limit int64) *Budget { return &Budget{limit: limit} }

// Used returns how many bytes the outputs hold now.
func (b *Budget) Used() int64 { return b.used.Load() }

// Take counts n bytes of other kept data, unless that would exceed the budget. A negative n gives bytes back.
func (b *Budget) Take(n int64) bool {
	if b.used.Add(n) <= b.limit || n <= 0 {
		return true
	}
	b.used.Add(-n)
	return false
}

// Forget stops counting an output that has no future readers. Current readers can finish reading it, but it no longer
// counts in the budget.
func (o *Output) Forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.budget == nil {
		return
	}
	o.budget.used.Add(-o.counted)
	o.budget, o.counted = nil, 0
}

// account reports to the budget what the output holds, and shrinks the output if that is too much. Called with mu
// held.
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

// count updates the budget and returns what all outputs hold. Called with mu held.
func (o *Output) count() int64 {
	size := o.size()
	grown := size - o.counted
	o.counted = size
	return o.budget.used.Add(grown)
}

// squeeze drops what no longer fits. A held output keeps what its readers have not read. Called with mu held.
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
