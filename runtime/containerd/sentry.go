package containerd

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"

	"berth/runtime/cgroup"
	"berth/runtime/launch"
)

// An ownSentry is the kernel of a gVisor sandbox without a shim. runsc tells it to pause or resume, and remembers that.
type ownSentry struct {
	launch.Gvisor
	sandbox string
}

func (y ownSentry) Pause(ctx context.Context) error {
	return finish(ctx, func(ctx context.Context) error { return y.Gvisor.Pause(ctx, y.sandbox) })
}

func (y ownSentry) Resume(ctx context.Context) error {
	return finish(ctx, func(ctx context.Context) error {
		if !y.Paused(ctx) {
			return nil
		}
		return y.Gvisor.Resume(ctx, y.sandbox)
	})
}

func (y ownSentry) Paused(context.Context) bool { return y.Gvisor.Paused(y.sandbox) }

func (y ownSentry) Ended(context.Context) (bool, error) {
	_, err := y.Bundles.LivePID(y.sandbox)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return false, err
}

// A sentry is the kernel of a gVisor sandbox with a shim, which remembers whether it was paused. The host's freezer
// does not work here: gVisor's kernel traces the processes of its sandbox. If they do not react as it expects, it kills
// them or ends altogether.
type sentry struct {
	task client.Task
	ns   func(context.Context) context.Context // adds containerd's namespace
}

func (r *Runtime) sentry(ctx context.Context, sandbox string) (sentry, error) {
	task, err := r.task(ctx, sandbox)
	if errdefs.IsUnavailable(err) { // its shim is unavailable, and will stay so
		err = errdefs.ErrNotFound
	}
	return sentry{task, r.ns}, err
}

// errSlow says that a shim, or runsc, has not done what it was asked within the time. It still does it later.
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

func (y sentry) ask(ctx context.Context, do func(context.Context) error) error {
	return finish(y.ns(ctx), do)
}

// finish does what may take longer than a caller waits, and waits for cgroup.HaltTimeout. It carries on even if no
// caller waits. With a deadline, runsc would be killed in the middle, so it gets none. We do one thing at a time.
func finish(ctx context.Context, do func(context.Context) error) error {
	done := make(chan error, 1)
	go func() { done <- do(context.WithoutCancel(ctx)) }()
	select {
	case err := <-done:
		return err
	case <-time.After(cgroup.HaltTimeout):
		return errSlow
	}
}

// Paused returns true from the moment that a pause was requested.
func (y sentry) Paused(ctx context.Context) bool {
	status, err := y.task.Status(y.ns(ctx))
	return err == nil && (status.Status == client.Paused || status.Status == client.Pausing)
}

func (y sentry) Ended(ctx context.Context) (bool, error) {
	status, err := y.task.Status(y.ns(ctx))
	switch {
	case errdefs.IsUnavailable(err): // as in Runtime.sentry
		return true, nil
	case err == nil && status.Status == client.Unknown: // the shim did not answer in time, or ctx has ended
		return false, errors.Join(errSlow, ctx.Err())
	}
	return status.Status == client.Stopped, err
}
