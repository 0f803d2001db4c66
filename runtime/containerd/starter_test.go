package containerd

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/proto"
	"berth/runtime/forkserver"
	"berth/runtime/isolation"
	"berth/runtime/launch"
)

// TestStarterComesAgain checks that a killed fork server is replaced, and that a closed one ends and leaves nothing.
func TestStarterComesAgain(t *testing.T) {
	r := needsScripts(t)
	for range 2 {
		first := startersOf(t)
		if len(first) != 1 {
			t.Fatalf("there are starters %v", first)
		}
		if err := syscall.Kill(first[0], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		gone(t, first[0])
		id, _ := startTest(t, r, proto.ClassRunc)
		if !byScript(r, id) {
			t.Error("runc made the container")
		}
		if second := startersOf(t); len(second) != 1 || second[0] == first[0] {
			t.Errorf("starters %v after %v", second, first)
		}
	}
	last := startersOf(t)
	r.server.Close()
	gone(t, last[0])
	r.server.Close()
}

// TestStarterSaysWhyNot checks that a failed start returns its reason, and that the next start works.
func TestStarterSaysWhyNot(t *testing.T) {
	r := needsScripts(t)
	before := startersOf(t)
	s := &forkserver.Program{}
	s.Do("ending", unix.SYS_EXIT_GROUP, 0)
	n, err := r.server.Start(s, t.TempDir()) // the directory is no cgroup
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if _, _, err := n.Hear(); !errors.Is(err, unix.EBADF) || !strings.Contains(err.Error(), "making its process") {
		t.Errorf("it said %v", err)
	}
	if _, err := r.server.Start(s, filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a directory: %v", err)
	}
	if id, _ := startTest(t, r, proto.ClassRunc); !byScript(r, id) {
		t.Error("runc made the next container")
	}
	if after := startersOf(t); len(after) != 1 || after[0] != before[0] {
		t.Errorf("starters %v after %v", after, before)
	}
}

// TestStarterKeepsNothing checks that the fork server keeps no files of the processes that it started, and no
// zombies.
func TestStarterKeepsNothing(t *testing.T) {
	r := needsScripts(t)
	for range 3 {
		startTest(t, r, proto.ClassRunc)
	}
	pid := startersOf(t)[0]
	fds := entries(t, "/proc/"+strconv.Itoa(pid)+"/fd")
	if len(fds) != 3 {
		t.Errorf("it has the descriptors %v", fds)
	}
	children, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/task/" + strconv.Itoa(pid) + "/children")
	if err == nil && len(children) > 0 {
		t.Errorf("it has the children %s", children)
	}
}

// TestUserNamespaceHasItsOwner checks that a user namespace belongs to the user that it was made for, and that no
// process is left in it.
func TestUserNamespaceHasItsOwner(t *testing.T) {
	r := openTest(t)
	for _, owner := range []uint32{0, r.ids.First + 5} {
		ns, err := forkserver.NewUserNamespace(r.server, owner, r.ids.First)
		if err != nil {
			t.Fatal(err)
		}
		defer ns.Close()
		if uid, err := isolation.Owner(forkserver.NamespacePath(ns)); err != nil || uid != owner {
			t.Errorf("it belongs to user %d, not %d: %v", uid, owner, err)
		}
		name, err := os.Readlink(forkserver.NamespacePath(ns))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range entries(t, "/proc") {
			if in, err := os.Readlink("/proc/" + p + "/ns/user"); err == nil && in == name {
				pid, _ := strconv.Atoi(p)
				gone(t, pid)
			}
		}
	}
}

// startersOf returns the fork servers of this process.
func startersOf(t *testing.T) (pids []int) {
	t.Helper()
	for _, p := range entries(t, "/proc") {
		pid, err := strconv.Atoi(p)
		if err != nil {
			continue
		}
		line, _ := os.ReadFile("/proc/" + p + "/cmdline") // the process may have ended
		stat, _ := os.ReadFile("/proc/" + p + "/stat")
		_, after, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(after)
		if string(line) == forkserver.ScriptName+"\x00"+forkserver.NotAGuest+"\x00" && len(fields) > 1 &&
			fields[1] == strconv.Itoa(os.Getpid()) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// gone waits until a process has ended.
func gone(t *testing.T, pid int) {
	t.Helper()
	ended, forget, err := launch.WatchProcess(pid)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer forget()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatalf("process %d is still there", pid)
	}
}
