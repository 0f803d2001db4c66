package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"berth/guest/client"
	"berth/proto"

	"golang.org/x/sync/errgroup"
)

// Swept counts what one sweep did.
type Swept struct {
	Stopped    int // idle sessions whose sandbox was stopped
	Paused     int // idle sessions that were paused
	Expired    int // sessions past their cap, removed with their files
	Forgotten  int // expired IDs that now answer "not found"
	Finished   int // removals that an earlier failure had left half done
	Lost       int // running sessions whose sandbox had ended by itself
	Sandboxes  int // sandboxes of no session, removed
	Workspaces int // workspaces of no session, removed
	Snapshots  int // snapshots that have expired, removed
	Strays     int // workspaces, layers and snapshots that the ledger does not know, newly set aside
}

// Counts returns the counts by the names that log and metrics have for them.
func (w Swept) Counts() map[string]int {
	return map[string]int{
		"stopped":    w.Stopped,
		"paused":     w.Paused,
		"expired":    w.Expired,
		"forgotten":  w.Forgotten,
		"finished":   w.Finished,
		"lost":       w.Lost,
		"sandboxes":  w.Sandboxes,
		"workspaces": w.Workspaces,
		"snapshots":  w.Snapshots,
		"strays":     w.Strays,
	}
}

// Sweep stops idle sessions, removes those past their cap, and finishes what failed before. It never removes a
// session in use: an exec ends at the cap by its own deadline. A session that cannot be swept, or that is in
// transition, does not keep Sweep from the others. Sweep returns all errors together.
func (ss *Sessions) Sweep(ctx context.Context) (Swept, error) {
	var done Swept
	var errs []error
	all := ss.all()
	remembered := ss.remembered(all)
	for _, s := range all {
		if ctx.Err() != nil {
			break
		}
		if err := ss.sweepOne(ctx, s, remembered, &done); err != nil {
			errs = append(errs, fmt.Errorf("sweeping %s: %w", s.id, err))
		}
	}
	errs = append(errs, ss.sweepSnapshots(ctx, &done), ss.saveClock(), ss.sweepGuests(ctx, all, &done),
		ss.sweepUnknown(ctx, &done), ctx.Err())
	return done, errors.Join(errs...)
}

// remembered returns a time: the IDs of sessions that expired after it are remembered. That is for Tombstone, and for
// at most MaxSessions of them.
func (ss *Sessions) remembered(all []*Session) time.Time {
	since := ss.clock.Now().Add(-ss.cfg.Tombstone)
	var ended []time.Time
	for _, s := range all {
		if r := s.record(); r.State == proto.StateExpired && r.Ended.After(since) {
			ended = append(ended, r.Ended)
		}
	}
	if over := len(ended) - ss.cfg.MaxSessions; over > 0 {
		slices.SortFunc(ended, time.Time.Compare)
		since = ended[over-1]
	}
	return since
}

// sweepOne brings one session to the state that its record and the time ask for. It skips a session that another
// goroutine starts, stops or removes, which may take minutes: the next sweep looks at it again.
//
//	record says                                     the sweep
//	Delete, or its creation failed                  finishes the removal
//	expired, for longer than IDs are remembered     forgets the ID
//	expired, and something of it is left            removes that
//	never used since its creation, for long enough  expires it
//	its lease is over, or its cap has passed        stops, pauses or expires it
//	running, and unused for PauseAfter              pauses it, unless its lease is absolute
//
// A session that goes on gets its lost ports back, and its lease is written down.
func (ss *Sessions) sweepOne(ctx context.Context, s *Session, remembered time.Time, done *Swept) error {
	s.storeEnds()
	unlock, free := s.tryLockTransition()
	if !free {
		return nil
	}
	defer unlock()
	s.handshakeIfAwake()
	if s.is(&s.removed) {
		return nil
	}
	now, rec := ss.clock.Now(), s.record()
	if rec.Delete || s.is(&s.failedCreate) {
		return ss.sweepRemoval(ctx, s, &done.Finished)
	}
	if rec.State == proto.StateExpired {
		switch {
		case !rec.Ended.After(remembered):
			return ss.sweepRemoval(ctx, s, &done.Forgotten)
		case s.is(&s.emptied):
			return nil
		}
		return ss.leaveTombstone(ctx, s) // an earlier expire failed there
	}
	if over, err := ss.endDue(ctx, s, done); over || err != nil {
		return err
	}
	if rec.State == proto.StateRunning && rec.unusedFor(ss.cfg.PauseAfter, now) && !rec.Lease.Absolute() {
		idle := pauseReason{onlyIdle: true, note: "the container was idle"}
		if err := ss.pauseForSweep(ctx, s, idle, done); err != nil {
			return err
		}
	}
	s.restoreLostPorts(ctx)
	return errors.Join(s.revert(ctx), s.removeDiscarded(ctx), s.persistTouch(rec))
}

func countIf(n *int, did bool) {
	if did {
		*n++
	}
}

// sweepRemoval finishes a removal. Called with transition held.
func (ss *Sessions) sweepRemoval(ctx context.Context, s *Session, n *int) error {
	err := ss.finishRemove(ctx, s)
	countIf(n, err == nil)
	if err == nil && s.record().Delete {
		s.auditAction(ctx, actionDelete, "an earlier removal was finished")
	}
	return err
}

// capGrace is how long past its end a session is left to its users: execs end then and have to be recorded. A reader
// that is never closed must not keep the session.
const capGrace = 5 * time.Minute

// expire removes a session past its cap or lease, except for its record, which distinguishes its ID from an unknown
// one. Called with transition held.
func (ss *Sessions) expire(ctx context.Context, s *Session, done *Swept) error {
	now, note := ss.clock.Now(), ""
	s.mu.Lock()
	_, since := s.rec.Lease.Due(s.lifeLocked(), now)
	early := since.Before(s.rec.cap())
	used := s.users > 0 && now.Before(since.Add(capGrace)) && !(early && s.paused)
	s.mu.Unlock()
	switch {
	case s.record().Unused > 0:
		note = "it was never used"
	case early:
		note = leaseEnded
	}
	if used { // usable refuses new users, so this passes
		if early { // at the cap, execs end by their deadlines
			s.endExecs(proto.EndExpired, leaseEnded, true)
		}
		return nil
	}
	if err := s.changeAsync(func(r *record) {
		r.State, r.Ended = proto.StateExpired, now
		r.dropSecrets()
	}); err != nil {
		return err
	}
	ss.mu.Lock()
	ss.index.Expired(s)
	ss.mu.Unlock()
	done.Expired++
	s.auditAction(ctx, actionExpire, note)
	return ss.leaveTombstone(ctx, s)
}

// expireUnused expires a session that nobody has used since its creation, as when its creator did not get the answer. A
// first use that comes meanwhile waits. Called with transition held.
func (ss *Sessions) expireUnused(ctx context.Context, s *Session, done *Swept) error {
	s.mu.Lock()
	s.stopping = s.users == 0 && s.rec.Unused > 0
	unused := s.stopping
	s.mu.Unlock()
	if !unused {
		return nil
	}
	defer s.set(&s.stopping, false)
	return ss.expire(ctx, s, done)
}

// leaveTombstone removes what an expired session holds, and notes that only its record is left. Called with
// transition held.
func (ss *Sessions) leaveTombstone(ctx context.Context, s *Session) error {
	if err := ss.releaseAll(ctx, s); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.emptied = true
	return nil
}

// sweepUnknown calls removeUnknown with what the runtime has now.
func (ss *Sessions) sweepUnknown(ctx context.Context, done *Swept) error {
	known := ss.known()
	inv, err := ss.cfg.Runtime.List(ctx)
	if err != nil {
		return fmt.Errorf("listing sandboxes: %w", err)
	}
	return ss.removeUnknown(ctx, inv, known, done)
}

// removeUnknown removes sandboxes of no session and unused workspaces, which a crash may leave, and sets workspaces
// aside that the ledger does not know. A session is in memory before the runtime makes anything for it. So what the
// runtime listed and no session has afterwards is unknown, unless the session was known before and has been removed
// meanwhile.
func (ss *Sessions) removeUnknown(ctx context.Context, inv Inventory, known map[string]bool, done *Swept) error {
	var errs []error
	for _, id := range inv.Sandboxes {
		if known[id] && ss.find(id) == nil {
			continue
		}
		stopped, err := ss.sweepSandbox(ctx, id)
		countIf(&done.Sandboxes, stopped)
		errs = append(errs, err)
	}
	for _, ws := range ss.unusedWorkspaces() {
		err := ss.removeWorkspace(ctx, ws)
		countIf(&done.Workspaces, err == nil)
		errs = append(errs, err)
	}
	fresh, removed, err := ss.orphans().Sweep(ctx, ss.clock.Now(), slices.Concat(inv.Workspaces, inv.Layers,
		inv.Snapshots), known)
	done.Strays, done.Workspaces = done.Strays+fresh, done.Workspaces+removed
	return errors.Join(append(errs, err)...)
}

// sweepSandbox stops a sandbox of no session, or one that its session could not stop.
func (ss *Sessions) sweepSandbox(ctx context.Context, id string) (stopped bool, err error) {
	s := ss.find(id)
	if s == nil {
		err := ss.cfg.Runtime.Stop(ctx, id)
		return err == nil, err
	}
	unlock, free := s.tryLockTransition()
	if !free {
		return false, nil // it is being started or stopped
	}
	defer unlock()
	if s.state() != proto.StateStopped {
		return false, nil
	}
	err = s.stopSandbox(ctx)
	return err == nil, err
}

// maxMissedHellos is how many sweeps in a row a guest may leave without an answer, while its connections stand,
// before its sandbox counts as lost. A busy machine makes guests slow, and commands in them must not be lost for
// that.
const maxMissedHellos = 3

// sweepGuests finds sessions that are recorded as running and whose sandbox is gone, or whose guest has stopped
// answering, before their next use. An answer costs some tens of microseconds. It stops sessions that nothing runs in.
func (ss *Sessions) sweepGuests(ctx context.Context, all []*Session, done *Swept) error {
	var group errgroup.Group
	group.SetLimit(reconcileParallel)
	lost, stopped := make([]bool, len(all)), make([]bool, len(all))
	for i, s := range all {
		if ctx.Err() != nil {
			break
		}
		if s.state() != proto.StateRunning {
			continue
		}
		group.Go(func() error {
			lost[i], stopped[i] = s.checkGuest(ctx)
			return nil
		})
	}
	_ = group.Wait()
	for i := range all {
		countIf(&done.Lost, lost[i])
		countIf(&done.Stopped, stopped[i])
	}
	return nil
}

// checkGuest pings the guest, and ends its generation if it is gone. It stops a session that was unused for long
// enough and has no processes: nothing is lost, and it needs no more memory. It reports whether this call found the
// guest lost or stopped the session.
func (s *Session) checkGuest(ctx context.Context) (lost, stopped bool) {
	g := s.Guest()
	// a sweep completes the handshake of all that are not paused before it comes here
	if s.stillPaused() || s.needsHandshake.Load() && !s.is(&s.paused) {
		return false, false
	}
	if s.record().unusedFor(s.core.cfg.StopAfter, s.core.clock.Now()) && s.stopUnused(ctx, g) {
		return false, true
	}
	ask, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	_, err := g.Hello(ask)
	if ctx.Err() != nil || s.stillPaused() {
		return false, false
	}
	if !s.countMissedHello(err != nil, timedOut(err)) {
		return false, false
	}
	return s.sweepLost(ctx, g), false
}

// stopUnused stops the session if nobody uses it and its guest has nothing that would be lost. A user who comes
// meanwhile waits.
func (s *Session) stopUnused(ctx context.Context, g *client.Client) bool {
	unlock, free := s.tryLockTransition()
	if !free {
		return false
	}
	defer unlock()
	s.mu.Lock()
	s.stopping = s.users == 0 && !s.paused && s.rec.State == proto.StateRunning && s.guest == g &&
		s.rec.unusedFor(s.core.cfg.StopAfter, s.core.clock.Now())
	stopping := s.stopping
	s.mu.Unlock()
	if !stopping {
		return false
	}
	ask, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	if g.Idle(ask) != nil {
		s.set(&s.stopping, false)
		return false
	}
	stopped, err := s.finishStop(context.WithoutCancel(ctx), proto.EndStopped, "the container was idle")
	if err != nil {
		s.core.cfg.Log.Error("stopping an idle container; a sweep will try again", "container", s.id, "error", err)
	}
	return stopped
}

// timedOut reports whether err means that no answer has come yet, rather than that none will.
func timedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || proto.CodeOf(err) == proto.TimedOut
}

// countMissedHello counts a missed answer, and reports whether there were enough in a row. A refused connection is
// enough at once.
func (s *Session) countMissedHello(failed, slow bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !failed {
		s.missedHellos = 0
		return false
	}
	s.missedHellos++
	if slow && s.missedHellos < maxMissedHellos {
		return false
	}
	s.missedHellos = 0
	return true
}
