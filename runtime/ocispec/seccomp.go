package ocispec

import (
	"slices"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/elastic/go-seccomp-bpf/arch"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"berth/proto"
)

// DeniedSyscalls are removed from containerd's default profile. Some of them need capabilities that we do not give.
// They are listed anyway, so no later change of capabilities or of containerd allows them again.
var DeniedSyscalls = []string{
	// Kernel interfaces with a long record of holes and no use to a sandboxed program.
	"bpf", "userfaultfd", "perf_event_open", "modify_ldt", "fanotify_init",
	"io_uring_setup", "io_uring_enter", "io_uring_register",
	// Keyrings are not namespaced by user alone, and they count against a limit of the host.
	"keyctl", "add_key", "request_key",
	// Mounts and namespaces: we decide what is mounted.
	"mount", "mount_setattr", "move_mount", "umount", "umount2", "open_tree", "open_tree_attr",
	"fsopen", "fsconfig", "fsmount", "fspick", "pivot_root", "setns", "unshare",
	"open_by_handle_at", "name_to_handle_at",
	// The host's clock, quota, log, modules and swap.
	"adjtimex", "clock_adjtime", "clock_adjtime64", "clock_settime", "clock_settime64",
	"settimeofday", "stime", "quotactl", "quotactl_fd", "syslog", "init_module", "finit_module",
	"delete_module", "kexec_load", "kexec_file_load", "reboot", "swapon", "swapoff", "acct",
	"lookup_dcookie", "vhangup",
	// Newer than newestCall, although its number is lower.
	"uretprobe",
	// This call passes the socket family behind a pointer, which a filter cannot read. Only 32-bit programs from
	// before 2016 need it.
	"socketcall",
}

// ArgumentSyscalls are allowed by argument below, so the plain permission is removed.
var ArgumentSyscalls = []string{"socket", "socketpair", "ioctl"}

// unknownToGVisor replaces rules that return ENOSYS by rules that gVisor understands. gVisor returns EPERM for every
// rule that returns an error. The C library falls back to clone only if clone3 returns ENOSYS; otherwise system(),
// popen() and posix_spawn() all fail. A call that is to be traced, without a tracer, returns ENOSYS under both
// kernels.
func unknownToGVisor(rules []specs.LinuxSyscall) {
	for i := range rules {
		if r := &rules[i]; r.Action == specs.ActErrno && r.ErrnoRet != nil && *r.ErrnoRet == uint(unix.ENOSYS) {
			r.Action, r.ErrnoRet = specs.ActTrace, nil
		}
	}
}

// seccompProfile returns the filter of PID 1, which all processes inherit: containerd's default without the calls
// listed above and without calls that are newer than newestCall. The default already returns ENOSYS for clone3, whose
// flags a filter cannot read, and refuses clone with any namespace flag.
func seccompProfile(spec *specs.Spec, class proto.RuntimeClass) *specs.LinuxSeccomp {
	profile := seccomp.DefaultProfile(spec)
	// The machine's own architecture comes first and is the only one that stays. So 32-bit programs do not run, and
	// the kernel's second set of entry points, with its own record of holes, is closed.
	profile.Architectures = profile.Architectures[:1]
	var kept []specs.LinuxSyscall
	for _, rule := range profile.Syscalls {
		rule.Names = slices.DeleteFunc(slices.Clone(rule.Names), func(name string) bool {
			return rule.Action == specs.ActAllow && (slices.Contains(DeniedSyscalls, name) ||
				slices.Contains(ArgumentSyscalls, name) || arch.X86_64.SyscallNames[name] > newestCall)
		})
		if len(rule.Names) > 0 {
			kept = append(kept, rule)
		}
	}
	kept = append(kept, socketRules()...)
	kept = append(kept, auditSocket(class))
	profile.Syscalls = append(kept, ioctlRules()...)
	if class == proto.ClassGVisor {
		unknownToGVisor(profile.Syscalls)
	}
	return profile
}

// socketRules returns rules that allow the families that programs without a network use. Of netlink they allow only
// routing (protocol 0): getifaddrs needs it, and it cannot change anything without CAP_NET_ADMIN.
func socketRules() []specs.LinuxSyscall {
	rules := []specs.LinuxSyscall{
		allow("socketpair", equals(0, unix.AF_UNIX)),
		allow("socket", equals(0, unix.AF_NETLINK), equals(2, unix.NETLINK_ROUTE)),
	}
	for _, family := range []uint64{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6} {
		rules = append(rules, allow("socket", equals(0, family)))
	}
	return rules
}

// auditSocket returns the rule for sockets of the kernel's audit log. useradd, passwd and sudo go on without auditing
// if the kernel says that it has none, but give up on EPERM. The kernel of gVisor has none and says so itself.
func auditSocket(class proto.RuntimeClass) specs.LinuxSyscall {
	rule := allow("socket", equals(0, unix.AF_NETLINK), equals(2, unix.NETLINK_AUDIT))
	if class != proto.ClassGVisor {
		none := uint(unix.EPROTONOSUPPORT)
		rule.Action, rule.ErrnoRet = specs.ActErrno, &none
	}
	return rule
}

const (
	btrfsIoctlMagic = 0x94 // bits 8–15 of every ioctl of btrfs
	ficlone         = 0x40049409
	ficloneRange    = 0x4020940d
)

// ioctlRules returns rules that allow every ioctl except those of btrfs. With the btrfs ioctls, any process may make
// a subvolume in a directory that it can write to, and the subvolume would start without our quota. Copying by
// reference has the same magic number and is allowed again.
//
// A filter cannot test "not equal in these bits". But a number differs from the magic number if at least one bit
// differs, and each bit takes one masked comparison.
func ioctlRules() []specs.LinuxSyscall {
	rules := []specs.LinuxSyscall{
		allow("ioctl", equals(1, ficlone)),
		allow("ioctl", equals(1, ficloneRange)),
	}
	for bit := range 8 {
		mask := uint64(1) << (8 + bit)
		other := ^uint64(btrfsIoctlMagic<<8) & mask
		rules = append(rules, allow("ioctl", specs.LinuxSeccompArg{
			Index: 1, Value: mask, ValueTwo: other, Op: specs.OpMaskedEqual,
		}))
	}
	return rules
}

func allow(name string, args ...specs.LinuxSeccompArg) specs.LinuxSyscall {
	return specs.LinuxSyscall{Names: []string{name}, Action: specs.ActAllow, Args: args}
}

func equals(index uint, value uint64) specs.LinuxSeccompArg {
	return specs.LinuxSeccompArg{Index: index, Value: value, Op: specs.OpEqualTo}
}
