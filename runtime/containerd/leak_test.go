package containerd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/snapshots"

	"berth/proto"
	"berth/runtime/cgroup"
	"berth/runtime/diskpool"
	"berth/runtime/images"
)

// holdings counts everything that a sandbox takes and must give back.
func holdings(t *testing.T, r *Runtime) map[string]int {
	t.Helper()
	h := map[string]int{
		"mounts":    lines(t, "/proc/self/mountinfo"),
		"fds":       len(descriptors(t)),
		"sockets":   len(entries(t, filepath.Join(r.run, "s"))),
		"bundles":   len(entries(t, r.cfg.taskDir())) + len(entries(t, r.cfg.bundleDir())),
		"layers":    len(entries(t, r.disk.LayerDir())),
		"goroutine": runtime.NumGoroutine(),
	}
	// A pool may be making sandboxes meanwhile.
	h["ranges"] = r.ids.Count()
	h["locks"] = r.locks.Len()
	states, _ := filepath.Glob(filepath.Join(r.run, "r", images.Namespace, "*"+proto.ContainerPrefix+"*"))
	h["states"], h["snapshots"], h["processes"] = len(states), 0, 0
	ctx := r.ns(t.Context())
	_ = r.client.SnapshotService(images.Snapshotter).Walk(ctx, func(_ context.Context, _ snapshots.Info) error {
		h["snapshots"]++
		return nil
	})
	records, err := r.client.ContainerService().List(ctx)
	if err != nil {
		t.Fatal(err)
	}
	h["records"] = len(records)
	leases, err := r.client.LeasesService().List(ctx)
	if err != nil {
		t.Fatal(err)
	}
	h["leases"] = len(leases)
	for _, p := range entries(t, "/proc") {
		if cmd, _ := os.ReadFile("/proc/" + p + "/cmdline"); strings.Contains(string(cmd), r.run) {
			h["processes"]++
		}
	}
	return h
}

// descriptors lists what the open descriptors are of, without two that do not belong to any sandbox: the cgroup root,
// which the first sandbox opens for all, and a removed file that containerd leaves to the garbage collector.
func descriptors(t *testing.T) (list []string) {
	t.Helper()
	for _, fd := range entries(t, "/proc/self/fd") {
		of, err := os.Readlink("/proc/self/fd/" + fd)
		if err == nil && of != cgroup.Root && !strings.Contains(of, "fsverity-check") { // that of the listing is closed
			list = append(list, of)
		}
	}
	slices.Sort(list)
	return list
}

func entries(t *testing.T, dir string) []string {
	t.Helper()
	got, err := diskpool.Names(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return got
}

func lines(t *testing.T, file string) int {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(b), "\n")
}

func TestNothingIsLeft(t *testing.T) {
	r := openTest(t)
	var made []string
	round := func(class proto.RuntimeClass) {
		id, spec := startTest(t, r, class)
		if got := ask(t, r, id, guestRequest{Op: "ping"}); got.Text != "pong" {
			t.Fatalf("no answer: %v", got)
		}
		made = append(made, id)
		if err := r.Stop(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if err := r.RemoveWorkspace(t.Context(), spec.Workspace); err != nil {
			t.Fatal(err)
		}
	}
	round(proto.ClassRunc) // runc makes what is made once and kept
	round(proto.ClassRunc) // the same by a setup program
	round(proto.ClassGVisor)
	before := holdings(t, r)
	for i := range 20 {
		class := proto.ClassRunc
		if i%4 == 3 {
			class = proto.ClassGVisor
		}
		round(class)
	}
	noMore(t, r, before)
	// No process or mount may hold a namespace, and no cgroup may hold a process.
	nothingOf(t, r, made)
	inv, err := r.List(t.Context())
	if err != nil || len(inv.Sandboxes)+len(inv.Workspaces) > 0 {
		t.Errorf("left: %+v, %v", inv, err)
	}
}

// TestFailedStart checks that a start that fails half way leaves nothing, and that its error has our words.
func TestFailedStart(t *testing.T) {
	r := openTest(t)
	testImage(t, r)
	before := holdings(t, r)
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, []byte("not a program"), 0o755); err != nil {
		t.Fatal(err)
	}
	good := r.guest
	r.guest = broken
	_, err := tryStart(t, r, proto.ClassRunc)
	r.guest = good
	if code := proto.CodeOf(err); code != proto.Unavailable || strings.Contains(err.Error(), "/") {
		t.Errorf("starting a broken guest: %q %v", code, err)
	}
	noMore(t, r, before)
}

// noMore checks that no more is held than before counts. Things that end in the background, such as a shim that was
// told to end, get some seconds.
func noMore(t *testing.T, r *Runtime, before map[string]int) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for {
		var more []string
		after := holdings(t, r)
		for what, n := range before {
			if after[what] > n {
				more = append(more, fmt.Sprintf("%s: %d before, %d after", what, n, after[what]))
			}
		}
		if len(more) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Error(strings.Join(more, "\n"))
			t.Logf("open: %q", descriptors(t))
			if m, _ := os.ReadFile("/proc/self/mountinfo"); strings.Contains(fmt.Sprint(more), "mounts") {
				t.Logf("%s", m)
			}
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// TestHalfMade checks that List names a sandbox of which any part exists, and that Stop removes it.
func TestHalfMade(t *testing.T) {
	r := openTest(t)
	onlyLayer := newID(proto.ContainerPrefix)
	if _, _, err := r.disk.MakeLayer(onlyLayer, diskpool.Claim{}, 0, 32<<20); err != nil {
		t.Fatal(err)
	}
	inv, err := r.List(t.Context())
	if got := fmt.Sprint(inv.Sandboxes); err != nil || !strings.Contains(got, onlyLayer) {
		t.Fatalf("listed %v, %v", got, err)
	}
	stopAll(t, r)
	if inv, err = r.List(t.Context()); err != nil || len(inv.Sandboxes) > 0 {
		t.Errorf("left %v, %v", inv.Sandboxes, err)
	}
}

// TestHalfRemoved checks that the next daemon finishes the removals of containerd that a kill interrupted.
func TestHalfRemoved(t *testing.T) {
	cfg := testConfig(t.TempDir())
	r := openWith(t, cfg)
	id := newID(proto.ContainerPrefix)
	hidden := filepath.Join(cfg.taskDir(), "."+id)
	if err := os.MkdirAll(filepath.Join(hidden, "rootfs"), 0o711); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(hidden, "config.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	openWith(t, cfg)
	if left := entries(t, cfg.taskDir()); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}
