package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"berth/guest/output"
	"berth/proto"
	"berth/state/ledger"
)

// Sessions is all sessions of a daemon.
type Sessions struct {
	cfg    Config
	pauser Pauser // the runtime, or nil if it cannot pause: then no session is paused
	dozer  Dozer  // the runtime, or nil if it cannot tell who dozes: then each is woken by the next daemon
	clock  *leaseClock

	// ctx ends when Close begins; work that must outlive a request runs on it.
	ctx     context.Context
	cancel  context.CancelFunc
	host    string         // boot of the host
	memory  *output.Budget // for what execs wrote; results of those that ended take as much again
	spooled atomic.Int64   // bytes in files of output
	reread  atomic.Int64   // bytes of them in memory for whoever follows

	freeingMemory atomic.Bool // somebody makes memory for output; see relieve

	digestKey []byte         // of digest
	wg        sync.WaitGroup // execs and starts under way

	takenOver []*Session // by Open, until Meet

	mu             sync.RWMutex // guards what follows
	byID           map[string]*Session
	index          index // of byID
	workspaces     map[string]workspaceRecord
	pendingCreates map[string]*pendingRequest // sessions with an idempotency key that are being made, by owner and key
	closed         bool
}

// Open reads the ledger, makes it and the runtime agree, and takes over the sandboxes that
// still run, with their execs that outlive a daemon. Others that were running when the last one ended are
// marked lost. Meet is to be called once somebody may want them.
func Open(ctx context.Context, cfg Config) (*Sessions, error) {
	cfg = cfg.withDefaults()
	if err := os.MkdirAll(filepath.Join(cfg.Dir, outputDir), 0o700); err != nil {
		return nil, fmt.Errorf("making the output directory: %w", err)
	}
	ss := &Sessions{cfg: cfg, host: cfg.Boot, memory: output.NewBudget(cfg.OutputMemory / 2),
		byID: map[string]*Session{}, index: newIndex(), workspaces: map[string]workspaceRecord{},
		pendingCreates: map[string]*pendingRequest{}}
	ss.clock = &leaseClock{wall: cfg.Now, elapsed: cfg.Elapsed}
	ss.ctx, ss.cancel = context.WithCancel(context.Background())
	ss.pauser, _ = cfg.Runtime.(Pauser)
	ss.dozer, _ = cfg.Runtime.(Dozer)
	if err := ss.loadAndReconcile(ctx); err != nil {
		return nil, err
	}
	return ss, nil
}

// loadAndReconcile makes of what is on disk what is so now.
func (ss *Sessions) loadAndReconcile(ctx context.Context) error {
	if err := errors.Join(ss.openDigest(), replayEnds(ss.cfg.Dir, ss.cfg.Ledger), ss.load()); err != nil {
		return fmt.Errorf("reading sessions: %w", err)
	}
	if err := ss.reconcile(ctx); err != nil {
		return fmt.Errorf("reconciling sessions: %w", err)
	}
	return nil
}

// Close ends what is under way and lets go of the sandboxes without stopping them: the next
// daemon attaches to them again. Execs that still run end and are recorded as stopped, but for those in the background
// and detached ones, which go on.
func (ss *Sessions) Close() error {
	ss.mu.Lock()
	ss.closed = true
	all := ss.snapshot()
	ss.mu.Unlock()
	paused := slices.DeleteFunc(slices.Clone(all), func(s *Session) bool { return !s.isPaused() })
	for _, s := range all {
		s.endExecs(proto.EndStopped, "the daemon was shut down", false)
	}
	ss.cancel()
	ss.wg.Wait()
	errs := []error{ss.clock.save(ss.cfg.Ledger)}
	for _, s := range all {
		errs = append(errs, s.detach())
	}
	for _, s := range paused {
		errs = append(errs, s.repause())
	}
	return errors.Join(errs...)
}

// Get finds a session of this owner. One of another owner does not exist for them. One that
// has expired is returned too, beside an Expired error that says so.
func (ss *Sessions) Get(owner, id string) (*Session, error) {
	ss.mu.RLock()
	s, ok := ss.byID[id]
	ss.mu.RUnlock()
	if !ok || s.owner != owner {
		return nil, proto.Errorf(proto.NotFound, "", id, "container %.80q does not exist; send the request without "+
			"a container to get a new one", id)
	}
	s.awaitHandshake()
	return s, s.usable()
}

// Any is the session of that ID, whoever owns it, or nil.
func (ss *Sessions) Any(id string) *Session { return ss.find(id) }

// A Filter chooses sessions to list.
type Filter struct {
	Labels map[string]string // all must match
	State  proto.State       // "" is every state but expired
	After  string            // begin behind this ID
	Limit  int               // 1 to 1000; 0 is 100
}

// List is the owner's sessions, newest first, and whether there are more behind the last.
func (ss *Sessions) List(owner string, f Filter) (page []proto.Container, more bool, err error) {
	setDefault(&f.Limit, 100)
	if f.Limit < 1 || f.Limit > 1000 {
		return nil, false, invalid("limit", "limit must be from 1 to 1000")
	}
	if f.After != "" && !proto.ValidID(proto.ContainerPrefix, f.After) {
		return nil, false, invalid("after", "after %.80q is not a container ID", f.After)
	}
	ss.mu.RLock()
	all := ss.index.before(owner, f.After)
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
	for k, v := range f.Labels {
		if got, ok := c.Labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// Delete removes a session: its execs end, its sandbox goes, and its workspace too unless keep is set or it was kept
// before. TooMany says that no more may be kept. An expired one is removed as well. Deleting twice is NotFound the
// second time.
func (ss *Sessions) Delete(ctx context.Context, owner, id string, keep bool) error {
	s, err := ss.Get(owner, id)
	if s == nil {
		return err
	}
	err = ss.remove(context.WithoutCancel(ctx), s, keep)
	if err == nil {
		s.auditAct(ctx, actionDelete, "")
	}
	return err
}

// remove takes a session away for good. What it decided is written first, so that a
// crash in the middle is finished by reconcile.
func (ss *Sessions) remove(ctx context.Context, s *Session, keep bool) error {
	unlock, err := s.lockTransition(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if s.gone() {
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

// finishRemove does what remove decided. It is called again after a crash or a failure.
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

// releaseAll takes away all that a session holds but its record. Execs are over before the books of their
// jobs are dropped, or they would write into those again.
func (ss *Sessions) releaseAll(ctx context.Context, s *Session) error {
	decided := ss.onDisk() // that it goes, before anything of its files does
	s.resumeToEnd(ctx)
	if err := ss.cfg.Runtime.Stop(ctx, s.id); err != nil {
		return fmt.Errorf("stopping %s: %w", s.id, err)
	}
	s.closeGuest()
	s.markSandboxGone()
	if err := decided(); err != nil {
		return fmt.Errorf("recording that %s goes: %w", s.id, err)
	}
	if err := s.dropExecs(); err != nil {
		return fmt.Errorf("dropping the execs of %s: %w", s.id, err)
	}
	if err := ss.releaseWorkspace(ctx, s); err != nil {
		return err
	}
	return ss.cfg.Ledger.UpdateAsync(func(tx *ledger.Tx) error { return tx.DeletePrefix(bucketExecs, s.id+"/") })
}

// forget drops a session from memory.
func (ss *Sessions) forget(s *Session) {
	s.markGone()
	retry := s.record().Retry.Key
	ss.mu.Lock()
	defer ss.mu.Unlock()
	delete(ss.byID, s.id)
	ss.index.remove(s, retry)
	if ws, ok := ss.workspaces[s.workspace]; ok && ws.Session == s.id {
		if ws.Session = ""; ws.Kept {
			ss.workspaces[ws.ID] = ws
		} else {
			delete(ss.workspaces, ws.ID)
		}
	}
}

// StopAll stops every running session; the files stay, and the next use starts one again.
func (ss *Sessions) StopAll(ctx context.Context) error {
	ss.mu.RLock()
	all := ss.snapshot()
	ss.mu.RUnlock()
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	slots := make(chan struct{}, reconcileParallel)
	for i, s := range all {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			errs[i] = s.stopUnlessStopped(ctx, "the daemon was shut down")
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Digests are the images that sessions may need to start again, each once.
func (ss *Sessions) Digests() []string {
	ss.mu.RLock()
	all := ss.snapshot()
	ss.mu.RUnlock()
	var list []string
	for _, s := range all {
		if r := s.record(); r.State != proto.StateExpired && !slices.Contains(list, r.Digest) {
			list = append(list, r.Digest)
		}
	}
	return list
}

// Counts are how many sessions are in which state, and execs running, for metrics.
type Counts struct {
	ByState      map[proto.State]int
	RunningExecs int
	Workspaces   int
}

// Counts takes a count now.
func (ss *Sessions) Counts() Counts {
	ss.mu.RLock()
	all, c := ss.snapshot(), Counts{ByState: map[proto.State]int{}, Workspaces: len(ss.workspaces)}
	ss.mu.RUnlock()
	for _, s := range all {
		info := s.Info()
		c.ByState[info.State]++
		c.RunningExecs += info.RunningExecs
	}
	return c
}

// goTracked runs fn on a goroutine that Close waits for, and first before that, so that Close either refuses
// both or finds what first made known.
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

// snapshot is every session. Called with mu held.
func (ss *Sessions) snapshot() []*Session {
	all := make([]*Session, 0, len(ss.byID))
	for _, s := range ss.byID {
		all = append(all, s)
	}
	return all
}

func (ss *Sessions) find(id string) *Session {
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	return ss.byID[id]
}

// known are the IDs of all sessions and workspaces.
func (ss *Sessions) known() map[string]bool {
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	ids := make(map[string]bool, len(ss.byID)+len(ss.workspaces))
	for id := range ss.byID {
		ids[id] = true
	}
	for id := range ss.workspaces {
		ids[id] = true
	}
	return ids
}

// onDisk begins to put on disk what was written down so far. Nobody has to wait for that who does something else first.
func (ss *Sessions) onDisk() (wait func() error) {
	return ss.cfg.Ledger.StartUpdate(func(*ledger.Tx) error { return nil })
}

// An index is what Sessions would have to look at all sessions for. It is guarded by Sessions.mu.
type index struct {
	byOwner map[string][]*Session // in the order of their IDs, which is that of their making
	byRetry map[string]*Session   // by owner and idempotency key: the newest
	live    map[string]int64      // sessions that have not expired, by API key
	all     int64                 // of them, of all keys
}

func newIndex() index {
	return index{byOwner: map[string][]*Session{}, byRetry: map[string]*Session{}, live: map[string]int64{}}
}

// retryKey is what byRetry has a session under.
func retryKey(owner, key string) string { return owner + "\x00" + key }

// add is for a session that just became known.
func (x *index) add(s *Session, rec record, expired bool) {
	list := x.byOwner[s.owner]
	at, _ := slices.BinarySearchFunc(list, s.id, func(s *Session, id string) int { return strings.Compare(s.id, id) })
	x.byOwner[s.owner] = slices.Insert(list, at, s)
	if rec.Retry.Key != "" {
		at := retryKey(s.owner, rec.Retry.Key)
		if old := x.byRetry[at]; old == nil || old.id < s.id {
			x.byRetry[at] = s
		}
	}
	if !expired {
		s.counted, s.key = true, rec.Key
		x.live[rec.Key]++
		x.all++
	}
}

// expired takes a session out of the count, if it is in there.
func (x *index) expired(s *Session) {
	if !s.counted {
		return
	}
	s.counted = false
	x.all--
	if x.live[s.key]--; x.live[s.key] == 0 {
		delete(x.live, s.key)
	}
}

// remove forgets a session.
func (x *index) remove(s *Session, retry string) {
	x.expired(s)
	list := x.byOwner[s.owner]
	if list = slices.DeleteFunc(list, func(o *Session) bool { return o == s }); len(list) == 0 {
		delete(x.byOwner, s.owner)
	} else {
		x.byOwner[s.owner] = list
	}
	if at := retryKey(s.owner, retry); x.byRetry[at] == s {
		delete(x.byRetry, at)
	}
}

// before are the owner's sessions whose IDs come before one, or all if that is empty, oldest first. It is a copy.
func (x *index) before(owner, id string) []*Session {
	list := x.byOwner[owner]
	if id != "" {
		at, _ := slices.BinarySearchFunc(list, id, func(s *Session, id string) int { return strings.Compare(s.id, id) })
		list = list[:at]
	}
	return slices.Clone(list)
}
