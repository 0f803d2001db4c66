package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"berth/proto"
	"berth/session/cpu"
	"berth/state/ledger"

	"golang.org/x/sync/errgroup"
)

// load reads the ledger into memory.
func (ss *Sessions) load() error {
	execs := map[string][]execRecord{}
	err := ss.cfg.Ledger.View(func(tx *ledger.Tx) error {
		var ahead time.Duration
		_, err := tx.Get(bucketClock, clockKey, &ahead)
		ss.clock.Restore(ahead)
		return errors.Join(
			err,
			ledger.Each(tx, bucketSessions, "", func(id string, r record) {
				r.Delete = r.Delete || r.Fleeting // the daemon that made it has ended
				if r.OldIdle > 0 {
					r.Lease.Idle, r.OldIdle = r.OldIdle, 0
				}
				ss.byID[id] = newSession(ss, r)
			}),
			ledger.Each(tx, cpu.Bucket, "", func(id string, was cpu.State) {
				if s := ss.byID[id]; s != nil {
					s.cpu.Restore(was)
				}
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
	for _, id := range slices.Sorted(maps.Keys(ss.byID)) {
		s := ss.byID[id]
		ss.index.Add(s, s.rec.entry(), s.rec.State != proto.StateExpired)
		ss.clock.NotBefore(s.rec.latest())
		ss.takeLoadedName(s)
	}
	known := map[string]bool{}
	for id, list := range execs {
		if s := ss.byID[id]; s != nil {
			s.loadExecs(list)
			for _, e := range s.Execs() {
				known[e.id] = true
			}
		}
	}
	return ss.outputs.RemoveUnknown(known)
}

// takeLoadedName gives a loaded session its name. If two records have the same name, which no daemon writes, the older
// session keeps it and the other one has none.
func (ss *Sessions) takeLoadedName(s *Session) {
	// one that runs may go on: its lease does not count the time without a daemon
	if s.rec.Delete || s.rec.State != proto.StateRunning && !s.isUsable() || !ss.clock.Now().Before(s.rec.cap()) {
		return
	}
	if err := ss.index.TakeName(s, s.rec.Name); err != nil {
		ss.cfg.Log.Warn("a container loses its name, which an older one has", "container", s.id, "error", err)
		s.rec.Name = ""
	}
}

// reconcileParallel is how many sandboxes are reconciled at a time.
const reconcileParallel = 8

// reconcile makes ledger and runtime agree after a restart, whatever the last daemon was doing. It undoes half-made
// sessions, finishes removals, and removes what belongs to no session. HandshakeAll or the next use reconnects to
// running sandboxes, so a daemon with hundreds of them serves as early as one with none.
func (ss *Sessions) reconcile(ctx context.Context) error {
	known := ss.known()
	inv, err := ss.cfg.Runtime.List(ctx)
	if err != nil {
		return fmt.Errorf("listing sandboxes: %w", err)
	}
	if err := ss.checkWorkspaces(inv); err != nil {
		return err
	}
	if err := ss.snapshots.Undo(ctx, func(id string) error { return ss.cfg.Runtime.Resume(ctx, id) }); err != nil {
		ss.cfg.Log.Error("removing unfinished snapshots; the next daemon tries again", "error", err)
	}
	there := map[string]bool{}
	for _, id := range inv.Sandboxes {
		there[id] = true
	}
	var group errgroup.Group
	group.SetLimit(reconcileParallel)
	for _, s := range ss.all() {
		if there[s.id] && !ss.workspaceOf(s).Lost && s.takeOver() {
			ss.takenOver = append(ss.takenOver, s)
			continue
		}
		group.Go(func() error {
			if err := ss.reconcileSession(ctx, s, there[s.id]); err != nil {
				ss.cfg.Log.Error("reconciling a container; a sweep will try again", "container", s.id, "error", err)
			}
			return nil
		})
	}
	_ = group.Wait()
	var done Swept
	if err := ss.removeUnknown(ctx, inv, known, &done); err != nil {
		ss.cfg.Log.Error("removing leftovers; a sweep will try again", "error", err)
	}
	ss.cfg.Log.Info("sessions reconciled", "sessions", len(ss.byID), "stray_sandboxes", done.Sandboxes,
		"stray_workspaces", done.Workspaces)
	return nil
}

// reconcileSession reconciles a session that was not taken over. there says whether the runtime lists its sandbox.
func (ss *Sessions) reconcileSession(ctx context.Context, s *Session, there bool) error {
	rec := s.record()
	s.endUnattached()
	switch {
	case rec.Delete:
		return ss.finishRemove(ctx, s)
	case ss.incomplete(rec):
		s.set(&s.failedCreate, true)
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

// recordEndedMeanwhile records that a running session has ended without any daemon.
func (s *Session) recordEndedMeanwhile(ctx context.Context) error {
	if err := s.changeAsync(func(r *record) { r.State = proto.StateStopped }); err != nil {
		return err
	}
	s.auditAction(ctx, actionStop, guestRestarted)
	return nil
}

// incomplete reports whether the creator of a session cannot have got an answer.
func (ss *Sessions) incomplete(rec record) bool {
	return (rec.State == proto.StateCreating || rec.InputsMissing) && ss.sameHost(rec.Host)
}

// sameHost reports whether boot is the present boot ID of the host, or unknown. After another boot, a complete
// session may be on disk as incomplete; see startSandbox.
func (ss *Sessions) sameHost(boot string) bool { return boot == "" || ss.host == "" || boot == ss.host }

// takeOver lets a session that ran go on, paused or not, if it is not to be removed. The handshake with its guest
// comes later.
func (s *Session) takeOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rec.State != proto.StateRunning || s.rec.Delete || s.core.incomplete(s.rec) {
		return false
	}
	s.paused = s.core.cfg.Runtime.Paused(s.id)
	s.needsHandshake.Store(true)
	if s.leaseRenewed = s.paused; s.paused {
		s.touch() // the lease does not count the time without a daemon
	}
	return true // other leases are renewed when their guest answers
}
