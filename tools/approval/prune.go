package approval

import (
	"slices"
	"sync"
	"time"
)

// pruneEvery is the time between two prunes. A prune reads all records.
const pruneEvery = 10 * time.Minute

// A Sweeper runs the periodic pass over the records of one store. Its zero value is ready to use.
type Sweeper struct {
	mu     sync.Mutex
	pruned time.Time
}

// Sweep calls end each time and prune once every ten minutes, and returns their counts.
func (s *Sweeper) Sweep(now time.Time, end func() (int, error), prune func(now time.Time) (int, error)) (
	ended, forgotten int, err error) {
	if ended, err = end(); err != nil {
		return ended, 0, err
	}
	s.mu.Lock()
	due := now.Sub(s.pruned) >= pruneEvery
	if due {
		s.pruned = now
	}
	s.mu.Unlock()
	if due {
		forgotten, err = prune(now)
	}
	return ended, forgotten, err
}

// Limits bound what a store keeps of ended requests.
type Limits struct {
	Count int // at most this many, the newest
	Bytes int // of the newest records together; 0 is no bound
}

// A Candidate is a record as Surplus sees it.
type Candidate[T any] struct {
	Record T
	Bytes  int
	Old    bool // beyond the age that its store keeps
	Pinned bool // counted, but never surplus
}

// Surplus returns the records that are too old or exceed the limits, the newest first. list has the oldest first.
func Surplus[T any](l Limits, list []Candidate[T]) (surplus []T) {
	count, size := 0, 0
	for _, r := range slices.Backward(list) {
		count, size = count+1, size+r.Bytes
		if (r.Old || count > l.Count || l.Bytes > 0 && size > l.Bytes) && !r.Pinned {
			surplus = append(surplus, r.Record)
		}
	}
	return surplus
}
