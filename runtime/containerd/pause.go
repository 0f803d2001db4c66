package containerd

import (
	"context"
	"errors"
	"io/fs"

	"github.com/containerd/errdefs"

	"berth/proto"
	"berth/runtime/cgroup"
	"berth/session"
)

// A paused sandbox is one whose processes a kernel has stand still: the host's, by the freezer of its cgroup, or
// gVisor's own. That kernel keeps it across restarts of the daemon, and nobody else knows of it.

var _ session.Pauser = (*Runtime)(nil)

// A halter has the processes of one sandbox stand still and go on: a freezer, or a sentry.
type halter interface {
	Pause(context.Context) error  // returns once they stand still; after an error some may
	Resume(context.Context) error // has them go on; one that goes on does so still
	Paused(context.Context) bool
	Ended(context.Context) (bool, error) // there are none
}

// Pause has every process of sandbox id stand still. See session.Pauser.
func (r *Runtime) Pause(ctx context.Context, id string) error {
	unlock, h, err := r.lockHalter(ctx, "pause", id)
	if err != nil {
		return err
	}
	defer unlock()
	if h.Paused(ctx) {
		return nil
	}
	if err := h.Pause(ctx); err != nil {
		all := context.WithoutCancel(ctx)
		return r.fail(all, "pause", id, errors.Join(err, h.Resume(all))) // half of it would be neither
	}
	return nil
}

// Resume has them go on. See session.Pauser.
func (r *Runtime) Resume(ctx context.Context, id string) error {
	unlock, h, err := r.lockHalter(ctx, "resume", id)
	if err != nil {
		return err
	}
	defer unlock()
	if err := h.Resume(ctx); err != nil {
		return r.fail(ctx, "resume", id, err)
	}
	return nil
}

// Paused asks the kernel. See session.Pauser.
func (r *Runtime) Paused(id string) bool {
	if !proto.ValidID(proto.ContainerPrefix, id) {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), cgroup.HaltTimeout)
	defer cancel()
	h, err := r.halter(ctx, r.claims.sandbox(id))
	return err == nil && h.Paused(ctx)
}

// lockHalter finds that of a sandbox that is there, and keeps others from starting or stopping it meanwhile.
func (r *Runtime) lockHalter(ctx context.Context, op, id string) (unlock func(), h halter, err error) {
	absent := proto.Errorf(proto.NotFound, "", id, "container %.80q is not running", id)
	if !proto.ValidID(proto.ContainerPrefix, id) {
		return nil, nil, absent
	}
	unlock, err = r.locks.Lock(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	h, err = r.halter(ctx, r.claims.sandbox(id))
	ended := false
	if err == nil {
		ended, err = h.Ended(ctx)
	}
	switch {
	case errors.Is(err, cgroup.ErrNoFreezer):
		err = proto.Errorf(proto.Unsupported, op, id, "containers cannot be paused here: %v", err)
	case ended || errdefs.IsNotFound(err) || errors.Is(err, fs.ErrNotExist):
		err = absent
	case err != nil: // which says nothing of whether it is there
		err = r.fail(ctx, op, id, err)
	}
	if err != nil {
		unlock()
		return nil, nil, err
	}
	return unlock, h, nil
}

// halter is that of a sandbox.
func (r *Runtime) halter(ctx context.Context, sandbox string) (halter, error) {
	if !r.isDirect(sandbox) {
		gvisor, err := r.isGVisor(ctx, sandbox)
		if err != nil {
			return nil, err
		}
		if gvisor {
			return r.sentry(ctx, sandbox)
		}
	}
	return cgroup.FindFreezer(sandbox)
}

// releaseToEnd has a paused sandbox go on, so that it can be ended: a frozen process of v1 does not even die, nor one
// that gVisor has halted.
func (r *Runtime) releaseToEnd(ctx context.Context, sandbox string) {
	h, err := r.halter(ctx, sandbox)
	if err != nil || !h.Paused(ctx) {
		return
	}
	if err := h.Resume(ctx); err != nil {
		r.log.Warn("a paused sandbox that is to end does not go on", "sandbox", sandbox, "err", err)
	}
}
