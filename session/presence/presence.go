// Package presence counts the clients of a command that ends when it has had none for a while. Package session, the
// only caller, says when a client comes and goes.
package presence

import (
	"sync"
	"time"
)

// Clients are the clients of one command. A nil Clients counts nothing. It is safe for concurrent use.
type Clients struct {
	grace time.Duration
	gone  func()

	mu    sync.Mutex
	n     int
	timer *time.Timer // runs while there is no client; nil: the command has not begun
	ended bool
}

// New returns the clients of a command that is about to start. gone is called, perhaps more than once, when there has
// been none for the grace. Without a grace it returns nil.
func New(grace time.Duration, gone func()) *Clients {
	if grace <= 0 {
		return nil
	}
	return &Clients{grace: grace, gone: gone}
}

// Begin begins to wait for the first client.
func (c *Clients) Begin() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer = time.AfterFunc(c.grace, c.expire)
	if c.n > 0 || c.ended {
		c.timer.Stop()
	}
}

// Enter counts a client until leave.
func (c *Clients) Enter() (leave func()) {
	if c == nil {
		return func() {}
	}
	c.count(1)
	return func() { c.count(-1) }
}

func (c *Clients) count(n int) {
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
func (c *Clients) expire() {
	c.mu.Lock()
	over := c.n == 0 && !c.ended
	c.mu.Unlock()
	if over {
		c.gone()
	}
}

// End says that the command has ended.
func (c *Clients) End() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.timer != nil {
		c.timer.Stop()
	}
}
