package containerd

import (
	"strconv"
	"sync"

	"berth/proto"
)

// An idPool hands each sandbox 65,536 host UIDs and GIDs that no other sandbox has, so
// that even a process that broke out owns nothing of its neighbours.
type idPool struct {
	first uint32

	mu    sync.Mutex // guards taken and next
	taken map[uint32]string
	next  int // where to look first; reuse comes as late as possible
}

func newIDPool(first uint32) *idPool {
	return &idPool{first: first, taken: make(map[uint32]string)}
}

// take gives session id a range and returns its first ID.
func (p *idPool) take(id string) (uint32, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range idRanges {
		n := (p.next + i) % idRanges
		base := p.first + uint32(n)*idRange
		if _, ok := p.taken[base]; !ok {
			p.taken[base], p.next = id, n+1
			return base, nil
		}
	}
	return 0, proto.Errorf(proto.TooMany, "start", id,
		"all %d user ID ranges are in use; stop another container first", idRanges)
}

// learn marks a range as the one of a sandbox that was there before us.
func (p *idPool) learn(id, label string) {
	base, err := strconv.ParseUint(label, 10, 32)
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken[uint32(base)] = id
}

// release frees the range of session id, if it has one.
func (p *idPool) release(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for base, owner := range p.taken {
		if owner == id {
			delete(p.taken, base)
		}
	}
}
