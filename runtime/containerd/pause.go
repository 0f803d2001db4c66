package containerd

import (
	"context"
	"errors"
	"io/fs"

	"github.com/containerd/errdefs"

	"berth/proto"
	"berth/runtime/cgroup"
)

// The processes of a paused sandbox are stopped by a kernel: the host's, by the freezer of its cgroup, or gVisor's
// own. Only that kernel keeps the state, and keeps it across restarts of the daemon.

// A halter pauses and resumes the processes of one sandbox. It is a freezer or a sentry.
type halter interface {
	Pause(context.Context) error  // returns once all are paused; after an error some may be
	Resume(context.Context) error // resumes all; those that run keep running
	Paused(context.Context) bool
	Ended(context.Context) (bool, error) // no process is left
}

// Pause pauses every process of sandbox id. See session.Runtime.
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
		return r.fail(all, "pause", id, errors.Join(err, h.Resume(all))) // a sandbox must not stay paused in part
	}
	return nil
}

// Resume resumes every process of sandbox id. See session.Runtime.
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

// Paused asks the kernel whether sandbox id is paused. See session.Runtime.
func (r *Runtime) Paused(id string) bool {
	if !proto.ValidID(proto.ContainerPrefix, id) {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), cgroup.HaltTimeout)
	defer cancel()
	h, err := r.halter(ctx, r.claims.sandbox(id))
	return err == nil && h.Paused(ctx)
}

// lockHalter returns the halter of a running sandbox. Until unlock is called, no other call can start or stop the
// sandbox.
func (r *Runtime) lockHalter(ctx context.Context, op, id string) (unlock func(), h halter, err error) {
	if !proto.ValidID(proto.ContainerPrefix, id) {
		return nil, nil, notRunning(id)
	}
	unlock, err = r.locks.Lock(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	h, err = r.runningHalter(ctx, op, id)
	if err != nil {
		unlock()
		return nil, nil, err
	}
	return unlock, h, nil
}

func notRunning(id string) error {
	return proto.Errorf(proto.NotFound, "", id, "container %.80q is not running", id)
}

// runningHalter returns the halter of a running sandbox. Called with the lock of session id held.
func (r *Runtime) runningHalter(ctx context.Context, op, id string) (halter, error) {
	h, err := r.halter(ctx, r.claims.sandbox(id))
	ended := false
	if err == nil {
		ended, err = h.Ended(ctx)
	}
	switch {
	case errors.Is(err, cgroup.ErrNoFreezer):
		return nil, proto.Errorf(proto.Unsupported, op, id, "containers cannot be paused here: %v", err)
	case ended || errdefs.IsNotFound(err) || errors.Is(err, fs.ErrNotExist):
		return nil, notRunning(id)
	case err != nil: // the sandbox may exist or not
		return nil, r.fail(ctx, op, id, err)
	}
	return h, nil
}

// halter returns the halter of a sandbox.
func (r *Runtime) halter(ctx context.Context, sandbox string) (halter, error) {
	if r.gvisor.Runs(sandbox) {
		return ownSentry{r.gvisor, sandbox}, nil
	}
	if !r.bundles.Has(sandbox) {
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

// releaseToEnd resumes a paused sandbox so that it can be ended. A process that is frozen under cgroup v1, or paused
// by gVisor, cannot even be killed.
func (r *Runtime) releaseToEnd(ctx context.Context, sandbox string) {
	h, err := r.halter(ctx, sandbox)
	if err != nil || !h.Paused(ctx) {
		return
	}
	if err := h.Resume(ctx); err != nil {
		r.log.Warn("a paused sandbox that is to end does not go on", "sandbox", sandbox, "err", err)
	}
}
