package containerd

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// A warm sandbox gets its workspace while it runs: the tree is taken from the host as a mount that is nowhere yet, mapped to the
// sandbox's users, and moved into its mount namespace by a thread of ours that goes there and comes back.

// A visitor is a thread that goes into mount namespaces. It is one for all claims, since to make a thread takes longer than what it does
// there. Where many claims wait for it, it goes from one to the next and comes back after the last. The zero value is ready; the thread starts with the first visit and ends with close.
type visitor struct {
	mu    sync.RWMutex // read-locked for the time of a visit; guards trips
	trips chan trip    // nil while there is no thread
}

type trip struct {
	namespace *os.File
	work      func() error
	done      chan error // has room for what comes
}

// waitingTrips is how many visits the queue has room for; whoever comes then waits to put theirs in.
const waitingTrips = 64

// visit runs work in the mount namespace.
func (v *visitor) visit(namespace *os.File, work func() error) error {
	v.mu.RLock()
	for v.trips == nil {
		v.mu.RUnlock()
		v.begin()
		v.mu.RLock()
	}
	defer v.mu.RUnlock()
	t := trip{namespace, work, make(chan error, 1)}
	v.trips <- t
	return <-t.done
}

// begin starts the thread, unless there is one.
func (v *visitor) begin() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.trips == nil {
		v.trips = make(chan trip, waitingTrips)
		go travel(v.trips)
	}
}

// close ends the thread, once nobody waits for it.
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
func travel(trips <-chan trip) {
	offMain(func() {
		var home *os.File
		for t, ok := <-trips; ok; {
			var err error
			if home == nil {
				home, err = readyToTravel()
			}
			if err == nil {
				err = inNamespace(t)
			}
			t.done <- err
			select {
			case t, ok = <-trips:
				continue
			default: // nobody waits
			}
			if home != nil && unix.Setns(int(home.Fd()), unix.CLONE_NEWNS) != nil {
				go travel(trips) // this thread cannot come back, and ends here; what was asked of it is done, so nobody need know
				break
			}
			t, ok = <-trips
		}
		if home != nil {
			home.Close()
		}
	})
}

// readyToTravel readies the calling thread, and gives the namespace that it comes back to.
func readyToTravel() (*os.File, error) {
	home, err := os.Open("/proc/thread-self/ns/mnt")
	if err != nil {
		return nil, err
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		home.Close()
		return nil, err
	}
	return home, nil
}

func inNamespace(t trip) error {
	if err := unix.Setns(int(t.namespace.Fd()), unix.CLONE_NEWNS); err != nil {
		return err
	}
	return t.work()
}
