// Package proc starts, follows and ends the processes of a container. It forks and executes programs, reaps every
// process that dies, knows which processes belong to one command or shell, kills them all, counts what is left behind,
// and explains an end by the limits that were reached. guest/pid1 calls it for commands and shells, and guest/zygote
// for programs that are started in advance. The package connects no descriptors and knows no requests.
package proc

import (
	"bytes"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"berth/guest/gosched"
	"berth/guest/user"
	"berth/guest/wire"
)

// A Table is the set of the guest's processes.
type Table struct {
	*reaper
	pid    int
	ids    user.Users
	shield *shield
	oom    *tally // counts kills for lack of memory
	forks  *tally // counts refused processes

	loadavg *os.File     // nil if there is none
	newest  atomic.Int64 // PID of the latest process started
	spawn   sync.Mutex   // held while a child starts: it inherits limits that are set on the guest for it
	reserve sync.Once    // of threads

	mu     sync.Mutex
	groups map[*Group]struct{}
	given  map[Tag]struct{} // tags of all processes started; nil for PID 1, whose exit ends all processes
}

// NewTable makes the table of this process. If all is set, the process waits for all children and adopts orphans.
func NewTable(ids user.Users, all bool) *Table {
	t := &Table{reaper: newReaper(all), pid: os.Getpid(), ids: ids, groups: map[*Group]struct{}{},
		oom: newTally("oom_kill", oomFiles...), forks: newTally("max", forkFiles...)}
	t.loadavg, _ = os.Open("/proc/loadavg")
	if all {
		t.shield = newShield()
	}
	if t.pid != 1 {
		t.given = map[Tag]struct{}{}
	}
	return t
}

// Close closes the kernel files that the table reads.
func (t *Table) Close() {
	if t.shield != nil {
		_ = t.shield.f.Close()
	}
	t.oom.close()
	t.forks.close()
	_ = t.loadavg.Close()
}

// A Group is the unit that processes belong to: a command, a persistent shell with all its calls, or a zygote. A
// zygote is a single process.
type Group struct {
	ID    string // exec ID of a command; empty for others
	Shell bool
	PID   int // set by Start
	Tag   Tag // set by Start
	start uint64
}

// Start starts a program and registers its group. prestarted may have a process that waits become the program: it sets
// the PID and reports true. Otherwise, and if prestarted is nil, Start forks a child.
func (t *Table) Start(p *Program, g *Group, files Files,
	prestarted func() (<-chan ExitStatus, bool)) (<-chan ExitStatus, error) {
	t.spawn.Lock()
	defer t.spawn.Unlock()
	// The program may use up the limit, so the threads come first.
	t.reserve.Do(func() { startThreads(spareThreads) })
	g.start = bootTicks() - 1 // the clock of /proc is coarse: a start time one tick early is never too late
	g.Tag = nextTag()
	t.openAccount(g)
	var deaths <-chan ExitStatus
	var ok bool
	if prestarted != nil {
		deaths, ok = prestarted()
	}
	if !ok {
		var err error
		if g.PID, deaths, err = t.forkExec(p, files, g.Tag); err != nil {
			t.closeAccount(g)
			return nil, err
		}
	}
	t.newest.Store(int64(g.PID))
	t.Add(g)
	return deaths, nil
}

// forkExec forks a child of the guest that executes the program.
func (t *Table) forkExec(p *Program, files Files, tag Tag) (pid int, deaths <-chan ExitStatus, err error) {
	attr := &syscall.ProcAttr{
		Dir: p.Dir, Env: p.Env, Files: make([]uintptr, len(files.FDs)),
		Sys: &syscall.SysProcAttr{Setsid: true, Credential: p.User.Credential(), Setctty: files.TTY},
	}
	for i, fd := range files.FDs {
		attr.Files[i] = uintptr(fd)
	}
	tag.stamp()
	t.shield.with(func() {
		pid, deaths, err = t.startChild(func() (pid int, err error) {
			gosched.WithCommandSlack(func() { pid, err = syscall.ForkExec(p.Path, p.Argv, attr) })
			return pid, err
		})
	})
	return pid, deaths, err
}

// Ended returns the exit of a command from the status of its process, and removes its group. before are the counters
// at its start. killed reports whether the guest has killed it on request.
func (t *Table) Ended(g *Group, d ExitStatus, before Counters, killed func() bool) wire.Exit {
	x := d.Exit()
	t.Explain(&x, g, before, killed)
	x.Leftover = t.Leftover(g)
	t.Remove(g)
	return x
}

// Explain adds to x the use of orphans and the reasons that may have forced the command's end. It adds no reason to a
// command that succeeded.
func (t *Table) Explain(x *wire.Exit, g *Group, before Counters, killed func() bool) {
	if killed() { // otherwise, processes that are still dying outlive the command and are not waited for
		t.reapDead()
	}
	u := t.account(g)
	x.CPU += max(0, u.cpu-before.orphans.cpu)
	if !g.Shell {
		x.PeakBytes = max(x.PeakBytes, u.peak)
	}
	if x.Code == 0 {
		return
	}
	// the kernel killed the command, or the child whose status it passed on
	sigkill := x.Code == 128+int(unix.SIGKILL)
	x.OutOfMemory = sigkill && !killed() && before.ooms >= 0 && t.oom.read() > before.ooms
	forks := t.forks.read()
	x.ForksRefused = before.forks >= 0 && forks > before.forks
	x.Full, x.FullBefore = fullNow(), before.full
}

// Leftover counts the processes of g without its own, after that has ended or while it is a shell between two calls.
// Nearly always there is none, which the kernel's latest PID shows, or the list of PIDs: there are only known processes
// and older ones.
func (t *Table) Leftover(g *Group) int {
	if t.Childless() {
		return 0
	}
	known := map[int]bool{t.pid: true}
	for _, other := range t.allGroups() {
		known[other.PID] = true
	}
	latest := t.latestPID()
	// The list of PIDs takes five times as long. The numbers do not wrap within a second.
	if bootTicks()-g.start < 100 && latest >= g.PID && latest < g.PID+len(known) {
		newer := g.PID + 1
		for known[newer] {
			newer++
		}
		if newer > latest {
			return 0 // the guest itself made every process after that of g
		}
	}
	wrapped := int(t.newest.Load()) < g.PID || latest != 0 && latest < g.PID
	for _, pid := range pids() {
		if !known[pid] && (pid > g.PID || wrapped) { // lower PIDs are older, unless the numbers have wrapped
			return len(t.Others(g))
		}
	}
	return 0
}

// latestPID returns the PID that the kernel gave out last, or 0 if the kernel does not report it, as gVisor's does
// not.
func (t *Table) latestPID() int {
	var buf [128]byte
	text := bytes.TrimSpace(buf[:readFirst(t.loadavg, buf[:])])
	n, _ := strconv.Atoi(string(text[bytes.LastIndexByte(text, ' ')+1:]))
	return n
}

// Childless reports whether the guest is PID 1, which is the parent of every orphan, and has no child. Then nothing
// else runs.
func (t *Table) Childless() bool {
	if !t.all || t.pid != 1 {
		return false
	}
	_, err := waitable(unix.P_ALL, 0)
	return err == unix.ECHILD
}

// Newest returns the PID of the latest process that Start has started.
func (t *Table) Newest() int64 { return t.newest.Load() }

// Groups returns the number of groups.
func (t *Table) Groups() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.groups)
}

// allGroups lists all groups.
func (t *Table) allGroups() []*Group {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.groups))
}

// Add registers a group.
func (t *Table) Add(g *Group) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.groups[g] = struct{}{}
	if t.given != nil && g.Tag != 0 {
		t.given[g.Tag] = struct{}{}
	}
}

// Remove removes a group whose process has ended.
func (t *Table) Remove(g *Group) {
	t.closeAccount(g)
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.groups, g)
}
