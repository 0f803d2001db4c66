package containerd

import (
	"testing"
	"time"

	"berth/proto"
)

// TestRemovedIsFreed: what was removed is freed soon, and not with the file system's own next commit.
func TestRemovedIsFreed(t *testing.T) {
	r := openTest(t)
	if !r.disk.quota {
		t.Fatal("no disk limits on this machine")
	}
	for range 20 {
		id := newID(proto.ContainerPrefix)
		if _, _, err := r.disk.makeLayer(id, 0, 32<<20); err != nil {
			t.Fatal(err)
		}
		if err := r.disk.removeLayer(id); err != nil {
			t.Fatal(err)
		}
	}
	left := func() int {
		r.disk.tidy.mu.Lock()
		defer r.disk.tidy.mu.Unlock()
		return len(r.disk.tidy.dropped)
	}
	began := time.Now()
	for left() > 0 && time.Since(began) < 25*time.Second { // the file system's own commit comes after 30 s
		time.Sleep(50 * time.Millisecond) // the kernel tells nobody
	}
	if n := left(); n > 0 {
		t.Errorf("%d of 20 removed subvolumes hold their qgroup after %v", n, time.Since(began))
	}
}
