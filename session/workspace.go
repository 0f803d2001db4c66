package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/proto"
	"berth/session/inventory"
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

// orphans returns the workspaces, layers and snapshots that are on disk alone.
func (ss *Sessions) orphans() inventory.Orphans {
	known := sync.OnceValue(ss.known)
	return inventory.Orphans{Ledger: ss.cfg.Ledger, Keep: ss.cfg.OrphanKeep, Log: ss.cfg.Log,
		Known: func(id string) bool { return known()[id] },
		Remove: func(ctx context.Context, id string) error {
			switch {
			case proto.ValidID(proto.LayerPrefix, id):
				return ss.cfg.Runtime.RemoveLayer(ctx, id)
			case proto.ValidID(proto.SnapshotPrefix, id):
				return ss.cfg.Runtime.RemoveSnapshot(ctx, id)
			}
			return ss.cfg.Runtime.RemoveWorkspace(ctx, id)
		}}
}

// RemoveOrphanedWorkspaces removes all orphaned workspaces now and returns their number.
func (ss *Sessions) RemoveOrphanedWorkspaces(ctx context.Context) (int, error) {
	return ss.orphans().RemoveAll(ctx)
}

// checkWorkspaces fails if the disk lacks workspaces that were made. With AcceptLoss it marks them as lost.
func (ss *Sessions) checkWorkspaces(inv Inventory) error {
	var made []inventory.Workspace
	var latest time.Time
	for _, w := range ss.workspaces {
		s := ss.byID[w.Session]
		if s == nil && !w.Kept || w.Lost {
			continue
		}
		if s != nil {
			rec := s.record()
			if used := rec.latest(); used.After(latest) {
				latest = used
			}
			if rec.Delete || rec.State == proto.StateExpired || rec.State == proto.StateCreating {
				continue
			}
			inv.LostWrites = inv.LostWrites || !ss.sameHost(rec.Host)
		}
		made = append(made, inventory.Workspace{ID: w.ID, Created: w.Created})
	}
	missing := inventory.Missing(made, inv.Workspaces, inv.LostWrites, latest)
	switch {
	case len(missing) == 0:
		return nil
	case !ss.cfg.AcceptLoss:
		return inventory.MissingError(inv.Pool, missing)
	}
	ss.cfg.Log.Error("workspaces are lost, as --accept-loss=workspaces permits", "workspaces", missing)
	return ss.cfg.Ledger.Update(func(tx *ledger.Tx) (err error) {
		for _, id := range missing {
			w := ss.workspaces[id]
			w.Lost = true
			ss.workspaces[id] = w
			err = errors.Join(err, tx.Put(bucketWorkspaces, id, w))
		}
		return err
	})
}

// workspaceOf returns the record of a session's workspace, or an empty one if the workspace was removed.
func (ss *Sessions) workspaceOf(s *Session) workspaceRecord {
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	return ss.workspaces[s.workspace]
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
