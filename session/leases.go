package session

import (
	"context"
	"time"

	"berth/proto"
	"berth/session/lease"

	"golang.org/x/sync/errgroup"
)

// This file has the ends of leases: what is due by the clock, and what a use does after that. The sweeper and
// Sessions.Get decide by the same rule under the session's lock, so that a use either comes before an end or finds it.
// An alarm acts on absolute leases on time.

// why of the ends that leases cause
const (
	leaseEnded = "the container's lease ended"
	keptEnded  = "the container was paused for as long as this daemon keeps it so"
)

// lifeLocked returns what the session's lease runs on. Called with mu held.
func (s *Session) lifeLocked() lease.Life {
	life := s.rec.life(s.core.cfg.PauseKeep)
	if s.paused && life.State == proto.StateRunning {
		life.State = proto.StatePaused
	}
	return life
}

// next returns what happens to the session next if nobody uses it, and when.
func (s *Session) next() (proto.LeaseAction, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rec.Lease.Next(s.lifeLocked())
}

// dueLocked returns what the lease or the cap asks for now, or "". Uses keep a rolling lease from ending. Called with
// mu held.
func (s *Session) dueLocked() proto.LeaseAction {
	life := s.lifeLocked()
	what, since := s.rec.Lease.Due(life, s.core.clock.Now())
	if since.Before(life.Cap) && s.rec.Lease.Held(life.State) &&
		(s.users > 0 || life.State == proto.StateCreating || s.needsHandshake.Load() && !s.paused) {
		return ""
	}
	return what
}

// endOnTime acts on the absolute leases whose ends have come, a few at a time, as a sweep would. A sweep tries again
// what fails.
func (ss *Sessions) endOnTime(ids []string) {
	ctx := proto.WithCaller(ss.ctx, proto.Caller{KeyID: proto.ActorSweeper})
	_ = ss.goTracked(nil, func() { // the next daemon acts on what this one no longer does
		var group errgroup.Group
		group.SetLimit(reconcileParallel)
		for _, id := range ids {
			group.Go(func() error {
				if err := ss.endOneOnTime(ctx, id); err != nil && ctx.Err() == nil {
					ss.cfg.Log.Error("ending a lease; a sweep will try again", "container", id, "error", err)
				}
				return nil
			})
		}
		_ = group.Wait()
	})
}

func (ss *Sessions) endOneOnTime(ctx context.Context, id string) error {
	s := ss.find(id)
	if s == nil {
		return nil
	}
	unlock, err := s.lockTransition(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	s.mu.Lock()
	live := !s.alarmLocked().IsZero()
	s.mu.Unlock()
	if live {
		_, err = ss.endDue(ctx, s, &Swept{})
	}
	return err
}

// alarmLocked returns when something is due that does not wait for a sweep: what an absolute lease brings next. Zero is
// never. Called with mu held.
func (s *Session) alarmLocked() (at time.Time) {
	gone := s.removed || s.failedCreate || s.rec.Delete || s.rec.State == proto.StateExpired
	if !gone && s.rec.Lease.Absolute() {
		_, at = s.rec.Lease.Next(s.lifeLocked())
	}
	return at
}

// setAlarmLocked sets the alarm of the session's lease. Called with mu held.
func (s *Session) setAlarmLocked() { s.core.alarm.Set(s.id, s.alarmLocked()) }

// endDue ends a session that was never used, or does what its lease asks for. It reports whether the session needs no
// more of the sweep. Called with transition held.
func (ss *Sessions) endDue(ctx context.Context, s *Session, done *Swept) (over bool, err error) {
	rec := s.record()
	if rec.Lease.NeverUsed(rec.life(0), ss.clock.Now()) {
		return true, ss.expireUnused(ctx, s, done)
	}
	if rec.State == proto.StateRunning {
		s.chargeCPU(nil, 0)
	}
	return ss.endLease(ctx, s, done)
}

// endLease does what is due. It reports whether the session needs no more of the sweep. Called with transition held.
func (ss *Sessions) endLease(ctx context.Context, s *Session, done *Swept) (over bool, err error) {
	s.mu.Lock()
	due, idleOnly := s.dueLocked(), !s.rec.Lease.Absolute()
	s.mu.Unlock()
	switch due {
	case proto.LeaseRemove:
		return true, ss.expire(ctx, s, done)
	case proto.LeaseStop:
		stopped, err := s.stopDue(ctx)
		countIf(&done.Stopped, stopped)
		return stopped, err
	case proto.LeasePause:
		return false, ss.pauseForSweep(ctx, s, pauseReason{onlyIdle: idleOnly, keep: true, note: leaseEnded}, done)
	}
	return false, nil
}

// stopDue stops the session if its lease still asks for that, and reports whether it did. Called with transition held.
func (s *Session) stopDue(ctx context.Context) (bool, error) {
	s.mu.Lock()
	s.stopping = s.rec.State == proto.StateRunning && s.dueLocked() == proto.LeaseStop
	stopping, why := s.stopping, "the container was idle"
	switch {
	case s.paused && !s.rec.Lease.Paused.IsZero():
		why = keptEnded
	case s.rec.Lease.Absolute():
		why = leaseEnded
	}
	s.mu.Unlock()
	if !stopping {
		return false, nil
	}
	return s.finishStop(ctx, proto.EndStopped, why)
}

// wakeLease is for a use after an absolute lease has ended, or of a session that was kept paused: the lease begins
// anew. What the lease stops is stopped first, if no sweep came before the use.
func (s *Session) wakeLease(ctx context.Context) error {
	now := s.core.clock.Now()
	s.mu.Lock()
	_, asleep := s.rec.Lease.Woken(now)
	stop := asleep && s.rec.Lease.Absolute() && s.rec.State == proto.StateRunning && s.dueLocked() == proto.LeaseStop
	s.mu.Unlock()
	if stop {
		unlock, err := s.lockTransition(ctx)
		if err != nil {
			return err
		}
		_, err = s.stopDue(context.WithoutCancel(ctx))
		unlock()
		if err != nil {
			return err
		}
	}
	if !asleep {
		return nil
	}
	began := false
	err := s.changeAsync(func(r *record) {
		began = r.Lease.Over(now)
		r.Lease, _ = r.Lease.Woken(now)
	})
	if err == nil && began {
		s.auditAction(ctx, actionChange, "its absolute lease began anew with a use")
	}
	return err
}

// changedLease returns the lease as the requests want it, by this moment.
func (ss *Sessions) changedLease(l lease.Lease, req proto.LeaseRequest, now, end time.Time) (lease.Lease, error) {
	return l.Changed(req, lease.Moment{Now: now, Wall: ss.clock.Wall(now), Cap: end})
}

// expiredLocked returns the error of a use of a session that is over, or nil. Called with mu held.
func (s *Session) expiredLocked() error {
	due := s.dueLocked()
	if s.rec.State != proto.StateExpired && due != proto.LeaseRemove {
		return nil
	}
	_, at := s.rec.Lease.Due(s.lifeLocked(), s.core.clock.Now())
	if end := s.rec.Ended; !end.IsZero() && end.Before(s.rec.cap()) {
		at = end
	}
	what := "and its files are gone"
	if s.rec.State == proto.StateExpired && s.rec.Unused > 0 && at.Before(s.rec.cap()) {
		what = "since it was never used"
	}
	return proto.Errorf(proto.Expired, "", s.id, "container %s expired at %s %s; send the request without a container "+
		"to get a new one", s.id, s.core.clock.Wall(at).UTC().Format(time.RFC3339), what)
}
