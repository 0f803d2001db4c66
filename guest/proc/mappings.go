package proc

import (
	"bytes"
	"os"
	"strconv"

	"berth/guest/user"
)

// maxAsked bounds the processes whose mappings are read: each takes tens of microseconds.
const maxAsked = 32

// Mappings reports whether processes of commands are alive, and whether one of them may change a file through memory.
// The kernel notifies nobody of such a write. A process that cannot be asked counts as one that may.
func (t *Table) Mappings() (live, shared bool) {
	if t.Childless() {
		return false, false
	}
	known := map[int]bool{t.pid: true}
	for _, g := range t.allGroups() {
		if g.ID == "" && !g.Shell { // a zygote runs no code of a command
			known[g.PID] = true
		}
	}
	asked := 0
	for _, pid := range pids() {
		if known[pid] {
			continue
		}
		live = true
		if asked++; asked > maxAsked || mapsFile(t.ids, pid) {
			return true, true
		}
	}
	return live, false
}

// mapsFile reports whether a process has a file of a file system mapped for all to see, so that it may change it.
func mapsFile(ids user.Users, pid int) bool {
	var b []byte
	path := "/proc/" + strconv.Itoa(pid) + "/maps"
	read := func() (err error) { b, err = os.ReadFile(path); return err }
	if err := read(); err != nil && !gone(pid) && asOwner(ids, pid, read) != nil {
		return !gone(pid)
	}
	for line := range bytes.Lines(b) {
		if sharesFile(line) {
			return true
		}
	}
	return false
}

// gone reports whether a process has ended.
func gone(pid int) bool {
	p, ok := readProc(pid)
	return !ok || p.dead()
}

// memoryFiles are the beginnings of paths of mapped files that no workspace has: devices, and what is in memory only.
// /usr is for the tables of the C library, which every program maps shared.
var memoryFiles = [][]byte{[]byte("/dev/"), []byte("/memfd:"), []byte("/SYSV"), []byte("/usr/"), []byte("anon_inode:"),
	[]byte("/[aio]"), []byte("[")}

// sharesFile reports whether a line of /proc/N/maps is a shared mapping of a file. One that cannot be written now
// counts too: it may have been written before.
func sharesFile(line []byte) bool {
	f := bytes.Fields(line)
	if len(f) < 6 || len(f[1]) < 4 || f[1][3] != 's' {
		return false
	}
	for _, prefix := range memoryFiles {
		if bytes.HasPrefix(f[5], prefix) {
			return false
		}
	}
	return true
}
