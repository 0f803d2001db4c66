package bridge

import (
	"context"

	"berth/session"
)

// Begin has a command call a tool, and gives what the call has of the daemon's while it is under way.
func (b *Bridge) Begin(s *session.Session, e *session.Exec, tool string) context.Context {
	ended := make(chan *call, 2)
	c := b.dispatcher(s).begin(context.Background(), e, []ask{{ID: "1", Tool: tool, Input: []byte("{}"), size: 2}},
		ended)[0]
	b.dispatcher(s).leave(<-ended, ended, true)
	return c.ctx
}

// Queued is how many calls a client is to be given yet.
func (c *Client) Queued() (n int) {
	c.desk.mu.Lock()
	defer c.desk.mu.Unlock()
	for _, batch := range c.session.queue {
		n += len(batch)
	}
	return n
}
