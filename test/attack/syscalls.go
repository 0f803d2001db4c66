package attack

import (
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Group 31: what the kernel must not do for a container, for any user and in any way. The fewer system calls a
// container can make, the fewer kernel bugs it can use. gVisor handles most calls itself, and must refuse these as
// well.
var _ = register(
	// An allow list refuses numbers that did not exist when it was written; a deny list accepts them.
	attempts(Case{
		Group: 31, Name: "syscalls/forbidden",
		Tries: "make every forbidden system call by its number: modules, mounts, namespaces, keyrings, bpf, " +
			"io_uring, userfaultfd, the host's clock, and numbers that do not exist",
		Wants: "each is refused before the kernel looks at its arguments",
	}, asBoth, forbiddenAttempts),
	// A filter that checks numbers without the architecture can be bypassed with another architecture's numbers. x32
	// was such a way.
	attempts(Case{
		Group: 31, Name: "syscalls/other-abi",
		Tries: "make calls through the kernel's other entry points: int 0x80 and the x32 numbers",
		Wants: "they are shut: an error, or the end of the process",
	}, asBoth, otherABIAttempts),
	// In its own user namespace a process has all capabilities, which gives access to kernel code that was not meant
	// for it. CVE-2022-0185 and CVE-2023-0386 began that way.
	attempts(Case{
		Group: 31, Name: "syscalls/namespaces",
		Tries: "make namespaces of its own, a user namespace first, with unshare, clone and clone3",
		Wants: "each is refused",
	}, asBoth, namespaceAttempts),
	// Rare families are old code with new bugs, and a socket loads their modules by itself. Examples are
	// CVE-2017-6074 (DCCP) and CVE-2021-43267 (TIPC).
	attempts(Case{
		Group: 31, Name: "syscalls/socket-families",
		Tries: "open a socket of every family, type and protocol of netlink",
		Wants: "none but unix, inet, inet6 and netlink's routing can be opened, and none of them raw",
	}, asBoth, familyAttempts),
)

// A numbered is a named number, such as a system call that a container must not use.
type numbered struct {
	name   string
	number uintptr
}

// forbidden are the forbidden calls of every architecture; forbiddenHere has the rest.
var forbidden = []numbered{
	{"acct", unix.SYS_ACCT}, {"add_key", unix.SYS_ADD_KEY}, {"adjtimex", unix.SYS_ADJTIMEX}, {"bpf", unix.SYS_BPF},
	{"clock_adjtime", unix.SYS_CLOCK_ADJTIME}, {"clock_settime", unix.SYS_CLOCK_SETTIME},
	{"delete_module", unix.SYS_DELETE_MODULE},
	{"fanotify_init", unix.SYS_FANOTIFY_INIT}, {"finit_module", unix.SYS_FINIT_MODULE}, {"fsconfig", unix.SYS_FSCONFIG},
	{"fsmount", unix.SYS_FSMOUNT},
	{"fsopen", unix.SYS_FSOPEN}, {"fspick", unix.SYS_FSPICK}, {"init_module", unix.SYS_INIT_MODULE},
	{"io_uring_enter", unix.SYS_IO_URING_ENTER},
	{"io_uring_register", unix.SYS_IO_URING_REGISTER}, {"io_uring_setup", unix.SYS_IO_URING_SETUP},
	{"kexec_file_load", unix.SYS_KEXEC_FILE_LOAD},
	{"kexec_load", unix.SYS_KEXEC_LOAD}, {"keyctl", unix.SYS_KEYCTL}, {"lookup_dcookie", unix.SYS_LOOKUP_DCOOKIE},
	{"mount", unix.SYS_MOUNT},
	{"mount_setattr", unix.SYS_MOUNT_SETATTR}, {"move_mount", unix.SYS_MOVE_MOUNT},
	{"name_to_handle_at", unix.SYS_NAME_TO_HANDLE_AT},
	{"open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT}, {"open_tree", unix.SYS_OPEN_TREE},
	{"perf_event_open", unix.SYS_PERF_EVENT_OPEN},
	{"pivot_root", unix.SYS_PIVOT_ROOT}, {"quotactl", unix.SYS_QUOTACTL}, {"quotactl_fd", unix.SYS_QUOTACTL_FD},
	{"reboot", unix.SYS_REBOOT},
	{"request_key", unix.SYS_REQUEST_KEY}, {"setns", unix.SYS_SETNS}, {"settimeofday", unix.SYS_SETTIMEOFDAY},
	{"swapoff", unix.SYS_SWAPOFF},
	{"swapon", unix.SYS_SWAPON}, {"syslog", unix.SYS_SYSLOG}, {"umount2", unix.SYS_UMOUNT2},
	{"unshare", unix.SYS_UNSHARE},
	// The library has no name for 467 yet. The numbers at the end belong to no call.
	{"userfaultfd", unix.SYS_USERFAULTFD}, {"vhangup", unix.SYS_VHANGUP}, {"open_tree_attr", 467},
	{"number 480", 480}, {"number 511", 511}, {"number 1000", 1000}, {"number 65535", 65535},
}

// bad is an invalid argument for every call: not a pointer, not a descriptor, not flags.
const bad = ^uintptr(0)

// refused reports whether an error comes from a filter, or from a kernel that lacks the call. Our filter returns
// EPERM or ENOSYS; some calls return EACCES if the caller lacks the right.
func refused(errno syscall.Errno) bool {
	return errno == unix.EPERM || errno == unix.ENOSYS || errno == unix.EACCES
}

// forbiddenAttempts make the calls with invalid arguments. A filter refuses by number, and any other error comes from
// the call itself.
func forbiddenAttempts() []attempt {
	var all []attempt
	for _, n := range append(forbidden, forbiddenHere...) {
		all = append(all, attempt{n.name, func() error {
			_, _, errno := syscall.RawSyscall6(n.number, bad, bad, bad, bad, bad, bad)
			if refused(errno) {
				return errno
			}
			return through("the call itself answered: %d %v", errno, errno)
		}})
	}
	return append(all, workingCalls...)
}

// workingCalls are made with valid arguments, since a filter and the kernel may return different errors. A call that
// the filter allows then really has its effect, which is clear evidence.
var workingCalls = []attempt{
	{"io_uring_setup with parameters", func() error {
		var params [120]byte
		return errnoOf(syscall.RawSyscall6(unix.SYS_IO_URING_SETUP, 4, uintptr(unsafe.Pointer(&params)), 0, 0, 0, 0))
	}},
	{"userfaultfd", func() error {
		return errnoOf(syscall.RawSyscall6(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|1, 0, 0, 0, 0, 0))
	}},
	{"bpf, a map", func() error {
		// Type 2 is an array; keys and values have four bytes each.
		attr := [4]uint32{2, 4, 4, 1} // an array with one element
		return errnoOf(syscall.RawSyscall6(unix.SYS_BPF, 0, uintptr(unsafe.Pointer(&attr)), 16, 0, 0, 0))
	}},
	{"keyctl, the session keyring", func() error {
		_, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, true)
		return err
	}},
	{"add_key", func() error {
		_, err := unix.AddKey("user", "berth-attack", []byte("x"), unix.KEY_SPEC_PROCESS_KEYRING)
		return err
	}},
	{"perf_event_open of itself", func() error {
		_, err := unix.PerfEventOpen(&unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Size: unix.PERF_ATTR_SIZE_VER0},
			0, -1, -1, 0)
		return err
	}},
	// A page at address 0 lets null pointers in the kernel refer to the attacker's data.
	{"personality, to map page zero", func() error {
		return errnoOf(syscall.RawSyscall(unix.SYS_PERSONALITY, 0x0100000, 0, 0)) // MMAP_PAGE_ZERO
	}},
	{"the kernel's log", func() error {
		_, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, make([]byte, 100))
		return err
	}},
	// The number of an ioctl may belong to any driver; btrfs is tried because a workspace's disk may use it.
	{"an ioctl that makes a btrfs subvolume", func() error {
		fd, err := unix.Open("/workspace", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return moot("%v", err)
		}
		defer unix.Close(fd)
		var args [4096]byte
		copy(args[8:], "attack-subvolume")
		return errnoOf(syscall.RawSyscall(unix.SYS_IOCTL, uintptr(fd), 0x5000940e, uintptr(unsafe.Pointer(&args))))
	}},
}

// errnoOf returns the error of a raw call, or nil if it succeeded.
func errnoOf(_, _ uintptr, errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

// x32 marks the numbers of the x32 ABI.
const x32 = 0x4000_0000

// otherABIAttempts each need a process, since the kernel may kill it as a refusal.
func otherABIAttempts() []attempt {
	all := []attempt{
		{"getpid as x32", func() error { return errnoOf(syscall.RawSyscall(unix.SYS_GETPID|x32, 0, 0, 0)) }},
		// x32 has its own numbers for some calls, from 512 on.
		{"ptrace as x32, by its own number", func() error { return errnoOf(syscall.RawSyscall(521|x32, 0, 0, 0)) }},
	}
	for _, n := range forbidden[:8] { // each may end a process
		all = append(all, attempt{n.name + " as x32", func() error {
			_, _, errno := syscall.RawSyscall6(n.number|x32, bad, bad, bad, bad, bad, bad)
			if refused(errno) {
				return errno
			}
			return through("the call itself answered: %d %v", errno, errno)
		}})
	}
	// i386 has other numbers for the same calls.
	for _, c := range []numbered{{"getpid", 20}, {"mount", 21}, {"socketcall", 102}, {"unshare", 310}, {"keyctl", 288},
		{"bpf", 357}} {
		all = append(all, attempt{c.name + " through int 0x80", func() error {
			if int80 == nil {
				return moot("this architecture has no int 0x80")
			}
			// Errors are small negative numbers of 32 bits.
			if n := int32(int80(c.number, 0, 0, 0)); n < 0 {
				if errno := syscall.Errno(-n); refused(errno) {
					return errno
				}
				return through("the call itself answered %v", syscall.Errno(-n))
			}
			return nil
		}})
	}
	return all
}

// cloneFlags are all namespaces. time is the newest, and only unshare and clone3 accept it.
var cloneFlags = []numbered{
	{"user", unix.CLONE_NEWUSER}, {"mount", unix.CLONE_NEWNS}, {"network", unix.CLONE_NEWNET},
	{"pid", unix.CLONE_NEWPID},
	{"ipc", unix.CLONE_NEWIPC}, {"uts", unix.CLONE_NEWUTS}, {"cgroup", unix.CLONE_NEWCGROUP},
	{"time", unix.CLONE_NEWTIME},
	{"user and mount", unix.CLONE_NEWUSER | unix.CLONE_NEWNS},
}

// namespaceAttempts use each of the three calls, since a filter finds the flags in different places. clone3 has them
// in memory, which no filter can read, so it is refused as a whole.
func namespaceAttempts() []attempt {
	var all []attempt
	for _, f := range cloneFlags {
		all = append(all,
			attempt{"unshare " + f.name, func() error { return unix.Unshare(int(f.number)) }},
			attempt{"clone3 " + f.name, func() error { return clone3(f.number) }},
		)
		if f.number == unix.CLONE_NEWTIME {
			continue // in clone, this bit belongs to the exit signal
		}
		all = append(all, attempt{"clone " + f.name, func() error {
			cmd := exec.Command("/proc/self/exe", "--help")
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: f.number}
			return cmd.Run()
		}})
	}
	return append(all, attempt{"setns to PID 1's", func() error {
		fd, err := unix.Open("/proc/1/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Setns(fd, 0)
	}}, attempt{"setns to all of PID 1's by its pidfd", func() error {
		fd, err := unix.PidfdOpen(1, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Setns(fd, unix.CLONE_NEWNS|unix.CLONE_NEWNET|unix.CLONE_NEWUSER)
	}})
}

// clone3 creates a child in new namespaces, which ends at once. On ENOSYS, libraries fall back to clone, whose flags
// a filter can see.
func clone3(flags uintptr) error {
	args := [11]uint64{0: uint64(flags), 4: uint64(unix.SIGCHLD)}
	pid, _, errno := syscall.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args), 0)
	if errno != 0 {
		return errno
	}
	if pid == 0 {
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	var status unix.WaitStatus
	_, _ = unix.Wait4(int(pid), &status, 0, nil)
	return nil
}

// maxFamily is greater than the last existing family.
const maxFamily = 64

// The numbers are the kernel's socket types.
var socketTypes = []numbered{
	{"stream", unix.SOCK_STREAM}, {"dgram", unix.SOCK_DGRAM}, {"raw", unix.SOCK_RAW}, {"rdm", unix.SOCK_RDM},
	{"seqpacket", unix.SOCK_SEQPACKET}, {"dccp", unix.SOCK_DCCP}, {"packet", unix.SOCK_PACKET},
}

// familyAttempts go beyond the last family, to include those of newer kernels.
func familyAttempts() []attempt {
	var all []attempt
	for family := range maxFamily {
		for _, kind := range socketTypes {
			harmless := (family == unix.AF_INET || family == unix.AF_INET6 || family == unix.AF_UNIX) &&
				kind.number != unix.SOCK_RAW && kind.number != unix.SOCK_PACKET
			if harmless || family == unix.AF_UNIX || family == unix.AF_NETLINK {
				continue // a raw unix socket is a datagram socket; netlink is tried below
			}
			all = append(all, socketAttempt(fmt.Sprintf("family %d %s", family, kind.name), family, int(kind.number),
				0))
		}
	}
	for _, protocol := range []int{unix.IPPROTO_ICMP, unix.IPPROTO_RAW, unix.IPPROTO_TCP, unix.IPPROTO_SCTP} {
		all = append(all,
			socketAttempt(fmt.Sprintf("raw inet, protocol %d", protocol), unix.AF_INET, unix.SOCK_RAW, protocol),
			socketAttempt(fmt.Sprintf("raw inet6, protocol %d", protocol), unix.AF_INET6, unix.SOCK_RAW, protocol))
	}
	// Protocol 0 is routing, which is allowed for reading the container's own interfaces.
	for protocol := 1; protocol < 32; protocol++ {
		all = append(all, socketAttempt(fmt.Sprintf("netlink, protocol %d", protocol), unix.AF_NETLINK, unix.SOCK_RAW,
			protocol))
	}
	return append(all, attempt{"a pair of TIPC sockets", func() error {
		_, err := unix.Socketpair(unix.AF_TIPC, unix.SOCK_SEQPACKET, 0)
		return err
	}})
}

// Running out of descriptors shows nothing about the family.
func socketAttempt(what string, family, kind, protocol int) attempt {
	return attempt{what, func() error {
		fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, protocol)
		if errors.Is(err, unix.EMFILE) {
			return moot("%v", err)
		}
		if err == nil {
			_ = unix.Close(fd)
		}
		return err
	}}
}
