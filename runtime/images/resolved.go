package images

import (
	"sync"

	"berth/session"
)

// mostResolved is how many names of images are remembered at once. Callers may write one in many ways.
const mostResolved = 256

// resolved remembers which images names stand for: every create asks, and to find out is a tenth of what one costs
// the daemon. It is for images that nobody else can change. The zero value knows none.
type resolved struct {
	mu      sync.Mutex // guards what follows
	by      map[string]session.Image
	changes int // how often names have changed
}

// get is the image of a name, if it is known. Whoever has to find out gives put the number that comes with it.
func (r *resolved) get(ref string) (img session.Image, changes int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	img, ok = r.by[ref]
	return img, r.changes, ok
}

// put remembers what was found out, unless names have changed since.
func (r *resolved) put(ref string, img session.Image, changes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changes != changes {
		return
	}
	if r.by == nil || len(r.by) >= mostResolved {
		r.by = make(map[string]session.Image)
	}
	r.by[ref] = img
}

// forget is called once a name stands for something else, or for nothing.
func (r *resolved) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes++
	r.by = nil
}
