package proc

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"berth/guest/user"
	"berth/guest/wire"
)

// A process is one line of the process table.
type process struct {
	pid, ppid, pgrp, sid int
	state                byte
	start                uint64 // ticks since boot
	cpu                  uint64 // ticks of the process and of children that it waited for
}

// dead reports whether a process has ended but was not reaped yet.
func (p process) dead() bool { return p.state == 'Z' || p.state == 'X' }

// pids lists the processes that /proc shows.
func pids() (list []int) {
	fd, err := unix.Open("/proc", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	buf := make([]byte, 8192)
	for {
		n, err := unix.Getdents(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return list
		}
		_, _, names := unix.ParseDirent(buf[:n], -1, nil)
		for _, name := range names {
			if name[0] < '0' || name[0] > '9' {
				continue
			}
			if pid, err := strconv.Atoi(name); err == nil {
				list = append(list, pid)
			}
		}
	}
}

// processes reads the process table.
func processes() []process {
	list := pids()
	table := make([]process, 0, len(list))
	for _, pid := range list {
		if p, ok := readProc(pid); ok {
			table = append(table, p)
		}
	}
	return table
}

// readProc reads the entry of one process without Go's poller and its locks; false if the process is gone.
func readProc(pid int) (process, bool) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return process{}, false
	}
	defer unix.Close(fd)
	var buf [1024]byte
	n, err := wire.ReadRetry(fd, buf[:])
	if err != nil {
		return process{}, false
	}
	return parseStat(pid, buf[:n])
}

// TicksOf returns the CPU time of a process in ticks of 10 ms, with that of children that it waited for. It returns 0
// if the process is gone.
func TicksOf(pid int) uint64 {
	p, _ := readProc(pid)
	return p.cpu
}

// parseStat parses a line of /proc/N/stat. The command's name is in parentheses and may contain any character, so
// parseStat counts the fields from the last closing parenthesis.
func parseStat(pid int, line []byte) (process, bool) {
	i := bytes.LastIndexByte(line, ')')
	if i < 0 {
		return process{}, false
	}
	f := bytes.Fields(line[i+1:])
	if len(f) < 20 || len(f[0]) != 1 {
		return process{}, false
	}
	number := func(i int) uint64 {
		n, _ := strconv.ParseUint(string(f[i]), 10, 64)
		return n
	}
	return process{
		pid: pid, state: f[0][0],
		ppid: int(number(1)), pgrp: int(number(2)), sid: int(number(3)),
		cpu:   number(11) + number(12) + number(13) + number(14),
		start: number(19),
	}, true
}

// ExecIDVariable is the environment variable that every process of a command has.
const ExecIDVariable = "BERTH_EXEC_ID"

// asOwner calls read as the user of a process.
func asOwner(ids user.Users, pid int, read func() error) error {
	owner, ok := ids.OwnerOf(pid)
	if !ok {
		return unix.ESRCH
	}
	return owner.Do(read)
}

// environID returns the BERTH_EXEC_ID of a process's environment at its start, or "".
func environID(ids user.Users, pid int) string {
	var b []byte
	path := "/proc/" + strconv.Itoa(pid) + "/environ"
	read := func() (err error) { b, err = os.ReadFile(path); return err }
	if read() != nil && asOwner(ids, pid, read) != nil {
		return ""
	}
	key := []byte(ExecIDVariable + "=")
	for _, kv := range bytes.Split(b, []byte{0}) {
		if v, ok := bytes.CutPrefix(kv, key); ok {
			return string(v)
		}
	}
	return ""
}
