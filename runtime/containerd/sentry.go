package containerd

import (
	"context"
	"errors"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"

	"berth/runtime/cgroup"
)

// A sentry is the kernel of a gVisor sandbox, asked by way of its shim, which knows what it was told. The host's
// freezer is not for it: it traces the processes of its sandbox, and kills those that stand still, or ends
// altogether, when they do not do what it expects of them.
type sentry struct {
	task client.Task
	ns   func(context.Context) context.Context // of containerd
}

func (r *Runtime) sentry(ctx context.Context, sandbox string) (sentry, error) {
	task, err := r.task(ctx, sandbox)
	if errdefs.IsUnavailable(err) { // its shim is, and will be
		err = errdefs.ErrNotFound
	}
	return sentry{task, r.ns}, err
}

// errSlow is what is asked of a shim and takes too long. It comes about all the same.
var errSlow = errors.New("the sandbox has not answered yet")

func (y sentry) Pause(ctx context.Context) error { return y.ask(ctx, y.task.Pause) }

func (y sentry) Resume(ctx context.Context) error {
	return y.ask(ctx, func(ctx context.Context) error {
		if !y.Paused(ctx) {
			return nil
		}
		return y.task.Resume(ctx)
	})
}

// ask has the shim do something, and waits for haltTimeout. The shim goes on with it whether or not anybody waits,
// but kills its runtime in the middle if there is a deadline; so it gets none, and one thing after the other from us.
func (y sentry) ask(ctx context.Context, do func(context.Context) error) error {
	done := make(chan error, 1)
	go func() { done <- do(y.ns(context.WithoutCancel(ctx))) }()
	select {
	case err := <-done:
		return err
	case <-time.After(cgroup.HaltTimeout):
		return errSlow
	}
}

// halted is true from the moment that it was asked to.
func (y sentry) Paused(ctx context.Context) bool {
	status, err := y.task.Status(y.ns(ctx))
	return err == nil && (status.Status == client.Paused || status.Status == client.Pausing)
}

func (y sentry) Ended(ctx context.Context) (bool, error) {
	status, err := y.task.Status(y.ns(ctx))
	switch {
	case errdefs.IsUnavailable(err): // as for sentry
		return true, nil
	case err == nil && status.Status == client.Unknown: // the shim did not answer in time, or ctx has ended
		return false, errors.Join(errSlow, ctx.Err())
	}
	return status.Status == client.Stopped, err
}
