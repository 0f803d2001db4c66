package session

import (
	"context"
	"errors"
	"maps"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"berth/guest/client"
	"berth/guest/output"
	"berth/proto"
	"berth/session/secrets"
	"berth/state/ledger"
)

// A Session is one container as its owner knows it. Its methods are safe for concurrent use.
type Session struct {
	Files // access to its files, for its callers

	core      *Sessions
	id, owner string
	workspace string
	redactor  *secrets.Redactor // hides its secrets

	counted bool   // among those that have not expired; guarded by core.mu, as is key
	key     string // of the API, which it is counted for

	// an earlier daemon started its sandbox, and this one has not asked the guest for its commands yet
	needsHandshake atomic.Bool

	// life is a lock for transitions (start, stop, expire, remove). It may be held across I/O, so
	// waiting for it can be given up. It is taken before mu.
	transition chan struct{}
	unclean    bool // its sandbox could not be stopped and may run still; guarded by life

	// saving makes the changes of the record one after the other, so that none is built on one that
	// then fails. It is held while the ledger writes, and taken after life and before mu.
	saving sync.Mutex

	mu           sync.Mutex     // guards what follows
	rec          record         // as the ledger has it, but for LastUsed, which is ahead
	saved        time.Time      // LastUsed as the ledger has it
	guest        *client.Client // of this generation; replaced by start
	boot         string         // of that guest
	users        int            // operations under way; the sweeper leaves a session with any alone
	paused       bool           // it stands still, or is about to; whoever comes wakes it
	leaseRenewed bool           // its lease was, when it was taken over, since its guest is met only when it is wanted
	stopping     bool           // about to be stopped: whoever comes waits, and starts it again
	failedCreate bool           // it never came up and could not be removed; the sweeper tries again
	emptied      bool           // expired, and nothing is left but its record
	missedHellos int            // sweeps in a row in which the guest did not answer
	removed      bool
	execs        []*Exec                    // running and remembered, in the order they began
	running      []*Exec                    // those of them that have not ended: counted often, beside a hundred that have
	started      int                        // execs ever begun; the number of the newest
	keptBytes    int64                      // bytes of output that ended execs keep in memory, at most
	execStarted  chan struct{}              // closed when an exec begins
	pendingExecs map[string]*pendingRequest // execs with a key that are being started, by that
	lastStop     stopCause                  // why a generation was stopped
	servedPorts  map[uint16]func()          // ends of what is served on its loopback, by port; nil: nothing is
}

func newSession(core *Sessions, rec record) *Session {
	s := &Session{
		redactor: rec.redactor(),
		core:     core, id: rec.ID, owner: rec.Owner, workspace: rec.Workspace, rec: rec, saved: rec.LastUsed,
		transition: make(chan struct{}, 1), execStarted: make(chan struct{}),
		pendingExecs: map[string]*pendingRequest{},
	}
	s.Files = Files{s: s}
	s.guest = s.newGuest()
	return s
}

func (s *Session) newGuest() *client.Client {
	return client.NewClient(func(ctx context.Context) (net.Conn, error) {
		c, err := s.dial(ctx)
		if g, ok := c.(*greetedConn); ok { // of a start that came no further
			_ = g.Close()
			c, err = s.dial(ctx)
		}
		return c, err
	})
}

// dial connects to the guest of the sandbox, which the session has as running.
func (s *Session) dial(ctx context.Context) (net.Conn, error) {
	c, err := s.core.cfg.Runtime.Dial(ctx, s.id)
	if proto.CodeOf(err) == proto.NotFound {
		err = proto.Errorf(proto.Unavailable, "", s.id, "container %s ended unexpectedly", s.id)
	}
	return c, err
}

// ID is the container's ID, never used again for another.
func (s *Session) ID() string { return s.id }

// Owner is who may use it.
func (s *Session) Owner() string { return s.owner }

// WorkspaceID names the tree at /workspace.
func (s *Session) WorkspaceID() string { return s.workspace }

// DefaultJob is the job of execs that name none.
func (s *Session) DefaultJob() string { return s.record().Job }

// Ref is how results name this session, with the expiry as of now.
func (s *Session) Ref() proto.ContainerRef {
	return proto.ContainerRef{ID: s.id, ExpiresAt: proto.At(s.core.clock.shown(s.record().expires()))}
}

// Info describes the session.
func (s *Session) Info() proto.Container {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, shown := s.rec, func(t time.Time) proto.Time { return proto.At(s.core.clock.shown(t)) }
	if s.paused && r.State == proto.StateRunning {
		r.State = proto.StatePaused
	}
	labels := maps.Clone(r.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	return proto.Container{
		CodeTools: r.shownTools(),
		ID:        r.ID, State: r.State, Image: r.Image, ImageDigest: r.Digest, RuntimeClass: r.Class,
		WorkspaceID: r.Workspace, Labels: labels, Limits: r.Limits, Network: r.network(), Isolation: r.Isolation,
		Generation: r.Generation,
		CreatedAt:  shown(r.Created), LastUsedAt: shown(r.LastUsed), ExpiresAt: shown(r.expires()), MaxExpiresAt: shown(
			r.cap()),
		RunningExecs:       s.holdingExecs(), // an interpreter that waits for its next cell is no work of anybody's
		SecretNames:        append([]string{}, r.Names...),
		NetworkSecrets:     r.shownNetworkSecrets(),
		IdleTimeoutSeconds: int64(r.Idle / time.Second), MaxLifetimeSeconds: int64(r.Lifetime / time.Second),
	}
}

// OutputBudget is what the output of all commands counts in, for those who keep output of their own.
func (s *Session) OutputBudget() *output.Budget { return s.core.memory }

// Paused reports whether the session is paused.
func (s *Session) Paused() bool { return s.isPaused() }

// Start makes sure that it runs.
func (s *Session) Start(ctx context.Context) error {
	release, err := s.use(ctx)
	if err == nil {
		release()
	}
	return err
}

// Stop ends the session's processes and keeps its files; the next use starts it again.
func (s *Session) Stop(ctx context.Context) error {
	if err := s.usable(); err != nil {
		return err
	}
	return s.stopUnlessStopped(context.WithoutCancel(ctx), "the container was stopped")
}

// Hold makes sure that it runs and keeps it from being paused or stopped as idle until release, as a command does
// while it runs. It is for whoever has a resident command do something. ctx's API key must have CPU time left. Stored
// files are put into $INPUT_DIR first.
func (s *Session) Hold(ctx context.Context, files []string) (release func(), err error) {
	if err := s.core.cfg.mayRun(ctx); err != nil {
		return nil, err
	}
	if release, err = s.use(ctx); err != nil || len(files) == 0 {
		return release, err
	}
	if err := s.core.cfg.Jobs.Begin(ctx, s, files); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// This file has how a session's sandbox is made to stand still and go on. Only the runtime knows for good what is
// paused; the record says "running" all the while, and a later daemon asks. Whatever needs the guest wakes it first.

// Pause has every process of the session stand still, in memory, until the next use. The lease runs on. Commands that
// run are halted where they are; one that is just being started, or a transfer, is a Conflict.
func (s *Session) Pause(ctx context.Context) error {
	if err := s.usable(); err != nil {
		return err
	}
	unlock, err := s.lockTransition(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	_, err = s.pause(ctx, false)
	return err
}

// Resume has a paused session go on; one that runs does so still. A stopped one is a Conflict, and so is one that
// turns out to have ended while it stood still: its processes cannot go on. Start makes it run.
func (s *Session) Resume(ctx context.Context) error {
	s.mu.Lock()
	err := s.resumableLocked(ctx)
	if err == nil {
		s.users++
		s.touch()
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	defer s.release()
	if err := s.resume(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.resumableLocked(ctx)
}

func (s *Session) resumableLocked(ctx context.Context) error {
	if err := s.usableLocked(); err != nil {
		return err
	}
	if s.rec.State != proto.StateRunning {
		return proto.Errorf(proto.Conflict, "", s.id, "container %s is %s, not paused; start it, or just use it", s.id,
			s.rec.State)
	}
	return s.boundLocked(ctx)
}

// use makes sure that the session's sandbox runs and holds it until release. Every operation on
// a session is between the two; each end renews the lease.
func (s *Session) use(ctx context.Context) (release func(), err error) {
	s.mu.Lock()
	if err := s.usableLocked(); err != nil {
		s.mu.Unlock()
		return nil, err
	}
	if err := s.boundLocked(ctx); err != nil {
		s.mu.Unlock()
		return nil, err
	}
	s.users++
	s.touch()
	ready := s.resumeOrStart
	if !s.runningLocked() {
		ready = s.ensureStarted
	}
	s.mu.Unlock()
	if err := ready(ctx); err != nil {
		s.release()
		return nil, err
	}
	return s.release, nil
}

// useGeneration is use for bookkeeping: it fails where the generation that g speaks to is not the
// present one. The lease is that of whatever made the entry.
func (s *Session) useGeneration(ctx context.Context, g *client.Client) (release func(), err error) {
	s.mu.Lock()
	err = s.usableLocked()
	if err == nil && (!s.runningLocked() || s.guest != g) {
		err = proto.Errorf(proto.Unavailable, "", s.id, "container %s was stopped meanwhile", s.id)
	}
	if err != nil {
		s.mu.Unlock()
		return nil, err
	}
	s.users++
	s.mu.Unlock()
	if err := s.resume(ctx); err != nil {
		s.release()
		return nil, err
	}
	return s.release, nil
}

func (s *Session) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
	s.touch()
}

// usable says why the session cannot be used, if it cannot.
func (s *Session) usable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usableLocked()
}

func (s *Session) usableLocked() error {
	switch {
	case s.removed || s.rec.Delete:
		return proto.Errorf(proto.NotFound, "", s.id, "container %s does not exist; send the request without a "+
			"container to get a new one", s.id)
	case s.rec.State == proto.StateExpired || !s.core.clock.now().Before(s.rec.cap()):
		return proto.Errorf(proto.Expired, "", s.id, "container %s expired at %s and its files are gone; send the "+
			"request without a container to get a new one",
			s.id, s.core.clock.shown(s.rec.cap()).UTC().Format(time.RFC3339))
	}
	return nil
}

func (s *Session) runningLocked() bool { return s.rec.State == proto.StateRunning && !s.stopping }

type generationKey struct{}

// InGeneration binds what is done with ctx to one generation of a container: where that is not the one that
// runs, it fails with a Conflict that names both, and starts nothing. 0 binds to none.
func InGeneration(ctx context.Context, generation int64) context.Context {
	if generation == 0 {
		return ctx
	}
	return context.WithValue(ctx, generationKey{}, generation)
}

// boundLocked says why ctx cannot use the session's present generation, if it is bound to another. Called with
// mu held.
func (s *Session) boundLocked(ctx context.Context) error {
	want, _ := ctx.Value(generationKey{}).(int64)
	switch {
	case want == 0 || s.runningLocked() && s.rec.Generation == want:
		return nil
	case s.runningLocked():
		return proto.Errorf(proto.Conflict, "", s.id, "container %s is at generation %d and generation %d is over; "+
			"its files are kept, its processes are gone; send the request without a generation, or with the present one",
			s.id, s.rec.Generation, want)
	}
	return proto.Errorf(proto.Conflict, "", s.id, "container %s is stopped after generation %d, so generation %d "+
		"does not run; its files are kept; send the request without a generation to start it again",
		s.id, s.rec.Generation, want)
}

// client speaks to the guest of the present generation. What was begun with an older one
// stays with that and never reaches a successor.
func (s *Session) client() *client.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.guest
}

// clientFor is client, unless ctx is bound to another generation: between use and this the container may have
// been stopped and started anew. An exec that is to run there is told which generation it is.
func (s *Session) clientFor(ctx context.Context, e *Exec) (*client.Client, error) {
	s.mu.Lock()
	g, n, err := s.guest, s.rec.Generation, s.boundLocked(ctx)
	s.mu.Unlock()
	if e != nil {
		e.mu.Lock()
		e.info.Generation = n
		e.mu.Unlock()
	}
	return g, err
}

func (s *Session) record() record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rec
}

func (s *Session) state() proto.State { return s.record().State }

func (s *Session) gone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.removed
}

func (s *Session) markGone() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removed = true
}

// markFailedCreate has the sweeper remove it, if its creator does not manage to.
func (s *Session) markFailedCreate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failedCreate = true
}

// is reads one of the session's marks.
func (s *Session) is(mark *bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *mark
}

// change alters the record and returns once that is on disk; until then nobody sees it. fn
// gets a copy. If it cannot be written, the record is as it was.
func (s *Session) change(fn func(*record)) error { return s.changeWith(s.core.cfg.Ledger.Update, fn) }

// changeAsync is change that does not wait for the disk: for what the death of the daemon must not take back, and a
// power cut, with which every sandbox ends, may.
func (s *Session) changeAsync(fn func(*record)) error {
	return s.changeWith(s.core.cfg.Ledger.UpdateAsync, fn)
}

// changeWith is change by one way of writing.
func (s *Session) changeWith(write func(func(*ledger.Tx) error) error, fn func(*record)) error {
	s.saving.Lock()
	defer s.saving.Unlock()
	var next record
	err := write(func(tx *ledger.Tx) error {
		if s.gone() {
			return proto.Errorf(proto.NotFound, "", s.id, "container %s does not exist", s.id)
		}
		next = s.record()
		fn(&next)
		return tx.Put(bucketSessions, s.id, next)
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saved = next.LastUsed
	if s.rec.LastUsed.After(next.LastUsed) { // it was used meanwhile
		next.LastUsed = s.rec.LastUsed
	}
	s.rec = next
	return nil
}

// saveRecord writes the record as it is in memory.
func (s *Session) saveRecord() error { return s.changeAsync(func(*record) {}) }

// deleteRecord takes the record out of the ledger, with those of the execs; from then on nothing writes it again. If
// a power cut brings it back, it says that the session is to go.
func (s *Session) deleteRecord() error {
	s.saving.Lock()
	defer s.saving.Unlock()
	err := s.core.cfg.Ledger.UpdateAsync(func(tx *ledger.Tx) error {
		return errors.Join(tx.DeletePrefix(bucketExecs, s.id+"/"), tx.Delete(bucketSessions, s.id))
	})
	if err == nil {
		s.markGone()
	}
	return err
}
