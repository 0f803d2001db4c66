package code

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"berth/proto"
	"berth/session"
)

// MaxContexts is how many contexts a container may have. The limits of the container bound what they use. Their list is
// in memory only: the next daemon does not know them, and their interpreters end with this one.
const MaxContexts = 64

// Create creates a context and starts its interpreter.
func (r *Runner) Create(ctx context.Context, owner, container string, ask NewContext) (Context, error) {
	s, err := r.sessions.Get(owner, container)
	if err != nil {
		return Context{}, err
	}
	n, made, err := r.open(s, ask)
	if err != nil {
		return Context{}, err
	}
	if !made {
		return Context{}, proto.Errorf(proto.AlreadyExists, "", ask.Name, "context %q exists in container %s "+
			"already; run cells in it, or delete it first", ask.Name, s.ID())
	}
	if err := n.startFresh(ctx, r); err != nil {
		r.forget(n)
		_ = n.endInterpreter(context.WithoutCancel(ctx), "its context was not created") // it ends with its container
		return Context{}, err
	}
	return n.info(), nil
}

// List returns the contexts of a container, by name.
func (r *Runner) List(owner, container string) ([]Context, error) {
	s, err := r.sessions.Get(owner, container)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	list := []Context{}
	for _, n := range r.notebooks[s.ID()] {
		list = append(list, n.info())
	}
	slices.SortFunc(list, func(a, b Context) int { return cmp.Compare(a.Name, b.Name) })
	return list, nil
}

// Get describes one context.
func (r *Runner) Get(owner, container, name string) (Context, error) {
	n, err := r.find(owner, container, name)
	if err != nil {
		return Context{}, err
	}
	return n.info(), nil
}

// Delete deletes a context. It ends the interpreter and a cell that runs there.
func (r *Runner) Delete(ctx context.Context, owner, container, name string) error {
	n, err := r.find(owner, container, name)
	if err != nil {
		return err
	}
	r.forget(n)
	return n.endInterpreter(ctx, "its context was deleted")
}

// Restart ends the interpreter of a context, with a cell that runs there, and starts a fresh one.
func (r *Runner) Restart(ctx context.Context, owner, container, name string) (Context, error) {
	n, err := r.find(owner, container, name)
	if err != nil {
		return Context{}, err
	}
	if err := n.endInterpreter(ctx, "its context was restarted"); err != nil {
		return Context{}, err
	}
	if err := n.startFresh(ctx, r); err != nil {
		return Context{}, err
	}
	return n.info(), nil
}

// Interrupt interrupts the cell that runs in a context, as Ctrl-C does. The cell ends with an error, or ignores the
// interrupt. Without a cell, Interrupt does nothing. It returns the context as it was before.
func (r *Runner) Interrupt(ctx context.Context, owner, container, name string) (Context, error) {
	n, err := r.find(owner, container, name)
	if err != nil {
		return Context{}, err
	}
	found := n.info()
	n.mu.Lock()
	in, busy := n.in, n.busy
	n.mu.Unlock()
	if in == nil || !busy || in.over() {
		return found, nil
	}
	return found, in.exec.Signal(ctx, "SIGINT")
}

// find returns the context of that name.
func (r *Runner) find(owner, container, name string) (*notebook, error) {
	s, err := r.sessions.Get(owner, container)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := r.notebooks[s.ID()][name]; n != nil {
		return n, nil
	}
	return nil, noContext(s.ID(), strings.ToValidUTF8(name[:min(len(name), 80)], ""))
}

// open returns the context that ask names, and whether it was created for that. A context of another language is a
// conflict.
func (r *Runner) open(s *session.Session, ask NewContext) (n *notebook, made bool, err error) {
	if !proto.ValidJobID(ask.Name) {
		return nil, false, proto.Errorf(proto.InvalidArgument, "", "name", "context %.80q: %s", ask.Name,
			proto.JobIDRule)
	}
	lang, err := languageOf(ask.Language)
	if err != nil {
		return nil, false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.notebooks[s.ID()]
	if n := all[ask.Name]; n != nil {
		if ask.Language != "" && n.lang.name != lang.name {
			return nil, false, proto.Errorf(proto.Conflict, "", ask.Name,
				"context %q runs %s, not %s; use another name", ask.Name, n.lang.name, lang.name)
		}
		return n, false, nil
	}
	if len(all) >= MaxContexts {
		// not TooMany: waiting does not help
		return nil, false, proto.Errorf(proto.Conflict, "", s.ID(), "container %s has %d contexts, which is its "+
			"limit; delete one", s.ID(), len(all))
	}
	r.dropOrphanedContexts()
	now := time.Now()
	n = &notebook{s: s, ask: ask, lang: lang, turn: make(chan struct{}, 1), created: now, used: now}
	if all == nil {
		all = map[string]*notebook{}
		r.notebooks[s.ID()] = all
	}
	all[ask.Name] = n
	return n, true, nil
}

// forget removes a context from the list and keeps it from starting another interpreter.
func (r *Runner) forget(n *notebook) {
	n.mu.Lock()
	n.stopped = true
	n.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if all := r.notebooks[n.s.ID()]; all[n.ask.Name] == n {
		delete(all, n.ask.Name)
		if len(all) == 0 {
			delete(r.notebooks, n.s.ID())
		}
	}
}

// dropOrphanedContexts forgets the contexts of deleted containers. mu is held. It runs whenever a context is created,
// so that the list stays short.
func (r *Runner) dropOrphanedContexts() {
	for id, all := range r.notebooks {
		for _, n := range all { // all belong to one owner
			if _, err := r.sessions.Get(n.s.Owner(), id); err != nil {
				delete(r.notebooks, id)
			}
			break
		}
	}
}
