package attack

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"berth/proto"
)

// Group 32: no process inside gets more rights than it began with. Root in a container is root of a user namespace.
// It must not have capabilities that affect more than the container. The ordinary user must not become root.
var _ = register(
	// no_new_privs disables set-user-ID and file capabilities, regardless of the image.
	attempts(Case{
		Group: 32, Name: "privilege/gain",
		Tries: "become root as the ordinary user: set-user-ID programs, su, file and ambient capabilities, and " +
			"raise capabilities as root",
		Wants: "no_new_privs holds, and the capabilities stay what they are",
	}, asBoth, privilegeAttempts),
	// Each of these changes the machine, or another process.
	attempts(Case{
		Group: 32, Name: "privilege/kernel",
		Tries: "load a module, trace PID 1, set the host's name and clock, change limits, real-time priority and " +
			"another user's processes",
		Wants: "each is refused",
	}, asBoth, kernelPowerAttempts),
	// With sudo, the ordinary user may become root of the container: that must be all.
	attemptsIn(Case{
		Group: 32, Name: "privilege/sudo",
		Tries: "in a container with sudo, raise capabilities, set file capabilities, load a module, trace PID 1, set " +
			"the host's name and clock, and change limits, as its root and as its user without sudo",
		Wants: "each is refused, as without sudo",
	}, asBoth, sudoAttempts, func(ctx context.Context, t *Target) (proto.CreateContainer, error) {
		return proto.CreateContainer{Sudo: true}, sudoHere(ctx, t)
	}),
	Case{
		Group: 32, Name: "privilege/sudo-left-behind", Inside: true,
		Tries: "in a container with sudo, leave set-user-ID programs in the workspace, and run them as the ordinary " +
			"user of another container, with sudo and without",
		Wants: "in the first container they run as root outside of the workspace only, and in no other",
		Run:   leftBySudo,
	},
	// A set-user-ID file that root leaves in the workspace would still exist for the next container.
	Case{
		Group: 32, Name: "privilege/set-user-id", Inside: true,
		Tries: "as the container's root, leave a set-user-ID and a set-group-ID shell wherever there is room, and " +
			"run them as the ordinary user",
		Wants: "they run as the ordinary user",
		Run:   setUserID,
	},
)

// allowedCapabilities are the maximum for root in a container: chown, dac_override, fowner, fsetid, kill, setgid,
// setuid, setpcap, net_bind_service and sys_chroot.
const allowedCapabilities = 1<<0 | 1<<1 | 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<10 | 1<<18

// privilegeAttempts check the current rights, and then try to get more.
func privilegeAttempts() []attempt {
	all := []attempt{
		{"capabilities beyond the usual", func() error { return capabilitiesBeyond(allowedCapabilities) }},
		{"no_new_privs off", func() error {
			if on, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil || on != 1 {
				return through("no_new_privs is %d %v", on, err)
			}
			return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0)
		}},
		{"seccomp off", func() error { return unix.Prctl(unix.PR_SET_SECCOMP, 0, 0, 0, 0) }},
	}
	// These have led out of containers: mounts, modules, raw memory and sockets, tracing, devices, handles, and bpf.
	for _, c := range []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SYS_MODULE, unix.CAP_SYS_RAWIO, unix.CAP_SYS_PTRACE,
		unix.CAP_NET_RAW, unix.CAP_NET_ADMIN, unix.CAP_MKNOD, unix.CAP_SYS_TIME, unix.CAP_DAC_READ_SEARCH,
		unix.CAP_BPF} {
		all = append(all,
			attempt{fmt.Sprintf("capability %d, effective", c), func() error { return raiseCapability(c) }},
			attempt{fmt.Sprintf("capability %d, ambient", c), func() error {
				return unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, c, 0, 0)
			}})
	}
	// The kernel keeps file capabilities in an extended attribute, so writing the attribute grants them.
	for _, path := range []string{"/tmp/.probe", "/workspace/capable", "/etc/hosts"} {
		all = append(all, attempt{"file capabilities on " + path, func() error {
			// all capabilities, effective
			vfs := []byte{1, 0, 0, 2, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}
			if path == "/workspace/capable" {
				if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
					return moot("%v", err)
				}
			}
			return unix.Setxattr(path, "security.capability", vfs, 0)
		}})
	}
	if os.Getuid() == 0 {
		return all
	}
	return append(all,
		attempt{"user 0", func() error { return unix.Setresuid(0, 0, 0) }},
		attempt{"group 0", func() error { return unix.Setresgid(0, 0, 0) }},
		attempt{"more groups", func() error { return unix.Setgroups([]int{0, 1, 42}) }},
		attempt{"/etc/shadow", func() error { return readable("/etc/shadow") }},
		attempt{"su", func() error { return asWhom("su", "-c", "id -u") }},
		attempt{"newgrp", func() error { return asWhom("sh", "-c", "echo 'id -u' | newgrp root") }},
		attempt{"chsh of root", func() error { return exec.Command("chsh", "-s", "/bin/sh", "root").Run() }},
	)
}

// capabilitiesBeyond checks every capability set of this process. The bounding set is the maximum that it could ever
// get. For the ordinary user all other sets must be empty.
func capabilitiesBeyond(allowed uint64) error {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return moot("%v", err)
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		var set uint64
		if !strings.HasPrefix(name, "Cap") {
			continue
		}
		if _, err := fmt.Sscanf(strings.TrimSpace(value), "%x", &set); err != nil {
			return moot("%v", err)
		}
		if set&^allowed != 0 || os.Getuid() != 0 && name != "CapBnd" && set != 0 {
			return through("%s is %x", name, set)
		}
	}
	return fmt.Errorf("there are none")
}

// raiseCapability tries to add a capability to all three sets. A capability that was not permitted before cannot be
// raised; reading the sets shows whether it was.
func raiseCapability(c uintptr) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return moot("%v", err)
	}
	bit := uint32(1) << (c % 32)
	data[c/32].Effective |= bit
	data[c/32].Permitted |= bit
	data[c/32].Inheritable |= bit
	if err := unix.Capset(&header, &data[0]); err != nil {
		return err
	}
	if err := unix.Capget(&header, &data[0]); err != nil {
		return moot("%v", err)
	}
	if data[c/32].Effective&bit == 0 {
		return unix.EPERM // a user-space kernel drops it without an error
	}
	return nil
}

// asWhom runs a program that prints its user, and returns a refusal unless that is root. A program that fails to
// start is a refusal, too.
func asWhom(argv ...string) error {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin = strings.NewReader("\n\n")
	out, err := cmd.Output()
	if strings.TrimSpace(string(out)) == "0" {
		return nil
	}
	return fmt.Errorf("it ran as %q: %v", strings.TrimSpace(string(out)), err)
}

// kernelPowerAttempts try operations that affect the whole machine.
func kernelPowerAttempts() []attempt {
	return []attempt{
		// Descriptor 0 is no module; the kernel checks the right before it reads the file.
		{"a module from a file", func() error { return unix.FinitModule(0, "", 0) }},
		// For an unknown file system or format, the kernel runs modprobe on the host, which may load old and untested
		// code.
		{"a module by asking for its file system", func() error { return unix.Mount("none", "/mnt", "nfs", 0, "") }},
		{"a module by an unknown program", func() error {
			path := filepath.Join("/workspace", fmt.Sprintf("unknown-format-%d", os.Getuid()))
			if err := os.WriteFile(path, []byte{0x7f, 0xfe, 0xfd, 0xfc}, 0o755); err != nil {
				return moot("%v", err)
			}
			return exec.Command(path).Run()
		}},
		{"trace PID 1", func() error { return unix.PtraceAttach(1) }},
		{"seize PID 1", func() error { return unix.PtraceSeize(1) }},
		{"the host's name", func() error { return unix.Sethostname([]byte("attacked")) }},
		{"the clock", func() error { return unix.Settimeofday(&unix.Timeval{Sec: 1}) }},
		{"a real-time class", func() error {
			return unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO,
				Priority: 1}, 0)
		}},
		{"a better nice value", func() error {
			return opened(unix.Setpriority(unix.PRIO_PROCESS, 0, -10),
				"the order of processes")
		}},
		{"real-time input and output", func() error {
			return errnoOf(syscall.RawSyscall(unix.SYS_IOPRIO_SET, 1, 0, 1<<13))
		}},
		{"more open files than the hard limit", func() error { return raiseLimit(unix.RLIMIT_NOFILE) }},
		{"a core beyond the hard limit", func() error { return raiseLimit(unix.RLIMIT_CORE) }},
		{"memory that cannot be swapped, without limit", func() error { return raiseLimit(unix.RLIMIT_MEMLOCK) }},
		{"a low port's raw neighbour", func() error {
			_, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW,
				unix.IPPROTO_ICMP)
			return err
		}},
		{"a tun device", func() error {
			_, err := unix.Open("/dev/net/tun", unix.O_RDWR, 0)
			return opened(
				err, "/dev/net/tun")
		}},
		{"fuse", func() error { _, err := unix.Open("/dev/fuse", unix.O_RDWR, 0); return opened(err, "/dev/fuse") }},
	}
}

// opened distinguishes the host's resources from those that a user-space kernel emulates. gVisor has devices and
// priorities of its own, which do not affect the host.
func opened(err error, what string) error {
	if err == nil && sentry() {
		return moot("%s is the user-space kernel's own", what)
	}
	return err
}

// raiseLimit raises a hard limit by one. That is enough: without the right, no increase is possible.
func raiseLimit(which int) error {
	var l unix.Rlimit
	if err := unix.Getrlimit(which, &l); err != nil {
		return moot("%v", err)
	}
	if l.Max == unix.RLIM_INFINITY {
		return moot("it has no limit; the container's memory bounds it")
	}
	return unix.Setrlimit(which, &unix.Rlimit{Cur: l.Cur, Max: l.Max + 1})
}

// sudoAttempts are those that no_new_privs alone does not refuse.
func sudoAttempts() []attempt {
	return slices.DeleteFunc(append(privilegeAttempts(), kernelPowerAttempts()...),
		func(a attempt) bool { return a.what == "no_new_privs off" })
}

// sudoHere returns why the daemon gives no sudo, or nil.
func sudoHere(ctx context.Context, t *Target) error {
	con, err := t.Container(ctx, proto.CreateContainer{Sudo: true})
	if code := proto.CodeOf(err); code == proto.PermissionDenied || code == proto.InvalidArgument {
		return &NotHere{"this daemon gives containers of this class no sudo: " + err.Error()}
	}
	if err != nil {
		return err
	}
	_, err = t.Delete(ctx, con.ID, false)
	return err
}

// leftBySudo copies an interpreter, as setUserID does.
func leftBySudo(ctx context.Context, t *Target) (string, error) {
	if err := sudoHere(ctx, t); err != nil {
		return "", err
	}
	first, err := t.Container(ctx, proto.CreateContainer{Sudo: true})
	if err != nil {
		return "", err
	}
	_, err = t.Output(ctx, first.ID, proto.UserRoot, `for d in /usr/local/bin /workspace; do cp $(readlink -f /usr/bin/python3) `+
		`$d/attack-suid; chmod 6755 $d/attack-suid; done`)
	if err != nil {
		return "", err
	}
	const show = ` -c 'import os; print(os.geteuid(), open("/proc/self/uid_map").read().split()[1] != "0")'`
	inFirst, err := t.Output(ctx, first.ID, "", "/usr/local/bin/attack-suid"+show+"; /workspace/attack-suid"+show)
	if err != nil {
		return "", err
	}
	if inFirst != "0 True\n1000 True" {
		return "", Breached("in the first container they ran as %q", inFirst)
	}
	if _, err := t.Delete(ctx, first.ID, true); err != nil {
		return "", err
	}
	for _, sudo := range []bool{true, false} {
		con, err := t.Container(ctx, proto.CreateContainer{WorkspaceID: first.WorkspaceID, Sudo: sudo})
		if err != nil {
			return "", err
		}
		got, err := t.Output(ctx, con.ID, "", "/workspace/attack-suid"+show)
		if err != nil {
			return "", err
		}
		if got != "1000 True" {
			return "", Breached("with sudo %v it ran as %q", sudo, got)
		}
		if _, err := t.Delete(ctx, con.ID, true); err != nil {
			return "", err
		}
	}
	return "root of the first container alone, and nobody from the workspace", nil
}

// setUserID copies an interpreter, since shells drop an effective user that differs from the real one.
func setUserID(ctx context.Context, t *Target) (string, error) {
	con, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	const places = "/tmp /dev/shm /workspace /usr/local/bin /"
	// env prints its ID itself, since a shell would drop the rights.
	made, err := t.Output(ctx, con.ID, proto.UserRoot, `for d in `+places+
		`; do cp /usr/bin/python3.* $d/attack-suid 2>/dev/null || cp $(readlink -f /usr/bin/python3) $d/attack-suid; chown root:root $d/attack-suid; chmod 6755 $d/attack-suid && stat -c %a $d/attack-suid; done | sort | uniq -c | tr -s ' \n' ' '`)
	if err != nil {
		return "", err
	}
	got, err := t.Output(ctx, con.ID, "", `for d in `+places+
		`; do $d/attack-suid -c 'import os; print(os.geteuid(), os.getegid())'; done | sort -u | tr '\n' ' '`)
	if err != nil {
		return "", err
	}
	if got != "1000 1000" {
		return "", Breached("they ran as %s", got)
	}
	return "made as modes" + " " + made + ", they ran as " + got, nil
}
