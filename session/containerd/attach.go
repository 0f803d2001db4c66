package containerd

import (
	"errors"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// A warm sandbox gets its workspace while it runs: the tree is taken from the host as a mount that is nowhere yet, mapped to the
// sandbox's users, and moved into its mount namespace by a thread of ours that goes there and comes back.

// A visitor is a thread that goes into mount namespaces. It is one for all claims, since to make a thread takes longer than what it does
// there. The zero value is ready; the thread starts with the first visit and ends with close.
type visitor struct {
	mu    sync.Mutex // held for the time of a visit; guards trips
	trips chan trip  // nil while there is no thread
}

type trip struct {
	namespace *os.File
	work      func() error
	done      chan error
}

// errStranded is the end of a thread that could not come back.
var errStranded = errors.New("a thread could not leave a sandbox")

// visit runs work in the mount namespace.
func (v *visitor) visit(namespace *os.File, work func() error) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.trips == nil {
		trips, ready := make(chan trip), make(chan error)
		go offMain(func() { travel(trips, ready) })
		if err := <-ready; err != nil {
			return err
		}
		v.trips = trips
	}
	t := trip{namespace, work, make(chan error)}
	v.trips <- t
	err := <-t.done
	if errors.Is(err, errStranded) {
		v.trips = nil // the thread is gone
	}
	return err
}

func (v *visitor) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.trips != nil {
		close(v.trips)
		v.trips = nil
	}
}

// travel is the thread. It shares its root and working directory with no other, which is what setns asks for, and is never used for
// anything else: the goroutine is locked to it and both end together.
func travel(trips <-chan trip, ready chan<- error) {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/mnt")
	if err == nil {
		defer home.Close()
		err = unix.Unshare(unix.CLONE_FS)
	}
	ready <- err
	if err != nil {
		return
	}
	for t := range trips {
		err := unix.Setns(int(t.namespace.Fd()), unix.CLONE_NEWNS)
		if err == nil {
			err = t.work()
			if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNS); back != nil {
				t.done <- errors.Join(errStranded, back, err)
				return
			}
		}
		t.done <- err
	}
}
