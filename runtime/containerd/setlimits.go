package containerd

import (
	"context"
	"errors"
	"fmt"

	"berth/proto"
	"berth/runtime/cgroup"
	"berth/session"
	"berth/session/limits"
)

// SetLimits changes the limits of a sandbox and of its workspace. See session.Runtime.
func (r *Runtime) SetLimits(_ context.Context, id string, had session.Spec, want proto.Limits) error {
	use := r.Usage(id, had.Workspace)
	for _, check := range []struct {
		what       string
		used, want int64
		changed    bool
	}{
		{"memory", use.MemoryBytes, want.MemoryBytes, want.MemoryBytes < had.Limits.MemoryBytes},
		{"disk space in its workspace", use.Workspace.Used, want.DiskBytes, want.DiskBytes < had.Limits.DiskBytes},
		{"disk space in its layer", use.Layer.Used, want.DiskBytes, want.DiskBytes < had.Limits.DiskBytes},
	} {
		if check.changed && check.used > check.want {
			return proto.Errorf(proto.Conflict, "", id, "container %s uses %d bytes of %s, so it cannot be limited to "+
				"%d; stop commands or remove files first", id, check.used, check.what, check.want)
		}
	}
	err := r.applyLimits(id, had, had.Limits, want, use)
	if err != nil {
		return errors.Join(fmt.Errorf("changing limits: %w", err), r.applyLimits(id, had, want, had.Limits, use))
	}
	return nil
}

// applyLimits changes limits from one set to another.
func (r *Runtime) applyLimits(id string, of session.Spec, had, want proto.Limits, use limits.Usage) error {
	name := r.claims.sandbox(id)
	defer r.figures.Changed(name)
	if use.Tasks > 0 { // there is a sandbox
		if err := cgroup.Change(name, cgroup.Resources(of.Class, had), cgroup.Resources(of.Class, want)); err != nil {
			return err
		}
	}
	if had.DiskBytes == want.DiskBytes {
		return nil
	}
	return errors.Join(r.disk.Limit(r.disk.WorkspacePath(of.Workspace), want.DiskBytes),
		r.disk.Limit(r.disk.LayerPath(name), want.DiskBytes))
}
