package bridge

import (
	"context"

	"berth/session"
	"berth/tools/bridge/codeapi"
)

// Begin makes a command call a tool, and returns the context of that call.
func (b *Bridge) Begin(s *session.Session, e *session.Exec, tool string) context.Context {
	ended := make(chan *call, 2)
	requested := []codeapi.Call{{ID: "1", Tool: tool, Input: []byte("{}")}}
	c := b.dispatcher(s).startCalls(context.Background(), e, requested, ended)[0]
	b.dispatcher(s).leave(<-ended, ended, true)
	return c.ctx
}

// Queued returns how many calls the client has not received yet.
func (c *Client) Queued() (n int) {
	c.dispatcher.mu.Lock()
	defer c.dispatcher.mu.Unlock()
	for _, batch := range c.session.queue {
		n += len(batch)
	}
	return n
}
