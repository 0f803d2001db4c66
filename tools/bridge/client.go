package bridge

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"berth/proto"
	"berth/state/ledger"
	"berth/tools/bridge/provider"
)

// The messages between an API client that answers calls and the daemon.
const (
	msgServe  = "serve"  // from the client: it answers Tools from now on
	msgResult = "result" // from the client: Result is the call's
	// from the client: the call failed with Error; from the daemon: the last message was wrong
	msgError   = "error"
	msgServing = "serving" // from the daemon: code may call the Tools in Names
	msgCall    = "call"    // from the daemon: answer this
	msgCancel  = "cancel"  // from the daemon: the answer is no longer needed
)

// A ClientMessage is one message of a client that answers calls of tools. Its type decides which fields it may have.
type ClientMessage struct {
	Type string `json:"type"` // serve, result or error.
	// For serve: all that the client answers from now on.
	Tools  []proto.ToolSpec `json:"tools,omitempty"`
	CallID string           `json:"call_id,omitempty"` // For result and error.
	Result json.RawMessage  `json:"result,omitempty"`
	// For error. A type that code does not know arrives as RuntimeError.
	Error *CallError `json:"error,omitempty"`
}

// A DaemonMessage is one message to a client that answers calls of tools. Its type decides which fields are set.
type DaemonMessage struct {
	Type   string          `json:"type"`            // serving, call, cancel or error.
	Names  []string        `json:"tools,omitempty"` // For serving: the names that code may call.
	CallID string          `json:"call_id,omitempty"`
	Tool   string          `json:"tool,omitempty"`
	Input  json.RawMessage `json:"input,omitempty"`
	ExecID string          `json:"exec_id,omitempty"` // For call: the command that makes it.
	Error  *proto.Error    `json:"error,omitempty"`
}

// A Client is an API client that answers calls of one container. Its methods are called from one goroutine.
type Client struct {
	dispatcher *dispatcher
	send       func(DaemonMessage) error
	ctx        context.Context // ends with Close
	cancel     context.CancelFunc
	done       chan struct{}    // closed when the sender has ended; nil: it never started
	session    *ProviderSession // nil: the client has not listed its tools yet
}

// MayConnect returns why no client can answer calls of an owner's container, or nil.
func (b *Bridge) MayConnect(owner, container string) error {
	_, err := b.findForClient(owner, container)
	return err
}

// Connect lets an API client answer calls of an owner's container. send must be safe for concurrent use. It may
// block, and fails once the client is gone.
func (b *Bridge) Connect(ctx context.Context, owner, container string, send func(DaemonMessage) error) (
	*Client, error) {
	d, err := b.findForClient(owner, container)
	if err != nil {
		return nil, err
	}
	c := &Client{dispatcher: d, send: send}
	c.ctx, c.cancel = context.WithCancel(ctx)
	return c, nil
}

// findForClient returns the dispatcher of a container whose calls API clients answer.
func (b *Bridge) findForClient(owner, container string) (*dispatcher, error) {
	d, err := b.find(owner, container)
	if err != nil {
		return nil, err
	}
	granted := d.s.CodeTools()
	switch {
	case granted.IsZero():
		return nil, proto.Errorf(proto.Conflict, "", container, "container %s was created without code_tools, so "+
			"its code may call no tools; create one with a list of tools", container)
	case granted.Provider.Type != proto.ProviderClient:
		return nil, proto.Errorf(proto.Conflict, "", container, "calls of container %s are answered by a server "+
			"(%s); create one with the provider %q", container, granted.Provider.Type, proto.ProviderClient)
	}
	return d, nil
}

// Handle does what a message asks for.
func (c *Client) Handle(m ClientMessage) error {
	switch m.Type {
	case msgServe:
		return c.serve(m.Tools)
	case msgResult, msgError:
		if c.session == nil {
			return proto.Invalid("type", "first list the tools that the client serves, with a message of type %q",
				msgServe)
		}
		if m.Type == msgError && m.Error == nil {
			return proto.Invalid("error", "a message of type %q needs error", msgError)
		}
		if m.Type == msgResult {
			m.Error = nil
		}
		return c.session.Answer(m.CallID, m.Result, m.Error)
	}
	return proto.Invalid("type", "type %.40q is not known; it is %s, %s or %s", m.Type, msgServe, msgResult, msgError)
}

// serve makes the client answer those of these tools that code may call.
func (c *Client) serve(specs []proto.ToolSpec) error {
	tools, err := provider.PrepareSpecs("tools", specs)
	if err != nil {
		return err
	}
	d, names := c.dispatcher, []string{}
	for _, t := range d.s.CodeTools().Allow {
		if tools[t.Name] != nil {
			names = append(names, t.Name)
		}
	}
	maps.DeleteFunc(tools, func(name string, _ *provider.Prepared) bool { return !slices.Contains(names, name) })
	if err := d.b.cfg.Ledger.UpdateAsync(func(tx *ledger.Tx) error { return d.putClients(tx, tools) }); err != nil {
		return err
	}
	if err := c.send(DaemonMessage{Type: msgServing, Names: names}); err != nil {
		return nil // the client is gone, which its socket will report
	}
	c.install(tools)
	// including what other clients serve by now
	d.b.cfg.Ledger.UpdateLater(func(tx *ledger.Tx) error { return d.putClients(tx, nil) })
	return nil
}

// putClients records what clients serve, plus these tools. A later daemon then makes calls of them wait for the
// clients.
func (d *dispatcher) putClients(tx *ledger.Tx, tools map[string]*provider.Prepared) error {
	all := maps.Clone(tools)
	if all == nil {
		all = map[string]*provider.Prepared{}
	}
	d.mu.Lock()
	for _, o := range d.providers {
		for name, t := range o.tools {
			if o.client && all[name] == nil {
				all[name] = t
			}
		}
	}
	d.mu.Unlock()
	var stored storedSession
	for _, name := range slices.Sorted(maps.Keys(all)) {
		stored.Tools = append(stored.Tools, all[name].Tool)
	}
	key := d.s.ID() + "/" + anyClient
	if len(all) == 0 {
		return tx.Delete(bucketSessions, key)
	}
	return tx.Put(bucketSessions, key, stored)
}

// install routes calls of these tools to the client. Calls of tools that it no longer serves fail.
func (c *Client) install(tools map[string]*provider.Prepared) {
	d := c.dispatcher
	if c.session == nil {
		c.session = d.newSession(anyClient, tools, 0)
		c.session.client = true
		d.install(c.session, func(other *ProviderSession) bool { // whose tools the client has, too
			for name := range other.tools {
				if tools[name] == nil {
					return false
				}
			}
			return other.client && !other.here
		})
		c.done = make(chan struct{})
		go c.run(c.session)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	o := c.session
	o.tools = tools
	d.handOver()
	for id, one := range o.pending {
		if t := tools[one.to.Name]; t != nil {
			one.to.Prepared = t
			continue
		}
		delete(o.pending, id)
		o.unqueue(one)
		one.answered <- outcome{failure: gone(one.to.Name)}
	}
}

// run sends the client its calls.
func (c *Client) run(o *ProviderSession) {
	defer close(c.done)
	for {
		batch, dropped, err := o.next(c.ctx)
		if err != nil {
			return
		}
		for _, one := range batch {
			if c.send(DaemonMessage{Type: msgCall, CallID: one.ID, Tool: one.Tool, Input: one.Input,
				ExecID: one.ExecID}) != nil {
				return
			}
		}
		for _, id := range dropped {
			if c.send(DaemonMessage{Type: msgCancel, CallID: id}) != nil {
				return
			}
		}
	}
}

// Close is called when the connection of the client broke. Its unanswered calls go to another connected client that
// serves the same tools, or wait a moment for one.
func (c *Client) Close() {
	c.cancel()
	if c.session == nil {
		return
	}
	c.dispatcher.mu.Lock()
	c.session.depart()
	c.dispatcher.mu.Unlock()
	<-c.done
}

// Leave is called instead of Close when the client has said goodbye: from now on it serves nothing. Its unanswered
// calls go to another connected client that serves the same tools, or fail.
func (c *Client) Leave() {
	c.cancel()
	if c.session == nil {
		return
	}
	c.dispatcher.mu.Lock()
	if !c.session.over {
		c.session.here = false
		c.dispatcher.handOver()
	}
	c.dispatcher.mu.Unlock()
	c.session.Close()
	<-c.done
}

// depart makes a provider session wait a moment for a successor. Its calls go to other connected clients. The caller
// holds the dispatcher's mu.
func (o *ProviderSession) depart() {
	if !o.over {
		o.here = false
		o.leaving = time.AfterFunc(max(o.dispatcher.b.cfg.Grace, o.wait), o.Close)
		o.dispatcher.handOver()
	}
}

// handOver moves calls whose client is gone, or no longer serves their tool, to a connected client that does. The
// caller holds mu.
func (d *dispatcher) handOver() {
	for _, o := range d.providers {
		moved := map[*ProviderSession][]*call{}
		for id, c := range o.pending {
			if !o.client || o.here && o.tools[c.to.Name] != nil {
				continue
			}
			if to := d.connectedClient(c.to.Name); to != nil {
				delete(o.pending, id)
				o.unqueue(c)
				c.to.Prepared, c.to.from = to.tools[c.to.Name], to
				moved[to] = append(moved[to], c)
			}
		}
		for to, batch := range moved {
			to.push(byID(batch))
		}
	}
}

// connectedClient returns the newest session of a connected client that serves a tool.
func (d *dispatcher) connectedClient(name string) *ProviderSession {
	for _, o := range d.providers {
		if o.client && o.here && o.tools[name] != nil {
			return o
		}
	}
	return nil
}
