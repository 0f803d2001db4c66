package containerd

import (
	"context"
	"errors"

	"berth/proto"
	"berth/runtime/diskpool"
	"berth/session"
)

// TakeSnapshot makes a snapshot of a session's workspace and layer. See session.Runtime.
func (r *Runtime) TakeSnapshot(ctx context.Context, id string, spec session.Spec, snapshot string) error {
	const op = "take snapshot"
	if err := checkSnapshot(op, id, spec, snapshot); err != nil {
		return err
	}
	unlock, err := r.lockBoth(ctx, id, spec.Workspace)
	if err != nil {
		return err
	}
	defer unlock()
	if !diskpool.Exists(r.disk.WorkspacePath(spec.Workspace)) {
		return proto.Errorf(proto.NotFound, op, spec.Workspace, "workspace %s has no files", spec.Workspace)
	}
	thaw, err := r.freeze(ctx, op, id)
	if err != nil {
		return err
	}
	err = r.disk.TakeSnapshot(snapshot, spec.Workspace, r.claims.sandbox(id), spec.Layer)
	if awake := thaw(); awake != nil {
		err = errors.Join(err, awake, r.disk.RemoveSnapshot(snapshot))
	}
	switch {
	case errors.Is(err, diskpool.ErrNoSnapshots):
		return proto.Errorf(proto.Unsupported, op, id, "there are no snapshots here: %v", err)
	case err != nil:
		return r.fail(ctx, op, id, err)
	}
	return nil
}

// checkSnapshot refuses IDs that are not safe as names of directories.
func checkSnapshot(op, id string, spec session.Spec, snapshot string) error {
	if !proto.ValidID(proto.SnapshotPrefix, snapshot) {
		return proto.Errorf(proto.InvalidArgument, op, "snapshot", "the snapshot ID is not one of ours")
	}
	return checkSpec(id, spec)
}

// freeze freezes the sandbox of session id, unless it is paused or there is none that runs. thaw lets it go on. Called
// with the session's lock held.
func (r *Runtime) freeze(ctx context.Context, op, id string) (thaw func() error, err error) {
	nothing := func() error { return nil }
	h, err := r.runningHalter(ctx, op, id)
	switch {
	case proto.CodeOf(err) == proto.NotFound:
		return nothing, nil
	case err != nil:
		return nil, err
	case h.Paused(ctx):
		return nothing, nil
	}
	all := context.WithoutCancel(ctx) // a sandbox must not stay frozen, not in part either
	if err := h.Pause(ctx); err != nil {
		return nil, r.fail(all, op, id, errors.Join(err, h.Resume(all)))
	}
	return func() error { return h.Resume(all) }, nil
}

// Revert gives a session the files of a snapshot. See session.Runtime.
func (r *Runtime) Revert(ctx context.Context, id string, spec session.Spec, snapshot, copied string) error {
	const op = "restore snapshot"
	if err := checkSnapshot(op, id, spec, snapshot); err != nil {
		return err
	}
	unlock, err := r.lockBoth(ctx, id, spec.Workspace)
	if err != nil {
		return err
	}
	defer unlock()
	if user := r.index.user(spec.Workspace); user != "" {
		return proto.Errorf(proto.Conflict, op, spec.Workspace, "workspace %s is in use by container %s; stop that "+
			"first", spec.Workspace, user)
	}
	if !diskpool.Exists(r.disk.SnapshotPath(snapshot)) {
		return proto.Errorf(proto.NotFound, op, snapshot, "the files of snapshot %s are gone from the daemon's disk "+
			"pool", snapshot)
	}
	if err := errors.Join(r.disk.CopyWorkspace(snapshot, spec.Workspace, copied),
		r.disk.CopyLayer(snapshot, claimOf(id, spec))); err != nil {
		return r.fail(ctx, op, id, err)
	}
	return nil
}

// RemoveSnapshot removes a snapshot. See session.Runtime.
func (r *Runtime) RemoveSnapshot(ctx context.Context, snapshot string) error {
	if !proto.ValidID(proto.SnapshotPrefix, snapshot) {
		return nil
	}
	if err := r.disk.RemoveSnapshot(snapshot); err != nil {
		return r.fail(ctx, "remove snapshot", snapshot, err)
	}
	return nil
}
