package session

import (
	"context"
	"maps"
	"net"
	"sync"
	"time"

	"berth/guest"
	"berth/ledger"
	"berth/proto"
)

// A Session is one container as its owner knows it. Its methods are safe for concurrent use.
type Session struct {
	core      *Sessions
	id, owner string
	workspace string

	// life is a lock for transitions (start, stop, expire, remove). It may be held across I/O, so
	// waiting for it can be given up. It is taken before mu.
	life chan struct{}

	mu      sync.Mutex // guards what follows
	rec     record
	guest   *guest.Client // of this generation; replaced by start
	users   int           // operations under way; the sweeper leaves a session with any alone
	removed bool
	execs   []*Exec       // running and remembered, in the order they began
	begun   int           // execs ever begun; the number of the newest
	more    chan struct{} // closed when an exec begins
}

func newSession(core *Sessions, rec record) *Session {
	s := &Session{
		core: core, id: rec.ID, owner: rec.Owner, workspace: rec.Workspace, rec: rec,
		life: make(chan struct{}, 1), more: make(chan struct{}),
	}
	s.guest = s.newGuest()
	return s
}

func (s *Session) newGuest() *guest.Client {
	return guest.NewClient(func(ctx context.Context) (net.Conn, error) { return s.core.cfg.Runtime.Dial(ctx, s.id) })
}

// client speaks to the guest of the present generation. What was begun with an older one
// stays with that and never reaches a successor.
func (s *Session) client() *guest.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.guest
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
	return proto.ContainerRef{ID: s.id, ExpiresAt: proto.At(s.record().expires())}
}

// Info describes the session.
func (s *Session) Info() proto.Container {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rec
	labels := maps.Clone(r.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	return proto.Container{
		ID: r.ID, State: r.State, Image: r.Image, ImageDigest: r.Digest, RuntimeClass: r.Class,
		WorkspaceID: r.Workspace, Labels: labels, Limits: r.Limits, Generation: r.Generation,
		CreatedAt: proto.At(r.Created), LastUsedAt: proto.At(r.LastUsed), ExpiresAt: proto.At(r.expires()), MaxExpiresAt: proto.At(r.cap()),
		RunningExecs:       s.runningExecs(true),
		IdleTimeoutSeconds: int64(r.Idle / time.Second), MaxLifetimeSeconds: int64(r.Lifetime / time.Second),
	}
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

// usable says why the session cannot be used, if it cannot.
func (s *Session) usable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usableLocked()
}

func (s *Session) usableLocked() error {
	switch {
	case s.removed || s.rec.Delete:
		return proto.Errorf(proto.NotFound, "", s.id, "container %s does not exist; send the request without a container to get a new one", s.id)
	case s.rec.State == proto.StateExpired || !s.core.cfg.Now().Before(s.rec.cap()):
		return proto.Errorf(proto.Expired, "", s.id, "container %s expired at %s and its files are gone; send the request without a container to get a new one",
			s.id, s.rec.cap().UTC().Format(time.RFC3339))
	}
	return nil
}

// use makes sure that the session's sandbox runs and holds it until release. Every operation on
// a session is between the two; each end renews the lease.
func (s *Session) use(ctx context.Context) (release func(), err error) {
	s.mu.Lock()
	if err := s.usableLocked(); err != nil {
		s.mu.Unlock()
		return nil, err
	}
	s.users++
	s.touch()
	running := s.rec.State == proto.StateRunning
	s.mu.Unlock()
	if !running {
		if err := s.resume(ctx); err != nil {
			s.release()
			return nil, err
		}
	}
	return s.release, nil
}

func (s *Session) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
	s.touch()
}

// touch renews the lease, in memory; the sweeper writes it down. Called with mu held.
func (s *Session) touch() {
	if now := s.core.cfg.Now(); now.After(s.rec.LastUsed) {
		s.rec.LastUsed = now
	}
}

// Extend renews the lease, and moves it to at least the given time from now. d of 0 only
// renews it. It never passes the cap.
func (s *Session) Extend(d time.Duration) (proto.Container, error) {
	if d != 0 {
		if err := checkSpan("seconds", d, minIdle, maxIdle); err != nil {
			return proto.Container{}, err
		}
	}
	if err := s.usable(); err != nil {
		return proto.Container{}, err
	}
	now := s.core.cfg.Now()
	err := s.change(func(r *record) {
		r.LastUsed = now
		if t := now.Add(d); d > 0 && t.After(r.Lease) {
			r.Lease = t
		}
	})
	return s.Info(), err
}

// change alters the record and returns once that is on disk. The record is built
// by the ledger's writer, so that of two changes neither loses the other's. If it cannot be
// written, the record is as it was.
func (s *Session) change(fn func(*record)) error {
	var before *record
	err := s.core.cfg.Ledger.Update(func(tx *ledger.Tx) error {
		s.mu.Lock()
		if s.removed {
			s.mu.Unlock()
			return proto.Errorf(proto.NotFound, "", s.id, "container %s does not exist", s.id)
		}
		if before == nil {
			was := s.rec
			before = &was
		}
		fn(&s.rec)
		next := s.rec
		s.mu.Unlock()
		return tx.Put(bucketSessions, s.id, next)
	})
	if err != nil && before != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.rec = *before
	}
	return err
}

// lockLife takes the transition lock, or gives up with ctx.
func (s *Session) lockLife(ctx context.Context) (unlock func(), err error) {
	select {
	case s.life <- struct{}{}:
		return func() { <-s.life }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// first starts a session that was just created and gives it its inputs.
func (s *Session) first(ctx context.Context, files []string) error {
	unlock, err := s.lockLife(ctx)
	if err != nil {
		return err
	}
	err = s.start(ctx)
	unlock()
	if err != nil || len(files) == 0 {
		return err
	}
	release, err := s.use(ctx)
	if err != nil {
		return err
	}
	defer release()
	return s.core.cfg.Jobs.Begin(ctx, s, files)
}

// resume starts a stopped session. Many callers may want it at once: one starts it, on a context
// that does not end with the caller's, and all wait.
func (s *Session) resume(ctx context.Context) error {
	unlock, err := s.lockLife(ctx)
	if err != nil {
		return err
	}
	if err := s.usable(); err != nil || s.state() == proto.StateRunning {
		unlock()
		return err
	}
	started := make(chan error, 1)
	s.core.wg.Go(func() {
		defer unlock()
		started <- s.start(s.core.ctx)
	})
	select {
	case err := <-started:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// start brings the sandbox up as the next generation. Called with life held.
func (s *Session) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.core.cfg.StartTimeout)
	defer cancel()
	if err := s.change(func(r *record) { r.Generation++ }); err != nil {
		return err
	}
	if err := s.core.cfg.Runtime.Start(ctx, s.id, s.record().spec()); err != nil {
		return err
	}
	s.mu.Lock()
	s.guest = s.newGuest()
	s.mu.Unlock()
	if _, err := s.client().Hello(ctx); err != nil {
		return err
	}
	return s.change(func(r *record) { r.State = proto.StateRunning })
}

// stop ends the sandbox and keeps the files. With onlyIdle it leaves a session that is in use, or
// was used since the caller looked, alone. It reports whether it stopped it.
func (s *Session) stop(ctx context.Context, onlyIdle bool, reason proto.EndReason, why string) (bool, error) {
	unlock, err := s.lockLife(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	if !s.beginStop(onlyIdle) {
		return false, nil
	}
	if err := s.persist(); err != nil {
		return false, err
	}
	s.endExecs(reason, why)
	s.closeGuest()
	return true, s.core.cfg.Runtime.Stop(ctx, s.id)
}

// beginStop marks the session stopped, so that whoever comes now waits for the stop to be
// over and starts it again.
func (s *Session) beginStop(onlyIdle bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rec.State != proto.StateRunning {
		return false
	}
	if onlyIdle && (s.users > 0 || s.core.cfg.Now().Before(s.rec.expires())) {
		return false
	}
	s.rec.State = proto.StateStopped
	return true
}

// persist writes the record as it is in memory.
func (s *Session) persist() error { return s.change(func(*record) {}) }

// Stop ends the session's processes and keeps its files; the next use starts it again.
func (s *Session) Stop(ctx context.Context) error {
	if err := s.usable(); err != nil {
		return err
	}
	_, err := s.stop(context.WithoutCancel(ctx), false, proto.EndStopped, "the container was stopped")
	return err
}

// Start makes sure that it runs.
func (s *Session) Start(ctx context.Context) error {
	release, err := s.use(ctx)
	if err == nil {
		release()
	}
	return err
}

// lost is called when the guest no longer answers. If that is so, the session is stopped, and
// the next use starts it with its files.
func (s *Session) lost(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), helloTimeout)
	defer cancel()
	if _, err := s.client().Hello(ctx); err == nil {
		return false
	}
	stopped, err := s.stop(context.WithoutCancel(ctx), false, proto.EndLost, "the container ended unexpectedly")
	if err != nil {
		s.core.cfg.Log.Error("stopping a container that was lost", "container", s.id, "error", err)
	}
	if stopped {
		s.core.cfg.Log.Warn("container lost; its next use starts it again", "container", s.id)
	}
	return stopped
}

// helloTimeout is how long a guest may take to answer before it counts as lost.
const helloTimeout = 5 * time.Second

// closeGuest drops this generation's connections.
func (s *Session) closeGuest() { s.client().Close() }

// detach writes down what memory knows and lets go of the guest.
func (s *Session) detach() error {
	err := s.persist()
	s.closeGuest()
	return err
}
