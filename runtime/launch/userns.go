package launch

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"berth/runtime/diskpool"
	"berth/runtime/mountns"
)

// The kernel counts some things for each user: inotify and fanotify instances and watches, and namespaces of every
// kind. What is counted in a user namespace counts as well for whoever made it. Left to runc, root makes them all,
// and one sandbox can take what there is for all of them and for the host. So we make each namespace as the host's
// user that is root in it, and hand it to runc: then every sandbox has the host's limits to itself.
//
// gVisor keeps such things in a kernel of its own and makes its namespace itself.

// makerTime is what that may take.
const makerTime = 10 * time.Second

// NewUserNamespace makes the user namespace whose root is the host's user firstID. The host's user owner owns it:
// that same one, as nobody on the host runs as that user outside of the namespace, so that its ownership gives nobody
// anything; or 0. It ends with the file and the last process in it.
//
// The daemon cannot make it by itself: a process with threads gets another user namespace only by a fork, which
// copies all its page tables, and has it fault again at each page that it writes to next.
func NewUserNamespace(st *ForkServer, owner, firstID uint32) (*os.File, error) {
	ns, err := makeUserNamespace(st, owner, fmt.Sprintf("0 %d %d", firstID, diskpool.IDRange))
	if err != nil {
		return nil, fmt.Errorf("making a user namespace as user %d: %w", owner, err)
	}
	return ns, nil
}

func makeUserNamespace(st *ForkServer, owner uint32, mapping string) (*os.File, error) {
	pid, leave, err := startMaker(st, owner)
	if err != nil {
		return nil, err
	}
	defer leave()
	proc := fmt.Sprintf("/proc/%d/", pid)
	for _, name := range []string{"uid_map", "gid_map"} {
		if err := os.WriteFile(proc+name, []byte(mapping), 0); err != nil {
			return nil, err
		}
	}
	return os.Open(proc + "ns/user")
}

// IDMapping is the range of a sandbox as mount options are told of it.
func IDMapping(firstID uint32) string { return fmt.Sprintf("0:%d:%d", firstID, diskpool.IDRange) }

// NamespacePath is where runtimes, which are processes of their own, find an open namespace. The dot is for runc 1.5,
// which takes whatever begins with /proc/PID for /proc/PID/ns/user and reads the mapping of that process.
func NamespacePath(ns *os.File) string {
	return fmt.Sprintf("/proc/./%d/fd/%d", os.Getpid(), ns.Fd())
}

// An ownNamespace is a sandbox's user namespace, which is being made.
type OwnNamespace struct {
	Making errgroup.Group
	File   *os.File // nil: it is not ours to make
}

// Path is where runtimes find it; "" if they are to make one.
func (n *OwnNamespace) Path() (string, error) {
	if err := n.Making.Wait(); err != nil || n.File == nil {
		return "", err
	}
	return NamespacePath(n.File), nil
}

// Leave is for when the sandbox is in it, or is not to be.
func (n *OwnNamespace) Leave() {
	_ = n.Making.Wait()
	n.File.Close()
}

// SetLimits gives a sandbox's first process its limits before it runs anything. runc cannot: to set another's limits
// takes CAP_SYS_RESOURCE over its namespace, which root has over all namespaces or, on machines like ours, over none
// but those it made. Who owns the namespace has it too.
func SetLimits(b Spec, pid int) error {
	done := make(chan error, 1)
	go mountns.OffMain(func() { done <- setLimitsAs(b, pid) })
	if err := <-done; err != nil {
		return fmt.Errorf("limiting the guest: %w", err)
	}
	return nil
}

// SetLimitsOfNew is setLimits after a runtime has made the sandbox, which gives it limits where it makes the user
// namespace, too.
func SetLimitsOfNew(b Spec, pid int) error {
	if b.UserNamespace == "" {
		return nil
	}
	return SetLimits(b, pid)
}

// setLimitsAs makes this thread, which must end afterwards, the namespace's owner.
func setLimitsAs(b Spec, pid int) error {
	// The calls of package syscall would change every thread.
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(b.FirstID), ^uintptr(0)); errno != 0 {
		return errno
	}
	for _, l := range rlimits(b.Session.Class, b.Session.Limits) {
		if err := unix.Prlimit(pid, rlimitNumbers[l.Type], &unix.Rlimit{Cur: l.Soft, Max: l.Hard}, nil); err != nil {
			return fmt.Errorf("%s: %w", l.Type, err)
		}
	}
	return nil
}
