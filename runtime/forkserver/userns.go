package forkserver

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"berth/runtime/diskpool"
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
func NewUserNamespace(st *Server, owner, firstID uint32) (*os.File, error) {
	ns, err := makeUserNamespace(st, owner, fmt.Sprintf("0 %d %d", firstID, diskpool.IDRange))
	if err != nil {
		return nil, fmt.Errorf("making a user namespace as user %d: %w", owner, err)
	}
	return ns, nil
}

func makeUserNamespace(st *Server, owner uint32, mapping string) (*os.File, error) {
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
