package pid1

import (
	"bytes"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"berth/guest/wire"
)

// forkFiles are the files of cgroups v2 and v1 that count refused processes and threads, as "max N".
var forkFiles = []string{"/sys/fs/cgroup/pids.events", "/sys/fs/cgroup/pids/pids.events"}

// counters are kernel counters and the list of full file systems at one moment. The difference between two of them
// shows which limits a command reached, or another command that ran at the same time.
type counters struct {
	ooms    int64 // processes killed for lack of memory; -1 if unknown
	forks   int64 // processes and threads refused; -1 if unknown
	full    wire.Shortage
	orphans usage // of earlier calls of a shell
}

// readCounters reads the counters. That takes a few microseconds.
func (s *Server) readCounters() counters {
	return counters{ooms: s.oom.read(), forks: s.forks.read(), full: fullNow()}
}

// counterCache keeps counters that were read while nothing ran. They are valid until a process starts or a request
// works on files. The next command then need not wait for a read.
type counterCache struct {
	mu       sync.Mutex
	holds    bool
	value    counters
	requests int    // running requests that may touch files
	changes  uint64 // number of events that invalidated the cache
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

// explain adds to x the reasons that may have forced the command's end. It adds none to a command that succeeded.
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

// fullNow checks the file systems in memory. Only the daemon can see the limits of the others.
func fullNow() (set wire.Shortage) {
	for i, path := range []string{"/tmp", "/dev/shm"} {
		if tmpfsFull(path) {
			set |= 1 << i
		}
	}
	return set
}

// tmpfsFull reports whether the tmpfs at path has no room for another file. The last hundredth counts as full: a
// program that cannot write all of a block often writes none.
func tmpfsFull(path string) bool {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil || st.Type != unix.TMPFS_MAGIC || st.Blocks == 0 {
		return false
	}
	return st.Bavail <= st.Blocks/100 || st.Files > 0 && st.Ffree == 0
}

// A tally is an open kernel file with a line "KEY N". It is nil where the container has no such file.
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

// read returns the number, or -1 if it cannot be read.
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
