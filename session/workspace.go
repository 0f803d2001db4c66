package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/proto"
	"berth/state/ledger"
)

func (w workspaceRecord) info() proto.Workspace {
	return proto.Workspace{ID: w.ID, CreatedAt: proto.At(w.Created), ContainerID: w.Session, Kept: w.Kept}
}

// Workspaces lists the owner's workspaces, newest first.
func (ss *Sessions) Workspaces(owner string) []proto.Workspace {
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	list := make([]proto.Workspace, 0, len(ss.workspaces))
	for _, w := range ss.workspaces {
		if w.Owner == owner && !w.going {
			list = append(list, w.info())
		}
	}
	slices.SortFunc(list, func(a, b proto.Workspace) int { return strings.Compare(b.ID, a.ID) })
	return list
}

// DeleteWorkspace removes a workspace with all its files. A workspace that a container has is a Conflict.
func (ss *Sessions) DeleteWorkspace(ctx context.Context, owner, id string) error {
	ss.mu.Lock()
	ws, ok := ss.workspaces[id]
	switch {
	case !ok || ws.Owner != owner || ws.going:
		ss.mu.Unlock()
		return proto.Errorf(proto.NotFound, "", id, "workspace %.80q does not exist", id)
	case ws.Session != "":
		ss.mu.Unlock()
		return proto.Errorf(proto.Conflict, "", id, "workspace %s belongs to container %s; delete the container, "+
			"which removes it too", id, ws.Session)
	}
	ws.going = true // no session can attach it from here on, and a sweep that finds its files knows their owner
	ss.workspaces[id] = ws
	ss.mu.Unlock()
	err := ss.removeWorkspace(context.WithoutCancel(ctx), ws)
	if err == nil {
		err = ss.onDisk()()
	}
	if err != nil {
		ws.going = false // a client can try again
		ss.mu.Lock()
		ss.workspaces[id] = ws
		ss.mu.Unlock()
	}
	return err
}

// releaseWorkspace detaches a workspace from its session: it is removed, or kept for another session.
func (ss *Sessions) releaseWorkspace(ctx context.Context, s *Session) error {
	ss.mu.RLock()
	ws, ok := ss.workspaces[s.workspace]
	ss.mu.RUnlock()
	if !ok || ws.Session != s.id {
		return nil // done before
	}
	if !ws.Kept && !s.record().Keep {
		return ss.removeWorkspace(ctx, ws)
	}
	ws.Session, ws.Kept = "", true
	err := ss.cfg.Ledger.UpdateAsync(func(tx *ledger.Tx) error { return tx.Put(bucketWorkspaces, ws.ID, ws) })
	if err != nil {
		return err
	}
	ss.mu.Lock()
	ss.workspaces[ws.ID] = ws
	ss.mu.Unlock()
	return nil
}

// removeWorkspace removes a workspace's jobs, files and record, in this order: the record goes last, so that a sweep
// can finish after a crash. After a power cut the record of a removed workspace may be back.
func (ss *Sessions) removeWorkspace(ctx context.Context, ws workspaceRecord) error {
	if err := ss.cfg.Jobs.Drop(ctx, ws.ID); err != nil {
		return fmt.Errorf("dropping the jobs of %s: %w", ws.ID, err)
	}
	if err := ss.cfg.Runtime.RemoveWorkspace(ctx, ws.ID); err != nil {
		return fmt.Errorf("removing %s: %w", ws.ID, err)
	}
	err := ss.cfg.Ledger.UpdateAsync(func(tx *ledger.Tx) error { return tx.Delete(bucketWorkspaces, ws.ID) })
	if err != nil {
		return err
	}
	ss.mu.Lock()
	delete(ss.workspaces, ws.ID)
	ss.mu.Unlock()
	return nil
}

// unusedWorkspaces returns the workspaces that no session has and that are not kept, as a crash between two steps
// leaves them.
func (ss *Sessions) unusedWorkspaces() []workspaceRecord {
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	var list []workspaceRecord
	for _, w := range ss.workspaces {
		if _, held := ss.byID[w.Session]; !held && !w.Kept {
			list = append(list, w)
		}
	}
	return list
}

// An orphaned workspace is on disk and not in the ledger. No crash causes that, since a workspace is recorded before
// it is made and until it is removed. So the ledger is another one than that of the workspace, such as one restored
// from a backup. Orphaned workspaces hold people's files, so they stay untouched for OrphanKeep. If the right ledger
// comes back in that time, nothing is lost.

// bucketOrphaned has orphaned workspaces by ID, with the lease clock's time of their discovery.
const bucketOrphaned = "strays"

// sweepOrphanedWorkspaces records new orphaned workspaces, forgets those that are known again or gone, and removes
// those that were kept for long enough.
func (ss *Sessions) sweepOrphanedWorkspaces(ctx context.Context, onDisk []string, known map[string]bool,
	done *Swept) error {
	noted, err := ss.orphanedWorkspaces()
	if err != nil {
		return fmt.Errorf("reading what was set aside: %w", err)
	}
	var fresh, over []string
	now := ss.clock.Now()
	for _, id := range onDisk {
		if known[id] || ss.knowsWorkspace(id) {
			continue
		}
		switch found, ok := noted[id]; {
		case !ok:
			fresh = append(fresh, id)
		case now.Sub(found) >= ss.cfg.OrphanKeep:
			over = append(over, id)
		}
	}
	var back []string // gone, or known again
	for id := range noted {
		if !slices.Contains(onDisk, id) || ss.knowsWorkspace(id) {
			back = append(back, id)
		}
	}
	if err := ss.recordOrphaned(fresh, back, now); err != nil {
		return err
	}
	if done.Strays += len(fresh); len(fresh) > 0 {
		ss.cfg.Log.Warn("workspaces that the ledger does not know are set aside; was it restored from a backup? "+
			"`berth gc --strangers` removes them",
			"workspaces", len(fresh), "kept_for", ss.cfg.OrphanKeep)
	}
	return ss.removeOrphaned(ctx, over, done)
}

// orphanedWorkspaces has the time of discovery by workspace ID.
func (ss *Sessions) orphanedWorkspaces() (map[string]time.Time, error) {
	noted := map[string]time.Time{}
	err := ss.cfg.Ledger.View(func(tx *ledger.Tx) error {
		return ledger.Each(tx, bucketOrphaned, "", func(id string, found time.Time) { noted[id] = found })
	})
	return noted, err
}

func (ss *Sessions) recordOrphaned(fresh, back []string, now time.Time) error {
	if len(fresh)+len(back) == 0 {
		return nil
	}
	return ss.cfg.Ledger.Update(func(tx *ledger.Tx) (err error) {
		for _, id := range fresh {
			err = errors.Join(err, tx.Put(bucketOrphaned, id, now))
		}
		for _, id := range back {
			err = errors.Join(err, tx.Delete(bucketOrphaned, id))
		}
		return err
	})
}

func (ss *Sessions) removeOrphaned(ctx context.Context, ids []string, done *Swept) error {
	var errs []error
	for _, id := range ids {
		err := ss.cfg.Runtime.RemoveWorkspace(ctx, id)
		countIf(&done.Workspaces, err == nil)
		if err == nil {
			err = ss.recordOrphaned(nil, []string{id}, time.Time{})
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// RemoveOrphanedWorkspaces removes all orphaned workspaces now and returns their number.
func (ss *Sessions) RemoveOrphanedWorkspaces(ctx context.Context) (int, error) {
	noted, err := ss.orphanedWorkspaces()
	if err != nil {
		return 0, err
	}
	var ids []string
	for id := range noted {
		if !ss.knowsWorkspace(id) {
			ids = append(ids, id)
		}
	}
	var done Swept
	err = ss.removeOrphaned(ctx, ids, &done)
	return done.Workspaces, err
}

func (ss *Sessions) knowsWorkspace(id string) bool {
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	_, ok := ss.workspaces[id]
	return ok
}

// keepWorkspace marks the workspace of s as kept. It fails with TooMany if as many workspaces are kept as there may
// be sessions, of all keys or of the key that made s. Kept workspaces hold files, and only a request removes them.
func (ss *Sessions) keepWorkspace(s *Session) error {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ws, ok := ss.workspaces[s.workspace]
	if !ok || ws.Kept {
		return nil
	}
	all, own := 0, int64(0)
	for _, w := range ss.workspaces {
		if w.Kept {
			all++
			if w.Key == ws.Key {
				own++
			}
		}
	}
	const remedy = "delete one that is not needed, or this container without keep_workspace"
	if all >= ss.cfg.MaxSessions {
		return proto.Errorf(proto.TooMany, "", s.workspace, "this daemon keeps %d workspaces, which is its limit; "+
			remedy, all)
	}
	if ws.Key != "" {
		if most := ss.cfg.Quotas.MaxSessions(ws.Key); most > 0 && own >= most {
			return proto.Errorf(proto.TooMany, "", s.workspace, "this API key keeps %d workspaces, and its quota of "+
				"containers is %d; "+remedy, own, most)
		}
	}
	ws.Kept = true
	ss.workspaces[ws.ID] = ws
	return nil
}
