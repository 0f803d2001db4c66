package proc

import (
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"berth/guest/wire"
)

// An ExitStatus is how a child ended.
type ExitStatus struct {
	status unix.WaitStatus
	usage  unix.Rusage
}

// Exit translates a kernel exit status.
func (d ExitStatus) Exit() wire.Exit {
	u := usageOf(&d.usage)
	x := wire.Exit{CPU: u.cpu, PeakBytes: u.peak}
	if d.status.Signaled() {
		x.Signal = d.status.Signal()
		x.Code = 128 + int(x.Signal)
		return x
	}
	x.Code = d.status.ExitStatus()
	return x
}

// A usage is the resource use of reaped processes.
type usage struct {
	cpu  time.Duration
	peak int64 // in bytes, of the largest process
}

func usageOf(r *unix.Rusage) usage {
	return usage{time.Duration(r.Utime.Nano() + r.Stime.Nano()), r.Maxrss << 10}
}

func (u *usage) add(v usage) {
	u.cpu += v.cpu
	u.peak = max(u.peak, v.peak)
}

// A reaper waits for all children. As PID 1 it waits for every process that dies, orphans included. It passes the
// exit status of the guest's own children to their starters. No other code in the process may wait. When it is not
// PID 1, it waits only for the children that the guest started. Children end by exits and signals alone, see release.
type reaper struct {
	all  bool
	home homeThread

	// mu is held while a child starts, so that the child is in children before its exit status is looked up.
	mu       sync.Mutex
	children map[int]chan ExitStatus
	orphans  map[*Group]*usage // resource use of orphans by group; guarded by mu
	watched  map[int]func()    // called at the death of a child that no goroutine waits for; guarded by mu
	assigned map[int]*usage    // the account of a process that is being killed; guarded by mu
}

func newReaper(all bool) *reaper {
	return &reaper{all: all, home: homeThread{make(chan func())}, children: map[int]chan ExitStatus{},
		orphans: map[*Group]*usage{}, watched: map[int]func(){}, assigned: map[int]*usage{}}
}

// Serve calls fn, which may start children, and reaps until fn returns. It keeps the calling goroutine's thread as the
// parent of all children, so PID 1 calls it on its main thread.
func (r *reaper) Serve(fn func()) {
	if !r.all {
		r.home.serve(fn)
		return
	}
	if os.Getpid() != 1 {
		_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	}
	r.home.serve(func() {
		stop := make(chan struct{})
		var reaping sync.WaitGroup
		reaping.Go(func() { r.reapUntil(stop) })
		fn()
		close(stop)
		reaping.Wait()
	})
}

// reapUntil reaps until stop is closed. It learns of deaths from SIGCHLD, since a thread that waits in the kernel for a
// child keeps the guest's only processor until Go's monitor thread takes it away.
func (r *reaper) reapUntil(stop <-chan struct{}) {
	deaths := make(chan os.Signal, 1)
	signal.Notify(deaths, unix.SIGCHLD)
	defer signal.Stop(deaths)
	for {
		r.reapDead()
		select {
		case <-deaths:
		case <-stop:
			return
		}
	}
}

// reap reaps pid and sends its exit status to its starter.
func (r *reaper) reap(pid int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var d ExitStatus
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

// startChild starts a child with fn, on the home thread. The channel gets the exit status.
func (r *reaper) startChild(fn func() (pid int, err error)) (int, <-chan ExitStatus, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var pid int
	var err error
	r.home.run(func() { pid, err = fn() })
	if err != nil {
		return 0, nil, err
	}
	if !r.all {
		ch := make(chan ExitStatus, 1)
		go r.waitFor(pid, ch)
		return pid, ch, nil
	}
	return pid, r.addChild(pid), nil
}

// addChild registers a child. Called with r.mu held.
func (r *reaper) addChild(pid int) <-chan ExitStatus {
	ch := make(chan ExitStatus, 1)
	r.children[pid] = ch
	return ch
}

// AdoptChild registers a child that another process made for the guest. It fails if pid is no child of the guest, or
// was reaped already.
func (r *reaper) AdoptChild(pid int) (<-chan ExitStatus, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.children[pid] != nil {
		return nil, wire.ErrFrame
	}
	if _, err := waitable(unix.P_PID, pid); err != nil {
		return nil, err
	}
	return r.addChild(pid), nil
}

// Watch calls fn when a child dies.
func (r *reaper) Watch(pid int, deaths <-chan ExitStatus, fn func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.children[pid] == deaths {
		r.watched[pid] = fn
	} else {
		go fn()
	}
}

// Unwatch undoes Watch. It reports false if fn was called or is being called.
func (r *reaper) Unwatch(pid int, deaths <-chan ExitStatus) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.children[pid] != deaths {
		return false
	}
	delete(r.watched, pid)
	return true
}

// KillChild kills a child, or its process group if whom is negative. It does nothing once the exit status was sent:
// the PID may belong to another process then.
func (r *reaper) KillChild(pid int, deaths <-chan ExitStatus, whom int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.children[pid] == deaths {
		_ = unix.Kill(whom, unix.SIGKILL)
	}
}

// waitFor waits for the end of one child.
func (r *reaper) waitFor(pid int, ch chan<- ExitStatus) {
	var d ExitStatus
	for {
		_, err := unix.Wait4(pid, &d.status, 0, &d.usage)
		switch {
		case err == unix.EINTR:
		case err == nil && d.status.Stopped():
			r.release(pid)
		default:
			ch <- d
			return
		}
	}
}

// openAccount starts to count what orphans of o use. The kernel adds the use of a process to the counters of the
// parent that waits for it. The parent of an orphan is PID 1. Without this account, the use of killed and abandoned
// children would be lost.
func (r *reaper) openAccount(o *Group) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all {
		r.orphans[o] = &usage{}
	}
}

// closeAccount stops counting for o.
func (r *reaper) closeAccount(o *Group) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for pid, u := range r.assigned {
		if u == r.orphans[o] {
			delete(r.assigned, pid)
		}
	}
	delete(r.orphans, o)
}

// account returns what the orphans of o have used until now.
func (r *reaper) account(o *Group) usage {
	r.mu.Lock()
	defer r.mu.Unlock()
	if u := r.orphans[o]; u != nil {
		return *u
	}
	return usage{}
}

// accountOf returns the account that the zombie pid counts for, or nil. Called with r.mu held.
func (r *reaper) accountOf(pid int) *usage {
	if len(r.orphans) == 0 || r.children[pid] != nil {
		return nil
	}
	if u := r.assigned[pid]; u != nil {
		delete(r.assigned, pid)
		return u
	}
	m := tagOf(pid)
	for o, u := range r.orphans {
		if m != 0 && o.Tag == m {
			return u
		}
	}
	return nil
}

// assign records the group of process pid before the process is killed. Where the tag of a dead process cannot be
// read, as under gVisor, its group would be unknown afterwards.
func (r *reaper) assign(pid int, o *Group) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if u := r.orphans[o]; u != nil {
		r.assigned[pid] = u
	}
}

// reapDead reaps all children that are dead already, and releases those that a trace has stopped. It looks up a PID
// before it reaps it: the kernel does not reuse the PID of a zombie.
func (r *reaper) reapDead() {
	for r.all {
		child, err := waitable(unix.P_ALL, 0)
		switch {
		case err == unix.EINTR:
		case err != nil || child.pid == 0:
			return
		case child.ended():
			r.reap(int(child.pid))
		default:
			r.releaseStopped(int(child.pid))
		}
	}
}
