package proc

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"berth/guest/wire"
)

// forkFiles are the files of cgroups v2 and v1 that count refused processes and threads, as "max N".
var forkFiles = []string{"/sys/fs/cgroup/pids.events", "/sys/fs/cgroup/pids/pids.events"}

// oomFiles are the files of cgroups v2 and v1 that count how often the kernel has killed a process of this container
// for lack of memory, as "oom_kill N".
var oomFiles = []string{"/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"}

// Counters are kernel counters and the list of full file systems at one moment. The difference between two of them
// shows which limits a command reached, or another command that ran at the same time.
type Counters struct {
	ooms    int64 // processes killed for lack of memory; -1 if unknown
	forks   int64 // processes and threads refused; -1 if unknown
	full    wire.Shortage
	orphans usage // of earlier calls of a shell
}

// Counters reads the counters before a command. g is the shell that runs it, nil for none. That takes a few
// microseconds.
func (t *Table) Counters(g *Group) Counters {
	c := Counters{ooms: t.oom.read(), forks: t.forks.read(), full: fullNow()}
	if g != nil {
		c.orphans = t.account(g)
	}
	return c
}

// fullNow checks the file system in memory. Only the daemon can see the limits of the others.
func fullNow() (set wire.Shortage) {
	if tmpfsFull("/dev/shm") {
		set |= wire.ShortShm
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

// readFirst reads the beginning of an open kernel file. It returns 0 if there is no file.
func readFirst(f *os.File, b []byte) (n int) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0
	}
	if err := raw.Control(func(fd uintptr) { n, err = unix.Pread(int(fd), b, 0) }); err != nil {
		return 0
	}
	return max(n, 0)
}
