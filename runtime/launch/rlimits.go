package launch

import (
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"berth/proto"
	"berth/runtime/cgroup"
)

// Limits that callers cannot set. The kernel counts both in each user namespace, and again for the user who made the
// namespace. That user is the same for all sandboxes and has the host's default limit. So each sandbox gets a part.
const (
	QueuedSignals = 1024
	MessageQueues = 160 << 10 // bytes; a POSIX queue takes 82 KB by default
)

// rlimits returns the limits of a single process. They stay within the daemon's own hard limits: raising those takes
// a capability that not every machine grants.
func rlimits(class proto.RuntimeClass, l proto.Limits) []specs.POSIXRlimit {
	list := []specs.POSIXRlimit{
		rlimit("RLIMIT_NOFILE", uint64(l.OpenFiles)),
		rlimit("RLIMIT_CORE", 0),
		rlimit("RLIMIT_SIGPENDING", QueuedSignals),
		rlimit("RLIMIT_MSGQUEUE", MessageQueues),
	}
	if class == proto.ClassRunc {
		list = append(list, rlimit("RLIMIT_MEMLOCK", cgroup.LockedMemory))
	}
	if class == proto.ClassGVisor {
		list = append(list, rlimit("RLIMIT_NPROC", uint64(l.PIDs)))
	}
	return list
}

// rlimitNumbers holds the kernel's numbers of the limits that we set. Package unix lacks two of them.
var rlimitNumbers = map[string]int{
	"RLIMIT_NOFILE": unix.RLIMIT_NOFILE, "RLIMIT_CORE": unix.RLIMIT_CORE, "RLIMIT_NPROC": unix.RLIMIT_NPROC,
	"RLIMIT_MEMLOCK": unix.RLIMIT_MEMLOCK, "RLIMIT_SIGPENDING": 11, "RLIMIT_MSGQUEUE": 12,
}

func rlimit(name string, want uint64) specs.POSIXRlimit {
	want = min(want, cgroup.HardLimit(rlimitNumbers[name]))
	return specs.POSIXRlimit{Type: name, Soft: want, Hard: want}
}
