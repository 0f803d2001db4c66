package pid1

import (
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"berth/guest/wire"
)

// An exitStatus is how a child ended.
type exitStatus struct {
	status unix.WaitStatus
	usage  unix.Rusage
}

// A reaper waits for all children. As PID 1 it waits for every process that dies, orphans included. It passes the
// exit status of the guest's own children to their starters. No other code in the process may wait. When it is not
// PID 1, it waits only for the children that the guest started.
type reaper struct {
	all bool

	// mu is held while a child starts, so that the child is in children before its exit status is looked up.
	mu       sync.Mutex
	children map[int]chan exitStatus
	orphans  map[*group]*usage // resource use of orphans by group; guarded by mu
	watched  map[int]func()    // called at the death of a child that no goroutine waits for; guarded by mu
	assigned map[int]*usage    // the account of a process that is being killed; guarded by mu
	born     chan struct{}     // holds a token when there may be a child again
}

func newReaper(all bool) *reaper {
	return &reaper{all: all, children: map[int]chan exitStatus{}, orphans: map[*group]*usage{},
		watched:  map[int]func(){},
		assigned: map[int]*usage{}, born: make(chan struct{}, 1)}
}

// reapUntil reaps until stop is closed. While the guest has no child there are no orphans either: all other processes
// descend from its children.
func (r *reaper) reapUntil(stop <-chan struct{}) {
	for {
		pid, err := nextDead()
		switch {
		case err == unix.EINTR:
		case err != nil: // no children
			select {
			case <-r.born:
			case <-stop:
				return
			}
		default:
			r.reap(pid)
			// The goroutine that waited for this exit status runs next, on this thread. The reaper's next wait blocks
			// in the kernel, and the scheduler would need about 250 µs to find another goroutine to run.
			runtime.Gosched()
		}
	}
}

// nextDead waits until a child is dead and does not reap it. The kernel does not reuse the PID of a zombie.
func nextDead() (int, error) {
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		return 0, err
	}
	return siginfoPID(&info), nil
}

// reap reaps pid and sends its exit status to its starter.
func (r *reaper) reap(pid int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var d exitStatus
	owed := r.accountOf(pid)
	for {
		got, err := unix.Wait4(pid, &d.status, unix.WNOHANG, &d.usage)
		if err == unix.EINTR {
			continue
		}
		if err != nil || got != pid {
			return // a child that failed to exec: syscall.ForkExec has already waited for it
		}
		break
	}
	if owed != nil {
		owed.add(usageOf(&d.usage))
	}
	if ch := r.children[pid]; ch != nil {
		delete(r.children, pid)
		ch <- d
		if fn := r.watched[pid]; fn != nil {
			delete(r.watched, pid)
			go fn()
		}
	}
}

// startChild starts a child with fn. The channel gets the exit status.
func (r *reaper) startChild(fn func() (pid int, err error)) (int, <-chan exitStatus, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := fn()
	if err != nil {
		return 0, nil, err
	}
	if !r.all {
		ch := make(chan exitStatus, 1)
		go waitFor(pid, ch)
		return pid, ch, nil
	}
	return pid, r.addChild(pid), nil
}

// addChild registers a child. Called with r.mu held.
func (r *reaper) addChild(pid int) <-chan exitStatus {
	ch := make(chan exitStatus, 1)
	r.children[pid] = ch
	select {
	case r.born <- struct{}{}:
	default:
	}
	return ch
}

// adoptChild registers a child that another process made for the guest. It fails if pid is no child of the guest, or
// was reaped already.
func (r *reaper) adoptChild(pid int) (<-chan exitStatus, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.children[pid] != nil {
		return nil, wire.ErrFrame
	}
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil); err != nil {
		return nil, err
	}
	return r.addChild(pid), nil
}

// watch calls fn when a child dies.
func (r *reaper) watch(pid int, deaths <-chan exitStatus, fn func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.children[pid] == deaths {
		r.watched[pid] = fn
	} else {
		go fn()
	}
}

// unwatch undoes watch. It reports false if fn was called or is being called.
func (r *reaper) unwatch(pid int, deaths <-chan exitStatus) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.children[pid] != deaths {
		return false
	}
	delete(r.watched, pid)
	return true
}

// kill kills a child, or its process group if whom is negative. It does nothing once the exit status was sent: the
// PID may belong to another process then.
func (r *reaper) kill(pid int, deaths <-chan exitStatus, whom int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.children[pid] == deaths {
		_ = unix.Kill(whom, unix.SIGKILL)
	}
}

// waitFor waits for one child.
func waitFor(pid int, ch chan<- exitStatus) {
	var d exitStatus
	for {
		_, err := unix.Wait4(pid, &d.status, 0, &d.usage)
		if err != unix.EINTR {
			ch <- d
			return
		}
	}
}

// siginfoPID reads si_pid, which package unix does not name. On 64-bit machines it follows three 32-bit numbers and
// their padding.
func siginfoPID(info *unix.Siginfo) int {
	const offset = 16
	return int(*(*int32)(unsafe.Add(unsafe.Pointer(info), offset)))
}
