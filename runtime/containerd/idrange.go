package containerd

import (
	"fmt"
	"sync"

	"berth/proto"
)

const (
	idRange = 1 << 16 // UIDs and GIDs of one sandbox

	// defaultFirstID starts the 4,096 ranges below 1<<31 that neither login.defs, subuid nor
	// systemd's nspawn hand out.
	defaultFirstID = 0x70000000
	idRanges       = 4096
)

// An idPool hands each sandbox 65,536 host UIDs and GIDs that no other sandbox has, so
// that even a process that broke out owns nothing of its neighbours.
type idPool struct {
	first uint32

	mu    sync.Mutex // guards what follows
	taken map[uint32]string
	of    map[string]uint32 // the same the other way round
	next  int               // where to look first; reuse comes as late as possible
}

func newIDPool(first uint32) *idPool {
	return &idPool{first: first, taken: make(map[uint32]string), of: make(map[string]uint32)}
}

// take gives session id a range, unless it has one, and returns its first ID.
func (p *idPool) take(id string) (uint32, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if base, ok := p.of[id]; ok { // what a start that failed could not undo
		return base, nil
	}
	for i := range idRanges {
		n := (p.next + i) % idRanges
		base := p.first + uint32(n)*idRange
		if _, ok := p.taken[base]; !ok {
			p.taken[base], p.of[id], p.next = id, base, n+1
			return base, nil
		}
	}
	return 0, proto.Errorf(proto.TooMany, "start", id,
		"all %d user ID ranges are in use; stop another container first", idRanges)
}

// baseOf is the first ID of the range that uid is in, and whether it is in any.
func (p *idPool) baseOf(uid uint32) (uint32, bool) {
	if uid < p.first {
		return 0, false
	}
	return uid - (uid-p.first)%idRange, true
}

// learn marks a range as the one of a sandbox that was there before us.
func (p *idPool) learn(id string, base uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken[base], p.of[id] = id, base
}

// release frees the range of session id, if it has one.
func (p *idPool) release(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if base, ok := p.of[id]; ok {
		delete(p.taken, base)
		delete(p.of, id)
	}
}

// has reports whether a sandbox has a range, as each has from its first step to its last.
func (p *idPool) has(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.of[id]
	return ok
}

// learnOwners reads the UID ranges of sandboxes without a record, by whose their layers are: they go on although
// containerd's database is lost.
func (d *disk) learnOwners(ids *idPool) error {
	layers, err := d.layers()
	if err != nil {
		return fmt.Errorf("reading the layers there are: %w", err)
	}
	for _, name := range layers {
		if base, ok := ids.baseOf(d.ownerOf(name)); ok && !ids.has(name) {
			ids.learn(name, base)
		}
	}
	return nil
}

// base is the first ID of the range of a sandbox; 0 if it has none.
func (p *idPool) base(id string) uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of[id]
}

// count is how many sandboxes have a range.
func (p *idPool) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.taken)
}
