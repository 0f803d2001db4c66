package session

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"berth/proto"
	"berth/state/ledger"
)

// A Workspace is a tree that outlives containers.
type Workspace struct {
	ID          string     `json:"id"`
	CreatedAt   proto.Time `json:"created_at"`
	ContainerID string     `json:"container_id"` // that has it now; "" for none
	Kept        bool       `json:"kept"`         // stays when its container goes
}

func (w workspaceRecord) info() Workspace {
	return Workspace{ID: w.ID, CreatedAt: proto.At(w.Created), ContainerID: w.Session, Kept: w.Kept}
}

// Workspaces lists the owner's, newest first.
func (ss *Sessions) Workspaces(owner string) []Workspace {
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	list := make([]Workspace, 0, len(ss.workspaces))
	for _, w := range ss.workspaces {
		if w.Owner == owner && !w.going {
			list = append(list, w.info())
		}
	}
	slices.SortFunc(list, func(a, b Workspace) int { return strings.Compare(b.ID, a.ID) })
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
	err := ss.dropWorkspace(context.WithoutCancel(ctx), ws)
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
		return ss.dropWorkspace(ctx, ws)
	}
	ws.Session, ws.Kept = "", true
	if err := ss.cfg.Ledger.Jot(func(tx *ledger.Tx) error { return tx.Put(bucketWorkspaces, ws.ID, ws) }); err != nil {
		return err
	}
	ss.mu.Lock()
	ss.workspaces[ws.ID] = ws
	ss.mu.Unlock()
	return nil
}

// dropWorkspace removes a workspace's jobs, files and record, in this order: the record goes last, so that a crash
// leaves something to finish from. After a power cut there may be a record of a workspace that is gone.
func (ss *Sessions) dropWorkspace(ctx context.Context, ws workspaceRecord) error {
	if err := ss.cfg.Jobs.Drop(ctx, ws.ID); err != nil {
		return fmt.Errorf("dropping the jobs of %s: %w", ws.ID, err)
	}
	if err := ss.cfg.Runtime.RemoveWorkspace(ctx, ws.ID); err != nil {
		return fmt.Errorf("removing %s: %w", ws.ID, err)
	}
	if err := ss.cfg.Ledger.Jot(func(tx *ledger.Tx) error { return tx.Delete(bucketWorkspaces, ws.ID) }); err != nil {
		return err
	}
	ss.mu.Lock()
	delete(ss.workspaces, ws.ID)
	ss.mu.Unlock()
	return nil
}

// unheld reports workspaces that neither a session has nor anybody kept: what a crash
// between two steps leaves.
func (ss *Sessions) unheld() []workspaceRecord {
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
