// Package asking holds connections of containers until a person has decided about them: those to hosts that are not on
// the list of a container whose network has "ask".
//
// A host and port of a container is asked about once, however many connections wait. A decision counts once or for the
// container's life. For life, it becomes an entry of the container's network, and nothing else remembers it. Once, it
// counts for the connections that wait, and for others to the same host and port until the commands have ended that ran
// when it was made.
//
// In scope: what is asked about, for how long, with which bounds, and the records of it. Out of scope: which targets
// may be asked about, and the connections themselves, which package egress/proxy has; and who may decide, which the
// edge knows.
package asking

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"berth/egress"
	"berth/proto"
	"berth/session"
	"berth/state/ledger"
	"berth/tools/approval"
)

// Bounds of what waits at a time. What exceeds one is refused at once, as if nobody could be asked.
const (
	containerAsks  = 16  // hosts and ports of one container
	containerConns = 32  // connections of one container: fewer than it may have, so that others are not kept out
	containerKept  = 256 // hosts and ports of one container whose decision counts now
	ownerAsks      = 64
	ownerConns     = 256
	allConns       = 1024 // an eighth of what the proxy carries
)

// Config is what Open needs. Ledger must be set.
type Config struct {
	Ledger *ledger.DB
	Wait   time.Duration    // how long a connection waits; 0 is 2 minutes
	Log    *slog.Logger     // nil: slog.Default
	Now    func() time.Time // nil: time.Now
}

// A Desk has all connections that wait for a decision.
type Desk struct {
	cfg      Config
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	wg       sync.WaitGroup
	sessions *session.Sessions
	sweeper  approval.Sweeper

	mu   sync.Mutex // guards what follows, and the fields of each ask but deciding
	asks map[place]*ask
	byID map[string]*ask
	used map[string]use // by container, by owner, and of all under ""
}

// A place is what is asked about once.
type place struct {
	container string
	target    egress.Target
}

// use counts what a container or an owner has.
type use struct{ parked, kept, conns int }

// An ask is one place that is asked about, or whose decision counts now.
type ask struct {
	rec     record
	place   place
	decided chan struct{} // closed when it does not wait any more
	timer   *time.Timer   // ends the wait
	conns   int           // that wait
	life    context.Context
	end     context.CancelFunc // ends life, which a decision once has

	deciding sync.Mutex // held by who changes the state
}

// Open makes a desk. Attach names the sessions, before any of them has a connection.
func Open(cfg Config) *Desk {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Wait, cfg.Log = cmp.Or(cfg.Wait, 2*time.Minute), cmp.Or(cfg.Log, slog.Default())
	d := &Desk{cfg: cfg, asks: map[place]*ask{}, byID: map[string]*ask{}, used: map[string]use{}}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

// Attach names the sessions and takes up what an earlier daemon has recorded. Connections have ended with that daemon:
// a program that connects again waits for the same decision.
func (d *Desk) Attach(ss *session.Sessions) error {
	d.sessions = ss
	var live []record
	if err := d.cfg.Ledger.View(func(tx *ledger.Tx) error {
		return records.EachLive(tx, "", func(r record) error { live = append(live, r); return nil })
	}); err != nil {
		return err
	}
	for _, r := range live {
		d.restore(r)
	}
	return nil
}

// Close ends the desk. What waits is taken up by the next one.
func (d *Desk) Close() error {
	d.cancel()
	d.mu.Lock()
	for _, a := range d.asks {
		if a.timer != nil {
			a.timer.Stop()
		}
	}
	d.mu.Unlock()
	d.wg.Wait()
	return nil
}

// For returns how connections of a session are asked about.
func (d *Desk) For(s *session.Session) egress.Ask {
	return func(ctx context.Context, t egress.Target, waits func(id string)) (*egress.Permit, error) {
		return d.ask(ctx, s, t, waits)
	}
}

// ask waits for the decision about a target.
func (d *Desk) ask(ctx context.Context, s *session.Session, t egress.Target, waits func(id string)) (*egress.Permit,
	error) {
	if s.Hide(t.String()) != t.String() { // nobody should read it, and no list should have it
		return nil, refuse(t, "a secret of the container is in its name, so nobody is asked")
	}
	a, err := d.find(s, t, waits)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if a.rec.State != proto.ApprovalParked {
		return a.answer(d.cfg.Wait, a.life)
	}
	if why := d.full(s, 0, 1); why != "" {
		return nil, refuse(t, "%s", why)
	}
	d.count(a, 0, 0, 1)
	a.conns++
	d.mu.Unlock()
	select {
	case <-a.decided:
	case <-ctx.Done():
		// A decision for life changes the network, which ends the wait, before it is told.
		a.deciding.Lock()
		a.deciding.Unlock()
	}
	d.mu.Lock()
	a.conns--
	d.count(a, 0, 0, -1)
	if a.rec.State == proto.ApprovalParked {
		return nil, ctx.Err()
	}
	return a.answer(d.cfg.Wait, nil)
}

// find returns the ask about a target. It begins to ask if there is none.
func (d *Desk) find(s *session.Session, t egress.Target, waits func(id string)) (*ask, error) {
	d.mu.Lock()
	if a := d.asks[place{s.ID(), t}]; a != nil {
		d.mu.Unlock()
		return a, nil
	}
	if why := d.full(s, 1, 1); why != "" {
		d.mu.Unlock()
		return nil, refuse(t, "%s", why)
	}
	now := d.cfg.Now()
	a := d.keep(record{Owner: s.Owner(), Approval: proto.Approval{ID: proto.NewID(proto.AskPrefix),
		Kind: proto.ApprovalNetwork, ContainerID: s.ID(), Item: t.String(), State: proto.ApprovalParked,
		CreatedAt: proto.At(now), ExpiresAt: proto.AtOrNil(now.Add(d.cfg.Wait))}}, t)
	a.deciding.Lock() // nobody else has it yet; a decision waits until the ask is on record
	defer a.deciding.Unlock()
	r := a.rec
	d.mu.Unlock()
	if err := d.cfg.Ledger.UpdateAsync(r.put(false)); err != nil {
		d.cfg.Log.Error("recording that a connection waits for approval", "container", s.ID(), "error", err)
		d.end(a, proto.ApprovalCanceled)
		return nil, egress.Refuse(proto.Unavailable, "no_record", "nobody can be asked about %s now", t)
	}
	waits(r.ID)
	return a, nil
}

// end ends the wait of an ask without a decision. The caller holds deciding. end reports whether it waited.
func (d *Desk) end(a *ask, to proto.ApprovalState) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx.Err() != nil || a.rec.State != proto.ApprovalParked {
		return false
	}
	a.rec.State = to
	a.timer.Stop()
	close(a.decided)
	d.count(a, -1, 0, 0)
	d.drop(a)
	return true
}

// keep takes an ask in. The caller holds mu.
func (d *Desk) keep(r record, t egress.Target) *ask {
	a := &ask{rec: r, place: place{r.ContainerID, t}, decided: make(chan struct{})}
	a.life, a.end = context.WithCancel(context.Background())
	d.asks[a.place], d.byID[r.ID] = a, a
	if r.State == proto.ApprovalParked {
		d.count(a, 1, 1, 0)
		a.timer = time.AfterFunc(r.ExpiresAt.Sub(d.cfg.Now()), func() { d.expire(a, proto.ApprovalExpired) })
	} else {
		close(a.decided)
		d.count(a, 0, 1, 0)
	}
	return a
}

// drop lets go of an ask, so that the next connection to its place asks anew. The caller holds mu.
func (d *Desk) drop(a *ask) {
	if d.byID[a.rec.ID] == a {
		delete(d.asks, a.place)
		delete(d.byID, a.rec.ID)
		d.count(a, 0, -1, 0)
	}
	a.end()
}

// count changes what is counted of the ask's container, of its owner, and of all. The caller holds mu.
func (d *Desk) count(a *ask, parked, kept, conns int) {
	for _, of := range []string{a.rec.ContainerID, a.rec.Owner, ""} {
		u := d.used[of]
		u.parked, u.kept, u.conns = u.parked+parked, u.kept+kept, u.conns+conns
		if d.used[of] = u; u == (use{}) {
			delete(d.used, of)
		}
	}
}

// full returns why nobody can have so many more wait, or "". The caller holds mu.
func (d *Desk) full(s *session.Session, asks, conns int) string {
	con, owner, all := d.used[s.ID()], d.used[s.Owner()], d.used[""]
	switch {
	case con.parked+asks > containerAsks:
		return "too many hosts of this container wait for decisions"
	case con.kept+asks > containerKept:
		return "too many decisions about hosts of this container count until the commands end that run now"
	case con.conns+conns > containerConns:
		return "too many connections of this container wait for decisions"
	case owner.parked+asks > ownerAsks:
		return "too many hosts of this container's owner wait for decisions"
	case owner.conns+conns > ownerConns:
		return "too many connections of this container's owner wait for decisions"
	case all.conns+conns > allConns:
		return "too many connections of all containers wait for decisions"
	}
	return ""
}

// refuse refuses a target about which nobody is asked.
func refuse(t egress.Target, why string, args ...any) error {
	r := egress.Refuse(proto.PermissionDenied, "not_asked", why, args...)
	r.Text = t.String() + " is not on this container's list, and " + r.Text
	return r
}

// answer is the permit of the decision, or its refusal. life is that of the permit; nil: as long as the connection
// lasts. The caller holds the desk's mu.
func (a *ask) answer(wait time.Duration, life context.Context) (*egress.Permit, error) {
	r := a.rec
	switch r.State {
	case proto.ApprovalApproved:
		return &egress.Permit{Note: r.Item + " was allowed " + r.scope() + " by " + r.Decision.By + " (" + r.ID + ")",
			Listed: r.For == proto.ScopeLife, Life: life}, nil
	case proto.ApprovalRefused:
		why := ""
		if r.Decision.Reason != "" {
			why = ": " + r.Decision.Reason
		}
		return nil, egress.Refuse(proto.PermissionDenied, "denied", "%s was refused %s by %s (%s)%s", r.Item, r.scope(),
			r.Decision.By, r.ID, why)
	case proto.ApprovalExpired:
		return nil, egress.Refuse(proto.PermissionDenied, "not_decided", "%s is not on this container's list, and "+
			"nobody decided about %s within %s", r.Item, r.ID, wait)
	}
	return nil, egress.Refuse(proto.PermissionDenied, "not_decided", "%s is not on this container's list, and nobody "+
		"can decide about %s any more", r.Item, r.ID)
}
