package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"berth/proto"
	"berth/runtime/diskpool"
	"berth/runtime/images"
	"berth/runtime/layer"
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
	err = r.disk.TakeSnapshot(snapshot, spec.Owner, spec.Workspace, r.claims.sandbox(id), spec.Layer)
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

// SnapshotSize reads what the disk counts. See session.Runtime.
func (r *Runtime) SnapshotSize(snapshot string) (all, exclusive int64) {
	if !proto.ValidID(proto.SnapshotPrefix, snapshot) {
		return 0, 0
	}
	return r.disk.SnapshotSize(snapshot)
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
	replaced := diskpool.Exists(r.disk.WorkspacePath(spec.Workspace))
	err = errors.Join(r.disk.CopyWorkspace(snapshot, spec.Owner, spec.Workspace, copied),
		r.disk.CopyLayer(snapshot, spec.Owner, claimOf(id, spec)))
	if err == nil && replaced { // a power cut must not bring back what the caller records as replaced
		err = r.disk.Sync()
	}
	if err != nil {
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

// WriteSnapshot writes an OCI archive of a snapshot. See session.Runtime.
func (r *Runtime) WriteSnapshot(ctx context.Context, snapshot, digest, name string, w io.Writer) error {
	layers, err := r.layersOf(snapshot)
	if err != nil {
		return r.fail(ctx, "export snapshot", snapshot, err)
	}
	return r.images.Export(ctx, digest, name, layers, w)
}

// CommitSnapshot makes an image of a snapshot. See session.Runtime.
func (r *Runtime) CommitSnapshot(ctx context.Context, snapshot, digest, name string,
	progress func(proto.ImageProgress)) (proto.Image, error) {
	layers, err := r.layersOf(snapshot)
	if err != nil {
		return proto.Image{}, r.fail(ctx, "commit snapshot", snapshot, err)
	}
	return r.images.Commit(ctx, digest, name, layers, progress)
}

// layersOf returns the layers that an image of a snapshot has beyond that of the container. It leaves out the mount
// points of sandboxes.
func (r *Runtime) layersOf(snapshot string) (layers []images.NewLayer, err error) {
	if !proto.ValidID(proto.SnapshotPrefix, snapshot) {
		return nil, fmt.Errorf("%q is no snapshot", snapshot)
	}
	path, err := r.disk.SnapshotLayer(snapshot)
	switch {
	case err == nil:
		layers = append(layers, images.NewLayer{Upper: filepath.Join(path, layer.Upper), Without: layer.Provided()})
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	return append(layers, images.NewLayer{Tree: r.disk.SnapshotWorkspace(snapshot),
		At: strings.TrimPrefix(layer.InsideWorkspace, "/")}), nil
}

// beginWorkspace gives a new session the workspace of its image, if that is one of a snapshot. Called with the locks of
// the session and the workspace held.
func (r *Runtime) beginWorkspace(ctx context.Context, spec session.Spec) error {
	has, err := r.images.HasWorkspace(ctx, spec.Image)
	if !has || err != nil {
		return err
	}
	path, err := r.makeWorkspace(spec)
	if err != nil {
		return err
	}
	if err := r.images.FillWorkspace(ctx, spec.Image, path); err != nil {
		return errors.Join(fmt.Errorf("copying the image's workspace: %w", err), r.disk.RemoveWorkspace(spec.Workspace))
	}
	return nil
}
