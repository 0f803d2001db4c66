package bridge

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"berth/proto"
	"berth/state/ledger"
)

// The messages between a client of the API that answers calls, and the daemon.
const (
	msgServe  = "serve"  // from the client: Tools are what it answers from now on
	msgResult = "result" // from the client: Result is the call's
	// from the client: the call failed with Error; from the daemon: the message before was not right
	msgError   = "error"
	msgServing = "serving" // from the daemon: Names are those of Tools that code may call
	msgCall    = "call"    // from the daemon: answer this
	msgCancel  = "cancel"  // from the daemon: nobody waits for the answer any more
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

// A Client is a client of the API that answers calls of one container. Its methods are called from one goroutine.
type Client struct {
	desk   *desk
	send   func(DaemonMessage) error
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	done   chan struct{} // closed when nothing is sent any more; nil: nothing was yet
	offer  *Offer        // nil: it has not said what it serves yet
}

// MayConnect says why no client can answer calls of an owner's container, if so.
func (b *Bridge) MayConnect(owner, container string) error {
	_, err := b.findForClient(owner, container)
	return err
}

// Connect has a client of the API answer calls of an owner's container. send must be safe for concurrent use; it may
// block, and fails once the client is gone.
func (b *Bridge) Connect(ctx context.Context, owner, container string, send func(DaemonMessage) error) (
	*Client, error) {
	d, err := b.findForClient(owner, container)
	if err != nil {
		return nil, err
	}
	c := &Client{desk: d, send: send}
	c.ctx, c.cancel = context.WithCancel(ctx)
	return c, nil
}

// findForClient is the desk of a container whose calls clients of the API answer.
func (b *Bridge) findForClient(owner, container string) (*desk, error) {
	d, err := b.find(owner, container)
	if err != nil {
		return nil, err
	}
	granted := d.s.CodeTools()
	switch {
	case granted.IsZero():
		return nil, proto.Errorf(proto.Conflict, "", container, "container %s was created without code_tools, so "+
			"its code may call nothing; create one with a list of tools", container)
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
		if c.offer == nil {
			return invalid("type", "say first what is served, with a message of type %q", msgServe)
		}
		if m.Type == msgError && m.Error == nil {
			return invalid("error", "a message of type %q needs error", msgError)
		}
		if m.Type == msgResult {
			m.Error = nil
		}
		return c.offer.Answer(m.CallID, m.Result, (*Failure)(m.Error))
	}
	return invalid("type", "type %.40q is not known; it is %s, %s or %s", m.Type, msgServe, msgResult, msgError)
}

// serve has the client answer these from now on, of those that code may call.
func (c *Client) serve(specs []proto.ToolSpec) error {
	list := make([]Tool, len(specs))
	for i, s := range specs {
		list[i] = toolOf(s)
	}
	tools, err := prepareAll("tools", list)
	if err != nil {
		return err
	}
	d, names := c.desk, []string{}
	for _, t := range d.s.CodeTools().Allow {
		if tools[t.Name] != nil {
			names = append(names, t.Name)
		}
	}
	unlisted := func(name string) bool { return !slices.Contains(names, name) }
	maps.DeleteFunc(tools, func(name string, _ *tool) bool { return unlisted(name) })
	if err := d.b.cfg.Ledger.UpdateAsync(func(tx *ledger.Tx) error { return d.putClients(tx, tools) }); err != nil {
		return err
	}
	if err := c.send(DaemonMessage{Type: msgServing, Names: names}); err != nil {
		return nil // it is gone, which its socket finds out
	}
	c.install(tools)
	// with what others have come to serve meanwhile
	d.b.cfg.Ledger.UpdateLater(func(tx *ledger.Tx) error { return d.putClients(tx, nil) })
	return nil
}

// putClients writes down what clients serve, and these tools, so that a later daemon has calls of all that wait for
// whoever served it.
func (d *desk) putClients(tx *ledger.Tx, tools map[string]*tool) error {
	all := maps.Clone(tools)
	if all == nil {
		all = map[string]*tool{}
	}
	d.mu.Lock()
	for _, o := range d.offers {
		for name, t := range o.tools {
			if o.client && all[name] == nil {
				all[name] = t
			}
		}
	}
	d.mu.Unlock()
	var stored storedOffer
	for _, name := range slices.Sorted(maps.Keys(all)) {
		stored.Tools = append(stored.Tools, all[name].Tool)
	}
	key := d.s.ID() + "/" + anyClient
	if len(all) == 0 {
		return tx.Delete(bucketOffers, key)
	}
	return tx.Put(bucketOffers, key, stored)
}

// install has calls of these tools come to the client, from now on, and what it does not serve any more fail.
func (c *Client) install(tools map[string]*tool) {
	d := c.desk
	if c.offer == nil {
		c.offer = d.newOffer(anyClient, tools, 0)
		c.offer.client = true
		d.install(c.offer, func(other *Offer) bool { return other.client && !other.here && other.within(tools) })
		c.done = make(chan struct{})
		go c.run(c.offer)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	o := c.offer
	o.tools = tools
	d.handOver()
	for id, one := range o.pending {
		if t := tools[one.to.Name]; t != nil {
			one.to.tool = t
			continue
		}
		delete(o.pending, id)
		o.unqueue(one)
		one.answered <- outcome{failure: gone(one.to.Name)}
	}
}

// within reports whether all tools of an offer are among others.
func (o *Offer) within(tools map[string]*tool) bool {
	for name := range o.tools {
		if tools[name] == nil {
			return false
		}
	}
	return true
}

// run gives the client its calls.
func (c *Client) run(o *Offer) {
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

// Close is for a client that has gone. What it has not answered goes to another that is there and serves the same
// tools, or waits a moment for one to come.
func (c *Client) Close() {
	c.cancel()
	if c.offer == nil {
		return
	}
	c.desk.mu.Lock()
	c.offer.depart()
	c.desk.mu.Unlock()
	<-c.done
}

// depart has an offer wait for somebody to take its place, for a moment, and its calls go to whoever else is there.
// Called with the desk's mu held.
func (o *Offer) depart() {
	if !o.over {
		o.here = false
		o.leaving = time.AfterFunc(max(o.desk.b.cfg.Grace, o.wait), o.Close)
		o.desk.handOver()
	}
}

// handOver gives calls that wait for a client which is not there, or does not serve their tools any more, to one that
// is and does. Called with mu held.
func (d *desk) handOver() {
	for _, o := range d.offers {
		moved := map[*Offer][]*call{}
		for id, c := range o.pending {
			if !o.client || o.here && o.tools[c.to.Name] != nil {
				continue
			}
			if to := d.present(c.to.Name); to != nil {
				delete(o.pending, id)
				o.unqueue(c)
				c.to.tool, c.to.from = to.tools[c.to.Name], to
				moved[to] = append(moved[to], c)
			}
		}
		for to, batch := range moved {
			to.push(byID(batch))
		}
	}
}

// present is the newest offer of a client that is there and serves a tool.
func (d *desk) present(name string) *Offer {
	for _, o := range d.offers {
		if o.client && o.here && o.tools[name] != nil {
			return o
		}
	}
	return nil
}
