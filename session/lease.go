package session

import (
	"sync"
	"time"

	"berth/proto"
	"berth/state/ledger"
)

// jump is by how much the wall clock must leave the course of the monotonic one to count as set. What is
// below, as slewing makes it, is followed.
const jump = time.Second

// A leaseClock never goes back, and does not jump while the daemon runs.
type leaseClock struct {
	wall    func() time.Time
	elapsed func() time.Duration // monotonic

	mu      sync.Mutex // guards what follows
	seen    bool
	at      time.Time     // the wall clock at the last look
	after   time.Duration // the monotonic one then
	ahead   time.Duration // the wall clock's lead over this one
	written time.Duration // of ahead, as the ledger has it
}

// now is the time by which leases are counted.
func (c *leaseClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.look().Add(-c.ahead)
}

// look reads both clocks and takes a jump of the wall clock into ahead. Called with mu held.
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

// shown is a time of this clock as the wall clock has it now.
func (c *leaseClock) shown(t time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.look()
	return t.Add(c.ahead)
}

// notBefore has the clock begin no earlier than t, the latest time that an earlier daemon wrote: while none
// ran, a wall clock that was set back cannot be told from one that was wrong before.
func (c *leaseClock) notBefore(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if back := t.Sub(c.look().Add(-c.ahead)); back > 0 {
		c.ahead -= back
	}
}

// load takes over the lead that an earlier daemon wrote down.
func (c *leaseClock) load(tx *ledger.Tx) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := tx.Get(bucketClock, clockKey, &c.ahead)
	c.written = c.ahead
	return err
}

// save writes the lead down, if it has changed.
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

// Leases are kept by a clock of their own: the wall clock without its jumps. When somebody sets the wall clock,
// every lease keeps the time it had left; what callers are shown is the wall clock's time again.
// docs/decisions/0008 says why.

// bucketClock holds one number under clockKey: how far the wall clock is ahead of the lease clock, as a duration.
const (
	bucketClock = "clock"
	clockKey    = "ahead"
)

// cap is when the session and its files go.
func (r record) cap() time.Time { return r.Created.Add(r.Lifetime) }

// expires is when it stops if nobody uses it: the rolling lease, never past the cap.
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

// Extend renews the lease, and moves it to at least the given time from now. d of 0 only
// renews it. It never passes the cap.
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
	s.users++ // or a sweep could stop it between its look at the lease and the new one's being written down
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

// touch renews the lease, in memory; the sweeper writes it down. Called with mu held.
func (s *Session) touch() {
	if now := s.core.clock.now(); now.After(s.rec.LastUsed) {
		s.rec.LastUsed = now
	}
}

// persistTouch writes the lease down if it moved since it was last written, so that a crash
// forgets at most the time between two sweeps.
func (s *Session) persistTouch(rec record) error {
	s.mu.Lock()
	saved := s.saved
	s.mu.Unlock()
	if !rec.LastUsed.After(saved) {
		return nil
	}
	return s.saveRecord()
}
