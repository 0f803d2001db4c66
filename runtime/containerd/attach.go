package containerd

import (
	"fmt"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// A warm sandbox gets its workspace while it runs: the tree is taken from the host as a mount that is nowhere yet,
// mapped to the sandbox's users, and moved into its mount namespace by a thread of ours that goes there and comes
// back.

// visit runs work on a thread that is in the mount namespace for that long. Only setns asks for a thread of its own:
// it is the one that the caller runs on in most cases, or would be, so nobody is woken for it.
func visit(namespace *os.File, work func() error) error {
	home, err := homeOfThreads()
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go offMain(func() {
		err := unix.Unshare(unix.CLONE_FS) // setns refuses a thread whose root and working directory are others' too
		if err == nil {
			err = unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNS)
		}
		var lost error
		if err == nil {
			err = work()
			lost = home.enter()
		}
		if lost == nil { // else the thread ends. What was asked of it is done, so nobody need know
			runtime.UnlockOSThread()
		}
		done <- err
	})
	return <-done
}

// A home is where threads are: in a mount namespace, with a root and a working directory, which setns changes too.
// They are descriptors.
type home struct{ mounts, root, directory int }

// homeOfThreads is where the process's first thread is, which goes nowhere. Threads that were on a visit have a
// working directory of their own from then on: the process is to change its own before the first.
var homeOfThreads = sync.OnceValues(func() (h home, err error) {
	for _, place := range []struct {
		fd   *int
		path string
		how  int
	}{{&h.mounts, "/proc/self/ns/mnt", 0}, {&h.root, "/", unix.O_PATH}, {&h.directory, ".", unix.O_PATH}} {
		if *place.fd, err = unix.Open(place.path, unix.O_RDONLY|unix.O_CLOEXEC|place.how, 0); err != nil {
			return h, fmt.Errorf("opening %s: %w", place.path, err)
		}
	}
	return h, nil
})

// enter has the calling thread come home.
func (h home) enter() error {
	if err := unix.Setns(h.mounts, unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Fchdir(h.root); err != nil {
		return err
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	return unix.Fchdir(h.directory)
}
