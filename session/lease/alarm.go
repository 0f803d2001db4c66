package lease

import (
	"container/heap"
	"sync"
	"time"
)

// longestSleep bounds one wait of an Alarm. The wall clock may be slewed, so a Clock and the timer of a long wait
// drift apart.
const longestSleep = time.Minute

// An Alarm tells when times have come, each under an ID. It has one timer, for the earliest of them. It is safe for
// concurrent use; Set may be called with locks held that ring takes.
type Alarm struct {
	now   func() time.Time
	after func(time.Duration, func()) (stop func() bool)
	ring  func(ids []string)

	mu      sync.Mutex // guards the fields below
	times   alarmTimes
	byID    map[string]*alarmTime
	sleeps  time.Time   // what the timer is for; zero: there is none
	stop    func() bool // stops it
	started bool
}

// NewAlarm makes an alarm that is silent until Start. now is the clock of its times. after calls a function once, on a
// goroutine of its own, when a time has passed. ring is called there with the IDs of times that have come.
func NewAlarm(now func() time.Time, after func(time.Duration, func()) (stop func() bool),
	ring func(ids []string)) *Alarm {
	return &Alarm{now: now, after: after, ring: ring, byID: map[string]*alarmTime{}}
}

// Start lets the alarm ring. Times that were set before and have come ring at once.
func (a *Alarm) Start() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.started = true
	a.wind()
}

// Close silences the alarm. A call of ring may still run.
func (a *Alarm) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.started = false
	a.wind()
}

// Set sets the time of an ID, in place of the one that it has. The zero time removes it, and so does its ring.
func (a *Alarm) Set(id string, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.byID[id]
	switch {
	case e == nil && at.IsZero() || e != nil && e.at.Equal(at):
		return
	case e == nil:
		e = &alarmTime{id: id, at: at}
		a.byID[id] = e
		heap.Push(&a.times, e)
	case at.IsZero():
		heap.Remove(&a.times, e.index)
		delete(a.byID, id)
	default:
		e.at = at
		heap.Fix(&a.times, e.index)
	}
	a.wind()
}

// wind sets the timer for the earliest time. Called with mu held.
func (a *Alarm) wind() {
	var next time.Time
	if a.started && len(a.times) > 0 {
		next = a.times[0].at
	}
	if next.Equal(a.sleeps) {
		return
	}
	if a.stop != nil {
		a.stop() // one that has run already finds nothing that it may take too early
		a.stop = nil
	}
	if a.sleeps = next; !next.IsZero() {
		a.stop = a.after(min(max(next.Sub(a.now()), 0), longestSleep), a.wake)
	}
}

// wake takes the times that have come and rings for them.
func (a *Alarm) wake() {
	a.mu.Lock()
	now := a.now()
	var ids []string
	for a.started && len(a.times) > 0 && !now.Before(a.times[0].at) {
		e := heap.Pop(&a.times).(*alarmTime)
		delete(a.byID, e.id)
		ids = append(ids, e.id)
	}
	a.sleeps = time.Time{} // the timer has run
	a.wind()
	a.mu.Unlock()
	if len(ids) > 0 {
		a.ring(ids)
	}
}

// An alarmTime is the time of one ID.
type alarmTime struct {
	id    string
	at    time.Time
	index int // in the heap
}

// alarmTimes is a heap, the earliest time first.
type alarmTimes []*alarmTime

func (t alarmTimes) Len() int           { return len(t) }
func (t alarmTimes) Less(i, j int) bool { return t[i].at.Before(t[j].at) }

func (t alarmTimes) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].index, t[j].index = i, j
}

// Push appends; package heap calls it.
func (t *alarmTimes) Push(e any) {
	e.(*alarmTime).index = len(*t)
	*t = append(*t, e.(*alarmTime))
}

// Pop removes the last one; package heap calls it.
func (t *alarmTimes) Pop() any {
	last := len(*t) - 1
	e := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	return e
}
