package mcp

import (
	"context"
	"sync"

	"berth/api"
	"berth/proto"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Methods of notifications.
const (
	listenMethod  = "subscriptions/listen"
	acknowledged  = "notifications/subscriptions/acknowledged"
	toolsNotified = "notifications/tools/list_changed"
)

// A changes is what a session's client was told about its list of tools.
type changes struct {
	mu   sync.Mutex
	next <-chan struct{} // closed once the list has changed after the client was told
}

// start begins with the list as it is now.
func (c *changes) start(e *Edge, owner string) {
	if e.Tools != nil {
		c.next = e.Tools.ListChanged(owner)
	}
}

func (c *changes) current() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.next
}

// advance replaces a closed channel by that of the next change. Of the streams of a session that see a change, one
// gets true.
func (c *changes) advance(from, to <-chan struct{}) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next != from {
		return false
	}
	c.next = to
	return true
}

// tellChanges tells the client of a session about changes of its list of tools, those since it was told last too,
// while its stream is open. stop ends that.
func (e *Edge) tellChanges(ctx context.Context, v *mcpSession) (stop func()) {
	if e.Tools == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var teller sync.WaitGroup
	teller.Go(func() {
		for {
			changed := v.tools.current()
			select {
			case <-changed:
				if v.tools.advance(changed, e.Tools.ListChanged(v.owner)) {
					// a client that is gone lists the tools when it is back
					_, _ = e.send(ctx, toolsNotified, &sdk.ServerRequest[*sdk.ToolListChangedParams]{
						Session: v.session, Params: &sdk.ToolListChangedParams{}})
				}
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		teller.Wait()
	}
}

// listen answers a subscription with a stream of notifications, until its client or the daemon ends it.
func (e *Edge) listen(ctx context.Context, who *peer, req sdk.Request, p *sdk.SubscriptionsListenParams) (
	*sdk.SubscriptionsListenResult, error) {
	if who.session != nil {
		return nil, proto.Invalid("method", "%s is for versions of the protocol without sessions; the notifications "+
			"of a session are on the stream that GET opens", listenMethod)
	}
	if p.Notifications == nil {
		return nil, missing("notifications", "an object with the kinds of notifications")
	}
	wire, _, err := e.origin(req.GetExtra())
	if err != nil {
		return nil, err
	}
	done, err := e.beginListen(who.owner)
	if err != nil {
		return nil, err
	}
	defer done()
	client := req.GetSession().(*sdk.ServerSession)
	meta := func() sdk.Meta { return sdk.Meta{sdk.MetaKeySubscriptionID: wire.id} }
	agreed := sdk.NotificationSubscriptions{ToolsListChanged: p.Notifications.ToolsListChanged && e.Tools != nil}
	var changed <-chan struct{}
	if agreed.ToolsListChanged {
		changed = e.Tools.ListChanged(who.owner)
	}
	_, err = e.send(ctx, acknowledged, &sdk.ServerRequest[*sdk.SubscriptionsAcknowledgedParams]{Session: client,
		Params: &sdk.SubscriptionsAcknowledgedParams{Meta: meta(), Notifications: agreed}})
	for err == nil && agreed.ToolsListChanged {
		select {
		case <-changed:
			changed = e.Tools.ListChanged(who.owner)
			_, err = e.send(ctx, toolsNotified, &sdk.ServerRequest[*sdk.ToolListChangedParams]{Session: client,
				Params: &sdk.ToolListChangedParams{Meta: meta()}})
			continue
		case <-ctx.Done():
		case <-api.Draining(wire.ctx):
		}
		break
	}
	return &sdk.SubscriptionsListenResult{Meta: meta()}, err
}

// beginListen counts a stream of an owner until done.
func (e *Edge) beginListen(owner string) (done func(), err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.listens[owner] >= maxSessions {
		return nil, proto.Errorf(proto.TooMany, "", listenMethod, "the limit of %d subscriptions is reached; end one",
			maxSessions)
	}
	e.listens[owner]++
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.listens[owner]--; e.listens[owner] == 0 {
			delete(e.listens, owner)
		}
	}, nil
}
