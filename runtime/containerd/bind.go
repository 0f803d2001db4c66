package containerd

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"berth/runtime/launch"
	"berth/runtime/mountns"
	"berth/session"
)

// takePooled serves the start of session id out of the warm pool. It reports false where that cannot be; then
// nothing has changed but that a workspace may be there.
func (r *Runtime) takePooled(ctx context.Context, id string, spec session.Spec) bool {
	m := r.warm.take(spec)
	if m == nil {
		return false
	}
	if err := r.bindSandbox(ctx, m, id, spec); err != nil {
		r.log.Debug("a warm container could not be used", "sandbox", m.name, "container", id, "err", err)
		r.warm.discard(m) // half of it may be the session's already
		return false
	}
	r.log.Debug("a warm container is claimed", "sandbox", m.name, "container", id)
	r.warm.release(m)
	r.warm.asked(spec, true)
	return true
}

// bindSandbox gives a member what makes it the session's, between asking its guest whether it is there and hearing the
// answer. What comes first, the workspace, is how the next daemon knows that a member without a claim is not as it
// was made.
func (r *Runtime) bindSandbox(ctx context.Context, m *pooledSandbox, id string, spec session.Spec) error {
	// who leaves meanwhile is told later, by who has more to undo; and to watch for that costs more than the question
	answer := make(chan error, 1)
	go func() { answer <- m.handshake(context.WithoutCancel(ctx), r.cfg.Handshake) }()
	err := r.attachWorkspace(m, spec)
	if err == nil {
		err = r.fitLimits(m, spec)
	}
	if silent := <-answer; silent != nil {
		return silent
	}
	if err != nil {
		return err
	}
	return r.recordClaim(id, spec.Workspace, claim{sandbox: m.name, isolation: &m.isolation, conn: m.takeConn()})
}

// attachWorkspace attaches the workspace, which it makes if it is missing, and gives the file systems in memory their
// sizes.
func (r *Runtime) attachWorkspace(m *pooledSandbox, spec session.Spec) error {
	path, err := r.disk.MakeWorkspace(spec.Workspace, spec.Limits.DiskBytes)
	if err != nil {
		return err
	}
	tree, err := mountns.Detach(path, 0, m.users)
	if err != nil {
		return fmt.Errorf("taking the workspace: %w", err)
	}
	defer unix.Close(tree)
	return mountns.Visit(m.mounts, func() error {
		if err := mountns.Attach(tree, launch.InsideWorkspace); err != nil {
			return fmt.Errorf("attaching the workspace: %w", err)
		}
		return resize(m.limits, spec.Limits)
	})
}
