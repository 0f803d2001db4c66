package warmpool

import (
	"testing"
	"time"

	"berth/proto"
)

// TestWarmPlan checks how many sandboxes each image gets of the pool's limit.
func TestWarmPlan(t *testing.T) {
	p := New(Config{Size: Size{Min: 2, Max: 8}}, nil)
	kind := func(image string) Kind { return Kind{Image: image, Class: proto.ClassRunc} }
	add := func(name string, ago time.Duration, asked int) {
		of := p.kindPool(kind(name))
		of.used = time.Now().Add(-ago)
		for range asked {
			of.demand.note()
		}
	}
	p.pinned = kind("first")
	p.kindPool(p.pinned)
	add("busy", time.Second, 20)
	add("once", time.Minute, 1)
	add("old", time.Hour, 0)
	if got := p.planLocked(); got[kind("first")] != 2 || got[kind("busy")] != 4 || got[kind("once")] != 2 || got[kind("old")] != 0 {
		t.Errorf("%v", got)
	}
	d := p.kinds[kind("busy")].demand
	for range 5 {
		d.tick()
	}
	if d.target() < 17 || d.target() > 20 {
		t.Errorf("5 s after a burst of 20 there are to be %d", d.target())
	}
	for range 120 {
		d.tick()
	}
	if d.target() > 2 {
		t.Errorf("two minutes after it %d", d.target())
	}
}

// TestWarmWaitsForClaims checks that the pool makes no sandbox while a session is being given one, and for a moment
// after that, up to the time patience.
func TestWarmWaitsForClaims(t *testing.T) {
	p := New(Config{Size: Size{Max: 1}}, nil)
	p.taken = 1
	began := time.Now()
	var ended time.Time
	time.AfterFunc(2*quiet, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.bound()
		ended = p.asked
	})
	p.awaitQuiet(t.Context())
	if time.Since(began) >= patience {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if ended.IsZero() || time.Since(ended) < quiet {
		t.Errorf("it waited for %s; the claim ended at %s", time.Since(began), ended)
	}
}
