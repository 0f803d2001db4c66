package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"berth/guest/output"
	"berth/proto"
	"berth/session/endlog"
	"berth/session/execstore"
	"berth/session/index"
	"berth/session/lease"
	"berth/session/retries"
	"berth/session/snapshots"
	"berth/session/validate"
	"berth/state/ledger"

	"golang.org/x/sync/errgroup"
)

// Sessions is the collection of all sessions of a daemon.
type Sessions struct {
	cfg   Config
	clock *lease.Clock
	alarm *lease.Alarm // of absolute leases

	leaving atomic.Bool // see Leave
	// ctx ends when Close begins. Work that outlives a request runs on it.
	ctx     context.Context
	cancel  context.CancelFunc
	host    string         // boot ID of the host
	memory  *output.Budget // for the output of execs; results of ended ones take as much again
	outputs *execstore.Store

	snapshots *snapshots.Store

	freeingMemory atomic.Bool // a goroutine runs makeRoom

	digests retries.Digester
	wg      sync.WaitGroup // running execs and starts

	takenOver []*Session // by Open, for HandshakeAll

	mu         sync.RWMutex // guards the fields below
	byID       map[string]*Session
	index      index.Index[*Session] // of byID
	workspaces map[string]workspaceRecord
	// sessions with an idempotency key that are being created, by owner and key
	pendingCreates map[string]*pendingRequest
	closed         bool
}

// Open reads the ledger and makes it agree with the runtime. It takes over the sandboxes that still run, with their
// durable execs. It marks other execs that ran when the last daemon ended as lost. The caller calls HandshakeAll once
// it serves requests.
func Open(ctx context.Context, cfg Config) (*Sessions, error) {
	cfg = cfg.withDefaults()
	outputs, err := execstore.Open(execstore.Config{Dir: filepath.Join(cfg.Dir, "output"), Disk: cfg.OutputDisk,
		Memory: cfg.OutputMemory / 2, Log: cfg.Log})
	if err != nil {
		return nil, err
	}
	ss := &Sessions{cfg: cfg, host: cfg.Boot, memory: output.NewBudget(cfg.OutputMemory / 2), outputs: outputs,
		clock: lease.NewClock(cfg.Now, cfg.Elapsed), byID: map[string]*Session{}, index: index.New((*Session).isUsable),
		workspaces: map[string]workspaceRecord{}, pendingCreates: map[string]*pendingRequest{}}
	if ss.digests, err = retries.OpenDigester(cfg.Ledger, cfg.Vault, cfg.Log); err != nil {
		return nil, fmt.Errorf("reading the key of digests: %w", err)
	}
	ss.ctx, ss.cancel = context.WithCancel(context.Background())
	ss.alarm = lease.NewAlarm(ss.clock.Now, cfg.AfterFunc, ss.endOnTime)
	if err := errors.Join(endlog.Replay(cfg.Dir, cfg.Ledger, applyEnd), ss.openSnapshots(), ss.load()); err != nil {
		return nil, fmt.Errorf("reading sessions: %w", err)
	}
	if err := ss.reconcile(ctx); err != nil {
		return nil, fmt.Errorf("reconciling sessions: %w", err)
	}
	for _, s := range ss.all() {
		s.mu.Lock()
		s.setAlarmLocked()
		s.mu.Unlock()
	}
	return ss, nil
}

// Leave says that the daemon is about to end: a command that loses its client now is left to the next daemon.
func (ss *Sessions) Leave() { ss.leaving.Store(true) }

// Close ends what runs and detaches from the sandboxes without stopping them; the next daemon takes them over.
// Running execs end and are recorded as stopped, except for durable ones, which go on.
func (ss *Sessions) Close() error {
	ss.mu.Lock()
	ss.closed = true
	all := slices.Collect(maps.Values(ss.byID))
	ss.mu.Unlock()
	ss.alarm.Close()
	paused := slices.DeleteFunc(slices.Clone(all), func(s *Session) bool { return !s.is(&s.paused) })
	for _, s := range all {
		s.endExecs(proto.EndStopped, "the daemon was shut down", false)
	}
	ss.cancel()
	ss.wg.Wait()
	errs := []error{ss.saveClock()}
	for _, s := range all {
		errs = append(errs, s.detach())
	}
	for _, s := range paused {
		errs = append(errs, s.repause())
	}
	return errors.Join(errs...)
}

// Get finds a session of this owner by its ID, or by its name while it is live. A session of another owner is NotFound.
// An expired session is returned beside an Expired error.
func (ss *Sessions) Get(owner, id string) (*Session, error) {
	ss.mu.RLock()
	s, ok := ss.byID[id]
	if !ok {
		s, ok = ss.index.Named(owner, id)
	}
	ss.mu.RUnlock()
	if !ok || s.owner != owner {
		return nil, proto.Errorf(proto.NotFound, "", id, "container %.80q does not exist; send the request without "+
			"a container to get a new one", id)
	}
	s.awaitHandshake()
	return s, s.usable()
}

// IDOf returns the ID of the owner's live session with that name, or "".
func (ss *Sessions) IDOf(owner, name string) string {
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	if s, ok := ss.index.Named(owner, name); ok {
		return s.id
	}
	return ""
}

// Any returns the session with that ID, of any owner, or nil.
func (ss *Sessions) Any(id string) *Session { return ss.find(id) }

// A Filter chooses sessions to list.
type Filter struct {
	Labels map[string]string // all must match
	State  proto.State       // "" is every state but expired
	After  string            // list the sessions after this ID
	Limit  int               // 1 to 1000; 0 is 100
}

// List returns a page of the owner's sessions, newest first, and whether more follow.
func (ss *Sessions) List(owner string, f Filter) (page []proto.Container, more bool, err error) {
	setDefault(&f.Limit, 100)
	if f.Limit < 1 || f.Limit > 1000 {
		return nil, false, validate.Error("limit", "limit must be from 1 to 1000")
	}
	if f.After != "" && !proto.ValidID(proto.ContainerPrefix, f.After) {
		return nil, false, validate.Error("after", "after %.80q is not a container ID", f.After)
	}
	ss.mu.RLock()
	all := ss.index.Before(owner, f.After)
	ss.mu.RUnlock()
	page = make([]proto.Container, 0, min(f.Limit, len(all)))
	for _, s := range slices.Backward(all) {
		info := s.Info()
		if !f.matches(info) {
			continue
		}
		if len(page) == f.Limit {
			return page, true, nil
		}
		page = append(page, info)
	}
	return page, false, nil
}

func (f Filter) matches(c proto.Container) bool {
	if f.State == "" && c.State == proto.StateExpired || f.State != "" && f.State != c.State {
		return false
	}
	return proto.HasLabels(c.Labels, f.Labels)
}

// Delete removes a session with its execs and sandbox, and its workspace unless keep is set or it was kept before. It
// fails with TooMany if no more workspaces may be kept. It removes expired sessions too. A second Delete is NotFound.
func (ss *Sessions) Delete(ctx context.Context, owner, id string, keep bool) error {
	s, err := ss.Get(owner, id)
	if s == nil {
		return err
	}
	err = ss.remove(context.WithoutCancel(ctx), s, keep)
	if err == nil {
		s.auditAction(ctx, actionDelete, "")
	}
	return err
}

// remove removes a session for good. It records the decision first, so that reconcile finishes the removal after a
// crash.
func (ss *Sessions) remove(ctx context.Context, s *Session, keep bool) error {
	unlock, err := s.lockTransition(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if s.is(&s.removed) {
		return proto.Errorf(proto.NotFound, "", s.id, "container %s does not exist", s.id)
	}
	if rec := s.record(); rec.State == proto.StateExpired || rec.Delete && !rec.Keep {
		keep = false // some of the files may be gone already
	}
	if keep {
		if err := ss.keepWorkspace(s); err != nil {
			return err
		}
	}
	err = s.changeAsync(func(r *record) { r.Delete, r.Keep = true, keep })
	if err != nil {
		return err
	}
	s.resumeToEnd(ctx)
	s.endExecs(proto.EndStopped, "the container was deleted", true)
	return ss.finishRemove(ctx, s)
}

// finishRemove does what remove decided. A sweep or reconcile calls it again after a failure or a crash.
func (ss *Sessions) finishRemove(ctx context.Context, s *Session) error {
	if err := ss.releaseAll(ctx, s); err != nil {
		return err
	}
	if err := s.deleteRecord(); err != nil {
		return fmt.Errorf("forgetting %s: %w", s.id, err)
	}
	ss.forget(s)
	return nil
}

// releaseAll removes everything that a session holds except its record. The execs end before the manifests of their
// jobs are dropped, since an end writes to them.
func (ss *Sessions) releaseAll(ctx context.Context, s *Session) error {
	decided := ss.onDisk() // the decision is on disk before any file goes
	s.resumeToEnd(ctx)
	s.chargeCPU(nil, 0)
	if err := ss.cfg.Runtime.Stop(ctx, s.id); err != nil {
		return fmt.Errorf("stopping %s: %w", s.id, err)
	}
	s.closeGuest()
	s.markSandboxGone()
	if err := decided(); err != nil {
		return fmt.Errorf("recording that %s goes: %w", s.id, err)
	}
	for _, layer := range s.record().layers() {
		if err := ss.cfg.Runtime.RemoveLayer(ctx, layer); err != nil {
			return fmt.Errorf("removing the layer of %s: %w", s.id, err)
		}
	}
	if err := s.dropExecs(); err != nil {
		return fmt.Errorf("dropping the execs of %s: %w", s.id, err)
	}
	if err := ss.releaseWorkspace(ctx, s); err != nil {
		return err
	}
	return ss.cfg.Ledger.UpdateAsync(func(tx *ledger.Tx) error { return tx.DeletePrefix(bucketExecs, s.id+"/") })
}

// forget removes a session from memory.
func (ss *Sessions) forget(s *Session) {
	s.set(&s.removed, true)
	ss.mu.Lock()
	defer ss.mu.Unlock()
	delete(ss.byID, s.id)
	ss.index.Remove(s)
	ss.alarm.Set(s.id, time.Time{})
	if ws, ok := ss.workspaces[s.workspace]; ok && ws.Session == s.id {
		if ws.Session = ""; ws.Kept {
			ss.workspaces[ws.ID] = ws
		} else {
			delete(ss.workspaces, ws.ID)
		}
	}
}

// StopAll stops every running session. The files stay, and the next use starts a session again.
func (ss *Sessions) StopAll(ctx context.Context) error {
	all := ss.all()
	errs := make([]error, len(all))
	var group errgroup.Group
	group.SetLimit(reconcileParallel)
	for i, s := range all {
		group.Go(func() error {
			errs[i] = s.stopUnlessStopped(ctx, "the daemon was shut down")
			return nil
		})
	}
	_ = group.Wait()
	return errors.Join(errs...)
}

// Infos describes all sessions of all owners.
func (ss *Sessions) Infos() (list []proto.Container) {
	for _, s := range ss.all() {
		list = append(list, s.Info())
	}
	return list
}

// Digests returns the digests of images that sessions may need to start again, without duplicates.
func (ss *Sessions) Digests() []string {
	var list []string
	for _, s := range ss.all() {
		if r := s.record(); r.State != proto.StateExpired && !slices.Contains(list, r.Digest) {
			list = append(list, r.Digest)
		}
	}
	for _, r := range ss.snapshots.All() {
		if !slices.Contains(list, r.Digest) {
			list = append(list, r.Digest)
		}
	}
	return list
}

// Counts are the sessions by state and the running execs, for metrics.
type Counts struct {
	ByState      map[proto.State]int
	RunningExecs int
	Workspaces   int
}

// Counts counts now.
func (ss *Sessions) Counts() Counts {
	ss.mu.RLock()
	all := slices.Collect(maps.Values(ss.byID))
	c := Counts{ByState: map[proto.State]int{}, Workspaces: len(ss.workspaces)}
	ss.mu.RUnlock()
	for _, s := range all {
		info := s.Info()
		c.ByState[info.State]++
		c.RunningExecs += info.RunningExecs
	}
	return c
}

// KeySessions returns the number of sessions of an API key that have not expired.
func (ss *Sessions) KeySessions(key string) int64 {
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	return ss.index.LiveOf(key)
}

// saveClock writes how far the lease clock is behind the wall clock, if that has changed.
func (ss *Sessions) saveClock() error {
	return ss.clock.Save(func(ahead time.Duration) error {
		return ss.cfg.Ledger.Update(func(tx *ledger.Tx) error { return tx.Put(bucketClock, clockKey, ahead) })
	})
}

// goTracked runs first and then fn on a goroutine that Close waits for. Close either refuses both, or finds what
// first published.
func (ss *Sessions) goTracked(first, fn func()) error {
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	if ss.closed {
		return shuttingDown()
	}
	if first != nil {
		first()
	}
	ss.wg.Go(fn)
	return nil
}

func shuttingDown() error {
	return proto.Errorf(proto.Unavailable, "", "", "the daemon is shutting down")
}

// all returns all sessions.
func (ss *Sessions) all() []*Session {
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	return slices.Collect(maps.Values(ss.byID))
}

func (ss *Sessions) find(id string) *Session {
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	return ss.byID[id]
}

// known returns the set of IDs of all sessions, workspaces, layers and snapshots.
func (ss *Sessions) known() map[string]bool {
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	ids := make(map[string]bool, len(ss.byID)+len(ss.workspaces))
	for id, s := range ss.byID {
		ids[id] = true
		for _, layer := range s.record().layers() {
			ids[layer] = true
		}
	}
	for id := range ss.workspaces {
		ids[id] = true
	}
	for _, r := range ss.snapshots.All() {
		ids[r.ID] = true
	}
	return ids
}

// onDisk starts a sync of everything written so far; wait returns once it is on disk. Work in between overlaps with
// the sync.
func (ss *Sessions) onDisk() (wait func() error) {
	return ss.cfg.Ledger.StartUpdate(func(*ledger.Tx) error { return nil })
}

// ownerKey returns the key of pendingCreates.
func ownerKey(owner, key string) string { return owner + "\x00" + key }
