package bridge

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"berth/proto"
	"berth/session"
	"berth/state/ledger"

	"golang.org/x/time/rate"
)

// Bounds of what the code of one container may have under way.
const (
	maxFlight      = 256       // calls
	maxHeld        = 32 << 20  // bytes of inputs
	maxUntaken     = 128 << 20 // bytes of results that the code has not fetched yet
	maxAllHeld     = 512 << 20 // bytes of both, over all containers
	maxConnections = 64
)

// A callKey identifies a call on the code's side.
type callKey struct{ exec, client string }

// A dispatcher handles the calls of one container.
type dispatcher struct {
	b      *Bridge
	s      *session.Session
	places chan struct{} // tokens for connections
	rate   *rate.Limiter

	loading sync.Mutex
	loaded  bool // the records of an earlier daemon are loaded; guarded by loading

	mu        sync.Mutex // guards what follows
	calls     map[callKey]*call
	providers []*ProviderSession // the newest first
	spent     map[string]int     // admitted calls by command
	held      int64              // bytes of inputs
	kept      int64              // bytes of results that the code has not fetched yet
	remote    remote             // a server that answers; nil: not connected yet
}

func newDesk(b *Bridge, s *session.Session) *dispatcher {
	perSecond := rate.Limit(float64(b.cfg.PerMin) / 60)
	return &dispatcher{
		b: b, s: s, places: make(chan struct{}, maxConnections), rate: rate.NewLimiter(perSecond,
			max(maxBatch, b.cfg.PerMin/2)),
		calls: map[callKey]*call{}, spent: map[string]int{},
	}
}

// load takes over the records of an earlier daemon: provider sessions, whose holders may come back, and the calls
// that each command has used.
func (d *dispatcher) load() error {
	d.loading.Lock()
	defer d.loading.Unlock()
	if d.loaded {
		return nil
	}
	stored, spent := map[string]storedOffer{}, map[string]int{}
	err := d.b.cfg.Ledger.View(func(tx *ledger.Tx) error {
		return errors.Join(
			ledger.Each(tx, bucketOffers, d.s.ID()+"/", func(key string, o storedOffer) {
				stored[strings.TrimPrefix(key, d.s.ID()+"/")] = o
			}),
			tx.Scan(bucketIDs, d.s.ID()+"/", func(key string, _ []byte) (bool, error) {
				if parts := strings.SplitN(key, "/", 3); len(parts) == 3 {
					spent[parts[1]]++
				}
				return true, nil
			}),
		)
	})
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.spent = spent
	for holder, o := range stored {
		if tools, err := prepareAll("tools", o.Tools); err == nil {
			offer := d.newOffer(holder, tools, o.Wait)
			offer.client = holder == anyClient
			d.providers = append(d.providers, offer)
			offer.depart()
		}
	}
	d.loaded = true
	return nil
}

// close disconnects all providers.
func (d *dispatcher) close() {
	d.mu.Lock()
	r := d.remote
	d.remote = nil
	d.mu.Unlock()
	if r != nil {
		r.close()
	}
}

// runs reports whether a command of the container still runs.
func (d *dispatcher) runs(exec string) bool {
	e, err := d.s.FindExec(exec)
	if err != nil {
		return false
	}
	select {
	case <-e.Done():
		return false
	default:
		return true
	}
}

// reserve reserves an input's bytes, and reports whether they were available.
func (d *dispatcher) reserve(n int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.held+n > maxHeld || !d.b.reserve(n) {
		return false
	}
	d.held += n
	return true
}

// reserve reserves bytes of the bound over all containers, and reports whether they were available.
func (b *Bridge) reserve(n int64) bool {
	if b.held.Add(n) > maxAllHeld {
		b.held.Add(-n)
		return false
	}
	return true
}

func (d *dispatcher) release(n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.releaseLocked(n)
}

func (d *dispatcher) releaseLocked(n int64) {
	d.held -= n
	d.b.held.Add(-n)
}

// keep reserves n bytes for a call's result until the call is forgotten, and reports whether they were available. The
// caller holds mu.
func (d *dispatcher) keep(c *call, n int64) bool {
	more := n - c.kept
	if more > 0 && (d.kept+more > maxUntaken || !d.b.reserve(more)) {
		return false
	}
	if more < 0 {
		d.b.held.Add(more)
	}
	d.kept += more
	c.kept = n
	return true
}

// take reserves bytes for a call's result as they arrive.
func (c *call) take(n int) error {
	c.dispatcher.mu.Lock()
	defer c.dispatcher.mu.Unlock()
	if c.over || !c.dispatcher.keep(c, c.kept+int64(n)) {
		return errNoRoom
	}
	return nil
}

// noRoom is the failure of a call whose result exceeds the available memory.
func noRoom(name string) *Failure {
	return fail(RuntimeError, "%s gave its result, but those that were not taken yet have %d bytes, which is the "+
		"limit; take them first", name, maxUntaken)
}

// A source answers calls.
type source interface {
	// answer has a call answered. It returns at once when ctx ends. The failure is in a form that code may get.
	answer(ctx context.Context, c *call) (result []byte, failure *Failure)
}

// A target is a tool and its provider.
type target struct {
	*tool
	from   source
	wait   time.Duration
	review bool
	most   int64 // calls of one command
	shared bool  // see record
	holder string
}

// find returns the provider of a tool, by the tool's exact name.
func (d *dispatcher) find(ctx context.Context, name string) (target, *Failure) {
	if name == proto.ReservedTool {
		return target{}, fail(ValueError, "%q is how code finds all tools, and no tool itself", name)
	}
	if o, t := d.offered(name, ""); o != nil {
		return target{tool: t, from: o, wait: o.wait, review: t.Approval == proto.ApprovalReview, most: maxCalls,
			shared: true, holder: o.holder}, nil
	}
	granted := d.s.CodeTools()
	for _, allowed := range granted.Allow {
		if allowed.Name == name {
			return d.provided(ctx, granted, allowed)
		}
	}
	return target{}, fail(PermissionError, "%.80q is not among the tools that code in this container may call", name)
}

// provided returns the provider of a tool that is on the container's allow-list.
func (d *dispatcher) provided(ctx context.Context, granted proto.CodeTools, allowed proto.AllowedTool) (
	target, *Failure) {
	to := target{wait: time.Duration(granted.TimeoutSeconds * float64(time.Second)),
		review: allowed.Approval == proto.ApprovalReview, most: granted.MaxCalls}
	if granted.Provider.Type == proto.ProviderClient {
		o, t := d.offered(allowed.Name, anyClient)
		if o == nil {
			return to, fail(NameError, "no client serves the tool %s now", allowed.Name)
		}
		to.tool, to.from, to.shared = t, o, true
		return to, nil
	}
	r, tools, failure := d.server(ctx)
	if failure != nil {
		return to, failure
	}
	if to.tool, to.from = tools[allowed.Name], r; to.tool == nil {
		return to, fail(NameError, "the server that answers calls has no tool %s", allowed.Name)
	}
	return to, nil
}

// offered returns the newest session that has a tool. With holder anyClient it is a client's session, a connected one
// if possible; otherwise it is the holder's.
func (d *dispatcher) offered(name, holder string) (*ProviderSession, *tool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if holder == anyClient {
		if o := d.present(name); o != nil {
			return o, o.tools[name]
		}
	}
	for _, o := range d.providers {
		if t := o.tools[name]; t != nil && (holder == anyClient) == o.client {
			return o, t
		}
	}
	return nil, nil
}

// A Listed is a tool as code finds it.
type Listed struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	InputSchema any    `json:"input_schema"`
	Async       bool   `json:"async"`
}

// list returns the tools that code may call and that have a provider.
func (d *dispatcher) list(ctx context.Context) ([]Listed, *Failure) {
	list := []Listed{}
	add := func(t *tool) {
		var schema any = map[string]any{"type": "object"}
		if len(t.InputSchema) > 0 {
			schema = t.InputSchema
		}
		list = append(list, Listed{t.Name, t.Description, schema, t.Async})
	}
	seen := map[string]bool{}
	d.mu.Lock()
	for _, o := range d.providers {
		for name, t := range o.tools {
			if !o.client && !seen[name] {
				seen[name] = true
				add(t)
			}
		}
	}
	d.mu.Unlock()
	granted := d.s.CodeTools()
	for _, allowed := range granted.Allow {
		if seen[allowed.Name] {
			continue
		}
		if to, failure := d.provided(ctx, granted, allowed); failure == nil {
			add(to.tool)
		} else if failure.Type != NameError {
			return nil, failure
		}
	}
	return list, nil
}
