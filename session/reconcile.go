package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"berth/guest"
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
			s.remember(list)
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
			if err := ss.settle(ctx, s, there[s.id]); err != nil {
				ss.cfg.Log.Error("reconciling a container; a sweep will try again", "container", s.id, "error", err)
			}
		})
	}
	wg.Wait()
	var done Swept
	if err := ss.sweepStrangers(ctx, inv, known, &done); err != nil {
		ss.cfg.Log.Error("removing leftovers; a sweep will try again", "error", err)
	}
	ss.cfg.Log.Info("sessions reconciled", "sessions", len(ss.byID), "stray_sandboxes", done.Sandboxes,
		"stray_workspaces", done.Workspaces)
	return nil
}

// settle decides what the record means now of a session that nobody has taken over. there says whether its sandbox is
// listed.
func (ss *Sessions) settle(ctx context.Context, s *Session, there bool) error {
	rec := s.record()
	s.desert()
	switch {
	case rec.Delete:
		return ss.finishRemove(ctx, s)
	case ss.halfMade(rec):
		s.markUndone()
		return ss.finishRemove(ctx, s)
	case rec.State == proto.StateExpired:
		return ss.leaveName(ctx, s)
	}
	if there {
		if err := ss.cfg.Runtime.Stop(ctx, s.id); err != nil {
			return err
		}
	}
	if rec.State == proto.StateStopped {
		return nil
	}
	return s.endedMeanwhile(ctx)
}

// endedMeanwhile writes down that a session that ran does not any more, which no daemon brought about.
func (s *Session) endedMeanwhile(ctx context.Context) error {
	if err := s.jot(func(r *record) { r.State = proto.StateStopped }); err != nil {
		return err
	}
	s.tell(ctx, actStop, guestRestarted)
	return nil
}

// halfMade reports whether a session's creator cannot have got an answer.
func (ss *Sessions) halfMade(rec record) bool {
	return (rec.State == proto.StateCreating || rec.Unfilled) && ss.sameHost(rec.Host)
}

// sameHost reports whether boot is the present one of the host, or is not known. In another one a session that was
// made may not be on disk as more than begun: see bringUp.
func (ss *Sessions) sameHost(boot string) bool { return boot == "" || ss.host == "" || boot == ss.host }

// takeOver has a session that ran go on as it was, paused or not, if it is to. Its guest is met later.
func (s *Session) takeOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rec.State != proto.StateRunning || s.rec.Delete || s.core.halfMade(s.rec) {
		return false
	}
	s.paused = s.core.pauser != nil && s.core.pauser.Paused(s.id)
	s.unmet.Store(true)
	if s.renewed = s.paused || s.sleepsOnLocked(); s.renewed {
		s.touch() // the time without a daemon does not eat the lease
	}
	return true // and any other's is renewed when its guest answers
}

// sleepsOn reports whether the session was taken over while its guest dozed. That has nothing to tell, so it is met
// when somebody wants the session: a daemon that starts does not need memory for all of those at once.
func (s *Session) sleepsOn() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sleepsOnLocked()
}

func (s *Session) sleepsOnLocked() bool {
	return s.unmet.Load() && len(s.going) == 0 && s.core.dozer != nil && s.core.dozer.Dozes(s.id)
}

// Meet meets the guests of the sessions that Open has taken over, in the background. It is called when requests are
// answered, and stands in nobody's way: whoever wants a session meets its guest at once.
func (ss *Sessions) Meet() {
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
				if ss.ctx.Err() != nil || s.is(&s.renewed) {
					continue
				}
				if unlock, free := s.tryLockLife(); free {
					s.meetAwake()
					unlock()
				}
			}
		})
	}
}

// met returns once the guest of a session that was taken over has been met, unless that stands still: then it is when
// that is over. Nobody is given a session before.
func (s *Session) met() {
	if !s.unmet.Load() {
		return
	}
	if unlock, err := s.lockLife(s.core.ctx); err == nil { // which meets it
		unlock()
	}
}

// meetAwake is meet, unless that is done or the session stands still. Called with life held.
func (s *Session) meetAwake() {
	if s.unmet.Load() && !s.isPaused() {
		s.meet()
	}
}

// meet goes on with the execs of an earlier daemon, or finds out that the sandbox is over. Called with life held. If
// this daemon ends meanwhile, the next one meets the guest.
func (s *Session) meet() {
	ctx := s.core.ctx
	hello, err := s.answers(ctx)
	s.mu.Lock()
	if err == nil && !s.renewed {
		s.touch()
	}
	s.mu.Unlock()
	if err == nil {
		err = s.rejoin(ctx, hello)
	}
	if err == nil {
		s.reconnect(ctx)
	}
	if ctx.Err() != nil {
		return
	}
	defer s.unmet.Store(false) // last: whoever sees it does not wait
	if err == nil {
		return
	}
	s.core.cfg.Log.Warn("a container does not answer; its next use starts it again", "container", s.id, "error", err)
	s.desert()
	// Written down first: once it is down nobody waits for this any more, and would take the record's word that it
	// runs.
	if err = s.endedMeanwhile(ctx); err == nil {
		err = s.takeDown(ctx)
	}
	if err != nil {
		s.core.cfg.Log.Error("stopping a container that does not answer; a sweep will try again", "container", s.id,
			"error", err)
	}
}

// answers is what the session's guest says of itself, if it is there. One that is slow is asked as often as a sweep
// would.
func (s *Session) answers(ctx context.Context) (hello guest.Hello, err error) {
	for range maxSilent {
		if hello, err = s.askOnce(ctx); !slow(err) || ctx.Err() != nil {
			break
		}
	}
	return hello, err
}

func (s *Session) askOnce(ctx context.Context) (guest.Hello, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	return s.client().Hello(ctx)
}
