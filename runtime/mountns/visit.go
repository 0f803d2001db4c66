package mountns

import (
	"fmt"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// A pooled sandbox gets its workspace while it runs. The workspace becomes a detached mount, mapped to the sandbox's
// users. A thread of ours enters the sandbox's mount namespace, attaches the mount there, and comes back.

// Visit runs work on a thread in the mount namespace, and then returns the thread to ours. Only setns requires a
// thread of its own. In most cases that is the caller's thread or one that would run next, so no thread has to be
// woken.
func Visit(namespace *os.File, work func() error) error {
	home, err := homeOfThreads()
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go OffMain(func() {
		err := unix.Unshare(unix.CLONE_FS) // setns refuses a thread that shares its root and working directory
		if err == nil {
			err = unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNS)
		}
		var lost error
		if err == nil {
			err = work()
			lost = home.enter()
		}
		if lost == nil { // else the thread ends; the work is done, so the caller gets no error
			runtime.UnlockOSThread()
		}
		done <- err
	})
	return <-done
}

// SetHostname sets the host name in a UTS namespace, on a thread that visits it.
func SetHostname(namespace *os.File, name string) error {
	home, err := homeNames()
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go OffMain(func() {
		err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWUTS)
		if err == nil {
			err = unix.Sethostname([]byte(name))
			if unix.Setns(home, unix.CLONE_NEWUTS) == nil { // else the thread ends
				runtime.UnlockOSThread()
			}
		}
		done <- err
	})
	return <-done
}

// homeNames opens the UTS namespace of the process's first thread.
var homeNames = sync.OnceValues(func() (int, error) {
	return unix.Open("/proc/self/ns/uts", unix.O_RDONLY|unix.O_CLOEXEC, 0)
})

// A home is the normal place of threads: a mount namespace, a root and a working directory, all of which setns
// changes. The fields are descriptors.
type home struct{ mounts, root, directory int }

// homeOfThreads is the place of the process's first thread, which never visits. After a visit a thread has its own
// working directory, so the process must change its working directory before the first visit, if at all.
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

// enter returns the calling thread to home.
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

// OffMain runs f on a thread that ends with f, unless f unlocks it. It never uses the process's first thread, which
// cannot end and whose namespaces /proc/self shows.
func OffMain(f func()) {
	runtime.LockOSThread() // not unlocked here, so the thread ends with the goroutine
	if unix.Gettid() != unix.Getpid() {
		f()
		return
	}
	done := make(chan struct{})
	go func() { defer close(done); OffMain(f) }()
	<-done
	runtime.UnlockOSThread()
}

// InOwn calls f on a thread with its own mount namespace; the thread ends with f. Programs that f starts inherit the
// namespace. When they have ended, or have made another one, the namespace is gone with everything that f mounted.
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

// AsUser calls f with the file system identity of host user and group id, and with all capabilities of this thread. A
// file system that f mounts uses that identity for all that it does later. Call it on a thread that no other goroutine
// uses.
func AsUser(id uint32, f func() error) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var all [2]unix.CapUserData
	if err := unix.Capget(&header, &all[0]); err != nil {
		return err
	}
	become := func(id uint32) {
		// The functions of package syscall would change every thread. These calls report no failure; what f does
		// then fails.
		_, _, _ = unix.RawSyscall(unix.SYS_SETFSGID, uintptr(id), 0, 0)
		_, _, _ = unix.RawSyscall(unix.SYS_SETFSUID, uintptr(id), 0, 0)
	}
	become(id)
	defer become(0)
	// Leaving user 0 has taken the capabilities that concern files from the effective set.
	if err := unix.Capset(&header, &all[0]); err != nil {
		return err
	}
	return f()
}

// Leave gives this thread a mount namespace of its own; the thread must end afterwards. Its mounts are visible
// nowhere else. Unmounts of the host take effect here too.
func Leave() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("making a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	return nil
}

// Bind mounts the tree at from at path to. It adds the attributes attr, and maps the mount to a user namespace unless
// users is nil.
func Bind(from, to string, attr uint64, users *os.File) error {
	tree, err := Detach(from, attr, users)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	return Attach(tree, to)
}

// Detach makes the same mount as Bind, but detached. The caller closes it.
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

// Attach mounts a detached mount at to.
func Attach(tree int, to string) error {
	return unix.MoveMount(tree, "", unix.AT_FDCWD, to, unix.MOVE_MOUNT_F_EMPTY_PATH)
}
