package session

import (
	"cmp"
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
	"berth/session/cpu"
	"berth/session/handshake"
	"berth/session/loopback"
	"berth/session/peers"
	"berth/session/refusals"
	"berth/session/secrets"
	"berth/session/shells"
	"berth/session/validate"
	"berth/state/ledger"
)

// A Session is one container of its owner. Its methods are safe for concurrent use.
type Session struct {
	Files // file access, for callers

	core      *Sessions
	id, owner string
	workspace string
	redactor  *secrets.Redactor // hides the session's secrets

	created chan struct{} // closed when its creation has succeeded or failed; nil: under an earlier daemon

	// an earlier daemon started its sandbox, and this one has not yet asked the guest for its commands
	needsHandshake atomic.Bool

	// transition is a lock for start, stop, pause, expire and remove. A goroutine may hold it across I/O, so another
	// can give up waiting for it. It is taken before mu.
	transition   chan struct{}
	closedShells shells.Closed
	ports        *loopback.Ports // of the present generation
	refusals     refusals.Book
	gate         Gate // of its network; nil: it has none, or has not needed it. Guarded by transition
	unclean      bool // its sandbox could not be stopped and may still run; guarded by transition

	// saving serialises changes of the record, so that none builds on a change that then fails. It is held while the
	// ledger writes, and taken after transition and before mu.
	saving sync.Mutex

	mu           sync.Mutex     // guards the fields below
	rec          record         // as in the ledger, except for LastUsed, which is newer
	saved        time.Time      // LastUsed as in the ledger
	guest        *client.Client // of this generation; each start replaces it
	boot         string         // the boot ID of that guest
	users        int            // operations that run; the sweeper skips a session that has any
	paused       bool           // paused, or about to be; the next use resumes it
	leaseRenewed bool           // the lease was renewed at takeover, because the handshake waits for the next use
	stopping     bool           // about to be stopped: a new user waits and starts it again
	failedCreate bool           // it never came up and could not be removed; the sweeper tries again
	emptied      bool           // expired, and only its record is left
	peers        peers.Set      // connections to its ports. They keep it from being paused or stopped as idle
	missedHellos int            // sweeps in a row in which the guest did not answer
	removed      bool
	execs        []*Exec // running and remembered execs, in the order of their start
	// the execs that have not ended, apart because they are counted often and a hundred ended ones are remembered
	running      []*Exec
	started      int                        // execs ever started; the number of the newest
	keptBytes    int64                      // upper bound of the bytes of output that ended execs keep in memory
	execStarted  chan struct{}              // closed when an exec starts
	pendingExecs map[string]*pendingRequest // execs with an idempotency key that are being started, by key
	lastStop     stopCause                  // why the last generation was stopped

	cpu cpu.Meter // what of its CPU time is charged
}

func newSession(core *Sessions, rec record) *Session {
	s := &Session{
		redactor: rec.redactor(),
		core:     core, id: rec.ID, owner: rec.Owner, workspace: rec.Workspace,
		rec: rec, saved: rec.LastUsed,
		transition: make(chan struct{}, 1), execStarted: make(chan struct{}),
		pendingExecs: map[string]*pendingRequest{},
		ports:        loopback.NewPorts(core.ctx, func(fn func()) error { return core.goTracked(nil, fn) }),
	}
	s.Files = Files{s: s}
	s.guest = s.newGuest()
	return s
}

func (s *Session) newGuest() *client.Client {
	return client.NewClient(func(ctx context.Context) (net.Conn, error) {
		c, err := s.dial(ctx)
		if g, ok := c.(*handshake.Conn); ok { // of a start that came no further
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

// ID returns the container's ID. IDs are never reused.
func (s *Session) ID() string { return s.id }

// Owner returns the owner, the only one who may use the session.
func (s *Session) Owner() string { return s.owner }

// WorkspaceID names the tree at /workspace.
func (s *Session) WorkspaceID() string { return s.workspace }

// DefaultJob returns the job of execs that name no job.
func (s *Session) DefaultJob() string { return s.record().Job }

// Ref names this session in results, with its expiry as of now.
func (s *Session) Ref() proto.ContainerRef {
	return proto.ContainerRef{ID: s.id, ExpiresAt: proto.At(s.core.clock.Wall(s.record().expires()))}
}

// Info describes the session.
func (s *Session) Info() proto.Container {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, shown := s.rec, func(t time.Time) proto.Time { return proto.At(s.core.clock.Wall(t)) }
	life, ends := s.lifeLocked(), r.expires()
	if r.State = life.State; r.State == proto.StatePaused {
		_, ends = r.Lease.Acts(life)
	}
	labels := maps.Clone(r.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	return proto.Container{
		ID: r.ID, Name: r.Name, State: r.State, Image: r.Image, ImageDigest: r.Digest, RuntimeClass: r.Class,
		Sudo: r.Sudo, WorkspaceID: r.Workspace, Labels: labels, Limits: r.Limits, Network: r.network(),
		CodeTools: r.shownTools(), PublicPorts: r.Public.Within(s.core.cfg.PortsMax),
		Isolation: r.Isolation, Generation: r.Generation,
		CreatedAt: shown(r.Created), LastUsedAt: shown(r.LastUsed),
		ExpiresAt: shown(ends), MaxExpiresAt: shown(r.cap()),
		Lease: r.Lease.Describe(s.core.clock.Wall(ends)), Next: r.Lease.Following(life, s.core.clock.Wall),
		RunningExecs:       s.holdingExecs(), // an interpreter that waits for its next cell does not count
		SecretNames:        append([]string{}, r.Names...),
		NetworkSecrets:     r.shownNetworkSecrets(),
		IdleTimeoutSeconds: int64(r.Lease.Idle / time.Second), MaxLifetimeSeconds: int64(r.Lifetime / time.Second),
	}
}

// OutputBudget returns the memory budget that the output of all commands shares. Packages that keep output of their
// own count in it too.
func (s *Session) OutputBudget() *output.Budget { return s.core.memory }

// Paused reports whether the session is paused.
func (s *Session) Paused() bool { return s.is(&s.paused) }

// Start starts the session if it does not run.
func (s *Session) Start(ctx context.Context) error {
	release, err := s.use(ctx, 0)
	if err == nil {
		release()
	}
	return err
}

// Stop ends the session's processes and keeps its files. The next use starts it again.
func (s *Session) Stop(ctx context.Context) error {
	if err := s.usable(); err != nil {
		return err
	}
	return s.stopUnlessStopped(context.WithoutCancel(ctx), "the container was stopped")
}

// Hold starts the session if it does not run, and keeps it from being paused or stopped as idle until release, as a
// running command does. Callers use it around work of a resident command. The API key in ctx must have CPU time left.
// The stored files are first put into $INPUT_DIR.
func (s *Session) Hold(ctx context.Context, files []string) (release func(), err error) {
	if err := s.core.cfg.mayRun(ctx); err != nil {
		return nil, err
	}
	if release, err = s.use(ctx, 0); err != nil || len(files) == 0 {
		return release, err
	}
	if err := s.core.cfg.Jobs.Begin(ctx, s.Files, files); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// Extend renews the lease and moves its end to at least d from now, at most to the cap. d of 0 only renews it.
func (s *Session) Extend(d time.Duration) (proto.Container, error) {
	if d != 0 {
		if err := validate.Idle("seconds", d); err != nil {
			return proto.Container{}, err
		}
	}
	s.mu.Lock()
	err := s.usableLocked()
	if err != nil {
		s.mu.Unlock()
		return proto.Container{}, err
	}
	s.users++ // else a sweep could stop it between its look at the lease and the write below
	s.mu.Unlock()
	defer s.release()
	now := s.core.clock.Now()
	err = s.change(func(r *record) {
		r.LastUsed, r.Unused = now, 0
		r.Lease = r.Lease.Extended(d, now)
	})
	return s.Info(), err
}

// Only the runtime knows for certain which sandboxes are paused. The record says "running" all the while, and a later
// daemon asks the runtime. Every operation that needs the guest resumes the session first.

// Pause freezes every process of the session, in memory, until the next use, at most for PauseKeep. The lease does not
// end meanwhile. Running commands freeze where they are. Pause is a Conflict while a command starts or a transfer runs.
func (s *Session) Pause(ctx context.Context) error {
	if err := s.usable(); err != nil {
		return err
	}
	unlock, err := s.lockTransition(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	_, err = s.pause(ctx, pauseReason{keep: true})
	return err
}

// Resume unfreezes a paused session; a running one stays as it is. A stopped session is a Conflict, and so is one
// whose sandbox ended while it was paused, since its processes cannot go on. Start starts it.
func (s *Session) Resume(ctx context.Context) error {
	s.mu.Lock()
	err := s.resumableLocked()
	if err == nil {
		s.users++
		s.touch()
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	defer s.release()
	if err := cmp.Or(s.wakeLease(ctx), s.resume(ctx)); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.resumableLocked()
}

func (s *Session) resumableLocked() error {
	if err := s.usableLocked(); err != nil {
		return err
	}
	if s.rec.State != proto.StateRunning {
		return proto.Errorf(proto.Conflict, "", s.id, "container %s is %s, not paused; start it, or just use it", s.id,
			s.rec.State)
	}
	return nil
}

// use starts or resumes the session's sandbox and holds it until release. Every operation on a session runs between
// the two; both ends renew the lease. An operation that is for one generation fails with a Conflict if another one
// runs, and starts nothing; generation 0 is any.
func (s *Session) use(ctx context.Context, generation int64) (release func(), err error) {
	s.mu.Lock()
	err = cmp.Or(s.usableLocked(), s.boundLocked(generation))
	if err != nil {
		s.mu.Unlock()
		return nil, err
	}
	s.users++
	s.touch()
	runs, unused := s.runningLocked(), s.rec.Unused > 0
	_, asleep := s.rec.Lease.Woken(s.rec.LastUsed)
	s.mu.Unlock()
	if asleep {
		err = s.wakeLease(ctx)
		s.mu.Lock()
		runs, err = s.runningLocked(), cmp.Or(err, s.boundLocked(generation))
		s.mu.Unlock()
	}
	if err != nil {
		s.release()
		return nil, err
	}
	if runs {
		err = s.resumeOrStart(ctx, generation)
	} else {
		err = s.ensureStarted(ctx)
	}
	if err == nil && unused {
		err = s.changeAsync(func(r *record) { r.Unused = 0 })
	}
	if err != nil {
		s.release()
		return nil, err
	}
	return s.release, nil
}

// useGeneration works like use, for records about the generation of guest g. It fails if that generation is over, and
// does not renew the lease.
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
	if s.rec.Lease.Over(s.rec.LastUsed) { // its end may have waited for this use
		s.setAlarmLocked()
	}
}

// touch renews the lease in memory; the sweeper writes it. Called with mu held.
func (s *Session) touch() {
	if now := s.core.clock.Now(); now.After(s.rec.LastUsed) {
		s.rec.LastUsed = now
	}
}

// persistTouch writes the lease if it has moved, so that a crash loses at most the time between two sweeps.
func (s *Session) persistTouch(rec record) error {
	s.mu.Lock()
	saved := s.saved
	s.mu.Unlock()
	if !rec.LastUsed.After(saved) {
		return nil
	}
	return s.saveRecord()
}

// usable returns the error that says why the session cannot be used, or nil.
func (s *Session) usable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usableLocked()
}

func (s *Session) isUsable() bool { return s.usable() == nil }

func (s *Session) usableLocked() error {
	if s.removed || s.rec.Delete {
		return proto.Errorf(proto.NotFound, "", s.id, "container %s does not exist; send the request without a "+
			"container to get a new one", s.id)
	}
	return s.expiredLocked()
}

func (s *Session) runningLocked() bool { return s.rec.State == proto.StateRunning && !s.stopping }

// boundLocked returns the error for an operation on another generation than the one that runs; want 0 is any. Called
// with mu held.
func (s *Session) boundLocked(want int64) error {
	switch {
	case want == 0 || s.runningLocked() && s.rec.Generation == want:
		return nil
	case s.runningLocked():
		return proto.Errorf(proto.Conflict, "", s.id, "container %s is at generation %d and generation %d is over; "+
			"its files are kept, its processes are gone; send the request without a generation, or with the present "+
			"one",
			s.id, s.rec.Generation, want)
	}
	return proto.Errorf(proto.Conflict, "", s.id, "container %s is stopped after generation %d, so generation %d "+
		"does not run; its files are kept; send the request without a generation to start it again",
		s.id, s.rec.Generation, want)
}

// Guest returns the client of the present generation's guest. Work that began with an older generation keeps its
// client and never reaches a successor.
func (s *Session) Guest() *client.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.guest
}

// clientFor returns the client of the present generation's guest. It fails if that is not the wanted generation: the
// container may have been stopped and started since use. It tells exec e, which may be nil, in which generation it
// runs.
func (s *Session) clientFor(want int64, e *Exec) (*client.Client, error) {
	s.mu.Lock()
	g, n, err := s.guest, s.rec.Generation, s.boundLocked(want)
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

// is reads one of the session's flags.
func (s *Session) is(mark *bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *mark
}

// set sets one of the session's flags.
func (s *Session) set(mark *bool, value bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*mark = value
}

// change changes the record and returns once the change is on disk. Readers see it only then. fn gets a copy. If the
// write fails, the record stays as it was.
func (s *Session) change(fn func(*record)) error { return s.changeWith(s.core.cfg.Ledger.Update, fn) }

// changeAsync works like change without waiting for the disk. The change survives the death of the daemon. A power
// cut may take it back, but ends every sandbox as well.
func (s *Session) changeAsync(fn func(*record)) error {
	return s.changeWith(s.core.cfg.Ledger.UpdateAsync, fn)
}

// changeWith works like change, with the given way of writing.
func (s *Session) changeWith(write func(func(*ledger.Tx) error) error, fn func(*record)) error {
	s.saving.Lock()
	defer s.saving.Unlock()
	var next record
	err := write(func(tx *ledger.Tx) error {
		if s.is(&s.removed) {
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
	s.setAlarmLocked()
	return nil
}

// saveRecord writes the record as it is in memory.
func (s *Session) saveRecord() error { return s.changeAsync(func(*record) {}) }

// deleteRecord removes the record and those of the execs from the ledger. Nothing writes it again. If a power cut
// brings it back, it says that the session is to be removed.
func (s *Session) deleteRecord() error {
	s.saving.Lock()
	defer s.saving.Unlock()
	err := s.core.cfg.Ledger.UpdateAsync(func(tx *ledger.Tx) error {
		return errors.Join(tx.DeletePrefix(bucketExecs, s.id+"/"), tx.Delete(cpu.Bucket, s.id),
			tx.Delete(bucketSessions, s.id))
	})
	if err == nil {
		s.set(&s.removed, true)
	}
	return err
}
