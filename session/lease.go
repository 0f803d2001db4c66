package session

import (
	"sync"
	"time"

	"berth/proto"
	"berth/state/ledger"
)

// jump is how far the wall clock must depart from the monotonic clock to count as set. Smaller departures, as slewing
// makes them, are followed.
const jump = time.Second

// A leaseClock never goes back, and does not jump while the daemon runs.
type leaseClock struct {
	wall    func() time.Time
	elapsed func() time.Duration // monotonic

	mu      sync.Mutex // guards the fields below
	seen    bool
	at      time.Time     // the wall clock when it was last read
	after   time.Duration // the monotonic clock then
	ahead   time.Duration // how far the wall clock is ahead of this clock
	written time.Duration // ahead as in the ledger
}

// now returns the present of the lease clock.
func (c *leaseClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.look().Add(-c.ahead)
}

// look reads both clocks and adds a jump of the wall clock to ahead. Called with mu held.
func (c *leaseClock) look() time.Time {
	wall, after := c.wall().Round(0), c.elapsed()
	if c.seen {
		if by := wall.Sub(c.at) - (after - c.after); by > jump || by < -jump {
			c.ahead += by
		}
	}
	c.seen, c.at, c.after = true, wall, after
	return wall
}

// shown converts a time of this clock to the wall clock.
func (c *leaseClock) shown(t time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.look()
	return t.Add(c.ahead)
}

// notBefore lets the clock start no earlier than t, the latest time that an earlier daemon wrote. If the wall clock
// was set back while no daemon ran, the daemon cannot know whether the earlier or the present time is wrong.
func (c *leaseClock) notBefore(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if back := t.Sub(c.look().Add(-c.ahead)); back > 0 {
		c.ahead -= back
	}
}

// load reads ahead as an earlier daemon wrote it.
func (c *leaseClock) load(tx *ledger.Tx) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := tx.Get(bucketClock, clockKey, &c.ahead)
	c.written = c.ahead
	return err
}

// save writes ahead, if it has changed.
func (c *leaseClock) save(db *ledger.DB) error {
	c.mu.Lock()
	c.look()
	ahead, changed := c.ahead, c.ahead != c.written
	c.mu.Unlock()
	if !changed {
		return nil
	}
	if err := db.Update(func(tx *ledger.Tx) error { return tx.Put(bucketClock, clockKey, ahead) }); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.written = ahead
	return nil
}

// Leases have a clock of their own: the wall clock without its jumps. If the wall clock is set, every lease keeps its
// remaining time, and clients still see wall clock time.

// bucketClock has one duration under clockKey: how far the wall clock is ahead of the lease clock.
const (
	bucketClock = "clock"
	clockKey    = "ahead"
)

// cap returns when the session is removed with its files.
func (r record) cap() time.Time { return r.Created.Add(r.Lifetime) }

// expires returns when the session stops if it is not used: the end of the rolling lease, at most the cap.
func (r record) expires() time.Time {
	t := r.LastUsed.Add(r.Idle)
	if r.Lease.After(t) {
		t = r.Lease
	}
	if c := r.cap(); t.After(c) {
		return c
	}
	return t
}

// Extend renews the lease and moves its end to at least d from now, at most to the cap. d of 0 only renews it.
func (s *Session) Extend(d time.Duration) (proto.Container, error) {
	if d != 0 {
		if err := checkSpan("seconds", d, minIdle, maxIdle); err != nil {
			return proto.Container{}, err
		}
	}
	s.mu.Lock()
	err := s.usableLocked()
	if err != nil {
		s.mu.Unlock()
		return proto.Container{}, err
	}
	s.users++ // else a sweep could stop it between its look at the lease and the write below
	s.mu.Unlock()
	defer s.release()
	now := s.core.clock.now()
	err = s.change(func(r *record) {
		r.LastUsed = now
		if t := now.Add(d); d > 0 && t.After(r.Lease) {
			r.Lease = t
		}
	})
	return s.Info(), err
}

// touch renews the lease in memory; the sweeper writes it. Called with mu held.
func (s *Session) touch() {
	if now := s.core.clock.now(); now.After(s.rec.LastUsed) {
		s.rec.LastUsed = now
	}
}

// persistTouch writes the lease if it has moved, so that a crash loses at most the time between two sweeps.
func (s *Session) persistTouch(rec record) error {
	s.mu.Lock()
	saved := s.saved
	s.mu.Unlock()
	if !rec.LastUsed.After(saved) {
		return nil
	}
	return s.saveRecord()
}
