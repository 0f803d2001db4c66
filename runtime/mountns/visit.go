package mountns

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

// Visit runs work on a thread that is in the mount namespace for that long. Only setns asks for a thread of its own:
// it is the one that the caller runs on in most cases, or would be, so nobody is woken for it.
func Visit(namespace *os.File, work func() error) error {
	home, err := homeOfThreads()
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go OffMain(func() {
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

// OffMain runs f on a thread that ends with f, unless f unlocks it. It must not be the process's first
// one, which never ends and whose namespaces are what /proc/self shows.
func OffMain(f func()) {
	runtime.LockOSThread() // not unlocked here: so the thread ends with the goroutine
	if unix.Gettid() != unix.Getpid() {
		f()
		return
	}
	done := make(chan struct{})
	go func() { defer close(done); OffMain(f) }()
	<-done
	runtime.UnlockOSThread()
}

// InOwn calls f on a thread that has a mount namespace of its own and ends with f. Programs that f starts
// inherit the namespace; once they have ended, or have made another, it is gone with all that f mounted.
func InOwn(f func() error) error {
	done := make(chan error, 1)
	go OffMain(func() {
		err := Leave()
		if err == nil {
			err = f()
		}
		done <- err
	})
	return <-done
}

// Leave gives this thread, which must end afterwards, a mount namespace of its own. What it mounts is seen by
// nobody else; what the host unmounts goes here too.
func Leave() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("making a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	return nil
}

// Bind mounts what is at path from at path to, with the attributes more than it has, and mapped into a user namespace
// unless users is nil.
func Bind(from, to string, attr uint64, users *os.File) error {
	tree, err := Detach(from, attr, users)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	return Attach(tree, to)
}

// Detach makes the mount that bind makes, without a place. The caller closes it.
func Detach(from string, attr uint64, users *os.File) (tree int, err error) {
	tree, err = unix.OpenTree(unix.AT_FDCWD, from, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return -1, err
	}
	set := unix.MountAttr{Attr_set: attr, Propagation: unix.MS_PRIVATE}
	if users != nil {
		set.Attr_set |= unix.MOUNT_ATTR_IDMAP
		set.Userns_fd = uint64(users.Fd())
	}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &set); err != nil {
		unix.Close(tree)
		return -1, err
	}
	return tree, nil
}

// Attach gives a detached mount its place.
func Attach(tree int, to string) error {
	return unix.MoveMount(tree, "", unix.AT_FDCWD, to, unix.MOVE_MOUNT_F_EMPTY_PATH)
}
