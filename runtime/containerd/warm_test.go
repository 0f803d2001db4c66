package containerd

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/proto"
	"berth/runtime/cgroup"
	"berth/runtime/diskpool"
	"berth/runtime/warmpool"
	"berth/session"
	"berth/test/logtest"
)

// openWarm opens a Runtime whose pool holds two sandboxes of the test image.
func openWarm(t testing.TB, change ...func(*Config)) *Runtime {
	t.Helper()
	cfg := testConfig(t.TempDir())
	cfg.Warm = Warm{Min: 2, Max: 4, Image: "test", Limits: testLimits}
	for _, f := range change {
		f(&cfg)
	}
	r := openWith(t, cfg)
	testImage(t, r)
	r.KeepWarm()
	awaitWarm(t, r, cfg.Warm.Min)
	return r
}

// awaitWarm waits until the pool has n sandboxes of the test image ready and makes no more.
func awaitWarm(t testing.TB, r *Runtime, n int) {
	t.Helper()
	image := testImage(t, r)
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		have := r.WarmCounts()
		if have.Ready[image] == n && have.Making[image] == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the pool has %+v, want %d ready", have, n)
		}
	}
}

// awaitFilled waits until the pool has a sandbox ready and makes no more.
func awaitFilled(t testing.TB, r *Runtime) {
	t.Helper()
	image := testImage(t, r)
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		have := r.WarmCounts()
		if have.Ready[image] > 0 && have.Making[image] == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the pool has %+v", have)
		}
	}
}

// TestWarmStart checks that a session gets a pooled sandbox with its own workspace and limits, and that nothing shows
// that the sandbox was not made for it.
func TestWarmStart(t *testing.T) {
	r := openWarm(t)
	id, spec := startTest(t, r, proto.ClassRunc)
	if n := r.WarmCounts(); n.Hits != 1 || n.Misses != 0 {
		t.Fatalf("not out of the pool: %+v", n)
	}
	owners(t, r, id)
	fileNumbers(t, r, id, spec)
	if iso, err := r.Inspect(t.Context(), id); err != nil || !iso.Seccomp || iso.HostUID < diskpool.DefaultFirst {
		t.Errorf("%+v, %v", iso, err)
	}
	inv, err := r.List(t.Context())
	if err != nil || len(inv.Sandboxes) != 1 || inv.Sandboxes[0] != id || len(inv.Workspaces) != 1 {
		t.Errorf("listed %+v, %v", inv, err)
	}
	if err := r.Start(t.Context(), id, spec); err != nil || r.WarmCounts().Hits != 1 {
		t.Errorf("starting what runs: %v, %+v", err, r.WarmCounts())
	}
	if err := r.RemoveWorkspace(t.Context(), spec.Workspace); proto.CodeOf(err) != proto.Conflict {
		t.Errorf("removing a workspace in use: %v", err)
	}
	ask(t, r, id, guestRequest{Op: "write", Path: "/workspace/kept", Size: 100})
	if err := r.Stop(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Dial(t.Context(), id); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("dialling what was stopped: %v", err)
	}
	spec.Limits = proto.Limits{CPUs: 0.5, MemoryBytes: 64 << 20, PIDs: 32, DiskBytes: 64 << 20, OpenFiles: 300}
	if err := r.Start(t.Context(), id, spec); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, r, id, guestRequest{Op: "read", Path: "/workspace/kept"}); got.Err != "" {
		t.Error(got.Err)
	}
	if n := r.WarmCounts(); n.Hits != 2 {
		t.Errorf("%+v", n)
	}
	stopAll(t, r)
	awaitWarm(t, r, 2)
}

// TestWarmLayer checks that what a session has written outside its workspace is there at its next start, whichever way
// its sandbox was made, and that a session that has written nothing gets a sandbox of the pool again.
func TestWarmLayer(t *testing.T) {
	for _, class := range []proto.RuntimeClass{proto.ClassRunc, proto.ClassGVisor} {
		t.Run(string(class), func(t *testing.T) {
			r := openWarm(t, func(c *Config) { c.Warm.Class = class })
			id, spec := startTest(t, r, class)
			next := func(pooled bool) {
				t.Helper()
				if err := r.Stop(t.Context(), id); err != nil {
					t.Fatal(err)
				}
				awaitWarm(t, r, 2)
				hits := r.WarmCounts().Hits
				if err := r.Start(t.Context(), id, spec); err != nil {
					t.Fatal(err)
				}
				if n := r.WarmCounts(); n.Misses != 0 || (n.Hits > hits) != pooled {
					t.Errorf("out of the pool: %t; %+v", !pooled, n)
				}
			}
			next(true)
			for _, path := range []string{"/home/kept", "/etc/kept", "/tmp/kept"} {
				if got := ask(t, r, id, guestRequest{Op: "write", Path: path, Size: 3}); got.Err != "" {
					t.Fatal(got.Err)
				}
			}
			for range 2 { // the second time, the sandbox was made over the layer
				next(false)
				for _, path := range []string{"/home/kept", "/etc/kept", "/tmp/kept"} {
					if got := ask(t, r, id, guestRequest{Op: "read", Path: path}); got.Err != "" || len(got.Text) != 3 {
						t.Errorf("%s: %+v", path, got)
					}
				}
			}
		})
	}
}

// BenchmarkWarmStart measures a claim, without the removal and the making of pooled sandboxes.
func BenchmarkWarmStart(b *testing.B) {
	r := openWarm(b, func(c *Config) { c.Warm.Min, c.Warm.Max = 8, 8 })
	spec := session.Spec{Image: testImage(b, r), Class: proto.ClassRunc, Workspace: newID(proto.WorkspacePrefix),
		Layer: newID(proto.LayerPrefix), Limits: testLimits}
	for b.Loop() {
		id := newID(proto.ContainerPrefix)
		spec.Workspace = newID(proto.WorkspacePrefix)
		if err := r.Start(b.Context(), id, spec); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := r.Stop(b.Context(), id); err != nil {
			b.Fatal(err)
		}
		awaitWarm(b, r, 8)
		b.StartTimer()
	}
	if n := r.WarmCounts(); n.Misses > 0 {
		b.Fatalf("%+v", n)
	}
}

// TestWarmLimits checks that a session gets the limits that it asked for, not those that the pooled sandbox was made
// with, and that this counts as a hit.
func TestWarmLimits(t *testing.T) {
	r := openWarm(t)
	limits := proto.Limits{CPUs: 0.5, MemoryBytes: 64 << 20, PIDs: 40, DiskBytes: 24 << 20, OpenFiles: 300}
	s := newDaemonSandbox(testImage(t, r), proto.ClassRunc)
	s.Spec.Limits = limits
	if err := r.Start(t.Context(), s.ID, s.Spec); err != nil {
		t.Fatal(err)
	}
	if n := r.WarmCounts(); n.Hits != 1 {
		t.Fatalf("%+v", n)
	}
	if got := ask(t, r, s.ID, guestRequest{Op: "child", Path: "eat", Size: 100 << 20}); got.Err == "" {
		t.Error("100 MiB of 64 can be had")
	}
	forked, _ := strconv.Atoi(ask(t, r, s.ID, guestRequest{Op: "child", Path: "fork", Size: 200}).Text)
	if forked == 0 || forked > int(limits.PIDs) {
		t.Errorf("%d processes with a limit of %d", forked, limits.PIDs)
	}
	for _, dir := range []string{"/workspace", "/home"} {
		if got := ask(t, r, s.ID, guestRequest{Op: "write", Path: dir + "/big",
			Size: 48 << 20}); got.Number > limits.DiskBytes || got.Err == "" {
			t.Errorf("%s took %d bytes of %d: %q", dir, got.Number, limits.DiskBytes, got.Err)
		}
	}
	if soft, hard := limitIn(t, ask(t, r, s.ID, guestRequest{Op: "read", Path: "/proc/self/limits"}).Text,
		"Max open files"); soft != 300 || hard != 300 {
		t.Errorf("%d open files, at most %d", soft, hard)
	}
	// A higher limit than the pooled sandboxes have is a miss, once: the next ones have that limit.
	s = newDaemonSandbox(s.Spec.Image, proto.ClassRunc)
	s.Spec.Limits.OpenFiles = testLimits.OpenFiles + 1
	if err := r.Start(t.Context(), s.ID, s.Spec); err != nil {
		t.Fatal(err)
	}
	if soft, hard := limitIn(t, ask(t, r, s.ID, guestRequest{Op: "read", Path: "/proc/self/limits"}).Text,
		"Max open files"); soft != 513 || hard != 513 {
		t.Errorf("%d open files, at most %d", soft, hard)
	}
	if n := r.WarmCounts(); n.Hits != 1 || n.Misses != 1 {
		t.Errorf("%+v", n)
	}
}

// TestWarmSick checks that no session gets a pooled sandbox that has ended or whose guest does not answer, and that
// the pool replaces it.
func TestWarmSick(t *testing.T) {
	for name, signal := range map[string]unix.Signal{"ended": unix.SIGKILL, "hangs": unix.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			r := openWarm(t, func(c *Config) { c.Warm.Min, c.Warm.Max = 1, 1 })
			sick := r.warm.Ready(testImage(t, r))[0]
			if err := unix.Kill(sick.PID, signal); err != nil {
				t.Fatal(err)
			}
			awaitSick(t, sick.PID)
			id, _ := startTest(t, r, proto.ClassRunc)
			if r.claims.sandbox(id) == sick.Name {
				t.Error("it was given out")
			}
			if got := ask(t, r, id, guestRequest{Op: "ping"}); got.Text != "pong" {
				t.Errorf("%+v", got)
			}
			for end := time.Now().Add(time.Minute); r.warm.Owns(sick.Name) && time.Now().Before(end); {
				time.Sleep(10 * time.Millisecond)
			}
			nothingNamed(t, r, sick.Name)
			awaitWarm(t, r, 1)
		})
	}
}

// TestWarmEnded checks that a session gets the next sandbox if one has ended and the pool has not noticed yet.
func TestWarmEnded(t *testing.T) {
	r := openWarm(t, func(c *Config) { c.Warm.Min, c.Warm.Max = 2, 2 })
	r.warm.Stop() // otherwise the pool would notice first
	ready := r.warm.Ready(testImage(t, r))
	next, ended := ready[0], ready[1]
	if err := unix.Kill(ended.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaitSick(t, ended.PID)
	if id, _ := startTest(t, r, proto.ClassRunc); r.claims.sandbox(id) != next.Name {
		t.Errorf("%s was given, and neither %s nor, rightly, %s", r.claims.sandbox(id), ended.Name, next.Name)
	}
}

// awaitSick waits until no thread of a process answers any more. A thread that is busy when the signal is sent stops
// a little later.
func awaitSick(t *testing.T, pid int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid)) // the pattern is valid
		if !slices.ContainsFunc(threads, answers) {
			return
		}
		if time.Now().After(end) {
			t.Fatal("it goes on")
		}
	}
}

// answers reports whether a thread is neither stopped nor ending.
func answers(stat string) bool {
	b, _ := os.ReadFile(stat)
	_, rest, _ := strings.Cut(string(b), ") ")
	return rest != "" && !strings.Contains("TZX", rest[:1])
}

// nothingNamed checks that nothing is left of a sandbox.
func nothingNamed(t *testing.T, r *Runtime, name string) {
	t.Helper()
	if r.ids.Has(name) || r.hasTaskDir(name) || len(cgroup.Dirs(name)) > 0 ||
		slices.Contains(entries(t, r.disk.LayerDir()), name) {
		t.Errorf("something is left of %s: %v", name, cgroup.Dirs(name))
	}
}

// TestWarmRemoval checks that a sandbox that cannot be removed does not block the removal of others.
func TestWarmRemoval(t *testing.T) {
	r := openWarm(t)
	image := testImage(t, r)
	pooled := r.warm.Ready(image)
	stuck, other := pooled[0].Name, pooled[1].Name
	layer, err := os.Open(r.disk.LayerPath(stuck))
	if err != nil {
		t.Fatal(err)
	}
	defer layer.Close()
	immutable := func(flags int) {
		t.Helper()
		if err := unix.IoctlSetPointerInt(int(layer.Fd()), unix.FS_IOC_SETFLAGS, flags); err != nil {
			t.Fatal(err)
		}
	}
	immutable(unix.STATX_ATTR_IMMUTABLE) // the flag of the ioctl has the same value
	r.warm.Forget(t.Context(), image)
	if !r.warm.Owns(stuck) || r.warm.Owns(other) {
		t.Errorf("the stuck one is there: %t; the other one: %t", r.warm.Owns(stuck), r.warm.Owns(other))
	}
	nothingNamed(t, r, other)
	immutable(0)
	r.warm.RemovePending(t.Context())
	nothingNamed(t, r, stuck)
}

// TestWarmLeft checks what a daemon takes over from one that was killed: a workspace that was made ahead still
// belongs to its user, and a sandbox that another program made is not adopted.
func TestWarmLeft(t *testing.T) {
	r := openWarm(t)
	m := r.warm.Ready(testImage(t, r))[0]
	id := newID(proto.WorkspacePrefix)
	path, err := r.disk.MakeWorkspace(id, testLimits.DiskBytes)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, 0, 0); err != nil {
		t.Fatal(err)
	}
	if _, err = r.disk.MakeWorkspace(id, testLimits.DiskBytes); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || st.Uid != 1000 || st.Gid != 1000 {
		t.Errorf("it belongs to %d:%d, %v", st.Uid, st.Gid, err)
	}
	if err := r.disk.RemoveWorkspace(id); err != nil {
		t.Error(err)
	}
	rec, err := r.client.ContainerService().Get(r.ns(t.Context()), m.Name)
	if err != nil {
		t.Fatal(err)
	}
	left := leftOf(rec)
	adopted, err := r.warm.Adopt(t.Context(), left)
	if err != nil {
		t.Fatal(err)
	}
	adopted.Close()
	var label warmpool.Label
	if err := json.Unmarshal([]byte(left.Label), &label); err != nil {
		t.Fatal(err)
	}
	left.Label = strings.Replace(left.Label, label.Daemon, "0000000000000000", 1)
	if adopted, err := r.warm.Adopt(t.Context(), left); err == nil {
		t.Error("one that another program made is taken over")
		adopted.Close()
	}
}

// TestWarmBrokenClaim checks that a claim that fails half way discards its sandbox, and that the session is started
// cold.
func TestWarmBrokenClaim(t *testing.T) {
	r := openWarm(t)
	var names []string
	for _, m := range r.warm.Ready(testImage(t, r)) {
		names = append(names, m.Name)
		// makes the write of the claim fail
		if err := os.Mkdir(filepath.Join(r.disk.LayerPath(m.Name), "claim"), 0o700); err != nil {
			t.Error(err)
		}
	}
	id, spec := startTest(t, r, proto.ClassRunc)
	if n := r.WarmCounts(); n.Hits != 0 || n.Misses != 1 || r.claims.sandbox(id) != id {
		t.Errorf("%+v, %s", n, r.claims.sandbox(id))
	}
	fileNumbers(t, r, id, spec)
	stopAll(t, r)
	for end := time.Now().Add(time.Minute); (r.warm.Owns(names[0]) || r.warm.Owns(names[1])) &&
		time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	for _, name := range names {
		nothingNamed(t, r, name)
	}
	if err := r.RemoveWorkspace(t.Context(), spec.Workspace); err != nil {
		t.Error(err)
	}
}

// TestWarmImages checks that an image that loses its name loses its pooled sandboxes, and that they do not keep it.
func TestWarmImages(t *testing.T) {
	r := openWarm(t)
	image := testImage(t, r)
	if err := r.Images().Remove(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	gone, err := r.Images().Sweep(t.Context(), nil)
	if err != nil || len(gone) != 1 || gone[0] != image {
		t.Errorf("swept %v, %v", gone, err)
	}
	nothingOf(t, r, nil)
	testImage(t, r) // and with its name again
	awaitWarm(t, r, 2)
}

// TestWarmBroken checks that sessions get the usual errors if pooled sandboxes cannot be made, and that the log says
// it once.
func TestWarmBroken(t *testing.T) {
	var log logtest.Buffer
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, []byte("no program"), 0o755); err != nil {
		t.Fatal(err)
	}
	cfg := testConfig(t.TempDir())
	cfg.Guest, cfg.Warm = broken, Warm{Min: 2, Max: 4, Image: "test", Limits: testLimits}
	cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	r := openWith(t, cfg)
	image := testImage(t, r)
	r.KeepWarm()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if r.WarmCounts().Failures[image] > 1 {
			break
		}
	}
	if n := strings.Count(log.String(), "keeping containers warm"); n != 1 {
		t.Errorf("said %d times:\n%s", n, log.String())
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(r.run); !os.IsNotExist(err) {
		t.Errorf("the run directory is left: %v", err)
	}
}

// TestWarmClose checks that a pool ends completely with its Runtime, and that sandboxes that sessions took from it go
// on.
func TestWarmClose(t *testing.T) {
	dir := t.TempDir()
	with := func(c *Config) { c.Dir = dir }
	r := openWarm(t, with)
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(r.run); !os.IsNotExist(err) {
		t.Errorf("without any session the run directory is left: %v", err)
	}
	r = openWarm(t, with)
	id, spec := startTest(t, r, proto.ClassRunc)
	sandbox := r.claims.sandbox(id)
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	next := openIn(t, dir) // without a pool
	if inv, err := next.List(t.Context()); err != nil || len(inv.Sandboxes) != 1 || inv.Sandboxes[0] != id {
		t.Errorf("listed %+v, %v", inv, err)
	}
	if got := ask(t, next, id, guestRequest{Op: "ping"}); got.Text != "pong" {
		t.Errorf("%+v", got)
	}
	if iso, err := next.Inspect(t.Context(), id); err != nil || iso.HostUID < diskpool.DefaultFirst {
		t.Errorf("%+v, %v", iso, err)
	}
	if err := next.RemoveWorkspace(t.Context(), spec.Workspace); proto.CodeOf(err) != proto.Conflict {
		t.Errorf("removing a workspace in use: %v", err)
	}
	if err := next.Stop(t.Context(), id); err != nil {
		t.Error(err)
	}
	nothingOf(t, next, []string{id, sandbox})
}

// TestWarmBurst checks that sessions that come together get one sandbox each, from the pool or not. The pool grows by
// the demand, within its limit, and shrinks when demand ends.
func TestWarmBurst(t *testing.T) {
	r := openWarm(t, func(c *Config) { c.Warm.Min, c.Warm.Max = 2, 5 })
	var wg sync.WaitGroup
	ids := make([]string, 9)
	for i := range ids {
		wg.Go(func() {
			s := newDaemonSandbox(testImage(t, r), proto.ClassRunc)
			ids[i] = s.ID
			if err := r.Start(t.Context(), s.ID, s.Spec); err != nil {
				t.Error(err)
			} else if got, err := tryAsk(t.Context(), r, s.ID, guestRequest{Op: "ping"}); err != nil ||
				got.Text != "pong" {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	wg.Wait()
	used := map[string]bool{}
	for _, id := range ids {
		used[r.claims.sandbox(id)] = true
	}
	if n := r.WarmCounts(); len(used) != len(ids) || n.Hits < 2 || n.Hits+n.Misses != int64(len(ids)) {
		t.Errorf("%d sandboxes for %d sessions; %+v", len(used), len(ids), n)
	}
	stopAll(t, r)
	awaitWarm(t, r, 5)
	r.warm.ForgetDemand() // as some minutes later
	awaitWarm(t, r, 2)
}
