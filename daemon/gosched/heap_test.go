package gosched

import (
	"runtime"
	"runtime/metrics"
	"testing"
)

// TestRaiseHeap: with the floor, garbage is collected when the heap has grown by that much more.
func TestRaiseHeap(t *testing.T) {
	goal := func() uint64 {
		runtime.GC()
		s := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
		metrics.Read(s)
		return s[0].Value.Uint64()
	}
	before := goal()
	floor := raiseHeap()
	after := goal()
	runtime.KeepAlive(floor)
	if after < before+heapFloor*3/2 {
		t.Errorf("garbage is collected at %d bytes, and at %d before", after, before)
	}
}
