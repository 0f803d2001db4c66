package attack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Group 30: the known escapes from a container to its host. Each of these has worked against a container engine, or
// would work if one mask were forgotten. In gVisor many succeed but mean nothing, since its kernel belongs to the
// container; sentry distinguishes them.
var _ = register(
	// core_pattern, modprobe, uevent_helper and release_agent name a program that the kernel starts as root in the
	// host's namespaces. CVE-2022-0492 used that.
	attempts(Case{
		Group: 30, Name: "escape/kernel-files",
		Tries: "write to the files through which the kernel is steered or runs programs as the host's root: " +
			"core_pattern, modprobe, uevent_helper, sysrq, binfmt_misc, release_agent and more",
		Wants: "none can be opened for writing",
	}, asBoth, kernelFileAttempts),
	// Files that cannot be written may still be readable: keys, addresses for an exploit, other containers' memory.
	attempts(Case{
		Group: 30, Name: "escape/kernel-memory",
		Tries: "read the host's memory, log, symbols, keys, command line, disks and firmware: /dev/mem, /proc/kcore, " +
			"/dev/kmsg, /proc/kallsyms, /proc/cmdline, /proc/diskstats, debugfs and more",
		Wants: "each is missing, refused or empty",
	}, asBoth, kernelSecretAttempts),
	// A file of the host that is protected by its mode alone is one mistake from being writable.
	attempts(Case{
		Group: 30, Name: "escape/read-only",
		Tries: "find kernel file systems that are mounted writable: /sys, the cgroups, and the parts of /proc that " +
			"steer the kernel",
		Wants: "each is mounted read-only",
	}, asBoth, readOnlyAttempts),
	// A mount bypasses masks: a newly mounted proc has no masks.
	attempts(Case{
		Group: 30, Name: "escape/mounts",
		Tries: "mount a cgroup with a release agent, proc, sysfs, tmpfs, overlay and a disk, bind the root, make " +
			"/proc/sys writable, take masks away",
		Wants: "each is refused",
	}, asBoth, mountAttempts),
	// shocker (2014) opened any file of the host by its inode number, because open_by_handle_at ignores paths. It
	// needs CAP_DAC_READ_SEARCH.
	attempts(Case{
		Group: 30, Name: "escape/handles",
		Tries: "open the host's files by their inode numbers, as shocker does, and climb out of a chroot",
		Wants: "handles are refused, and what lies above the root is the root",
	}, asBoth, handleAttempts),
	// In CVE-2024-21626 of runc, commands inherited a descriptor of the host's cgroup directory.
	attempts(Case{
		Group: 30, Name: "escape/descriptors",
		Tries: "find descriptors of the host that a command was left with, and leave through them",
		Wants: "a command has its three streams and nothing else",
	}, asBoth, descriptorAttempts),
	// The guest executes the daemon's requests inside, as root. A process that replaces its program acts in its name.
	attempts(Case{
		Group: 30, Name: "escape/guest-program",
		Tries: "replace or overwrite the program that runs as PID 1, through its path and through /proc",
		Wants: "each is refused",
	}, asBoth, guestProgramAttempts),
	// The working directory is entered after the change of the root. So a path through a descriptor's link may lie
	// outside.
	Case{
		Group: 30, Name: "escape/working-directory", Inside: true,
		Tries: "start commands in /proc/self/fd/3 to 15, whose target would be a directory of the host if one were left open",
		Wants: "they are refused, or start inside the container's root",
		Run:   workingDirectories,
	},
	// In CVE-2019-5736 the container made runc execute itself, and then wrote to that program, which belonged to the
	// host.
	Case{
		Group: 30, Name: "escape/self-exe", Inside: true,
		Tries: "have the daemon execute /proc/self/exe, and write to it from there",
		Wants: "the guest stays as it was and the container goes on",
		Run:   selfExe,
	},
	// The next start mounts on paths that the container controls. CVE-2021-30465 and CVE-2025-31133 of runc were
	// links in such places.
	Case{
		Group: 30, Name: "escape/planted-links", Inside: true,
		Tries: "replace /.berth by links to the host's root and to /proc, then have the container stopped and " +
			"started, mounts and all",
		Wants: "the start is refused or lands in a container with none of the host's files",
		Run:   plantedLinks,
	},
)

// attackFiles are written back unchanged, so the host is not harmed if one is writable.
var attackFiles = []string{
	"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hotplug",
	"/proc/sys/kernel/poweroff_cmd",
	"/proc/sys/kernel/panic", "/proc/sys/kernel/randomize_va_space", "/proc/sys/kernel/sysrq",
	"/proc/sys/kernel/yama/ptrace_scope",
	"/proc/sys/kernel/unprivileged_bpf_disabled", "/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max",
	"/proc/sys/kernel/ns_last_pid",
	"/proc/sys/vm/panic_on_oom", "/proc/sys/vm/overcommit_memory", "/proc/sys/vm/drop_caches", "/proc/sys/fs/file-max",
	"/proc/sys/fs/protected_symlinks",
	"/proc/sys/fs/suid_dumpable", "/proc/sys/user/max_user_namespaces", "/proc/irq/default_smp_affinity",
	"/sys/kernel/uevent_helper", "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/kernel/mm/ksm/run",
	"/sys/power/state", "/sys/power/wake_lock",
	"/sys/module/kernel/parameters/panic", "/sys/kernel/profiling", "/sys/kernel/kexec_crash_size",
}

// kernelFileAttempts open each file for writing. The kernel checks permission at that point, and nothing changes. So
// this is safe even on a host whose containers are open.
func kernelFileAttempts() []attempt {
	var all []attempt
	write := func(path, text string) {
		all = append(all, attempt{path, func() error { return rewrite(path, text) }})
	}
	// In gVisor this file affects only the container.
	for _, path := range attackFiles {
		if !sentry() || !strings.HasPrefix(path, "/proc/sys/kernel/yama") {
			write(path, "")
		}
	}
	write("/proc/sysrq-trigger", "h") // prints help into the host's log
	// No program begins with this magic, in case the registration succeeds.
	write("/proc/sys/fs/binfmt_misc/register", ":berth-attack:M::never-a-program::/bin/false:")
	for _, pattern := range []string{
		"/sys/fs/cgroup/*/release_agent", "/sys/fs/cgroup/*/notify_on_release",
		"/sys/fs/cgroup/memory/memory.limit_in_bytes",
		"/sys/fs/cgroup/pids/pids.max", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cgroup.subtree_control",
		"/sys/fs/cgroup/memory.max",
		"/sys/class/*/*/uevent", "/sys/block/*/uevent", "/sys/bus/*/drivers_probe",
		"/sys/devices/system/cpu/cpu*/online",
	} {
		matches, _ := filepath.Glob(pattern)
		// A host may have hundreds of such files. Twenty show how they are mounted.
		for _, path := range matches[:min(len(matches), 20)] {
			if strings.HasPrefix(path, "/sys/fs/cgroup") && sentry() {
				continue // belongs to the user-space kernel and limits nothing
			}
			write(path, "")
		}
	}
	return append(all,
		attempt{"a cgroup below ours", func() error {
			if sentry() {
				return moot("the cgroups are the user-space kernel's own")
			}
			return os.Mkdir("/sys/fs/cgroup/memory/berth-attack", 0o755)
		}},
		attempt{"a higher core limit", func() error {
			// core_pattern may name a program, which then reads the core as the host's root. So even a small core
			// must not be possible.
			return unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1 << 20, Max: 1 << 20})
		}},
		// With a score below zero, the kernel would kill other processes before this container when the host is short
		// of memory.
		attempt{"a lower OOM score", func() error { return rewrite("/proc/self/oom_score_adj", "-900") }},
	)
}

// rewrite opens a file for writing and writes text, or the file's current content. Opening shows the permission, and
// writing the content back changes nothing.
func rewrite(path, text string) error {
	if path == "/proc/self/oom_score_adj" && sentry() {
		return moot("the user-space kernel keeps scores that the host does not see")
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if text == "" {
		data, err := os.ReadFile(path)
		if err != nil {
			// Some files are writable but not readable; opening one is already a success.
			return through("it can be opened for writing")
		}
		text = string(data)
	}
	_, err = f.WriteString(text)
	return err
}

// sentry reports whether the kernel is gVisor. Some files of gVisor control only gVisor itself, so a container may
// write to them. /proc/version identifies gVisor. A container cannot change that file.
func sentry() bool {
	version, err := os.ReadFile("/proc/version")
	return err == nil && strings.Contains(string(version), "gvisor")
}

// kernelSecretAttempts read one byte. An empty file counts as refused: masks are /dev/null and empty directories.
func kernelSecretAttempts() []attempt {
	var all []attempt
	for _, path := range []string{
		"/dev/mem", "/dev/kmem", "/dev/port", "/dev/kmsg", "/proc/kmsg", "/proc/kcore", "/proc/kallsyms", "/proc/keys",
		"/proc/key-users",
		// The host's command line, disks and modules say what it is and what others do.
		"/proc/cmdline", "/proc/diskstats", "/proc/partitions", "/proc/modules", "/proc/config.gz", "/proc/timer_stats",
		"/proc/timer_list", "/proc/sched_debug", "/proc/slabinfo", "/proc/latency_stats", "/proc/interrupts",
		"/proc/vmallocinfo", "/proc/pagetypeinfo",
		// Paths with ".." are for masks that are compared as text instead of mounted.
		"/proc/sys/kernel/cap_last_cap/../../../kcore", "/dev/fb0", "/dev/input/event0", "/dev/sda", "/dev/vda",
		"/dev/nvme0n1", "/dev/loop0",
		"/dev/loop-control", "/dev/mapper/control", "/dev/btrfs-control", "/dev/kvm", "/dev/vhost-net", "/dev/vsock",
		"/dev/uinput", "/dev/console",
		"/dev/cpu/0/msr", "/dev/snapshot", "/dev/watchdog", "/sys/kernel/vmcoreinfo",
		"/sys/kernel/notes/../debug/tracing/trace",
		// PID 1 is the guest: its memory and environment contain what the daemon has sent to it.
		"/proc/1/environ", "/proc/1/mem", "/proc/1/maps/..//mem",
	} {
		all = append(all, attempt{path, func() error {
			if path == "/proc/cmdline" && sentry() {
				return moot("it is the user-space kernel's own")
			}
			return readable(path)
		}})
	}
	for _, dir := range []string{"/sys/firmware", "/sys/kernel/debug", "/sys/kernel/tracing", "/sys/kernel/security",
		"/sys/fs/bpf", "/proc/scsi", "/proc/acpi", "/proc/asound", "/proc/pressure", "/sys/block",
		"/sys/devices/virtual/block", "/sys/devices/virtual/dmi", "/sys/devices/virtual/powercap", "/sys/class/dmi",
		"/sys/fs/btrfs", "/sys/fs/ext4", "/sys/fs/xfs", "/sys/module"} {
		all = append(all, attempt{dir, func() error {
			entries, err := os.ReadDir(dir)
			if err == nil && len(entries) == 0 {
				return errors.New("it is empty")
			}
			return err
		}})
	}
	// The guest's descriptors are its sockets. The daemon's connections come from one of them.
	for fd := range 12 {
		all = append(all, attempt{fmt.Sprintf("/proc/1/fd/%d", fd),
			func() error { return readable(fmt.Sprintf("/proc/1/fd/%d", fd)) }})
	}
	return all
}

// readOnlyAttempts ask the kernel for the flags of mounts. A write may be refused by the mode of a file although the
// mount is writable.
func readOnlyAttempts() []attempt {
	var all []attempt
	paths := []string{"/sys", "/proc/sys", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sysrq-trigger",
		"/sys/fs/cgroup"}
	below, _ := filepath.Glob("/sys/fs/cgroup/*") // a mount for each controller, with cgroups of version 1
	for _, path := range append(paths, below...) {
		all = append(all, attempt{path, func() error {
			if path != "/sys" && sentry() {
				return moot("it is the user-space kernel's own")
			}
			var st unix.Statfs_t
			if err := unix.Statfs(path, &st); err != nil {
				return moot("%v", err)
			}
			if st.Flags&unix.ST_RDONLY == 0 {
				return through("it is mounted with the flags %#x", st.Flags)
			}
			return errors.New("it is mounted read-only")
		}})
	}
	return all
}

// readable tries to read a byte. It does not block, since a FIFO or a terminal would block the probe forever.
func readable(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, make([]byte, 1))
	if n == 0 && err == nil {
		return errors.New("it is empty")
	}
	return err
}

// mountAttempts use the system call: mount(8) refuses an ordinary user by itself and hides the kernel's answer.
func mountAttempts() []attempt {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("berth-attack-%d", os.Getuid()))
	mount := func(what, source, kind string, flags uintptr, data string) attempt {
		return attempt{what, func() error {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return moot("%v", err)
			}
			return unix.Mount(source, dir, kind, flags, data)
		}}
	}
	// A bind mount has its own read-only flag, and a bind remount clears only that flag.
	remount := func(path string) attempt {
		return attempt{"writable " + path, func() error {
			return unix.Mount("", path, "", unix.MS_REMOUNT|unix.MS_BIND,
				"")
		}}
	}
	// A lazy unmount succeeds even if an ordinary one reports a busy mount. It shows what is below a mask.
	unmount := func(path string) attempt {
		return attempt{"unmounted " + path, func() error { return unix.Unmount(path, unix.MNT_DETACH) }}
	}
	return []attempt{
		mount("cgroup v1 with its release agent", "cgroup", "cgroup", 0, "rdma"), mount("cgroup v1 memory", "cgroup",
			"cgroup", 0, "memory"),
		mount("cgroup v2", "cgroup2", "cgroup2", 0, ""), mount("proc", "proc", "proc", 0, ""),
		mount("sysfs", "sysfs", "sysfs", 0, ""),
		mount("tmpfs", "tmpfs", "tmpfs", 0, ""), mount("debugfs", "debugfs", "debugfs", 0, ""),
		mount("devpts", "devpts", "devpts", 0, ""),
		mount("overlay", "overlay", "overlay", 0, "lowerdir=/,upperdir=/tmp,workdir=/tmp"),
		mount("securityfs", "securityfs", "securityfs", 0, ""),
		mount("fuse", "fuse", "fuse", 0, "fd=3,rootmode=40000,user_id=0,group_id=0"), mount("the root, bound", "/", "",
			unix.MS_BIND, ""),
		mount("the root of PID 1, bound", "/proc/1/root", "", unix.MS_BIND, ""), mount("the first disk", "/dev/vda",
			"ext4", 0, ""),
		// With shared propagation, mounts made here would appear in other namespaces.
		{"shared propagation", func() error { return unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_REC, "") }},
		remount("/proc/sys"), remount("/sys"), remount("/sys/fs/cgroup"), remount("/.berth/guest"),
		unmount("/proc/kcore"), unmount("/proc/keys"), unmount("/proc/sys"), unmount("/sys/firmware"),
		unmount("/workspace"), unmount("/.berth/guest"),
		{"a new root", func() error { return unix.PivotRoot("/tmp", "/tmp") }},
		// open_tree returns a copy of the mounts as a descriptor, which could be attached elsewhere.
		{"a detached copy of the root", func() error { _, err := unix.OpenTree(unix.AT_FDCWD, "/", 1); return err }},
		// With swap, a container could use the host's memory management at will. Only the quota of its disk would
		// limit that.
		{"a swap file", func() error {
			path, err := unix.BytePtrFromString("/workspace/swap")
			if err != nil {
				return moot("%v", err)
			}
			return errnoOf(syscall.RawSyscall(unix.SYS_SWAPON, uintptr(unsafe.Pointer(path)), 0, 0))
		}},
	}
}

// A handle can be opened relative to any descriptor of the same file system. So each mount that comes from the host
// is tried.
func handleAttempts() []attempt {
	var all []attempt
	for _, from := range []string{"/", "/workspace", "/.berth/run", "/.berth/guest", "/etc/hosts", "/tmp", "/proc"} {
		all = append(all, attempt{"inode 2 beside " + from, func() error {
			fd, err := unix.Open(from, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			// the root inode of ext4, as shocker guesses it
			handle := unix.NewFileHandle(1, []byte{2, 0, 0, 0, 0, 0, 0, 0})
			opened, err := unix.OpenByHandleAt(fd, handle, unix.O_RDONLY)
			if err == nil {
				_ = unix.Close(opened)
			}
			return err
		}})
	}
	return append(all, attempt{"a chroot climbed out of", climb})
}

// climb leaves a chroot through a descriptor outside of it, which any root user can do. It must arrive at the
// container's root. Without a mount namespace and pivot_root this is the oldest escape: chroot does not change the
// working directory.
func climb() error {
	var before, after unix.Stat_t
	if err := unix.Stat("/", &before); err != nil {
		return moot("%v", err)
	}
	if err := os.MkdirAll("/tmp/berth-attack-chroot", 0o755); err != nil {
		return moot("%v", err)
	}
	// The working directory stays outside of the new root.
	if err := unix.Chroot("/tmp/berth-attack-chroot"); err != nil {
		return err
	}
	for range 64 {
		if err := unix.Chdir(".."); err != nil {
			return err
		}
	}
	if err := unix.Stat(".", &after); err != nil {
		return err
	}
	if entries, err := os.ReadDir("."); err == nil && len(entries) == 0 {
		return errors.New("the top is an empty directory") // a user-space kernel has that below its root
	}
	// Device and inode identify a directory; a name does not.
	if after.Dev != before.Dev || after.Ino != before.Ino {
		return through("the top is device %d inode %d, not %d %d", after.Dev, after.Ino, before.Dev, before.Ino)
	}
	return errors.New("the top is the container's root")
}

// descriptorAttempts check the descriptors that a command has besides its three streams, and the links in /proc that
// lead to a process's root.
func descriptorAttempts() []attempt {
	var all []attempt
	for fd := 3; fd < 64; fd++ {
		all = append(all, attempt{fmt.Sprintf("descriptor %d", fd), func() error {
			target, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
			if err != nil {
				return err
			}
			// Pipes, the poller's descriptor and the one for the CPU quota belong to this program.
			if strings.HasPrefix(target, "pipe:") || strings.HasPrefix(target, "anon_inode:") ||
				strings.HasPrefix(target, "/proc/") || strings.HasPrefix(target, "/sys/fs/cgroup/") {
				return fmt.Errorf("it is of the program itself")
			}
			return through("it is %s", target)
		}})
	}
	for _, pid := range []string{"1", "self"} {
		for _, link := range []string{"root", "cwd"} {
			all = append(all, attempt{"/proc/" + pid + "/" + link + "/..",
				func() error { return sameRoot("/proc/" + pid + "/" + link + "/../../../../..") }})
		}
	}
	return all
}

// sameRoot returns a refusal if path leads to the container's root. A path with more ".." than there are levels must
// end there.
func sameRoot(path string) error {
	var root, there unix.Stat_t
	if err := unix.Stat("/", &root); err != nil {
		return moot("%v", err)
	}
	if err := unix.Stat(path, &there); err != nil {
		return err
	}
	if root.Dev != there.Dev || root.Ino != there.Ino {
		return through("it is device %d inode %d, not the container's root", there.Dev, there.Ino)
	}
	return errors.New("it is the container's root")
}

// guestProgramAttempts try to change the file that the daemon trusts as PID 1. It is mounted read-only, and other
// containers use the same file.
func guestProgramAttempts() []attempt {
	const guest = "/.berth/guest"
	open := func(path string, flags int) attempt {
		return attempt{fmt.Sprintf("open %s with %#o", path, flags), func() error {
			fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o755)
			if err == nil {
				_ = unix.Close(fd)
			}
			return err
		}}
	}
	all := []attempt{
		open(guest, unix.O_RDWR), open(guest, unix.O_WRONLY|unix.O_TRUNC), open(guest, unix.O_WRONLY|unix.O_APPEND),
		open("/proc/1/exe", unix.O_RDWR),
		// Opening it for reading is enough for CVE-2019-5736: a descriptor of a running program can be reopened for
		// writing once that program has ended.
		open("/proc/1/exe", unix.O_RDONLY), open("/proc/1/mem", unix.O_RDWR),
		{"chmod it", func() error { return os.Chmod(guest, 0o777) }},
		{"chown it", func() error { return os.Chown(guest, os.Getuid(), os.Getgid()) }},
		{"truncate it", func() error { return os.Truncate(guest, 0) }},
		{"an attribute of it", func() error { return unix.Setxattr(guest, "user.attack", []byte("x"), 0) }},
		{"a time of it", func() error { return unix.Utime(guest, nil) }},
		{"link to it", func() error { return os.Link(guest, "/.berth/linked") }},
	}
	if os.Getuid() == 0 {
		return all // root owns its name, since root owns the whole writable layer
	}
	return append(all,
		attempt{"remove it", func() error { return os.Remove(guest) }},
		attempt{"rename it", func() error { return os.Rename(guest, guest+".old") }},
		attempt{"rename its directory", func() error { return os.Rename("/.berth", "/tmp/berth") }},
		attempt{"replace it", func() error { return os.WriteFile("/.berth/other", []byte("#!/bin/sh\n"), 0o755) }},
		attempt{"enter the socket's directory", func() error { _, err := os.ReadDir("/.berth/run"); return err }},
	)
}
