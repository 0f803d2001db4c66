package containerd

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/proto"
	"berth/runtime/diskpool"
	"berth/runtime/forkserver"
	"berth/runtime/launch"
	"berth/runtime/mountns"
	"berth/runtime/ocispec"
)

// TestScriptIsLikeRunc compares a container made by runc with one made by a setup program. Neither its contents nor
// the kernel's data about it may differ. The last round binds the daemon to one processor; containers must not be
// bound.
func TestScriptIsLikeRunc(t *testing.T) {
	r := needsScripts(t)
	other := proto.Limits{CPUs: 0.25, MemoryBytes: 64 << 20, PIDs: 33, DiskBytes: 48 << 20, OpenFiles: 300}
	for i, limits := range []proto.Limits{testLimits, other, testLimits} {
		if i == 2 {
			keepToOneProcessor(t)
		}
		again := runcAlone(r)
		want := portrait(t, r, limits)
		again()
		have := portrait(t, r, limits)
		if r.forked.Failures.Load() != 0 {
			t.Fatal("the script failed, so that runc made both")
		}
		for what, w := range want {
			if have[what] != w {
				t.Errorf("%+v: %s\n--- runc:\n%s\n--- script:\n%s", limits, what, w, have[what])
			}
		}
		if len(want) != len(have) {
			t.Errorf("%v and %v", slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(have)))
		}
	}
}

// keepToOneProcessor binds all present and later threads of the test to one processor until the test ends.
func keepToOneProcessor(t *testing.T) {
	t.Helper()
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	for n := range 1024 {
		if all.IsSet(n) {
			one.Set(n)
			break
		}
	}
	keep := func(set *unix.CPUSet) {
		for _, name := range entries(t, "/proc/self/task") {
			if tid, err := strconv.Atoi(name); err == nil {
				_ = unix.SchedSetaffinity(tid, set) // the thread may have ended
			}
		}
	}
	keep(&one)
	t.Cleanup(func() { keep(&all) })
}

// needsScripts returns a Runtime that makes sandboxes by setup programs.
func needsScripts(t *testing.T) *Runtime {
	t.Helper()
	r := openTest(t)
	needsSetupPrograms(t, r)
	return r
}

// needsSetupPrograms skips a test where runc makes all sandboxes.
func needsSetupPrograms(t *testing.T, r *Runtime) {
	t.Helper()
	if !forkserver.Supported || !r.ownCounts {
		t.Skip("this machine runs no scripts")
	}
	if !r.forked.Usable() {
		t.Fatalf("setup programs are not used: %v", r.SetupFailure())
	}
}

// runcAlone makes runc make all sandboxes until again is called.
func runcAlone(r *Runtime) (again func()) {
	filter := r.forked.Filter.Swap(nil)
	return func() { r.forked.Filter.Store(filter) }
}

// byScript reports whether a setup program made a running sandbox: runc leaves a configuration.
func byScript(r *Runtime, id string) bool {
	return r.bundles.Has(id) && !diskpool.Exists(filepath.Join(r.bundles.Path(id), "config.json"))
}

// startByScript starts a sandbox by a setup program. It also returns the sandbox's first process.
func startByScript(t *testing.T, r *Runtime) (id string, pid int) {
	t.Helper()
	id, _ = startTest(t, r, proto.ClassRunc)
	if !byScript(r, id) {
		t.Fatal("runc made the sandbox")
	}
	pid, err := r.bundles.LivePID(id)
	if err != nil {
		t.Fatal(err)
	}
	return id, pid
}

// TestScriptOfNoUse checks that runc makes the sandbox if a setup program fails, at its start or at its end. After
// three failures runc makes all sandboxes. Nothing of a failed setup program may be left.
func TestScriptOfNoUse(t *testing.T) {
	r := needsScripts(t)
	good := r.forked.Filter.Load()
	testImage(t, r)
	before := holdings(t, r)
	round := func(want bool) {
		t.Helper()
		id, spec := startTest(t, r, proto.ClassRunc)
		if got := byScript(r, id); got != want {
			t.Errorf("made by a script: %v", got)
		}
		if got := ask(t, r, id, guestRequest{Op: "ping"}).Text; got != "pong" {
			t.Errorf("it answers %q", got)
		}
		if err := errors.Join(r.Stop(t.Context(), id), r.RemoveWorkspace(t.Context(), spec.Workspace)); err != nil {
			t.Error(err)
		}
		nothingOf(t, r, []string{id})
	}
	long, refused := make([]unix.SockFilter, forkserver.ScriptSize/8), []unix.SockFilter{{Code: 0xffff}}
	const mostFailures = 3
	for range mostFailures + 1 {
		r.forked.Filter.Store(&long) // as for an image with too many variables
		round(false)
	}
	if r.forked.Why.Load() != nil {
		t.Error("what is one image's counts for all")
	}
	for range mostFailures - 1 {
		r.forked.Filter.Store(&refused)
		round(false)
		if why := r.forked.Why.Load(); why == nil || !errors.Is(*why, unix.EINVAL) { // doctor reports this reason
			t.Errorf("the reason is %v", why)
		}
	}
	r.forked.Filter.Store(good)
	round(true) // a success resets the count of failures
	for range mostFailures {
		if r.forked.GivenUp() {
			t.Fatal("given up early")
		}
		r.forked.Filter.Store(&refused)
		round(false)
	}
	r.forked.Filter.Store(good)
	round(false)
	noMore(t, r, before)
}

// TestScriptSteps checks how steps are skipped, how errors are accepted or end the program, and that a failed step is
// named.
func TestScriptSteps(t *testing.T) {
	r := needsScripts(t)
	next := uint64(0)
	say := func(s *forkserver.Program) {
		next++
		s.Say("saying", forkserver.ScriptChild, next)
	}
	missing := func(s *forkserver.Program) *forkserver.Step {
		return s.Do("opening what is not there", unix.SYS_OPENAT, launch.AtCwd, s.Text("/no/such/file"), unix.O_RDONLY)
	}
	s := &forkserver.Program{}
	s.Do("returning something", unix.SYS_GETPID).Skip = 1
	say(s) // 1: skipped
	s.Do("forgetting the mask", unix.SYS_UMASK, 0)
	s.Do("returning 0", unix.SYS_UMASK, 0).Zero = 1
	say(s) // 2: skipped
	fine := missing(s)
	fine.Fine, fine.Skip = unix.ENOENT, 1
	say(s) // 3: skipped
	instead := missing(s)
	instead.Instead, instead.Skip = unix.ENOENT, 1
	say(s) // 4
	open := s.Do("opening", unix.SYS_OPENAT, launch.AtCwd, s.Text("/dev/null"), unix.O_RDONLY)
	closes := s.Do("closing", unix.SYS_CLOSE, 1<<20)
	open.To = closes.Argument(0)
	say(s) // 5
	missing(s).Fine = unix.EACCES
	say(s)
	said, err := runAlone(t, r, s)
	if !slices.Equal(said, []uint64{4, 5}) || !errors.Is(err, unix.ENOENT) ||
		!strings.Contains(err.Error(), "opening what is not there") {
		t.Errorf("it said %v and %v", said, err)
	}
	s, next = &forkserver.Program{}, 0
	say(s)
	s.Wait("waiting")
	say(s)
	if said, err := runAlone(t, r, s); !slices.Equal(said, []uint64{1}) || err == nil ||
		!strings.Contains(err.Error(), "waiting: nothing came") {
		t.Errorf("without a daemon it said %v and %v", said, err)
	}
}

// runAlone runs a setup program as if the daemon had ended. It returns the numbers of its messages and its error.
func runAlone(t *testing.T, r *Runtime, s *forkserver.Program) (said []uint64, err error) {
	t.Helper()
	n, err := r.server.Start(s, "")
	if err != nil {
		t.Fatal(err)
	}
	defer n.Answer.Close()
	n.Ask.Close()
	for {
		_, value, err := n.Hear()
		if err != nil {
			return said, err
		}
		said = append(said, value)
	}
}

// TestGuestEnvironment checks that the last value of a duplicate variable counts, as with runc, and that invalid
// entries are left out.
func TestGuestEnvironment(t *testing.T) {
	for _, c := range []struct{ image, want []string }{
		{nil, []string{ocispec.DefaultPath, "HOME=/"}},
		{[]string{"A=1", "PATH=/x", "A=2", "HOME=", "=3", "no", "B=\x00"}, []string{"HOME=/", "PATH=/x", "A=2"}},
		{[]string{"HOME=/a", "HOME=/b"}, []string{ocispec.DefaultPath, "HOME=/b"}},
	} {
		if got := ocispec.ProcessEnv(c.image); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q", c.image, got)
		}
	}
}

// TestScriptKeepsItsNetworkInSysfs checks that a container's interface stays in its sysfs after the daemon that made
// the container has ended.
func TestScriptKeepsItsNetworkInSysfs(t *testing.T) {
	r := needsScripts(t)
	_, pid := startByScript(t, r)
	sys := filepath.Join("/proc", strconv.Itoa(pid), "root/sys/class/net")
	if got := entries(t, sys); !slices.Equal(got, []string{"lo"}) {
		t.Errorf("it has the interfaces %v", got)
	}
	r.forked.Mounts.Close()
	networksHaveGone(t)
	if got := entries(t, sys); !slices.Equal(got, []string{"lo"}) {
		t.Errorf("without the daemon it has the interfaces %v", got)
	}
	if state, err := os.ReadFile(filepath.Join(sys, "lo/operstate")); err != nil || string(state) != "unknown\n" {
		t.Errorf("the interface is %q, %v", state, err) // the state of an interface that is up
	}
}

// TestScriptLeavesNothingBelow checks that nothing of the host is under a container's root mount.
func TestScriptLeavesNothingBelow(t *testing.T) {
	r := needsScripts(t)
	_, pid := startByScript(t, r)
	ns, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "ns/mnt"))
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	var below []string
	err = mountns.InOwn(func() error { // otherwise other threads would share the working directory
		enter := func() error { return unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS) }
		if err := errors.Join(enter(), unix.Unmount("/", unix.MNT_DETACH), enter()); err != nil {
			return err
		}
		var st unix.Statfs_t
		if err := unix.Statfs("/", &st); err != nil || st.Type != unix.TMPFS_MAGIC || st.Flags&unix.MS_RDONLY == 0 {
			t.Errorf("there is a file system of kind %#x with flags %#x, %v", st.Type, st.Flags, err)
		}
		return filepath.WalkDir("/", func(path string, d fs.DirEntry, err error) error {
			below = append(below, path)
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"/", launch.BesideNet, launch.BesideProc, launch.BesideRoot, launch.BesideSys}; !slices.Equal(
		below, want) {
		t.Errorf("there is %v", below)
	}
}

// TestScriptHasFewFileSystems checks that all containers share one file system for contents that are the same in all.
// Each further file system costs the kernel time for each cgroup that is removed: with a thousand containers some
// hundred microseconds.
func TestScriptHasFewFileSystems(t *testing.T) {
	r := needsScripts(t)
	_, one := startByScript(t, r)
	_, other := startByScript(t, r)
	theirs := fileSystems(t, other)
	var own []string
	for dev, points := range fileSystems(t, one) {
		if theirs[dev] == nil {
			own = append(own, points[0])
		}
	}
	slices.Sort(own)
	if want := []string{"/", "/dev", "/dev/mqueue", "/dev/pts", "/dev/shm", "/proc"}; !slices.Equal(own, want) {
		t.Errorf("a container has file systems of its own at %v", own)
	}
}

// fileSystems returns the mount points of a process by device.
func fileSystems(t *testing.T, pid int) map[string][]string {
	t.Helper()
	table, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		all[f[2]] = append(all[f[2]], f[4])
	}
	return all
}

// networksHaveGone returns when the kernel has removed all unused networks. The kernel does that later, one by one,
// and sends no event.
func networksHaveGone(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	var last *os.File // from the sysfs of the network that ended last
	err := mountns.InOwn(func() (err error) {
		if err := errors.Join(unix.Unshare(unix.CLONE_NEWNET), unix.Mount("sysfs", dir, "sysfs", 0, "")); err != nil {
			return err
		}
		last, err = os.Open(filepath.Join(dir, "class/net"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer last.Close()
	for end := time.Now().Add(10 * time.Second); len(
		entries(t, fmt.Sprintf("/proc/self/fd/%d", last.Fd()))) > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a network of nobody's is still there")
		}
	}
}
