// Package lease says when sessions end and what happens then, and has the clock that leases run on: the wall clock
// without its jumps. If the wall clock is set, every lease keeps its remaining time, and clients still see wall clock
// time.
//
// Out of scope: stopping, pausing and removing sessions. Package session, the only caller, does that.
package lease

import (
	"sync"
	"time"
)

// jump is how far the wall clock must depart from the monotonic clock to count as set. Smaller departures, as slewing
// makes them, are followed.
const jump = time.Second

// A Clock never goes back, and does not jump while the daemon runs. It is safe for concurrent use.
type Clock struct {
	wall    func() time.Time
	elapsed func() time.Duration // monotonic

	mu      sync.Mutex // guards the fields below
	seen    bool
	at      time.Time     // the wall clock when it was last read
	after   time.Duration // the monotonic clock then
	ahead   time.Duration // how far the wall clock is ahead of this clock
	written time.Duration // ahead as it was last saved
}

// NewClock returns a clock that follows wall. elapsed is a monotonic clock: the time since any fixed moment.
func NewClock(wall func() time.Time, elapsed func() time.Duration) *Clock {
	return &Clock{wall: wall, elapsed: elapsed}
}

// Now returns the present time of the lease clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.readClocks().Add(-c.ahead)
}

// readClocks reads both clocks, adds a jump of the wall clock to ahead, and returns the wall clock's time. Called with
// mu held.
func (c *Clock) readClocks() time.Time {
	wall, after := c.wall().Round(0), c.elapsed()
	if c.seen {
		if by := wall.Sub(c.at) - (after - c.after); by > jump || by < -jump {
			c.ahead += by
		}
	}
	c.seen, c.at, c.after = true, wall, after
	return wall
}

// Wall converts a time of this clock to the wall clock.
func (c *Clock) Wall(t time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readClocks()
	return t.Add(c.ahead)
}

// NotBefore lets the clock start no earlier than t, the latest time that an earlier daemon wrote. If the wall clock
// was set back while no daemon ran, the daemon cannot know whether the earlier or the present time is wrong.
func (c *Clock) NotBefore(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if back := t.Sub(c.readClocks().Add(-c.ahead)); back > 0 {
		c.ahead -= back
	}
}

// Restore sets how far the wall clock is ahead of this clock, as an earlier daemon saved it.
func (c *Clock) Restore(ahead time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead, c.written = ahead, ahead
}

// Save calls write with how far the wall clock is ahead of this clock, if that has changed since the last write.
func (c *Clock) Save(write func(ahead time.Duration) error) error {
	c.mu.Lock()
	c.readClocks()
	ahead, changed := c.ahead, c.ahead != c.written
	c.mu.Unlock()
	if !changed {
		return nil
	}
	if err := write(ahead); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.written = ahead
	return nil
}
