package containerd

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"berth/proto"
	"berth/runtime/cgroup"
	"berth/runtime/diskpool"
	"berth/runtime/layer"
)

func listenUnix(t *testing.T, path string) net.Listener {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestLimits(t *testing.T) {
	r := openTest(t)
	testImage(t, r)
	ways(t, r, func(t *testing.T, class proto.RuntimeClass) {
		id, _ := startTest(t, r, class)
		if got := ask(t, r, id, guestRequest{Op: "child", Path: "eat", Size: 32 << 20}); got.Err != "" {
			t.Errorf("32 MiB of 128 cannot be had: %v", got)
		}
		got, err := tryAsk(t.Context(), r, id, guestRequest{Op: "child", Path: "eat", Size: 512 << 20})
		if err == nil && got.Err == "" {
			t.Errorf("512 MiB of 128 can be had: %v", got)
		}
		if class == proto.ClassGVisor {
			return // gVisor's whole kernel counts as one process, and the host kills that
		}
		if err != nil || !strings.Contains(got.Err, "killed") {
			t.Errorf("the eater was not killed alone: %v %v", got, err)
		}
		if !strings.Contains(oomReport(t, r, id), "oom_kill 1") {
			t.Errorf("the kill cannot be seen from inside:\n%s", oomReport(t, r, id))
		}
	})
}

// oomReport reads the counter of kills for lack of memory, where this kind of host has one.
func oomReport(t *testing.T, r *Runtime, id string) string {
	t.Helper()
	for _, path := range []string{"/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"} {
		if got := ask(t, r, id, guestRequest{Op: "read", Path: path}); got.Err == "" {
			return got.Text
		}
	}
	t.Fatal("no memory controller to be read inside")
	return ""
}

func TestPidsAndCPU(t *testing.T) {
	r := openTest(t)
	id, _ := startTest(t, r, proto.ClassRunc)
	forked, _ := strconv.Atoi(ask(t, r, id, guestRequest{Op: "child", Path: "fork", Size: 200}).Text)
	if forked == 0 || forked > int(testLimits.PIDs) {
		t.Errorf("%d processes could be started with a limit of %d", forked, testLimits.PIDs)
	}
	if got := ask(t, r, id, guestRequest{Op: "statfs", Path: "/dev/shm"}); got.Number != testLimits.MemoryBytes/4 {
		t.Errorf("/dev/shm has %d bytes, want %d", got.Number, testLimits.MemoryBytes/4)
	}
}

// TestWeight checks that all sandboxes together have the weight of one process on each processor, or of all services,
// even if an earlier daemon set another weight.
func TestWeight(t *testing.T) {
	r := openTest(t)
	testImage(t, r)
	ways(t, r, func(t *testing.T, class proto.RuntimeClass) {
		startTest(t, r, class)
		dir, v2 := cgroup.Dir("", "cpu")
		file, want := filepath.Join(dir, "cpu.shares"), 1024*runtime.NumCPU()
		switch {
		case v2 && cgroup.InRootCgroup():
			file, want = filepath.Join(dir, "cpu.weight"), 100*runtime.NumCPU()
		case v2:
			file, want = filepath.Join(dir, "cpu.weight"), 100
		}
		if err := os.WriteFile(file, []byte("77"), 0); err != nil {
			t.Fatal(err)
		}
		startTest(t, r, class)
		if got, err := os.ReadFile(file); err != nil || strings.TrimSpace(string(got)) != strconv.Itoa(want) {
			t.Errorf("%s is %q, %v", file, got, err)
		}
	})
}

// TestDiskLimits checks the disk limits of workspace and layer, and that a full one does not block the removal of the
// sandbox.
func TestDiskLimits(t *testing.T) {
	r := openTest(t)
	if f := r.Facts(); f.Pool != diskpool.Loop && f.Pool != diskpool.Btrfs || !f.DiskLimits {
		t.Fatalf("no disk limits on this machine: %+v", f)
	}
	testImage(t, r)
	classes(t, func(t *testing.T, class proto.RuntimeClass) {
		id, spec := startTest(t, r, class)
		for _, dir := range []string{"/workspace", "/home"} {
			small := ask(t, r, id, guestRequest{Op: "write", Path: filepath.Join(dir, "small"), Size: 4 << 20})
			if small.Err != "" {
				t.Errorf("4 MiB do not fit in %s: %s", dir, small.Err)
			}
			big := ask(t, r, id, guestRequest{Op: "write", Path: filepath.Join(dir, "big"), Size: 64 << 20})
			full := strings.Contains(big.Err, "quota") || strings.Contains(big.Err, "no space")
			if !full || big.Number > testLimits.DiskBytes {
				t.Errorf("%s took %d bytes of 32 MiB: %q", dir, big.Number, big.Err)
			}
		}
		if err := r.Stop(t.Context(), id); err != nil {
			t.Errorf("stopping: %v", err)
		}
		if err := r.RemoveWorkspace(t.Context(), spec.Workspace); err != nil {
			t.Errorf("removing the workspace: %v", err)
		}
	})
}

// TestRunDirectory checks that files that root writes beside the guest's socket count against the disk limit.
func TestRunDirectory(t *testing.T) {
	r := openTest(t)
	testImage(t, r)
	ways(t, r, func(t *testing.T, class proto.RuntimeClass) {
		id, _ := startTest(t, r, class)
		big := ask(t, r, id, guestRequest{Op: "write", Path: filepath.Join(layer.InsideRun, "big"), Size: 64 << 20})
		if !strings.Contains(big.Err, "quota") && !strings.Contains(big.Err, "no space") ||
			big.Number > testLimits.DiskBytes {
			t.Errorf("it took %d bytes of 32 MiB: %q", big.Number, big.Err)
		}
	})
}

// TestMeasure checks that the meters show, from outside, what was used and refused.
func TestMeasure(t *testing.T) {
	r := openTest(t)
	id, spec := startTest(t, r, proto.ClassRunc)
	before := r.Measure(id, spec.Workspace)
	if before.OOMKills != 0 || before.PIDRefusals != 0 || before.Workspace.Limit != testLimits.DiskBytes ||
		before.Workspace.Full() || before.Layer.Full() || before.Pool.Full() {
		t.Errorf("at the start: %+v", before)
	}
	ask(t, r, id, guestRequest{Op: "write", Path: "/workspace/big", Size: 64 << 20})
	ask(t, r, id, guestRequest{Op: "child", Path: "fork", Size: 200})
	ask(t, r, id, guestRequest{Op: "child", Path: "eat", Size: 512 << 20})
	after := r.Measure(id, spec.Workspace)
	if u := r.Usage(id, spec.Workspace); u.CPUSeconds <= 0 || u.MemoryBytes <= 0 || u.CacheBytes < 0 || u.Tasks < 1 ||
		u.ThrottledSeconds < 0 || u.Workspace != after.Workspace || u.Layer.Used <= 0 {
		t.Errorf("in use: %+v", u)
	}
	if after.OOMKills != 1 || after.PIDRefusals < 1 || !after.Workspace.Full() || after.Layer.Full() {
		t.Errorf("after using all there is: %+v", after)
	}
	// The files that are open for measuring close with the sandbox. The counters of a new sandbox with the same name
	// start at zero.
	if n := openGauges(t, id); n == 0 {
		t.Error("nothing is kept open between two measurements")
	}
	if err := r.Stop(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if stopped := r.Measure(id, spec.Workspace); stopped.OOMKills != -1 || stopped.PIDRefusals != -1 ||
		stopped.Layer.Limit != 0 || !stopped.Workspace.Full() {
		t.Errorf("when it is stopped: %+v", stopped)
	}
	if n := openGauges(t, id); n > 0 {
		t.Errorf("%d files of a stopped sandbox are open", n)
	}
	if err := r.Start(t.Context(), id, spec); err != nil {
		t.Fatal(err)
	}
	if anew := r.Measure(id, spec.Workspace); anew.OOMKills != 0 || anew.PIDRefusals != 0 ||
		anew.Layer.Limit != testLimits.DiskBytes || !anew.Workspace.Full() {
		t.Errorf("when it is started again: %+v", anew)
	}
	if gone := r.Measure(newID(proto.ContainerPrefix), newID(proto.WorkspacePrefix)); gone.OOMKills != -1 ||
		gone.PIDRefusals != -1 || gone.Workspace.Limit != 0 {
		t.Errorf("of what is not there: %+v", gone)
	}
}

// openGauges counts the files of a sandbox's cgroup that this process has open.
func openGauges(t *testing.T, sandbox string) (n int) {
	t.Helper()
	const fds = "/proc/self/fd"
	for _, fd := range entries(t, fds) {
		if target, err := os.Readlink(filepath.Join(fds, fd)); err == nil && strings.HasPrefix(target, cgroup.Root) &&
			strings.Contains(target, sandbox) {
			n++
		}
	}
	return n
}

// TestSetLimits changes the limits of a running sandbox and its workspace, both ways, and refuses what is used already.
func TestSetLimits(t *testing.T) {
	for _, class := range []proto.RuntimeClass{proto.ClassRunc, proto.ClassGVisor} {
		t.Run(string(class), func(t *testing.T) {
			r := openTest(t)
			id, spec := startTest(t, r, class)
			want := spec.Limits
			want.CPUs, want.MemoryBytes, want.PIDs, want.DiskBytes = 0.25, spec.Limits.MemoryBytes/2, 32,
				spec.Limits.DiskBytes/2
			for _, step := range []proto.Limits{want, spec.Limits} {
				if err := r.SetLimits(t.Context(), id, spec, step); err != nil {
					t.Fatal(err)
				}
				name := r.claims.sandbox(id)
				for controller, files := range map[string][3]string{
					"memory": {"memory.limit_in_bytes", "memory.max", fmt.Sprint(step.MemoryBytes)},
					"cpu":    {"cpu.cfs_quota_us", "cpu.max", fmt.Sprint(int64(step.CPUs * 100_000))},
				} {
					dir, v2 := cgroup.Dir(name, controller)
					file := files[0]
					if v2 {
						file = files[1]
					}
					text, err := os.ReadFile(filepath.Join(dir, file))
					if err != nil || strings.Fields(string(text))[0] != files[2] {
						t.Errorf("%s: %q %v, want %s", file, text, err, files[2])
					}
				}
				m := r.Measure(id, spec.Workspace)
				if m.Workspace.Limit != step.DiskBytes || m.Layer.Limit != step.DiskBytes {
					t.Errorf("%+v, want %d", m, step.DiskBytes)
				}
				spec.Limits = step
			}
			ask(t, r, id, guestRequest{Op: "write", Path: "/workspace/big", Size: 24 << 20})
			for _, l := range []proto.Limits{{DiskBytes: 16 << 20}, {MemoryBytes: 4096}} {
				if err := r.SetLimits(t.Context(), id, spec, l.Or(spec.Limits)); proto.CodeOf(err) != proto.Conflict {
					t.Errorf("%+v: %v", l, err)
				}
			}
			if m := r.Measure(id, spec.Workspace); m.Workspace.Limit != spec.Limits.DiskBytes {
				t.Errorf("after a refusal: %+v", m)
			}
		})
	}
}
