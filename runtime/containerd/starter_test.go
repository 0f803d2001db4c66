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
	"berth/runtime/launch"
)

// TestStarterComesAgain: a starter that somebody killed is missed by nobody, and one that is closed is gone with all
// that it had.
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
	r.starter.Close()
	gone(t, last[0])
	r.starter.Close()
}

// TestStarterSaysWhyNot: who gets no process hears of it, and the next does.
func TestStarterSaysWhyNot(t *testing.T) {
	r := needsScripts(t)
	before := startersOf(t)
	s := &launch.Program{}
	s.Do("ending", unix.SYS_EXIT_GROUP, 0)
	n, err := r.starter.Start(s, t.TempDir()) // which is no cgroup
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if _, _, err := n.Hear(); !errors.Is(err, unix.EBADF) || !strings.Contains(err.Error(), "making its process") {
		t.Errorf("it said %v", err)
	}
	if _, err := r.starter.Start(s, filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a directory: %v", err)
	}
	if id, _ := startTest(t, r, proto.ClassRunc); !byScript(r, id) {
		t.Error("runc made the next container")
	}
	if after := startersOf(t); len(after) != 1 || after[0] != before[0] {
		t.Errorf("starters %v after %v", after, before)
	}
}

// TestStarterKeepsNothing: what it was given for others it has no longer once they run, and it waits for nobody who
// has ended.
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

// TestUserNamespaceHasItsOwner: a user namespace belongs to whom it was made for, who is root in it, and nobody is in
// it.
func TestUserNamespaceHasItsOwner(t *testing.T) {
	r := openTest(t)
	for _, owner := range []uint32{0, r.ids.First + 5} {
		ns, err := launch.NewUserNamespace(r.starter, owner, r.ids.First)
		if err != nil {
			t.Fatal(err)
		}
		defer ns.Close()
		if uid, err := ownerOf(launch.NamespacePath(ns)); err != nil || uid != owner {
			t.Errorf("it belongs to user %d, not %d: %v", uid, owner, err)
		}
		name, err := os.Readlink(launch.NamespacePath(ns))
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

// startersOf are the starters of this process.
func startersOf(t *testing.T) (pids []int) {
	t.Helper()
	for _, p := range entries(t, "/proc") {
		pid, err := strconv.Atoi(p)
		if err != nil {
			continue
		}
		line, _ := os.ReadFile("/proc/" + p + "/cmdline") // it may have ended
		stat, _ := os.ReadFile("/proc/" + p + "/stat")
		_, after, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(after)
		if string(line) == launch.ScriptName+"\x00"+launch.NotAGuest+"\x00" && len(fields) > 1 &&
			fields[1] == strconv.Itoa(os.Getpid()) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// gone waits until a process has ended.
func gone(t *testing.T, pid int) {
	t.Helper()
	ended, forget, err := watchProcess(pid)
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
