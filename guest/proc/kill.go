package proc

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"berth/proto"
)

// killWait is how long the processes of a command may take to die after SIGKILL. Only processes that hang in the
// kernel take noticeable time, such as on a disk that does not answer.
const killWait = 10 * time.Second

// KillTree ends every process of g, and returns once none is left. It first stops them all, in rounds until a round
// finds no new process: a stopped process cannot fork.
func (t *Table) KillTree(g *Group) error {
	s := t.newSearch(g)
	stopped := map[int]uint64{}
	deadline := time.Now().Add(killWait)
	pause := 200 * time.Microsecond
	for {
		found := s.victims()
		if len(found) == 0 {
			return nil
		}
		if t.stopNew(g, found, stopped) {
			continue
		}
		for _, p := range found {
			_ = t.Kill(p.pid, unix.SIGKILL)
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
func (t *Table) stopNew(g *Group, found []process, stopped map[int]uint64) bool {
	fresh := false
	for _, p := range found {
		if start, ok := stopped[p.pid]; !ok || start != p.start {
			stopped[p.pid] = p.start
			t.assign(p.pid, g)
			_ = t.Kill(p.pid, unix.SIGSTOP)
			fresh = true
		}
	}
	return fresh
}

// Kill sends a signal to a process, or to a process group if pid is negative.
func (t *Table) Kill(pid int, sig unix.Signal) error {
	err := unix.Kill(pid, sig)
	if err == unix.EPERM {
		// Root of a container without CAP_KILL may not send it. Users may signal their own processes.
		err = asOwner(t.ids, max(pid, -pid), func() error { return unix.Kill(pid, sig) })
	}
	return err
}

// KillRest ends the processes that commands left behind. PID 1 need not: the kernel kills them when PID 1 exits.
func (t *Table) KillRest() {
	if t.given == nil {
		return
	}
	for range 100 {
		found := false
		for _, p := range processes() {
			if _, ours := t.given[tagOf(p.pid)]; ours && !p.dead() {
				found = true
				_ = t.Kill(p.pid, unix.SIGKILL)
			}
		}
		if !found {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// Others returns the PIDs of the living processes of g, without its own.
func (t *Table) Others(g *Group) (others []int) {
	for _, p := range t.newSearch(g).victims() {
		if p.pid != g.PID {
			others = append(others, p.pid)
		}
	}
	return others
}

// A search finds the processes of one group among all processes. It looks up the group of each process once, since
// that reads files.
type search struct {
	t      *Table
	g      *Group
	others []*Group
	known  map[int]verdict
}

// A verdict records whether the process with this start time is a victim by its tag or environment.
type verdict struct {
	start  uint64
	victim bool
}

// newSearch prepares to find the processes of g.
func (t *Table) newSearch(g *Group) *search { return &search{t: t, g: g, known: map[int]verdict{}} }

// listProcesses lists all processes, and updates the list of other groups. It holds the spawn lock, so that no child
// is being started meanwhile. Such a child does not have its environment yet, nor on every kernel its tag. It would
// pass for an orphan.
func (s *search) listProcesses() []process {
	s.t.spawn.Lock()
	defer s.t.spawn.Unlock()
	s.others = slices.DeleteFunc(s.t.allGroups(), func(g *Group) bool { return g == s.g })
	return processes()
}

// victims returns the living processes of the group: those in its session or process group, those with its tag or
// exec ID, orphans without another group, and all their descendants.
func (s *search) victims() []process {
	table := s.listProcesses()
	index := make(map[int]int, len(table))
	for i, p := range table {
		index[p.pid] = i
	}
	state := make([]byte, len(table)) // 0: unknown, 'v': victim, 'n': no victim
	var found []process
	for i, p := range table {
		if s.decide(table, index, state, i, 0) && !p.dead() {
			found = append(found, p)
		}
	}
	return found
}

// decide reports whether process i is a victim. It decides about the parent first if it must.
func (s *search) decide(table []process, index map[int]int, state []byte, i, depth int) bool {
	if state[i] != 0 {
		return state[i] == 'v'
	}
	p := table[i]
	state[i] = 'n' // also ends a loop: a table that is read while it changes may contain one
	victim := false
	switch {
	case p.pid == s.t.pid || p.start < s.g.start && p.pid != s.g.PID:
	case s.g.owns(p):
		victim = true
	case slices.ContainsFunc(s.others, func(g *Group) bool { return g.owns(p) }):
	default:
		parent, ok := index[p.ppid]
		victim = ok && depth < len(table) && s.decide(table, index, state, parent, depth+1) || s.isTagged(p)
	}
	if victim {
		state[i] = 'v'
	}
	return victim
}

// owns reports whether the fields of p alone show that p belongs to g.
func (g *Group) owns(p process) bool {
	return p.pid == g.PID || p.sid == g.PID || p.pgrp == g.PID
}

// isTagged reports whether p inherited the tag or the exec ID of the group.
func (s *search) isTagged(p process) bool {
	if v, ok := s.known[p.pid]; ok && v.start == p.start {
		return v.victim
	}
	v := verdict{p.start, s.inherited(p)}
	s.known[p.pid] = v
	return v.victim
}

// inherited is isTagged that reads the files of the process.
func (s *search) inherited(p process) bool {
	if tag := tagOf(p.pid); issued(tag) {
		return tag == s.g.Tag
	}
	if id := environID(s.t.ids, p.pid); id != "" {
		return id == s.g.ID && !slices.ContainsFunc(s.others, func(g *Group) bool { return g.ID == id })
	}
	// The process has removed everything that it inherited. An orphan that is younger than the command and has no
	// other group belongs to the command.
	return s.t.all && p.ppid == s.t.pid
}
