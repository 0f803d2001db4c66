package containerd

import (
	"context"
	"fmt"
	"path/filepath"

	"berth/proto"
	"berth/runtime/cgroup"
	"berth/runtime/launch"
)

// prepareScript starts to make the cgroups and the setup program of b. It returns nil if no setup program makes b.
func (r *Runtime) prepareScript(b launch.Spec) *launch.Prepared {
	filter := r.scripted.Known()
	if filter == nil || !r.ownCounts || !r.runsDirect(b.Session.Class) || b.ByRunc {
		return nil
	}
	return launch.Prepare(b, filter)
}

// launchByScript launches a direct sandbox by a setup program, in a fraction of the time that runc takes.
func (r *Runtime) launchByScript(ctx context.Context, b launch.Spec, root launch.Root, p *launch.Prepared) error {
	dir := r.directPath(b.ID)
	if err := makeBundle(dir, b); err != nil {
		return fmt.Errorf("making the bundle: %w", err)
	}
	var n *launch.Process
	defer func() { n.Close() }()
	create := func(ctx context.Context) (_ int, err error) {
		if n, err = r.scripted.Create(ctx, dir, filepath.Join(dir, bundlePID), b, root, p); err != nil {
			return 0, err
		}
		return n.PID, nil
	}
	return r.launch(ctx, b, create, func(ctx context.Context) error {
		if err := n.LetGo(ctx); err != nil {
			cgroup.Kill(b.ID)
			return launch.SetupError{Err: err}
		}
		r.scripted.Worked()
		return nil
	})
}

// learnFilter reads the filter of sandbox id, which runc has set up and whose first process still waits.
func (r *Runtime) learnFilter(id string, pid int) {
	s := &r.scripted
	s.Learn(r.log, pid, func() error { return isIn(id, pid) })
}

// tryUserNamespace checks whether the fork server can make user namespaces. If it cannot, runc makes them, and a
// warning is logged.
func (r *Runtime) tryUserNamespace() {
	ns, err := launch.NewUserNamespace(r.starter, r.ids.First, r.ids.First)
	if err != nil { // the fork server may have been killed; the next call starts another one
		ns, err = launch.NewUserNamespace(r.starter, r.ids.First, r.ids.First)
	}
	if err != nil {
		r.log.Warn(
			"containers share the host's inotify limits, so that one can use them up; berth doctor says what to do",
			"err", err)
		return
	}
	ns.Close()
	r.ownCounts = true
}

// enterNamespace starts to make the user namespace of b, unless the runtime makes it.
func (r *Runtime) enterNamespace(b launch.Spec) *launch.OwnNamespace {
	n := &launch.OwnNamespace{}
	if r.ownCounts && b.Session.Class == proto.ClassRunc {
		n.Making.Go(func() (err error) {
			n.File, err = launch.NewUserNamespace(b.Starter, b.FirstID, b.FirstID)
			return err
		})
	}
	return n
}
