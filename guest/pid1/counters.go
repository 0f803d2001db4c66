package pid1

import (
	"bytes"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"berth/guest/wire"
)

// forkFiles are where cgroups v2 and v1 tell how often a process or thread was refused, as "max N".
var forkFiles = []string{"/sys/fs/cgroup/pids.events", "/sys/fs/cgroup/pids/pids.events"}

// counters are what the kernel counted and which file systems were full at one moment. The difference between two of
// them shows what a command, or one that ran beside it, ran into.
type counters struct {
	ooms    int64 // processes killed for memory; -1 where that cannot be seen
	forks   int64 // processes and threads refused; likewise
	full    wire.Shortage
	orphans usage // of a shell's earlier calls
}

// readCounters reads the counters, which takes some microseconds.
func (s *Server) readCounters() counters {
	return counters{ooms: s.oom.read(), forks: s.forks.read(), full: fullNow()}
}

// counterCache keeps counters that were read when nothing ran, until anything runs or a request works on files. The
// next command then need not wait for them.
type counterCache struct {
	mu       sync.Mutex
	holds    bool
	value    counters
	requests int    // requests at work that may touch files
	changes  uint64 // how often anything came that ends a calm
}

// take returns the cached counters if they are still valid, and invalidates them.
func (c *counterCache) take() (is counters, holds bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	is, holds = c.value, c.holds
	c.holds = false
	c.changes++
	return is, holds
}

// invalidate drops the cached counters.
func (c *counterCache) invalidate() { _, _ = c.take() }

// version returns the number that store compares.
func (c *counterCache) version() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changes
}

// store reads and caches the counters, unless anything has changed since that version. Nothing must be running.
func (c *counterCache) store(since uint64, look func() counters) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.requests == 0 && c.changes == since {
		c.value, c.holds = look(), true
	}
}

// enter invalidates the cache while a request works on files, until the caller calls leave.
func (c *counterCache) enter() (leave func()) {
	c.count(1)
	return func() { c.count(-1) }
}

func (c *counterCache) count(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests += n
	c.holds = false
	c.changes++
}

// countersBefore returns the counters for a command that is about to start.
func (s *Server) countersBefore() counters {
	if is, holds := s.counterCache.take(); holds {
		return is
	}
	return s.readCounters()
}

// explain adds to x the signs that the command's end was forced on it. A command that ended well needs none.
func (e *execution) explain(x *wire.Exit) {
	e.addOrphans(x)
	x.NoOutputDir = e.noOutputDir
	if x.Code == 0 {
		return
	}
	x.OutOfMemory = e.outOfMemory(*x)
	now := e.s.readCounters()
	x.ForksRefused = e.before.forks >= 0 && now.forks > e.before.forks
	x.Full, x.FullBefore = now.full, e.before.full
}

// fullNow looks at the file systems in memory. Others have limits that only the daemon can see.
func fullNow() (set wire.Shortage) {
	for i, path := range []string{"/tmp", "/dev/shm"} {
		if tmpfsFull(path) {
			set |= 1 << i
		}
	}
	return set
}

// tmpfsFull reports whether the tmpfs at path has no room for another file. What a program could not
// write whole it often leaves out whole, so the last hundredth counts as nothing.
func tmpfsFull(path string) bool {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil || st.Type != unix.TMPFS_MAGIC || st.Blocks == 0 {
		return false
	}
	return st.Bavail <= st.Blocks/100 || st.Files > 0 && st.Ffree == 0
}

// A tally is an open file of the kernel with a line "KEY N". Nil is one that this container has not.
type tally struct {
	f   *os.File
	key []byte
}

// newTally opens the first of the files that has the line.
func newTally(key string, files ...string) *tally {
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		if t := (&tally{f, []byte(key + " ")}); t.read() >= 0 {
			return t
		}
		_ = f.Close()
	}
	return nil
}

// read is the number, or -1 if it cannot be told.
func (t *tally) read() int64 {
	if t == nil {
		return -1
	}
	var buf [512]byte
	for line := range bytes.Lines(buf[:readFirst(t.f, buf[:])]) {
		if v, ok := bytes.CutPrefix(line, t.key); ok {
			if count, err := strconv.ParseInt(string(bytes.TrimSpace(v)), 10, 64); err == nil {
				return count
			}
		}
	}
	return -1
}

func (t *tally) close() {
	if t != nil {
		_ = t.f.Close()
	}
}
