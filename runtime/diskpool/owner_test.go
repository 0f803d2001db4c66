package diskpool

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/runtime/btrfs"
	"berth/runtime/layer"
)

// TestOwner checks what owners have in the pool: copies share with their original, also after it has gone; a bound is
// kept; what the daemon must change goes beyond it; and the groups of owners that have nothing are removed.
func TestOwner(t *testing.T) {
	const mib = 1 << 20
	d := newLoopPool(t)
	if !d.countsOwners() {
		t.Skip("this kernel has no simple quotas that we use")
	}
	own := func(id, owner string) string {
		t.Helper()
		path, err := d.MakeWorkspace(id, 1<<30)
		if err == nil {
			err = d.Own(owner, path)
		}
		if err == nil {
			err = d.Own(owner, path) // as with each start
		}
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	fill := func(dir string, size int) error {
		return os.WriteFile(filepath.Join(dir, "file"), bytes.Repeat([]byte("0123456789abcdef"), size/16), 0o600)
	}
	has := func(owner string, want int64) {
		t.Helper()
		var got Space
		for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) { // the kernel frees after commits
			if err := d.Sync(); err != nil {
				t.Fatal(err)
			}
			var counted bool
			if got, counted = d.OwnerSpace(owner); !counted {
				t.Fatal("nothing is counted")
			}
			if diff := got.Used - want; diff >= 0 && diff < mib {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s has %d bytes, want %d", owner, got.Used, want)
			}
		}
	}
	first := own("first", "ann")
	if err := errors.Join(fill(first, 20*mib), fill(own("other", "bob"), 4*mib)); err != nil {
		t.Fatal(err)
	}
	if err := d.TakeSnapshot("snapshot", "ann", "first", "", ""); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"one", "two"} {
		if err := d.CopyWorkspace("snapshot", "ann", id, id); err != nil {
			t.Fatal(err)
		}
	}
	has("ann", 20*mib)
	has("bob", 4*mib)
	if err := errors.Join(d.RemoveWorkspace("first"), d.RemoveSnapshot("snapshot")); err != nil {
		t.Fatal(err)
	}
	has("ann", 20*mib)

	if err := d.LimitOwners(24 * mib); err != nil {
		t.Fatal(err)
	}
	one := d.WorkspacePath("one")
	if err := fill(own("more", "ann"), 16*mib); !errors.Is(err, unix.EDQUOT) {
		t.Errorf("a write beyond the bound: %v", err)
	}
	link := func() error { return os.Symlink("x", filepath.Join(one, "link")) }
	if err := d.BeyondBound(one, link); err != nil {
		t.Errorf("a change of the daemon's own: %v", err)
	}
	if err := fill(own("third", "ann"), 16*mib); !errors.Is(err, unix.EDQUOT) {
		t.Errorf("a write after the bound was lifted for a moment: %v", err)
	}
	if dir := d.OwnerGroup(one); dir != d.groupDir(groupOf("ann")) {
		t.Errorf("the owner's group is %q", dir)
	}

	for _, id := range []string{"one", "two", "more", "third"} {
		if err := d.RemoveWorkspace(id); err != nil {
			t.Fatal(err)
		}
	}
	has("ann", 0)
	for end := time.Now().Add(time.Minute); Exists(d.groupDir(groupOf("ann"))); time.Sleep(50 * time.Millisecond) {
		if err := errors.Join(d.Sync(), d.LimitOwners(0)); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(end) {
			t.Fatal("the group of an owner without anything stays")
		}
	}
	has("bob", 4*mib)
	has("nobody", 0)
}

// TestFullQuotasCountNoOwners checks that a pool that cannot bound owners says so instead of letting them have more.
func TestFullQuotasCountNoOwners(t *testing.T) {
	d := newLoopPool(t)
	path, err := d.MakeWorkspace("ws", 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	d.simple = false // as in a pool of an older kernel
	if err := d.LimitOwners(1 << 30); err == nil {
		t.Error("a bound that nothing keeps is accepted")
	}
	if err := errors.Join(d.LimitOwners(0), d.Own("ann", path)); err != nil {
		t.Error(err)
	}
	if g, err := btrfs.GroupOf(path); g != 0 || err != nil {
		t.Errorf("group %d, %v", g, err)
	}
	if _, counted := d.OwnerSpace("ann"); counted {
		t.Error("owners are counted")
	}
}

// TestLayersAtTheBound stops and starts a sandbox of an owner at its bound, while another of its programs fills the
// disk, and takes room whenever it can. The layer is kept, and the bound holds but for what the daemon itself writes.
func TestLayersAtTheBound(t *testing.T) {
	const mib, bound, rounds = 1 << 20, 48 << 20, 200
	d := newLoopPool(t)
	if !d.countsOwners() {
		t.Skip("this kernel has no simple quotas that we use")
	}
	if err := d.LimitOwners(bound); err != nil {
		t.Fatal(err)
	}
	c := Claim{Session: "session", Workspace: "workspace", Layer: "layer"}
	begin := func() string {
		t.Helper()
		path, _, err := d.MakeLayer(c.Session, c, 1<<20, 1<<30)
		if err == nil {
			err = d.Own("ann", path)
		}
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	if err := os.WriteFile(filepath.Join(begin(), layer.Upper, "kept"), make([]byte, mib), 0o600); err != nil {
		t.Fatal(err)
	}
	greedy, err := d.MakeWorkspace("greedy", 1<<40)
	if err == nil {
		err = d.Own("ann", greedy)
	}
	if err != nil {
		t.Fatal(err)
	}
	done, full := make(chan struct{}), make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		f, err := os.Create(filepath.Join(greedy, "file"))
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		var reached bool
		for size := int64(0); ; {
			select {
			case <-done:
				return
			default:
			}
			if unix.Fallocate(int(f.Fd()), 0, size, 64<<10) == nil {
				size += 64 << 10
			} else if !reached {
				reached = true
				close(full)
			}
		}
	})
	<-full
	for range rounds {
		if err := d.ReleaseLayer(c.Session); err != nil {
			t.Fatalf("stopping: %v", err)
		}
		path := begin()
		if st, err := os.Stat(filepath.Join(path, layer.Upper, "kept")); err != nil || st.Size() != mib {
			t.Fatalf("the layer is lost: %v", err)
		}
	}
	close(done)
	writer.Wait()
	space, _ := d.OwnerSpace("ann")
	t.Logf("%d MiB beyond the bound after %d stops and starts", (space.Used-bound)/mib, rounds)
	if space.Used > bound+bound/2 {
		t.Errorf("%d bytes, bound %d", space.Used, bound)
	}
}
