package guest

import (
	"time"

	"golang.org/x/sys/unix"
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

// openAccount begins to count what orphans with mark m use. The kernel adds what a process used to its
// parent's when that waits for it; an orphan's parent is PID 1, so without this nobody would be told
// what killed and abandoned children took.
func (r *reaper) openAccount(m mark) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all && m != 0 {
		r.orphans[m] = &usage{}
	}
}

// closeAccount stops that.
func (r *reaper) closeAccount(m mark) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.orphans, m)
}

// account is what the orphans of m have used until now.
func (r *reaper) account(m mark) usage {
	r.mu.Lock()
	defer r.mu.Unlock()
	if u := r.orphans[m]; u != nil {
		return *u
	}
	return usage{}
}

// owed is the account that the zombie pid counts for, or nil. Called with r.mu held.
func (r *reaper) owed(pid int) *usage {
	if len(r.orphans) == 0 || r.children[pid] != nil {
		return nil
	}
	return r.orphans[markOf(pid)]
}

// settle reaps whatever is dead already, so that the accounts are complete.
func (r *reaper) settle() {
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
		r.bury(pid)
	}
}

// addOrphans adds to x what the command's orphans used since it started.
func (e *execution) addOrphans(x *Exit) {
	e.mu.Lock()
	killed := e.killed
	e.mu.Unlock()
	if killed { // else those that are dying now go on after its end, and are not waited for
		e.s.reaper.settle()
	}
	u := e.s.reaper.account(e.o.mark)
	x.CPU += max(0, u.cpu-e.before.orphans.cpu)
	if !e.o.shell {
		x.PeakBytes = max(x.PeakBytes, u.peak)
	}
}
