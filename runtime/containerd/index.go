package containerd

import (
	"maps"
	"slices"
	"sync"
)

// A index is the sandboxes that have a record in containerd or are claimed, with the workspace of each. The records
// are nobody's but ours, and to read them takes time with each that there is; a sweep and every removal of a
// workspace would.
type index struct {
	mu         sync.Mutex        // guards workspaces
	workspaces map[string]string // by sandbox; "" for one that was made for nobody yet
}

// add remembers a sandbox whose record or claim was written or found. The record of one that was made for nobody says
// nothing of the workspace that its claim has.
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

// sandboxes are all of them, in no order.
func (r *index) sandboxes() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.workspaces))
}

// user is the sandbox that has a workspace; "" if there is none.
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
