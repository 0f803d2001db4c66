package containerd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/errdefs"

	"berth/proto"
	"berth/runtime/cgroup"
	"berth/runtime/launch"
)

// A shimmed sandbox is held by a containerd shim. These are gVisor's sandboxes, all sandboxes if the containerd is
// not ours, and sandboxes of runc that an older daemon started.

// launchShimmed launches a shimmed sandbox.
func (r *Runtime) launchShimmed(ctx context.Context, b launch.Spec, rootfs client.NewTaskOpts) error {
	var task client.Task
	create := func(ctx context.Context) (int, error) {
		if err := b.Recorded(); err != nil { // containerd reads the record
			return 0, err
		}
		c, err := r.client.LoadContainer(ctx, b.ID)
		if err != nil {
			return 0, err
		}
		if task, err = c.NewTask(ctx, cio.NullIO, rootfs); err != nil {
			return 0, err
		}
		return int(task.Pid()), launch.SetLimitsOfNew(b, int(task.Pid()))
	}
	return r.launch(ctx, b, create, func(ctx context.Context) error { return task.Start(ctx) })
}

// task returns containerd's task of a shimmed sandbox.
func (r *Runtime) task(ctx context.Context, name string) (client.Task, error) {
	c, err := r.client.LoadContainer(r.ns(ctx), name)
	if err != nil {
		return nil, err
	}
	return c.Task(r.ns(ctx), nil)
}

// isGVisor reports whether a sandbox is of that class.
func (r *Runtime) isGVisor(ctx context.Context, name string) (bool, error) {
	info, err := r.client.ContainerService().Get(r.ns(ctx), name)
	return info.Labels[labelClass] == string(proto.ClassGVisor), err
}

// endTask ends the processes of a sandbox, whichever daemon started it: an older daemon had a shim for each sandbox.
func (r *Runtime) endTask(ctx context.Context, id string) error {
	if r.isDirect(id) {
		return r.endDirect(ctx, id)
	}
	clean, err := r.removeTask(ctx, id)
	if !clean || r.hasBundle(id) { // if containerd cannot remove a bundle, it only logs that
		err = errors.Join(err, r.cleanUp(ctx, id))
	}
	return err
}

// removeTask ends the sandbox through containerd. clean says that containerd did all of it and nothing of the runtime
// is left.
func (r *Runtime) removeTask(ctx context.Context, id string) (clean bool, err error) {
	c, err := r.client.LoadContainer(ctx, id)
	if errdefs.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	// A runtime waits for its sandbox, which may take any time, and a shim that hangs does not answer.
	polite, cancel := context.WithTimeout(ctx, endGrace)
	defer cancel()
	task, err := c.Task(polite, nil)
	switch {
	case errdefs.IsNotFound(err):
		return false, nil
	// our deadline, or containerd's own for a shim
	case errors.Is(err, context.DeadlineExceeded) || errdefs.IsDeadlineExceeded(err):
		return false, nil // cleanUp needs no shim
	case err != nil:
		return false, err
	}
	_, err = task.Delete(polite, client.WithProcessKill)
	if err == nil {
		return true, nil
	}
	r.log.Debug("a sandbox cannot be asked to end; killing its processes", "sandbox", id, "err", err)
	return false, r.forceTask(ctx, task, id)
}

// forceTask ends a sandbox that its runtime cannot end. runsc cannot once its kernel was killed for lack of memory.
// forceTask kills the processes in the cgroup until the shim sees that none is left.
func (r *Runtime) forceTask(ctx context.Context, task client.Task, id string) error {
	forced, cancel := context.WithTimeout(ctx, endGrace)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		cgroup.Kill(id)
		_, err := task.Delete(forced)
		if err == nil || errdefs.IsNotFound(err) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("ending the sandbox: %w", err)
		case <-forced.Done():
			return nil // the shim hangs; cleanUp ends it, too
		case <-tick.C:
		}
	}
}
