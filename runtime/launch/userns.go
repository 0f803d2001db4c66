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

// The kernel counts some resources per user: inotify and fanotify instances and watches, and namespaces of every
// kind. What is counted in a user namespace also counts for the user who made it. If runc made them, root would be
// that user for all of them, and one sandbox could use up the limit of all sandboxes and the host. So we make each
// namespace as the host's user that is root in it, and hand it to runc. Then every sandbox has the host's limits to
// itself.
//
// gVisor counts these resources in its own kernel and makes its namespace itself.

// makerTime is the time limit for making a user namespace.
const makerTime = 10 * time.Second

// NewUserNamespace makes the user namespace whose root is the host's user firstID. The host's user owner owns it.
// owner is firstID or 0. No process on the host runs as firstID outside of the namespace, so this ownership gives no
// other process any rights. The namespace ends with the file and the last process in it.
//
// The daemon cannot make the namespace itself. A process with threads gets another user namespace only by a fork. A
// fork copies all page tables of the daemon, and the daemon then faults at each page that it writes to.
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

// IDMapping returns the ID range of a sandbox in the form of mount options.
func IDMapping(firstID uint32) string { return fmt.Sprintf("0:%d:%d", firstID, diskpool.IDRange) }

// NamespacePath returns a path at which runtimes, which are other processes, find an open namespace. The dot is for
// runc 1.5, which takes any path that begins with /proc/PID for /proc/PID/ns/user and reads the mapping of that
// process.
func NamespacePath(ns *os.File) string {
	return fmt.Sprintf("/proc/./%d/fd/%d", os.Getpid(), ns.Fd())
}

// An OwnNamespace is a sandbox's user namespace, which is made in the background.
type OwnNamespace struct {
	Making errgroup.Group
	File   *os.File // nil if the runtime makes it
}

// Path returns where runtimes find the namespace; "" if they are to make one.
func (n *OwnNamespace) Path() (string, error) {
	if err := n.Making.Wait(); err != nil || n.File == nil {
		return "", err
	}
	return NamespacePath(n.File), nil
}

// Leave closes the namespace once the sandbox has joined it, or will not.
func (n *OwnNamespace) Leave() {
	_ = n.Making.Wait()
	n.File.Close()
}

// SetLimits gives a sandbox's first process its limits before it runs anything. runc cannot do that: setting the
// limits of another process takes CAP_SYS_RESOURCE over its namespace. Root has that over all namespaces or, on
// machines like ours, only over those that it made. The owner of the namespace has it, too.
func SetLimits(b Spec, pid int) error {
	done := make(chan error, 1)
	go mountns.OffMain(func() { done <- setLimitsAs(b, pid) })
	if err := <-done; err != nil {
		return fmt.Errorf("limiting the guest: %w", err)
	}
	return nil
}

// SetLimitsOfNew calls SetLimits after a runtime has made the sandbox. It does nothing if the runtime makes the user
// namespace, because the runtime then sets the limits, too.
func SetLimitsOfNew(b Spec, pid int) error {
	if b.UserNamespace == "" {
		return nil
	}
	return SetLimits(b, pid)
}

// setLimitsAs makes this thread the namespace's owner and sets the limits. The thread must end afterwards.
func setLimitsAs(b Spec, pid int) error {
	// The functions of package syscall would change every thread.
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
