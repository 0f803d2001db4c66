package images

import (
	"sync"

	"berth/proto"
)

// mostResolved is the maximum number of cached image names. Callers may write one name in many ways.
const mostResolved = 256

// resolved caches which images names stand for. Every create asks, and a look-up takes a tenth of the daemon's time
// for a create. It is only for images that no other program can change. The zero value is empty.
type resolved struct {
	mu      sync.Mutex // guards what follows
	by      map[string]proto.Image
	changes int // number of changes of names
}

// get returns the image of a name, if it is cached. After a look-up the caller passes changes to put.
func (r *resolved) get(ref string) (img proto.Image, changes int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	img, ok = r.by[ref]
	return img, r.changes, ok
}

// put caches the result of a look-up, unless names have changed since.
func (r *resolved) put(ref string, img proto.Image, changes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changes != changes {
		return
	}
	if r.by == nil || len(r.by) >= mostResolved {
		r.by = make(map[string]proto.Image)
	}
	r.by[ref] = img
}

// forget empties the cache. Call it after a name has changed or was removed.
func (r *resolved) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes++
	r.by = nil
}
