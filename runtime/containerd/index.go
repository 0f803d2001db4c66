package containerd

import (
	"maps"
	"slices"
	"sync"
)

// An index lists the sandboxes that have a record in containerd or are claimed, with the workspace of each. Only we
// write these records. Reading them takes time for each record, and each sweep and each removal of a workspace would
// read all.
type index struct {
	mu         sync.Mutex        // guards workspaces
	workspaces map[string]string // by sandbox; "" for one that has no session yet
}

// add remembers a sandbox whose record or claim was written or found. If a sandbox was made without a session, its
// record does not say which workspace its claim has.
func (r *index) add(sandbox, workspace string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.workspaces == nil {
		r.workspaces = make(map[string]string)
	}
	if _, known := r.workspaces[sandbox]; !known || workspace != "" {
		r.workspaces[sandbox] = workspace
	}
}

// drop forgets a sandbox whose record is gone.
func (r *index) drop(sandbox string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.workspaces, sandbox)
}

// sandboxes returns all sandboxes, in no order.
func (r *index) sandboxes() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.workspaces))
}

// user returns the sandbox that has a workspace; "" if there is none.
func (r *index) user(workspace string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for sandbox, w := range r.workspaces {
		if w == workspace {
			return sandbox
		}
	}
	return ""
}

// workspace returns the workspace of a sandbox; "" if it has none yet.
func (r *index) workspace(sandbox string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.workspaces[sandbox]
}
