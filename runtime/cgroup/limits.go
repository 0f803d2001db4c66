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

// What limits become for the kernel. The request's numbers come in here and nowhere else in the spec but the
// sizes of the file systems in memory, and the disk's, which are disk.go's.

// LockedMemory is what the daemon was started with. A package that it uses raises its own: see sandboxCgroups.
var LockedMemory = HardLimit(unix.RLIMIT_MEMLOCK)

// cpuShares is a sandbox's weight against others while the machine is busy; a process of the host has 1024.
const cpuShares = 256

// SetWeight has the cgroup that all sandboxes are in weigh as much as one process of the host on each processor, where
// those are beside it; the kernel would have it weigh as one process on all of them. In a cgroup that gets too little
// those who have just come go first: of 16 clients one waited up to 0.3 s for a command that others got in 4 ms. With
// this it is half of that, and they all get 3 % more. With four times as much it is even, but then sandboxes that
// keep every processor busy have the daemon wait for milliseconds; with this one request of a hundred waits for one.
//
// On v2 with systemd nothing of the host is beside it but the groups of all services and of all users, which have the
// weight of one process however many processors there are. It has the same then, or all services together would get
// next to nothing on a large machine.
func SetWeight() error {
	n := runtime.NumCPU()
	v2 := 100
	if InRootCgroup() {
		v2 = min(100*n, 10000)
	}
	return setting{"cpu", "cpu.shares", strconv.Itoa(1024 * n), "cpu.weight", strconv.Itoa(v2)}.write("")
}

// InRootCgroup reports whether the daemon, and so what it shares a processor with, is in v2's outermost cgroup. It is
// looked up once: each start asks.
var InRootCgroup = sync.OnceValue(func() bool {
	b, err := os.ReadFile("/proc/self/cgroup")
	return err == nil && slices.Contains(strings.Split(string(b), "\n"), "0::/")
})

// InheritProcessors has new cgroups begin with the processors and memory nodes of the one that all sandboxes are in
// (v1; on v2 they do so anyway). To be written there they are checked against those of all other sandboxes, twice for
// each new one.
func InheritProcessors() error {
	return setting{"cpuset", "cgroup.clone_children", "1", "", ""}.write("")
}

// HardLimit is the daemon's own, which it hands on.
func HardLimit(kind int) uint64 {
	var l unix.Rlimit
	if err := unix.Getrlimit(kind, &l); err != nil {
		return 0
	}
	return l.Max
}

// cpuPeriod is the time that a CPU limit is counted over, in µs. A cgroup has it from its start, so makeCgroups sets
// none.
const cpuPeriod = 100_000

// Resources bounds the sandbox as a whole. Devices: none but the harmless ones every runtime adds.
func Resources(class proto.RuntimeClass, l proto.Limits) *specs.LinuxResources {
	period := uint64(cpuPeriod)
	quota := max(int64(l.CPUs*float64(period)), 1000)
	shares := uint64(cpuShares)
	// swap counts memory too: equal means none
	memory, swap, pids := l.MemoryBytes, l.MemoryBytes, hostPIDs(class, l)
	return &specs.LinuxResources{
		CPU:     &specs.LinuxCPU{Period: &period, Quota: &quota, Shares: &shares},
		Memory:  &specs.LinuxMemory{Limit: &memory, Swap: &swap},
		Pids:    &specs.LinuxPids{Limit: &pids},
		Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}},
	}
}

// hostPIDs is how many tasks of the host a sandbox may be. gVisor's kernel is some 20 threads and needs two and a
// bit more for each of the sandbox's, and it ends when it gets none. There the limit that was asked for is gVisor's to
// keep: RLIMIT_NPROC, for each user inside. Commands run as two users, so there is room for both; whoever takes more
// users to get more ends with the whole sandbox.
func hostPIDs(class proto.RuntimeClass, l proto.Limits) int64 {
	if class == proto.ClassGVisor {
		return 6*l.PIDs + 128
	}
	return l.PIDs
}
