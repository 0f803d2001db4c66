package containerd

import (
	"context"

	"berth/proto"
	"berth/runtime/isolation"
)

// Inspect asks the kernel about the process that is the sandbox: the guest under runc, gVisor's kernel under gvisor.
// It fails with Unsupported if the sandbox lacks something that every sandbox is promised. Such a sandbox must not be
// used.
func (r *Runtime) Inspect(ctx context.Context, id string) (proto.Isolation, error) {
	// of the same process; its isolation cannot change
	if held, ok := r.claims.get(id); ok && held.isolation != nil {
		return *held.isolation, nil
	}
	name := r.claims.sandbox(id)
	pid, err := r.firstProcess(ctx, name)
	if err != nil {
		return proto.Isolation{}, r.fail(ctx, "inspect", id, err)
	}
	iso, err := isolation.Of(pid)
	if err != nil {
		return iso, r.fail(ctx, "inspect", id, err)
	}
	gvisor, err := r.isGVisor(ctx, name)
	if err != nil {
		return iso, r.fail(ctx, "inspect", id, err)
	}
	iso.OwnCounts = iso.OwnCounts || gvisor // gVisor's own kernel counts
	return iso, isolation.Lacking(id, iso, r.bundles.MayGain(name))
}

// firstProcess returns the number, on the host, of the process that is a sandbox.
func (r *Runtime) firstProcess(ctx context.Context, name string) (int, error) {
	if r.bundles.Has(name) {
		return r.bundles.LivePID(name)
	}
	task, err := r.task(ctx, name)
	if err != nil {
		return 0, err
	}
	return int(task.Pid()), nil
}
