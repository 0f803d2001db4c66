package pid1

import (
	"golang.org/x/sys/unix"

	"berth/guest/wire"
)

// oomFiles are where cgroups v2 and v1 tell how often the kernel has killed something in this
// container for want of memory, as "oom_kill N".
var oomFiles = []string{"/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"}

// outOfMemory reports whether the kernel killed it, or the child whose status it passed on, for
// memory.
func (e *execution) outOfMemory(x wire.Exit) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	killed := x.Code == 128+int(unix.SIGKILL)
	return killed && !e.killed && e.before.ooms >= 0 && e.s.oom.read() > e.before.ooms
}
