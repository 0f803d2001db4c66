package pid1

import (
	"bytes"
	"math"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"berth/guest/fs/access"
	"berth/guest/user"
	"berth/guest/wire"
)

// A proc is one line of the process table.
type proc struct {
	pid, ppid, pgrp, sid int
	state                byte
	start                uint64 // ticks since boot
	cpu                  uint64 // ticks of the process and of children that it waited for
}

// dead reports whether a process has ended but was not reaped yet.
func (p proc) dead() bool { return p.state == 'Z' || p.state == 'X' }

// pids lists the processes that /proc shows.
func pids() []int {
	fd, err := unix.Open("/proc", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	entries, _ := access.ReadEntries(fd, make([]byte, 8192), math.MaxInt) // the entries before an error
	var list []int
	for _, e := range entries {
		if e.Name[0] < '0' || e.Name[0] > '9' {
			continue
		}
		if pid, err := strconv.Atoi(e.Name); err == nil {
			list = append(list, pid)
		}
	}
	return list
}

// processes reads the process table.
func processes() []proc {
	list := pids()
	table := make([]proc, 0, len(list))
	for _, pid := range list {
		if p, ok := readProc(pid); ok {
			table = append(table, p)
		}
	}
	return table
}

// readProc reads the entry of one process; false if the process is gone.
func readProc(pid int) (proc, bool) {
	var buf [1024]byte
	n, err := readInto("/proc/"+strconv.Itoa(pid)+"/stat", buf[:])
	if err != nil {
		return proc{}, false
	}
	return parseStat(pid, buf[:n])
}

// parseStat parses a line of /proc/N/stat. The command's name is in parentheses and may contain any character, so
// parseStat counts the fields from the last closing parenthesis.
func parseStat(pid int, line []byte) (proc, bool) {
	i := bytes.LastIndexByte(line, ')')
	if i < 0 {
		return proc{}, false
	}
	f := bytes.Fields(line[i+1:])
	if len(f) < 20 || len(f[0]) != 1 {
		return proc{}, false
	}
	number := func(i int) uint64 {
		n, _ := strconv.ParseUint(string(f[i]), 10, 64)
		return n
	}
	return proc{
		pid: pid, state: f[0][0],
		ppid: int(number(1)), pgrp: int(number(2)), sid: int(number(3)),
		cpu:   number(11) + number(12) + number(13) + number(14),
		start: number(19),
	}, true
}

// readInto reads the beginning of a file without Go's poller and its locks.
func readInto(path string, buf []byte) (int, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	return wire.ReadRetry(fd, buf)
}

// environID returns the BERTH_EXEC_ID of a process's environment at its start, or "".
func environID(ids user.Users, pid int) string {
	var b []byte
	path := "/proc/" + strconv.Itoa(pid) + "/environ"
	read := func() (err error) { b, err = os.ReadFile(path); return err }
	// The kernel shows the environment to the process's own user. Root of a container may lack the capability to read
	// those of others.
	if read() != nil && ids.Default.Do(read) != nil {
		return ""
	}
	key := []byte(execIDVariable + "=")
	for _, kv := range bytes.Split(b, []byte{0}) {
		if v, ok := bytes.CutPrefix(kv, key); ok {
			return string(v)
		}
	}
	return ""
}
