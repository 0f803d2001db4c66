package pid1

import (
	"time"

	"golang.org/x/sys/unix"

	"berth/proto"
)

// killWait is how long the processes of a command may take to die after SIGKILL. Only processes that hang in the
// kernel take noticeable time, such as on a disk that does not answer.
const killWait = 10 * time.Second

// A group is the unit that processes belong to: a command, a persistent shell with all its calls, or a zygote. A
// zygote is a single process.
type group struct {
	id     string // exec ID of a command; empty for others
	pid    int
	mark   tag
	start  uint64 // ticks
	shell  bool
	zygote bool
}

// owns reports whether the fields of p alone show that p belongs to o.
func (o *group) owns(p proc) bool {
	return p.pid == o.pid || p.sid == o.pid || p.pgrp == o.pid
}

// A search finds the processes of one group among all processes. It looks up the group of each process once, since
// that reads files.
type search struct {
	s      *Server
	o      *group
	others []*group
	known  map[int]verdict
}

// A verdict records whether the process with this start time is a victim by its tag or environment.
type verdict struct {
	start  uint64
	victim bool
}

// newSearch prepares to find o's processes.
func (s *Server) newSearch(o *group) *search { return &search{s: s, o: o, known: map[int]verdict{}} }

// listProcesses lists all processes, and updates the list of other groups. It holds the spawn lock, so that no child
// is being started meanwhile. Such a child does not have its environment yet, nor on every kernel its tag. It would
// pass for an orphan.
func (h *search) listProcesses() []proc {
	h.s.spawn.Lock()
	defer h.s.spawn.Unlock()
	h.others = h.others[:0]
	for _, other := range h.s.groups() {
		if other != h.o {
			h.others = append(h.others, other)
		}
	}
	return processes()
}

// victims returns the living processes of the group: those in its session or process group, those with its tag or
// exec ID, orphans without another group, and all their descendants.
func (h *search) victims() []proc {
	table := h.listProcesses()
	index := make(map[int]int, len(table))
	for i, p := range table {
		index[p.pid] = i
	}
	state := make([]byte, len(table)) // 0: unknown, 'v': victim, 'n': no victim
	for i := range table {
		h.decide(table, index, state, i, 0)
	}
	var found []proc
	for i, p := range table {
		if state[i] == 'v' && !p.dead() {
			found = append(found, p)
		}
	}
	return found
}

// decide reports whether process i is a victim. It decides about the parent first if it must.
func (h *search) decide(table []proc, index map[int]int, state []byte, i, depth int) bool {
	if state[i] != 0 {
		return state[i] == 'v'
	}
	p := table[i]
	state[i] = 'n' // also ends a loop: a table that is read while it changes may contain one
	victim := false
	switch {
	case p.pid == h.s.pid || p.start < h.o.start && p.pid != h.o.pid:
	case h.o.owns(p):
		victim = true
	case h.isOthers(p):
	default:
		parent, ok := index[p.ppid]
		victim = ok && depth < len(table) && h.decide(table, index, state, parent, depth+1) || h.isTagged(p)
	}
	if victim {
		state[i] = 'v'
	}
	return victim
}

// isOthers reports whether the fields of p alone show that p belongs to another live group.
func (h *search) isOthers(p proc) bool {
	for _, o := range h.others {
		if o.owns(p) {
			return true
		}
	}
	return false
}

// isTagged reports whether p inherited the tag or the exec ID of the group.
func (h *search) isTagged(p proc) bool {
	if v, ok := h.known[p.pid]; ok && v.start == p.start {
		return v.victim
	}
	v := verdict{p.start, h.inherited(p)}
	h.known[p.pid] = v
	return v.victim
}

func (h *search) inherited(p proc) bool {
	if m := tagOf(p.pid); issued(m) {
		return m == h.o.mark
	}
	id := environID(h.s.ids, p.pid)
	if id != "" {
		for _, o := range h.others {
			if o.id == id {
				return false
			}
		}
		return id == h.o.id
	}
	// The process has removed everything that it inherited. An orphan that is younger than the command and has no
	// other group belongs to the command.
	return h.s.init && p.ppid == h.s.pid
}

// killTree ends every process of o, and returns once none is left. It first stops them all, in rounds until a round
// finds no new process: a stopped process cannot fork.
func (s *Server) killTree(o *group) error {
	h := s.newSearch(o)
	stopped := map[int]uint64{}
	deadline := time.Now().Add(killWait)
	pause := 200 * time.Microsecond
	for {
		found := h.victims()
		if len(found) == 0 {
			return nil
		}
		if s.stopNew(o, found, stopped) {
			continue
		}
		for _, p := range found {
			s.kill(p.pid, unix.SIGKILL)
		}
		if time.Now().After(deadline) {
			return proto.Errorf(proto.Unavailable, "kill", "",
				"%d processes did not die within %v; restart the container", len(found), killWait)
		}
		// The guest gets no signal for the death of a process that is not its child.
		time.Sleep(pause)
		pause = min(2*pause, 20*time.Millisecond)
	}
}

// stopNew stops the processes that were not stopped before, and reports whether there were any.
func (s *Server) stopNew(o *group, found []proc, stopped map[int]uint64) bool {
	fresh := false
	for _, p := range found {
		if start, ok := stopped[p.pid]; !ok || start != p.start {
			stopped[p.pid] = p.start
			s.reaper.assign(p.pid, o)
			s.kill(p.pid, unix.SIGSTOP)
			fresh = true
		}
	}
	return fresh
}

// kill sends a signal to a process, or to a group if pid is negative.
func (s *Server) kill(pid int, sig unix.Signal) error {
	err := unix.Kill(pid, sig)
	if err == unix.EPERM {
		// Root of a container without CAP_KILL may not send it. The user may signal the user's own processes.
		err = s.ids.Default.Do(func() error { return unix.Kill(pid, sig) })
	}
	return err
}

// leftover counts the processes of o without its own, after that has ended or while it is a shell between two calls.
// Nearly always there is none: the kernel's counters show that at once, or one read of the process list does. alone
// reports that nothing at all runs in the container.
func (s *Server) leftover(o *group) (n int, alone bool) {
	if s.childless() || !o.shell && s.lastPID.unchanged() && s.onlyZygotesBut(o) {
		return 0, true
	}
	latest := s.lastPID.read() // before the list, which then contains all processes made until now
	if n, alone = s.others(o, latest); alone {
		s.lastPID.expect(latest)
	}
	return n, alone
}

// onlyZygotesBut reports whether the guest runs nothing but zygotes and o.
func (s *Server) onlyZygotesBut(o *group) bool {
	for _, other := range s.groups() {
		if other != o && !other.zygote {
			return false
		}
	}
	return true
}

// others computes leftover from the process list. latest is the last PID before the list was read, 0 if unknown.
func (s *Server) others(o *group, latest int) (n int, alone bool) {
	theirs := map[int]*group{}
	for _, other := range s.groups() {
		theirs[other.pid] = other
	}
	alone = s.inherits()
	wrapped := int(s.newest.Load()) < o.pid || latest != 0 && latest < o.pid
	for _, pid := range pids() {
		if pid == s.pid || pid == o.pid && !o.shell {
			continue
		}
		owner := theirs[pid]
		alone = alone && owner != nil && owner.zygote
		// Lower PIDs are older, unless the numbers have wrapped.
		if owner == nil && (pid > o.pid || wrapped) {
			return s.countOthers(o), false
		}
	}
	return 0, alone
}

// inherits reports whether the guest is PID 1 and becomes the parent of every orphan.
func (s *Server) inherits() bool { return s.init && s.pid == 1 }

// childless reports whether the guest inherits orphans and has no child. Then nothing else runs.
func (s *Server) childless() bool {
	if !s.inherits() {
		return false
	}
	var info unix.Siginfo
	return unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil) == unix.ECHILD
}

func (s *Server) countOthers(o *group) int {
	n := 0
	for _, p := range s.newSearch(o).victims() {
		if p.pid != o.pid {
			n++
		}
	}
	return n
}
