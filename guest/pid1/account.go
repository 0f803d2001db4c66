package pid1

import (
	"time"

	"golang.org/x/sys/unix"

	"berth/guest/wire"
)

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

// openAccount starts to count what orphans of o use. The kernel adds the use of a process to the counters of the
// parent that waits for it. The parent of an orphan is PID 1. Without this account, the use of killed and abandoned
// children would be lost.
func (r *reaper) openAccount(o *group) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all {
		r.orphans[o] = &usage{}
	}
}

// closeAccount stops counting for o.
func (r *reaper) closeAccount(o *group) {
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
func (r *reaper) account(o *group) usage {
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
		if m != 0 && o.mark == m {
			return u
		}
	}
	return nil
}

// assign records the group of process pid before the process is killed. Where the tag of a dead process cannot be
// read, as under gVisor, its group would be unknown afterwards.
func (r *reaper) assign(pid int, o *group) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if u := r.orphans[o]; u != nil {
		r.assigned[pid] = u
	}
}

// reapDead reaps all children that are dead already. It looks up a PID before it reaps it: the kernel does not reuse
// the PID of a zombie.
func (r *reaper) reapDead() {
	for r.all {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
		if err == unix.EINTR {
			continue
		}
		pid := siginfoPID(&info)
		if err != nil || pid == 0 {
			return
		}
		r.reap(pid)
	}
}

// addOrphans adds to x what the orphans of the command used since it started.
func (e *execution) addOrphans(x *wire.Exit) {
	e.mu.Lock()
	killed := e.killed
	e.mu.Unlock()
	if killed { // otherwise, processes that are still dying outlive the command and are not waited for
		e.s.reaper.reapDead()
	}
	u := e.s.reaper.account(e.group)
	x.CPU += max(0, u.cpu-e.before.orphans.cpu)
	if !e.group.shell {
		x.PeakBytes = max(x.PeakBytes, u.peak)
	}
}
