package bridge

import (
	"context"

	"berth/session"
	"berth/tools/bridge/codeapi"
)

// Begin has a command call a tool, and gives what the call has of the daemon's while it is under way.
func (b *Bridge) Begin(s *session.Session, e *session.Exec, tool string) context.Context {
	ended := make(chan *call, 2)
	c := b.dispatcher(s).startCalls(context.Background(), e, []codeapi.Call{codeapi.NewCall("1", tool, []byte("{}"))},
		ended)[0]
	b.dispatcher(s).leave(<-ended, ended, true)
	return c.ctx
}

// Queued is how many calls a client is to be given yet.
func (c *Client) Queued() (n int) {
	c.dispatcher.mu.Lock()
	defer c.dispatcher.mu.Unlock()
	for _, batch := range c.session.queue {
		n += len(batch)
	}
	return n
}
