package pid1

import (
	"golang.org/x/sys/unix"

	"berth/guest/wire"
)

// oomFiles are the files of cgroups v2 and v1 that count how often the kernel has killed a process of this container
// for lack of memory, as "oom_kill N".
var oomFiles = []string{"/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"}

// outOfMemory reports whether the kernel killed the command for lack of memory, or the child whose status it passed
// on.
func (e *execution) outOfMemory(x wire.Exit) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	killed := x.Code == 128+int(unix.SIGKILL)
	return killed && !e.killed && e.before.ooms >= 0 && e.s.oom.read() > e.before.ooms
}
