package containerd

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"berth/proto"
	"berth/runtime/cgroup"
)

// shimmed runs a test with sandboxes of each class that have a shim: gVisor's, and runc's as an older daemon started
// them.
func shimmed(t *testing.T, r *Runtime, run func(t *testing.T, class proto.RuntimeClass)) {
	t.Helper()
	r.direct = false
	defer func() { r.direct = true }()
	classes(t, run)
}

// TestShimmedByOlderDaemon checks that a sandbox with a shim goes on, is reported as it is, and is removed
// completely, although new sandboxes get no shim.
func TestShimmedByOlderDaemon(t *testing.T) {
	r := openTest(t)
	testImage(t, r)
	before := holdings(t, r)
	r.direct = false
	id, spec := startTest(t, r, proto.ClassRunc)
	r.direct = true
	if n := signalShim(t, id, 0); n != 1 {
		t.Fatalf("%d shims of one sandbox", n)
	}
	if got := ask(t, r, id, guestRequest{Op: "ping"}).Text; got != "pong" {
		t.Errorf("it answers %q", got)
	}
	if iso, err := r.Inspect(t.Context(), id); err != nil || !iso.OwnCounts {
		t.Errorf("inspected: %+v, %v", iso, err)
	}
	if err := r.Start(t.Context(), id, spec); err != nil {
		t.Errorf("starting what runs: %v", err)
	}
	if err := r.Stop(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	nothingOf(t, r, []string{id})
	if err := r.Start(t.Context(), id, spec); err != nil {
		t.Fatalf("starting it again: %v", err)
	}
	if n := signalShim(t, id, 0); n != 0 {
		t.Errorf("%d shims of a new sandbox", n)
	}
	if err := r.Stop(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if err := r.RemoveWorkspace(t.Context(), spec.Workspace); err != nil {
		t.Error(err)
	}
	noMore(t, r, before)
}

// TestShimKilled checks that a sandbox whose shim dies ends, and that it can be removed completely.
func TestShimKilled(t *testing.T) {
	r := openTest(t)
	testImage(t, r)
	shimmed(t, r, func(t *testing.T, class proto.RuntimeClass) {
		first, _ := startTest(t, r, class) // runsc makes one network namespace for all its gofers and keeps it
		if err := r.Stop(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		before := holdings(t, r)
		id, spec := startTest(t, r, class)
		killed := signalShim(t, id, unix.SIGKILL)
		if killed != 1 {
			t.Fatalf("%d shims of one sandbox", killed)
		}
		if err := r.Stop(t.Context(), id); err != nil {
			t.Fatalf("stopping: %v", err)
		}
		if left := cgroup.Dirs(id); len(left) > 0 {
			t.Errorf("cgroups left: %v", left)
		}
		if err := r.RemoveWorkspace(t.Context(), spec.Workspace); err != nil {
			t.Error(err)
		}
		noMore(t, r, before)
	})
}

// signalShim signals the shims of sandbox id and returns how many there are.
func signalShim(t *testing.T, id string, signal unix.Signal) (found int) {
	t.Helper()
	for _, p := range entries(t, "/proc") {
		cmd, _ := os.ReadFile("/proc/" + p + "/cmdline")
		if pid, err := strconv.Atoi(p); err == nil && strings.Contains(string(cmd), "-id\x00"+id) {
			if err := unix.Kill(pid, signal); err != nil {
				t.Fatal(err)
			}
			found++
		}
	}
	return found
}

// TestShimHangs checks that a sandbox whose shim hangs is ended and removed all the same, in bounded time.
func TestShimHangs(t *testing.T) {
	r := openTest(t)
	testImage(t, r)
	r.direct = false
	before := holdings(t, r)
	id, spec := startTest(t, r, proto.ClassRunc)
	if n := signalShim(t, id, unix.SIGSTOP); n != 1 {
		t.Fatalf("%d shims of one sandbox", n)
	}
	if err := r.Stop(t.Context(), id); err != nil {
		t.Fatalf("stopping: %v", err)
	}
	nothingOf(t, r, []string{id})
	if err := r.RemoveWorkspace(t.Context(), spec.Workspace); err != nil {
		t.Error(err)
	}
	noMore(t, r, before)
}
