package pid1

import (
	"time"

	"golang.org/x/sys/unix"

	"berth/guest/wire"
)

// A usage is what processes had used when they were reaped.
type usage struct {
	cpu  time.Duration
	peak int64 // bytes, of the largest of them
}

func usageOf(r *unix.Rusage) usage {
	return usage{time.Duration(r.Utime.Nano() + r.Stime.Nano()), r.Maxrss << 10}
}

func (u *usage) add(v usage) {
	u.cpu += v.cpu
	u.peak = max(u.peak, v.peak)
}

// openAccount begins to count what orphans of o use. The kernel adds what a process used to its
// parent's when that waits for it; an orphan's parent is PID 1, so without this nobody would be told
// what killed and abandoned children took.
func (r *reaper) openAccount(o *group) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all {
		r.orphans[o] = &usage{}
	}
}

// closeAccount stops that.
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

// account is what the orphans of o have used until now.
func (r *reaper) account(o *group) usage {
	r.mu.Lock()
	defer r.mu.Unlock()
	if u := r.orphans[o]; u != nil {
		return *u
	}
	return usage{}
}

// accountOf is the account that the zombie pid counts for, or nil. Called with r.mu held.
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

// assign says whose the process pid is before it is killed: where marks cannot be read of the dead, as under
// gVisor, nobody would know afterwards.
func (r *reaper) assign(pid int, o *group) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if u := r.orphans[o]; u != nil {
		r.assigned[pid] = u
	}
}

// reapDead reaps whatever is dead already. A PID is looked up before it is reaped: it cannot be given to another while
// it is a zombie's.
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

// addOrphans adds to x what the command's orphans used since it started.
func (e *execution) addOrphans(x *wire.Exit) {
	e.mu.Lock()
	killed := e.killed
	e.mu.Unlock()
	if killed { // else those that are dying now go on after its end, and are not waited for
		e.s.reaper.reapDead()
	}
	u := e.s.reaper.account(e.group)
	x.CPU += max(0, u.cpu-e.before.orphans.cpu)
	if !e.group.shell {
		x.PeakBytes = max(x.PeakBytes, u.peak)
	}
}
