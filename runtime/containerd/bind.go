package containerd

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"berth/runtime/launch"
	"berth/runtime/mountns"
	"berth/session"
)

// takePooled starts session id with a sandbox of the warm pool. It returns false if that fails; then nothing has
// changed, except that the workspace may exist.
func (r *Runtime) takePooled(ctx context.Context, id string, spec session.Spec) bool {
	m := r.warm.take(spec)
	if m == nil {
		return false
	}
	if err := r.bindSandbox(ctx, m, id, spec); err != nil {
		r.log.Debug("a warm container could not be used", "sandbox", m.name, "container", id, "err", err)
		r.warm.discard(m) // the session may be bound to it in part
		return false
	}
	r.log.Debug("a warm container is claimed", "sandbox", m.name, "container", id)
	r.warm.release(m)
	r.warm.asked(spec, true)
	return true
}

// bindSandbox binds a pooled sandbox to the session while the guest answers a handshake. It attaches the workspace
// first. From that, the next daemon knows that a sandbox without a claim is no longer as it was made.
func (r *Runtime) bindSandbox(ctx context.Context, m *pooledSandbox, id string, spec session.Spec) error {
	// A caller that leaves meanwhile gets its error later, from code that has more to undo. Watching ctx here would
	// cost more than the handshake.
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
