package cgroup

import (
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"berth/proto"
)

// This file translates limits for the kernel. Only here do a request's numbers enter the spec. The exceptions are the
// sizes of file systems in memory, and the disk limits, which package diskpool sets.

// LockedMemory is the daemon's limit of locked memory at its start. runc's cgroups package raises the present limit:
// see Groups.Limit.
var LockedMemory = HardLimit(unix.RLIMIT_MEMLOCK)

// cpuShares is the CPU weight of a sandbox while the machine is busy; a process of the host has 1024.
const cpuShares = 256

// SetWeight sets the CPU weight of the parent cgroup of all sandboxes. On each processor the cgroup gets the weight
// of one host process, where host processes are beside it. The kernel's default is the weight of one process on all
// processors together. In a cgroup with too little weight the newest tasks run first: of 16 clients one waited up to
// 0.3 s for a command that others got in 4 ms. With SetWeight the wait is half of that, and all clients get 3 % more.
// With four times the weight the waits are even, but sandboxes that keep every processor busy then delay the daemon
// by milliseconds. With SetWeight one request of a hundred is delayed.
//
// On v2 with systemd only the groups of all services and of all users are beside the cgroup. Each of these has the
// weight of one process, however many processors there are. Our cgroup gets the same weight there. With more, all
// services together would get next to nothing on a large machine.
func SetWeight() error {
	n := runtime.NumCPU()
	v2 := 100
	if InRootCgroup() {
		v2 = min(100*n, 10000)
	}
	return setting{"cpu", "cpu.shares", strconv.Itoa(1024 * n), "cpu.weight", strconv.Itoa(v2)}.write("")
}

// InRootCgroup reports whether the daemon is in v2's root cgroup, and so competes with the tasks there. The answer is
// cached, since each start asks.
var InRootCgroup = sync.OnceValue(func() bool {
	b, err := os.ReadFile("/proc/self/cgroup")
	return err == nil && slices.Contains(strings.Split(string(b), "\n"), "0::/")
})

// InheritProcessors makes new cgroups inherit the processors and memory nodes of the parent cgroup (v1; on v2 they
// always do). If we wrote them instead, the kernel would check them against those of all other sandboxes, twice for
// each new sandbox.
func InheritProcessors() error {
	return setting{"cpuset", "cgroup.clone_children", "1", "", ""}.write("")
}

// HardLimit returns the daemon's own hard limit, which sandboxes inherit.
func HardLimit(kind int) uint64 {
	var l unix.Rlimit
	if err := unix.Getrlimit(kind, &l); err != nil {
		return 0
	}
	return l.Max
}

// cpuPeriod is the period of a CPU limit, in µs. It is the kernel's default for a new cgroup, so Make does not set
// it.
const cpuPeriod = 100_000

// Resources returns the limits of the sandbox as a whole. It allows no devices except the harmless ones that every
// runtime adds.
func Resources(class proto.RuntimeClass, l proto.Limits) *specs.LinuxResources {
	period := uint64(cpuPeriod)
	quota := max(int64(l.CPUs*float64(period)), 1000)
	shares := uint64(cpuShares)
	// the swap limit includes memory: equal limits mean no swap
	memory, swap, pids := l.MemoryBytes, l.MemoryBytes, hostPIDs(class, l)
	return &specs.LinuxResources{
		CPU:     &specs.LinuxCPU{Period: &period, Quota: &quota, Shares: &shares},
		Memory:  &specs.LinuxMemory{Limit: &memory, Swap: &swap},
		Pids:    &specs.LinuxPids{Limit: &pids},
		Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}},
	}
}

// hostPIDs returns how many tasks of the host a sandbox may have. gVisor's kernel has some 20 threads and needs a
// little more than two for each thread of the sandbox. It ends when it gets no thread. So under gVisor the requested
// limit is RLIMIT_NPROC inside, which gVisor enforces per user. Commands run as two users, and hostPIDs leaves room
// for both. Code that uses more users to get more tasks ends the whole sandbox.
func hostPIDs(class proto.RuntimeClass, l proto.Limits) int64 {
	if class == proto.ClassGVisor {
		return 6*l.PIDs + 128
	}
	return l.PIDs
}
