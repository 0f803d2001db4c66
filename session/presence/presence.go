// Package presence counts the clients of a command that ends when it has had none for a while. Package session, the
// only caller, says when a client comes and goes.
package presence

import (
	"sync"
	"time"
)

// Clients are the clients of one command: those that follow its output, and those that only wait for its end. A nil
// Clients counts nothing. It is safe for concurrent use.
type Clients struct{ all, followers count }

// A count calls gone, perhaps more than once, when it has been 0 for the grace.
type count struct {
	grace time.Duration
	gone  func()

	mu    sync.Mutex
	n     int
	timer *time.Timer // runs while n is 0; nil: the command has not begun
	ended bool
}

// New returns the clients of a command that is about to start. gone is called, perhaps more than once, when there has
// been none for the grace, and unfollowed when none has followed the output for the grace. Without a grace it returns
// nil.
func New(grace time.Duration, gone, unfollowed func()) *Clients {
	if grace <= 0 {
		return nil
	}
	return &Clients{count{grace: grace, gone: gone}, count{grace: grace, gone: unfollowed}}
}

// Begin begins to wait for the first client.
func (c *Clients) Begin() {
	if c != nil {
		c.all.begin()
		c.followers.begin()
	}
}

// Enter counts a client until leave.
func (c *Clients) Enter() (leave func()) {
	if c == nil {
		return func() {}
	}
	c.all.add(1)
	return func() { c.all.add(-1) }
}

// Follow counts a client that follows the output until leave.
func (c *Clients) Follow() (leave func()) {
	if c == nil {
		return func() {}
	}
	c.all.add(1)
	c.followers.add(1)
	return func() { c.followers.add(-1); c.all.add(-1) }
}

// End says that the command has ended.
func (c *Clients) End() {
	if c != nil {
		c.all.end()
		c.followers.end()
	}
}

func (c *count) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer = time.AfterFunc(c.grace, c.expire)
	if c.n > 0 || c.ended {
		c.timer.Stop()
	}
}

func (c *count) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += n
	switch {
	case c.timer == nil || c.ended:
	case c.n == 0:
		c.timer.Reset(c.grace)
	default:
		c.timer.Stop()
	}
}

// expire calls gone unless a client has come meanwhile.
func (c *count) expire() {
	c.mu.Lock()
	over := c.n == 0 && !c.ended
	c.mu.Unlock()
	if over {
		c.gone()
	}
}

func (c *count) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.timer != nil {
		c.timer.Stop()
	}
}
