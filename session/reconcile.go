package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"berth/guest/wire"
	"berth/proto"
	"berth/state/ledger"
)

// load reads what the ledger knows into memory.
func (ss *Sessions) load() error {
	execs := map[string][]execRecord{}
	err := ss.cfg.Ledger.View(func(tx *ledger.Tx) error {
		return errors.Join(
			ss.clock.load(tx),
			ledger.Each(tx, bucketSessions, "", func(id string, r record) {
				r.Delete = r.Delete || r.Fleeting // its daemon is no more
				ss.byID[id] = newSession(ss, r)
			}),
			ledger.Each(tx, bucketWorkspaces, "", func(id string, w workspaceRecord) { ss.workspaces[id] = w }),
			ledger.Each(tx, bucketExecs, "", func(key string, r execRecord) {
				id, _, _ := strings.Cut(key, "/")
				execs[id] = append(execs[id], r)
			}),
		)
	})
	if err != nil {
		return err
	}
	ss.openRecords()
	for _, s := range ss.byID {
		ss.index.add(s, s.rec, s.rec.State == proto.StateExpired)
		ss.clock.notBefore(s.rec.latest())
	}
	for id, list := range execs {
		if s := ss.byID[id]; s != nil {
			s.loadExecs(list)
		}
	}
	return ss.clearOutput()
}

const (
	reconcileParallel = 8 // sandboxes that are looked at together at start
	meetParallel      = 2 // guests that are met together beside requests
	// and how long after the start: whoever has waited for the daemon goes first
	meetAfter = 500 * time.Millisecond
)

// reconcile makes ledger and runtime agree after a restart, whatever the last daemon was in the middle of: half-made
// sessions are undone, removals that had begun are finished, and what belongs to nobody is removed. Live sandboxes
// are attached to again by Meet, or when somebody wants one: a daemon with hundreds of them serves as soon as one
// with none.
func (ss *Sessions) reconcile(ctx context.Context) error {
	known := ss.known()
	inv, err := ss.cfg.Runtime.List(ctx)
	if err != nil {
		return fmt.Errorf("listing sandboxes: %w", err)
	}
	there := map[string]bool{}
	for _, id := range inv.Sandboxes {
		there[id] = true
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, reconcileParallel)
	for _, s := range ss.snapshot() {
		if there[s.id] && s.takeOver() {
			ss.takenOver = append(ss.takenOver, s)
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := ss.reconcileSession(ctx, s, there[s.id]); err != nil {
				ss.cfg.Log.Error("reconciling a container; a sweep will try again", "container", s.id, "error", err)
			}
		})
	}
	wg.Wait()
	var done Swept
	if err := ss.removeUnknown(ctx, inv, known, &done); err != nil {
		ss.cfg.Log.Error("removing leftovers; a sweep will try again", "error", err)
	}
	ss.cfg.Log.Info("sessions reconciled", "sessions", len(ss.byID), "stray_sandboxes", done.Sandboxes,
		"stray_workspaces", done.Workspaces)
	return nil
}

// reconcileSession decides what the record means now of a session that nobody has taken over. there says whether its
// sandbox is listed.
func (ss *Sessions) reconcileSession(ctx context.Context, s *Session, there bool) error {
	rec := s.record()
	s.endUnattached()
	switch {
	case rec.Delete:
		return ss.finishRemove(ctx, s)
	case ss.incomplete(rec):
		s.markFailedCreate()
		return ss.finishRemove(ctx, s)
	case rec.State == proto.StateExpired:
		return ss.leaveTombstone(ctx, s)
	}
	if there {
		if err := ss.cfg.Runtime.Stop(ctx, s.id); err != nil {
			return err
		}
	}
	if rec.State == proto.StateStopped {
		return nil
	}
	return s.recordEndedMeanwhile(ctx)
}

// recordEndedMeanwhile writes down that a session that ran does not any more, which no daemon brought about.
func (s *Session) recordEndedMeanwhile(ctx context.Context) error {
	if err := s.changeAsync(func(r *record) { r.State = proto.StateStopped }); err != nil {
		return err
	}
	s.auditAct(ctx, actionStop, guestRestarted)
	return nil
}

// incomplete reports whether a session's creator cannot have got an answer.
func (ss *Sessions) incomplete(rec record) bool {
	return (rec.State == proto.StateCreating || rec.InputsMissing) && ss.sameHost(rec.Host)
}

// sameHost reports whether boot is the present one of the host, or is not known. In another one a session that was
// made may not be on disk as more than begun: see bringUp.
func (ss *Sessions) sameHost(boot string) bool { return boot == "" || ss.host == "" || boot == ss.host }

// takeOver has a session that ran go on as it was, paused or not, if it is to. Its guest is met later.
func (s *Session) takeOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rec.State != proto.StateRunning || s.rec.Delete || s.core.incomplete(s.rec) {
		return false
	}
	s.paused = s.core.pauser != nil && s.core.pauser.Paused(s.id)
	s.needsHandshake.Store(true)
	if s.leaseRenewed = s.paused || s.stillDozingLocked(); s.leaseRenewed {
		s.touch() // the time without a daemon does not eat the lease
	}
	return true // and any other's is renewed when its guest answers
}

// stillDozing reports whether the session was taken over while its guest dozed. That has nothing to tell, so it is met
// when somebody wants the session: a daemon that starts does not need memory for all of those at once.
func (s *Session) stillDozing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stillDozingLocked()
}

func (s *Session) stillDozingLocked() bool {
	return s.needsHandshake.Load() && len(s.running) == 0 && s.core.dozer != nil && s.core.dozer.Dozes(s.id)
}

// HandshakeAll meets the guests of the sessions that Open has taken over, in the background. It is called when
// requests are answered, and stands in nobody's way: whoever wants a session meets its guest at once.
func (ss *Sessions) HandshakeAll() {
	list := ss.takenOver
	ss.takenOver = nil
	next := make(chan *Session, len(list))
	for _, s := range list {
		next <- s
	}
	close(next)
	for range min(meetParallel, len(list)) {
		ss.wg.Go(func() {
			select {
			case <-time.After(meetAfter):
			case <-ss.ctx.Done():
			}
			for s := range next {
				if ss.ctx.Err() != nil || s.is(&s.leaseRenewed) {
					continue
				}
				if unlock, free := s.tryLockTransition(); free {
					s.handshakeIfAwake()
					unlock()
				}
			}
		})
	}
}

// awaitHandshake returns once the guest of a session that was taken over has been met, unless that stands still: then
// it is when that is over. Nobody is given a session before.
func (s *Session) awaitHandshake() {
	if !s.needsHandshake.Load() {
		return
	}
	if unlock, err := s.lockTransition(s.core.ctx); err == nil { // which meets it
		unlock()
	}
}

// handshakeIfAwake is meet, unless that is done or the session stands still. Called with life held.
func (s *Session) handshakeIfAwake() {
	if s.needsHandshake.Load() && !s.isPaused() {
		s.handshake()
	}
}

// handshake goes on with the execs of an earlier daemon, or finds out that the sandbox is over. Called with life
// held. If this daemon ends meanwhile, the next one meets the guest.
func (s *Session) handshake() {
	ctx := s.core.ctx
	hello, err := s.helloWithRetry(ctx)
	s.mu.Lock()
	if err == nil && !s.leaseRenewed {
		s.touch()
	}
	s.mu.Unlock()
	if err == nil {
		err = s.adoptExecs(ctx, hello)
	}
	if err == nil {
		s.restorePorts(ctx)
	}
	if ctx.Err() != nil {
		return
	}
	defer s.needsHandshake.Store(false) // last: whoever sees it does not wait
	if err == nil {
		return
	}
	s.core.cfg.Log.Warn("a container does not answer; its next use starts it again", "container", s.id, "error", err)
	s.endUnattached()
	// Written down first: once it is down nobody waits for this any more, and would take the record's word that it
	// runs.
	if err = s.recordEndedMeanwhile(ctx); err == nil {
		err = s.stopSandbox(ctx)
	}
	if err != nil {
		s.core.cfg.Log.Error("stopping a container that does not answer; a sweep will try again", "container", s.id,
			"error", err)
	}
}

// helloWithRetry is what the session's guest says of itself, if it is there. One that is slow is asked as often as a
// sweep would.
func (s *Session) helloWithRetry(ctx context.Context) (hello wire.Hello, err error) {
	for range maxMissedHellos {
		if hello, err = s.hello(ctx); !timedOut(err) || ctx.Err() != nil {
			break
		}
	}
	return hello, err
}

func (s *Session) hello(ctx context.Context) (wire.Hello, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	return s.client().Hello(ctx)
}
