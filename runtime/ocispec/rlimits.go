package ocispec

import (
	"fmt"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"berth/proto"
	"berth/runtime/cgroup"
	"berth/runtime/mountns"
)

// Limits that callers cannot set. The kernel counts both in each user namespace, and again for the user who made the
// namespace. That user is the same for all sandboxes and has the host's default limit. So each sandbox gets a part.
const (
	QueuedSignals = 1024
	MessageQueues = 160 << 10 // bytes; a POSIX queue takes 82 KB by default
)

// Rlimits returns the limits of a single process. They stay within the daemon's own hard limits: raising those takes
// a capability that not every machine grants.
func Rlimits(class proto.RuntimeClass, l proto.Limits) []specs.POSIXRlimit {
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

// RlimitNumbers holds the kernel's numbers of the limits that we set. Package unix lacks two of them.
var RlimitNumbers = map[string]int{
	"RLIMIT_NOFILE": unix.RLIMIT_NOFILE, "RLIMIT_CORE": unix.RLIMIT_CORE, "RLIMIT_NPROC": unix.RLIMIT_NPROC,
	"RLIMIT_MEMLOCK": unix.RLIMIT_MEMLOCK, "RLIMIT_SIGPENDING": 11, "RLIMIT_MSGQUEUE": 12,
}

func rlimit(name string, want uint64) specs.POSIXRlimit {
	want = min(want, cgroup.HardLimit(RlimitNumbers[name]))
	return specs.POSIXRlimit{Type: name, Soft: want, Hard: want}
}

// SetRlimits gives a sandbox's first process its limits. runc cannot set them before the process runs. Setting the
// limits of another process takes CAP_SYS_RESOURCE over its namespace. Root has that over all namespaces or, on
// machines like ours, only over those that it made. The owner of the namespace has it, too.
func SetRlimits(b Spec, pid int) error {
	done := make(chan error, 1)
	go mountns.OffMain(func() { done <- setRlimitsAs(b, pid) })
	if err := <-done; err != nil {
		return fmt.Errorf("limiting the guest: %w", err)
	}
	return nil
}

// setRlimitsAs makes this thread the namespace's owner and sets the limits. The thread must end afterwards.
func setRlimitsAs(b Spec, pid int) error {
	// The functions of package syscall would change every thread.
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(b.FirstID), ^uintptr(0)); errno != 0 {
		return errno
	}
	for _, l := range Rlimits(b.Class, b.Limits) {
		if err := unix.Prlimit(pid, RlimitNumbers[l.Type], &unix.Rlimit{Cur: l.Soft, Max: l.Hard}, nil); err != nil {
			return fmt.Errorf("%s: %w", l.Type, err)
		}
	}
	return nil
}
