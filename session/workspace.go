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

// Workspaces lists the owner's, newest first.
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

// DeleteWorkspace removes a workspace with all its files. One that a container has is a Conflict.
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
	ws.going = true // nobody can claim it from here on, and a sweep that finds its files knows whose they are
	ss.workspaces[id] = ws
	ss.mu.Unlock()
	err := ss.removeWorkspace(context.WithoutCancel(ctx), ws)
	if err == nil {
		err = ss.onDisk()()
	}
	if err != nil {
		ws.going = false // it can be tried again
		ss.mu.Lock()
		ss.workspaces[id] = ws
		ss.mu.Unlock()
	}
	return err
}

// releaseWorkspace ends a session's hold on its workspace: it is removed, or kept for another.
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
	if err := ss.cfg.Ledger.UpdateAsync(func(tx *ledger.Tx) error {
		return tx.Put(bucketWorkspaces, ws.ID,
			ws)
	}); err != nil {
		return err
	}
	ss.mu.Lock()
	ss.workspaces[ws.ID] = ws
	ss.mu.Unlock()
	return nil
}

// removeWorkspace removes a workspace's jobs, files and record, in this order: the record goes last, so that a crash
// leaves something to finish from. After a power cut there may be a record of a workspace that is gone.
func (ss *Sessions) removeWorkspace(ctx context.Context, ws workspaceRecord) error {
	if err := ss.cfg.Jobs.Drop(ctx, ws.ID); err != nil {
		return fmt.Errorf("dropping the jobs of %s: %w", ws.ID, err)
	}
	if err := ss.cfg.Runtime.RemoveWorkspace(ctx, ws.ID); err != nil {
		return fmt.Errorf("removing %s: %w", ws.ID, err)
	}
	if err := ss.cfg.Ledger.UpdateAsync(func(tx *ledger.Tx) error {
		return tx.Delete(bucketWorkspaces,
			ws.ID)
	}); err != nil {
		return err
	}
	ss.mu.Lock()
	delete(ss.workspaces, ws.ID)
	ss.mu.Unlock()
	return nil
}

// unusedWorkspaces reports workspaces that neither a session has nor anybody kept: what a crash
// between two steps leaves.
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

// A stray is a workspace on disk that the ledger does not know. No crash makes one, since a workspace is written down
// before it is made and until it is removed: strays mean that the ledger is not the one they were made under, as
// after one was restored from a backup. They are people's files, so they are set aside, untouched, for StrayKeep; if
// the right ledger comes back in that time, nothing has happened to them.

// bucketOrphaned holds a stray by workspace ID, with the lease clock's time of when it was first seen.
const bucketOrphaned = "strays"

// sweepOrphanedWorkspaces notes new strays, forgets those that are none any more, and removes what was kept for long
// enough.
func (ss *Sessions) sweepOrphanedWorkspaces(ctx context.Context, onDisk []string, known map[string]bool,
	done *Swept) error {
	noted, err := ss.orphanedWorkspaces()
	if err != nil {
		return fmt.Errorf("reading what was set aside: %w", err)
	}
	var fresh, over []string
	now := ss.clock.now()
	for _, id := range onDisk {
		if known[id] || ss.knowsWorkspace(id) {
			continue
		}
		switch found, ok := noted[id]; {
		case !ok:
			fresh = append(fresh, id)
		case now.Sub(found) >= ss.cfg.StrayKeep:
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
			"workspaces", len(fresh), "kept_for", ss.cfg.StrayKeep)
	}
	return ss.removeOrphaned(ctx, over, done)
}

// orphanedWorkspaces is when each was first seen.
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

// RemoveOrphanedWorkspaces removes now what is set aside, and says how many workspaces that were.
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

// keepWorkspace fails with TooMany where as many workspaces outlive their sessions as there may be sessions, of all
// keys or of the one that made s: they hold files, and nothing but a request removes them. Else that of s is one of
// them from now on.
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
