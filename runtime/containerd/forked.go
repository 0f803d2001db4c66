package containerd

import (
	"berth/proto"
	"berth/runtime/cgroup"
	"context"
	"fmt"
	"path/filepath"
)

// prepareScript begins to make the cgroups and the script of b; nil if that is not to be set up by one.
func (r *Runtime) prepareScript(b blueprint) *prepared {
	filter := r.scripted.known()
	if filter == nil || !r.ownCounts || !r.runsDirect(b.session.Class) || b.byRunc {
		return nil
	}
	return prepare(b, filter)
}

// launchByScript is launch for a direct sandbox that a script sets up, in a fraction of the time that runc takes.
func (r *Runtime) launchByScript(ctx context.Context, b blueprint, root rootLayers, p *prepared) error {
	dir := r.directPath(b.id)
	if err := makeBundle(dir, b); err != nil {
		return fmt.Errorf("making the bundle: %w", err)
	}
	var n *nascent
	defer func() { n.close() }()
	create := func(ctx context.Context) (_ int, err error) {
		if n, err = r.scripted.create(ctx, dir, filepath.Join(dir, bundlePID), b, root, p); err != nil {
			return 0, err
		}
		return n.pid, nil
	}
	return r.launch(ctx, b, create, func(ctx context.Context) error {
		if err := n.letGo(ctx); err != nil {
			cgroup.Kill(b.id)
			return scriptError{err}
		}
		r.scripted.worked()
		return nil
	})
}

// learn reads the filter of sandbox id, which runc has set up and which does nothing yet.
func (r *Runtime) learnFilter(id string, pid int) {
	s := &r.scripted
	s.learn(r.log, pid, func() error { return isIn(id, pid) })
}

// tryUserNamespace finds out whether namespaces can be made this way. Where they cannot, runc makes them; the
// operator is told.
func (r *Runtime) tryUserNamespace() {
	ns, err := newUserNamespace(r.starter, r.ids.First, r.ids.First)
	if err != nil { // it may be that somebody has ended the starter, of which there is another the next time
		ns, err = newUserNamespace(r.starter, r.ids.First, r.ids.First)
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

// enterNamespace begins to make the user namespace of b, if it is ours to make.
func (r *Runtime) enterNamespace(b blueprint) *ownNamespace {
	n := &ownNamespace{}
	if r.ownCounts && b.session.Class == proto.ClassRunc {
		n.making.Go(func() (err error) {
			n.file, err = newUserNamespace(b.starter, b.firstID, b.firstID)
			return err
		})
	}
	return n
}
