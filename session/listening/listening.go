// Package listening tells of the ports that programs in containers open and close.
//
// No part of the kernel reports a new listener of a container to the daemon in both runtime classes, so the guest
// looks. It does so only while processes live in the container, and a look is one question to the kernel. This package
// asks the guest for a watch when a command starts, compares each list with the one before, and enters the difference
// into the audit log, which is what events are made of. The ports that are open by that log are in the ledger, so that
// the next daemon continues from there: it reports a port that was closed meanwhile, and none a second time.
//
// In scope: which ports are reported, how often, and when a watch begins and ends. Out of scope: how the guest looks
// (guest/pid1) and who reads the events (package events).
package listening

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"berth/guest/client"
	"berth/guest/wire"
	"berth/proto"
	"berth/session"
	"berth/session/inbound"
	"berth/state/ledger"
)

// Audit actions.
const (
	actionOpen  = "port.open"
	actionClose = "port.close"
)

// bucket has the ports of each container that are open by the log, by ID.
const bucket = "listening"

// Times.
const (
	begin = 100 * time.Millisecond // after the start of a command: a short one needs no watch
	again = 10 * time.Second       // after a watch that failed
)

// parallel is how many watches are opened at a time: a daemon that starts with many containers has other work.
const parallel = 4

// Bounds of what is reported for one container: so many changes at once, and then one for each interval. A stop closes
// all ports at once. What opens and closes within the wait is not reported.
const (
	burst    = 64
	interval = time.Second
)

// A Watcher follows the containers of a daemon. It is safe for concurrent use.
type Watcher struct {
	cfg      Config
	ctx      context.Context
	cancel   context.CancelFunc
	done     sync.WaitGroup
	sessions atomic.Pointer[session.Sessions] // nil before Attach

	opening chan struct{} // holds a token for each watch that is being opened

	mu sync.Mutex // guards of, and the fields of each container that say so
	of map[string]*container
}

// Config is what New needs.
type Config struct {
	Ledger *ledger.DB
	Audit  func(proto.AuditEntry)
	Log    *slog.Logger
}

// A container is one that is watched, or has ports that are open by the log.
type container struct {
	id     string
	stop   context.CancelFunc // of the watch; nil: there is none. Guarded by Watcher.mu
	poked  bool               // a command has started since the watch was asked for; guarded by Watcher.mu
	unable *client.Client     // a guest that cannot watch; guarded by Watcher.mu

	telling sync.Mutex // held while something is told, and taken before Watcher.mu
	told    record
}

// A record has the ports of a container that are open by the log.
type record struct {
	Owner      string `json:"owner"`
	Generation int64  `json:"generation"`
	Ports      []told `json:"ports"` // sorted
}

// A told is a port that was told as open.
type told struct {
	Port    uint16 `json:"port"`
	Address string `json:"address"`
	PID     int    `json:"pid"`
	Program string `json:"program"`
}

// compare orders ports. The name of a program may change while it runs, so it does not count.
func compare(a, b told) int {
	return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Address, b.Address), cmp.Compare(a.PID, b.PID))
}

// New returns a Watcher that knows what the last daemon told.
func New(cfg Config) (*Watcher, error) {
	w := &Watcher{cfg: cfg, of: map[string]*container{}, opening: make(chan struct{}, parallel)}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w, cfg.Ledger.View(func(tx *ledger.Tx) error {
		return tx.Scan(bucket, "", func(id string, data []byte) (bool, error) {
			c := &container{id: id}
			w.of[id] = c
			return true, json.Unmarshal(data, &c.told)
		})
	})
}

// Attach begins to watch the containers that run, and closes the ports of those that do not.
func (w *Watcher) Attach(sessions *session.Sessions) {
	w.sessions.Store(sessions)
	for _, info := range sessions.Infos() {
		if info.State == proto.StateRunning {
			w.look(info.ID)
		}
	}
	w.mu.Lock()
	var left []*container
	for _, c := range w.of {
		if c.stop == nil {
			left = append(left, c)
		}
	}
	w.mu.Unlock()
	for _, c := range left {
		s := sessions.Any(c.id)
		if s == nil || s.Info().State != proto.StatePaused {
			w.closeAll(c, "the container is "+string(stateOf(s)))
		}
	}
}

// stateOf returns the state of a session, which is nil if it is gone.
func stateOf(s *session.Session) proto.State {
	if s == nil {
		return "deleted"
	}
	return s.Info().State
}

// Close ends all watches. What was told stays in the ledger.
func (w *Watcher) Close() error {
	w.cancel()
	w.done.Wait()
	return nil
}

// Saw tells the Watcher of an entry of the audit log. It is called for each entry of containers and commands.
func (w *Watcher) Saw(e proto.AuditEntry) {
	if e.Outcome != proto.AuditOK {
		return
	}
	switch e.Act {
	case "exec.begin", "container.resume":
		w.look(e.ContainerID)
	case "container.pause": // a paused guest does not answer, and what listens goes on later
		w.mu.Lock()
		w.endLocked(w.of[e.ContainerID])
		w.mu.Unlock()
	case "container.stop", "container.expire", "container.delete":
		w.mu.Lock()
		c := w.of[e.ContainerID]
		w.endLocked(c)
		w.mu.Unlock()
		if c != nil {
			w.closeAll(c, cmp.Or(e.Note, wasEnded[e.Act]))
		}
	}
}

// wasEnded says why ports are closed that a container had open, by the action that ended it.
var wasEnded = map[string]string{"container.stop": "the container was stopped",
	"container.expire": "the container has expired", "container.delete": "the container was deleted"}

// endLocked ends the watch of a container. Called with mu held.
func (w *Watcher) endLocked(c *container) {
	if c != nil && c.stop != nil {
		c.stop()
		c.stop = nil
	}
}

// look begins to watch a container, unless that is done already.
func (w *Watcher) look(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.of[id]
	if c == nil {
		c = &container{id: id}
		w.of[id] = c
	}
	if c.stop != nil {
		c.poked = true
		return
	}
	if w.ctx.Err() != nil {
		return
	}
	var ctx context.Context
	ctx, c.stop = context.WithCancel(w.ctx)
	w.done.Go(func() { w.watch(ctx, c) })
}

// watch follows a container until nothing in it can listen any more, or ctx ends.
func (w *Watcher) watch(ctx context.Context, c *container) {
	budget := &budget{left: burst, at: time.Now()}
	for pause := begin; sleep(ctx, pause); {
		w.mu.Lock()
		c.poked = false
		w.mu.Unlock()
		err := w.follow(ctx, c, budget)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			if w.rest(ctx, c) {
				return
			}
			pause = begin
		default:
			w.cfg.Log.Debug("watching what listens", "container", c.id, "error", err)
			pause = again
		}
	}
}

// sleep waits, and reports whether ctx goes on.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// rest ends a watch that is over, unless a command has started meanwhile.
func (w *Watcher) rest(ctx context.Context, c *container) bool {
	c.telling.Lock()
	defer c.telling.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if ctx.Err() != nil {
		return true
	}
	if c.poked {
		return false
	}
	w.endLocked(c)
	w.forgetLocked(c)
	return true
}

// forgetLocked forgets a container that is not watched and has no open port. Called with both locks held.
func (w *Watcher) forgetLocked(c *container) {
	if c.stop == nil && len(c.told.Ports) == 0 && c.unable == nil {
		delete(w.of, c.id)
	}
}

// follow tells what the guest of a container reports until the guest ends that. It does nothing if the container does
// not run.
func (w *Watcher) follow(ctx context.Context, c *container, budget *budget) error {
	events, s, generation, err := w.open(ctx, c)
	if events == nil {
		return err
	}
	defer events.Close()
	lists := make(chan []proto.Port, 1)
	w.done.Go(func() {
		defer close(lists)
		err = receive(events, lists)
	})
	for list := range lists {
		budget.spend(w.tell(ctx, c, s, generation, list))
		sleep(ctx, budget.wait())
	}
	return err
}

// open asks the guest of a container for a watch. It returns nil if the container does not run, or its guest cannot.
func (w *Watcher) open(ctx context.Context, c *container) (*client.Events[wire.PortList], *session.Session, int64,
	error) {
	select {
	case w.opening <- struct{}{}:
		defer func() { <-w.opening }()
	case <-ctx.Done():
		return nil, nil, 0, ctx.Err()
	}
	sessions := w.sessions.Load()
	if sessions == nil {
		return nil, nil, 0, nil
	}
	s := sessions.Any(c.id)
	if s == nil {
		return nil, nil, 0, nil
	}
	if _, err := sessions.Get(s.Owner(), c.id); err != nil { // it waits for its handshake
		return nil, nil, 0, nil
	}
	info, guest := s.Info(), s.Guest()
	w.mu.Lock()
	unable := c.unable == guest
	w.mu.Unlock()
	if info.State != proto.StateRunning || unable {
		return nil, nil, 0, nil
	}
	events, err := guest.WatchPorts(ctx)
	if proto.CodeOf(err) == proto.InvalidArgument { // a guest of an earlier build
		w.mu.Lock()
		c.unable = guest
		w.mu.Unlock()
		return nil, nil, 0, nil
	}
	return events, s, info.Generation, err
}

// receive passes the lists of a guest on. One that was not taken yet gives way to the next. The error is nil at the end
// of the watch.
func receive(events *client.Events[wire.PortList], lists chan []proto.Port) error {
	for {
		now, err := events.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-lists:
		default:
		}
		lists <- now.Ports
	}
}

// A budget bounds the changes that are reported for one container.
type budget struct {
	left float64 // below zero: what was told too early
	at   time.Time
}

func (b *budget) spend(n int) {
	now := time.Now()
	b.left = min(burst, b.left+now.Sub(b.at).Seconds()/interval.Seconds()) - float64(n)
	b.at = now
}

// wait returns how long the next change has to wait.
func (b *budget) wait() time.Duration { return time.Duration(-min(b.left, 0) * float64(interval)) }

// tell tells how a list differs from what was told before, and returns the number of changes.
func (w *Watcher) tell(ctx context.Context, c *container, s *session.Session, generation int64,
	list []proto.Port) int {
	next := record{Owner: s.Owner(), Generation: generation}
	for _, p := range list {
		address, err := netip.ParseAddr(p.Address) // the guest may say anything
		if err != nil || address.Zone() != "" || inbound.Reachable(p.Port) != nil {
			continue
		}
		next.Ports = append(next.Ports, told{p.Port, address.String(), p.PID, s.Hide(p.Program)})
	}
	slices.SortFunc(next.Ports, compare)
	next.Ports = slices.CompactFunc(next.Ports, func(a, b told) bool { return compare(a, b) == 0 })
	c.telling.Lock()
	defer c.telling.Unlock()
	w.mu.Lock()
	over := ctx.Err() != nil // the container was paused or stopped meanwhile
	w.mu.Unlock()
	if over {
		return 0
	}
	n := 0
	if c.told.Generation != generation {
		n += w.change(c, record{Owner: next.Owner, Generation: generation}, "the container was stopped")
	}
	return n + w.change(c, next, "")
}

// closeAll tells that all ports of a container are closed.
func (w *Watcher) closeAll(c *container, why string) {
	c.telling.Lock()
	defer c.telling.Unlock()
	w.change(c, record{Owner: c.told.Owner, Generation: c.told.Generation}, why)
	w.mu.Lock()
	defer w.mu.Unlock()
	c.unable = nil
	w.forgetLocked(c)
}

// change tells how next differs from what was told, and returns the number of differences. What closes comes first: a
// program may have taken a port from another. Called with telling held.
func (w *Watcher) change(c *container, next record, why string) (n int) {
	for _, p := range c.told.Ports {
		if _, stays := slices.BinarySearchFunc(next.Ports, p, compare); !stays {
			w.audit(c.id, c.told, actionClose, p, why)
			n++
		}
	}
	for _, p := range next.Ports {
		if _, known := slices.BinarySearchFunc(c.told.Ports, p, compare); !known {
			w.audit(c.id, next, actionOpen, p, why)
			n++
		}
	}
	c.told = next
	if n == 0 {
		return 0
	}
	id := c.id
	err := w.cfg.Ledger.UpdateAsync(func(tx *ledger.Tx) error {
		if len(next.Ports) == 0 {
			return tx.Delete(bucket, id)
		}
		return tx.Put(bucket, id, next)
	})
	if err != nil {
		w.cfg.Log.Error("recording which ports are open; the next daemon may tell them again", "container", id, "error",
			err)
	}
	return n
}

func (w *Watcher) audit(id string, of record, action string, p told, why string) {
	w.cfg.Audit(proto.AuditEntry{Act: action, Outcome: proto.AuditOK, Actor: proto.ActorContainer, Owner: of.Owner,
		ContainerID: id, Generation: of.Generation, Note: why,
		Item: net.JoinHostPort(p.Address, strconv.Itoa(int(p.Port))),
		Port: &proto.AuditPort{Port: p.Port, Address: p.Address, PID: p.PID, Program: p.Program}})
}
