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
	"berth/tools/bridge/codeapi"
	"berth/tools/bridge/provider"
	"berth/tools/bridge/remote"

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
	remote    remote.Server      // a server that answers; nil: not connected yet
}

func newDispatcher(b *Bridge, s *session.Session) *dispatcher {
	perSecond := rate.Limit(float64(b.cfg.PerMin) / 60)
	return &dispatcher{
		b: b, s: s, places: make(chan struct{}, maxConnections),
		rate:  rate.NewLimiter(perSecond, max(codeapi.MaxCalls, b.cfg.PerMin/2)),
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
	stored, spent := map[string]storedSession{}, map[string]int{}
	err := d.b.cfg.Ledger.View(func(tx *ledger.Tx) error {
		return errors.Join(
			ledger.Each(tx, bucketSessions, d.s.ID()+"/", func(key string, o storedSession) {
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
		if tools, err := provider.PrepareAll("tools", o.Tools); err == nil {
			earlier := d.newSession(holder, tools, o.Wait)
			earlier.client = holder == anyClient
			d.providers = append(d.providers, earlier)
			earlier.depart()
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
		r.Close()
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

// Reserve reserves an input's bytes, and reports whether they were available. It implements codeapi.Memory.
func (d *dispatcher) Reserve(n int64) bool {
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

// Release releases an input's bytes. It implements codeapi.Memory.
func (d *dispatcher) Release(n int64) {
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

// A source answers calls.
type source interface {
	// answer has a call answered. It returns at once when ctx ends. The failure is in a form that code may get.
	answer(ctx context.Context, c *call) (result []byte, failure *codeapi.Failure)
}

// A serverSource is a server as a source.
type serverSource struct{ remote.Server }

func (s serverSource) answer(ctx context.Context, c *call) ([]byte, *codeapi.Failure) {
	return s.Answer(ctx, c.forProvider(), c.take)
}

// A target is a tool and its provider.
type target struct {
	*provider.Prepared
	from   source
	wait   time.Duration
	review bool
	most   int64 // calls of one command
	shared bool  // see record
	holder string
}

// find returns the provider of a tool, by the tool's exact name.
func (d *dispatcher) find(ctx context.Context, name string) (target, *codeapi.Failure) {
	if name == proto.ReservedTool {
		return target{}, codeapi.Fail(codeapi.ValueError, "%q is the list of all tools, and no tool itself", name)
	}
	if o, t := d.findSession(name, ""); o != nil {
		return target{Prepared: t, from: o, wait: o.wait, review: t.Approval == proto.ApprovalReview,
			most: provider.MaxCalls, shared: true, holder: o.holder}, nil
	}
	granted := d.s.CodeTools()
	for _, allowed := range granted.Allow {
		if allowed.Name == name {
			return d.findAllowed(ctx, granted, allowed)
		}
	}
	return target{}, codeapi.Fail(codeapi.PermissionError, "%.80q is not among the tools that code in this container "+
		"may call", name)
}

// findAllowed returns the provider of a tool that is on the container's allow-list.
func (d *dispatcher) findAllowed(ctx context.Context, granted proto.CodeTools, allowed proto.AllowedTool) (
	target, *codeapi.Failure) {
	to := target{wait: time.Duration(granted.TimeoutSeconds * float64(time.Second)),
		review: allowed.Approval == proto.ApprovalReview, most: granted.MaxCalls}
	if granted.Provider.Type == proto.ProviderClient {
		o, t := d.findSession(allowed.Name, anyClient)
		if o == nil {
			return to, codeapi.Fail(codeapi.NameError, "no client serves the tool %s now", allowed.Name)
		}
		to.Prepared, to.from, to.shared = t, o, true
		return to, nil
	}
	server, err := d.connect()
	if err != nil {
		return to, codeapi.Fail(codeapi.RuntimeError, "the server that answers calls cannot be used: %s",
			proto.AsError(err).Message)
	}
	tools, err := server.Tools(ctx)
	if err != nil {
		d.b.cfg.Log.Warn("asking a server for its tools", "container", d.s.ID(), "error", err)
		return to, codeapi.Fail(codeapi.RuntimeError, "the server that answers calls does not list its tools; its "+
			"owner can see why in the server's log")
	}
	to.Prepared, to.from = tools[allowed.Name], serverSource{server}
	if to.Prepared == nil {
		return to, codeapi.Fail(codeapi.NameError, "the server that answers calls has no tool %s", allowed.Name)
	}
	return to, nil
}

// connect returns the container's server, which is made at its first use.
func (d *dispatcher) connect() (remote.Server, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.remote != nil {
		return d.remote, nil
	}
	p, err := d.s.ToolProvider()
	if err != nil {
		return nil, err
	}
	if d.b.cfg.Dial == nil {
		return nil, proto.Errorf(proto.PermissionDenied, "", "", "the daemon no longer sends calls to any server")
	}
	server, err := remote.New(remote.Config{Container: d.s.ID(), Provider: p, Allow: d.s.CodeTools().Allow,
		Dial: d.b.cfg.Dial, Log: d.b.cfg.Log})
	if err != nil {
		return nil, err
	}
	d.remote = server
	return server, nil
}

// findSession returns the newest session that has a tool. With holder anyClient it is a client's session, a connected
// one if possible; otherwise it is the holder's.
func (d *dispatcher) findSession(name, holder string) (*ProviderSession, *provider.Prepared) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if holder == anyClient {
		if o := d.connectedClient(name); o != nil {
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

// list returns the tools that code may call and that have a provider.
func (d *dispatcher) list(ctx context.Context) ([]codeapi.Listed, *codeapi.Failure) {
	list, seen := []codeapi.Listed{}, map[string]bool{}
	add := func(t *provider.Prepared) {
		seen[t.Name] = true
		list = append(list, codeapi.Listed{Name: t.Name, Description: t.Description, InputSchema: t.InputSchema,
			Async: t.Async})
	}
	d.mu.Lock()
	for _, o := range d.providers {
		for name, t := range o.tools {
			if !o.client && !seen[name] {
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
		if to, failure := d.findAllowed(ctx, granted, allowed); failure == nil {
			add(to.Prepared)
		} else if failure.Type != codeapi.NameError {
			return nil, failure
		}
	}
	return list, nil
}
