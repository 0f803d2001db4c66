package diskpool

import (
	"fmt"
	"sync"

	"berth/proto"
)

const (
	IDRange = 1 << 16 // UIDs and GIDs of one sandbox

	// DefaultFirst is the start of 4,096 ranges below 1<<31 that neither login.defs, subuid nor systemd-nspawn
	// assign.
	DefaultFirst = 0x70000000
	IdRanges     = 4096
)

// IDRanges assigns each sandbox 65,536 host UIDs and GIDs that no other sandbox has. A process that broke out of a
// sandbox owns nothing of other sandboxes.
type IDRanges struct {
	First uint32

	mu    sync.Mutex // guards what follows
	taken map[uint32]string
	of    map[string]uint32 // the inverse map
	next  int               // where the search starts; a range is reused as late as possible
}

func NewIDRanges(first uint32) *IDRanges {
	return &IDRanges{First: first, taken: make(map[uint32]string), of: make(map[string]uint32)}
}

// Take assigns a range to session id, unless it has one, and returns the first ID of the range.
func (p *IDRanges) Take(id string) (uint32, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if base, ok := p.of[id]; ok { // a failed start could not undo this
		return base, nil
	}
	for i := range IdRanges {
		n := (p.next + i) % IdRanges
		base := p.First + uint32(n)*IDRange
		if _, ok := p.taken[base]; !ok {
			p.taken[base], p.of[id], p.next = id, base, n+1
			return base, nil
		}
	}
	return 0, proto.Errorf(proto.TooMany, "start", id,
		"all %d user ID ranges are in use; stop another container first", IdRanges)
}

// baseOf returns the first ID of the range that contains uid, and whether there is such a range.
func (p *IDRanges) baseOf(uid uint32) (uint32, bool) {
	if uid < p.First {
		return 0, false
	}
	return uid - (uid-p.First)%IDRange, true
}

// Learn marks a range as assigned to a sandbox that existed before this daemon.
func (p *IDRanges) Learn(id string, base uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken[base], p.of[id] = id, base
}

// Release frees the range of session id, if it has one.
func (p *IDRanges) Release(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if base, ok := p.of[id]; ok {
		delete(p.taken, base)
		delete(p.of, id)
	}
}

// Has reports whether a sandbox has a range. Each sandbox has one from its first step to its last.
func (p *IDRanges) Has(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.of[id]
	return ok
}

// LearnOwners finds the UID ranges of sandboxes without a record by the owners of their layers. These sandboxes keep
// running even if containerd's database is lost.
func (d *Pool) LearnOwners(ids *IDRanges) error {
	layers, err := d.Layers()
	if err != nil {
		return fmt.Errorf("reading the layers there are: %w", err)
	}
	for _, name := range layers {
		if base, ok := ids.baseOf(d.baseOf(name)); ok && !ids.Has(name) {
			ids.Learn(name, base)
		}
	}
	return nil
}

// Base returns the first ID of a sandbox's range, or 0 if it has none.
func (p *IDRanges) Base(id string) uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of[id]
}

// Count returns how many sandboxes have a range.
func (p *IDRanges) Count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.taken)
}
