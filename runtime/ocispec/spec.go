// Package ocispec makes the OCI configuration of a sandbox: its process, namespaces, mounts, limits and system call
// filter. It takes only numbers from the caller, and only the environment from the image. Package launch gives the
// configuration to runc or runsc, or does what it says itself.
package ocispec

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"berth/proto"
	"berth/runtime/cgroup"
	"berth/runtime/diskpool"
	"berth/runtime/layer"
)

// lowestFreePort is the setting of the first port that any user may listen on. The network is the sandbox's own.
const lowestFreePort = "net.ipv4.ip_unprivileged_port_start"

// SocketName is the name of the guest's socket in layer.InsideRun.
const SocketName = "guest.sock"

const rootfs = "rootfs" // relative to the bundle

const DefaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// capabilities are those that root in a container needs for ordinary work: own, read and give away files, become
// another user, end processes, listen on low ports and chroot. All of them count inside the user namespace only. Left
// out of the usual set: MKNOD and NET_RAW (no devices, no network), AUDIT_WRITE (the host's log), SETFCAP
// (no_new_privs makes file capabilities void).
var capabilities = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_SETGID",
	"CAP_SETUID", "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT",
}

// MaskedPaths are paths that reveal facts about the host or reach its hardware.
var MaskedPaths = []string{
	"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kallsyms", "/proc/kcore", "/proc/keys",
	"/proc/key-users", "/proc/latency_stats", "/proc/sched_debug", "/proc/scsi", "/proc/slabinfo",
	"/proc/timer_list", "/proc/timer_stats", "/sys/devices/virtual/powercap", "/sys/firmware",
	"/sys/kernel/debug", "/sys/kernel/security", "/sys/kernel/vmcoreinfo", "/sys/fs/bpf",
	// These reveal the host's command line, modules, disks with the files behind loop devices, serial numbers, and
	// how much of the pool other sandboxes use.
	"/proc/cmdline", "/proc/modules", "/proc/diskstats", "/proc/partitions", "/proc/pressure", "/proc/config.gz",
	"/sys/block", "/sys/devices/virtual/block", "/sys/devices/virtual/dmi", "/sys/class/dmi", "/sys/fs/btrfs",
	"/sys/fs/ext4", "/sys/fs/xfs", "/sys/module",
}

// readonlyPaths include the cgroup mount: with v1, runc mounts the controllers read-only but leaves the directory
// that holds them writable.
var readonlyPaths = []string{
	"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger", "/sys/fs/cgroup",
}

// A Spec is the input of one sandbox's configuration.
type Spec struct {
	ID      string
	Class   proto.RuntimeClass
	Limits  proto.Limits
	Env     []string // the image's environment
	FirstID uint32   // first ID of its UID and GID range

	Hostname string

	UserNamespace string // path of the one to join; if empty, the runtime makes one
	Network       string // as UserNamespace; for class gvisor one that package outbound has made

	Sudo   bool          // set-user-ID programs may gain privileges
	Step   bool          // for a step of a build: the guest leaves the image as it is
	Mounts []specs.Mount // further mounts
}

// New returns the whole OCI configuration of a sandbox.
func New(b Spec) *specs.Spec {
	spec := WithoutFilter(b)
	spec.Linux.Seccomp = seccompProfile(spec, b.Class)
	return spec
}

// WithoutFilter returns what New returns, without the system call filter, which takes time to make.
func WithoutFilter(b Spec) *specs.Spec {
	ids := []specs.LinuxIDMapping{{ContainerID: 0, HostID: b.FirstID, Size: diskpool.IDRange}}
	return &specs.Spec{
		Version:  specs.Version,
		Hostname: b.Hostname,
		Root:     &specs.Root{Path: rootfs},
		Process:  newProcess(b),
		Mounts:   slices.Concat(mounts(b), b.Mounts),
		Linux: &specs.Linux{
			CgroupsPath:   path.Join("/", cgroup.Parent, b.ID),
			Namespaces:    ownNamespaces(b.UserNamespace, b.Network),
			UIDMappings:   ids,
			GIDMappings:   ids,
			Resources:     cgroup.Resources(b.Class, b.Limits),
			Sysctl:        map[string]string{lowestFreePort: "0"},
			MaskedPaths:   slices.Clone(MaskedPaths),
			ReadonlyPaths: slices.Clone(readonlyPaths),
		},
	}
}

func newProcess(b Spec) *specs.Process {
	// When memory runs out, the kernel kills the sandbox before processes of the host. A lower value needs
	// CAP_SYS_RESOURCE.
	oom := 500
	caps := slices.Clone(capabilities)
	limits := Rlimits(b.Class, b.Limits)
	if b.UserNamespace != "" {
		limits = nil // SetRlimits sets them
	}
	args, env := guestCommand(b.Env)
	if b.Step {
		args = append(args, "-step")
	}
	if b.Sudo {
		args = append(args, "-allow-new-privileges")
	}
	if b.Class == proto.ClassGVisor {
		args = append(args, workspaceLater)
	}
	if b.Network != "" {
		args = append(args, "-name-server", proto.GatewayAddress)
	}
	return &specs.Process{
		Args:            args,
		Cwd:             "/",
		Env:             env,
		NoNewPrivileges: !b.Sudo,
		Capabilities: &specs.LinuxCapabilities{
			Bounding: caps, Effective: caps, Permitted: caps,
		},
		Rlimits:     limits,
		OOMScoreAdj: &oom,
	}
}

// oneProcessor limits the guest's scheduler to one processor from its start. The guest sets the limit itself if the
// variable is missing, but its second processor then leaves some 300 KiB behind. See docs/decisions/0012.
const oneProcessor = "GOMAXPROCS=1"

// workspaceLater keeps the guest from looking at the workspace at its start. gVisor's kernel remembers what it has seen
// there, and a pooled sandbox gets its workspace later. The daemon has given the workspace to the user.
const workspaceLater = "-workspace-later"

// guestCommand returns the arguments and the environment of the guest for an image with that environment. The guest
// passes its environment on to commands, except oneProcessor. If the image sets that variable itself, its value
// stays.
func guestCommand(image []string) (args, env []string) {
	args, env = []string{layer.InsideGuest}, ProcessEnv(image)
	for _, kv := range env {
		if strings.HasPrefix(kv, "GOMAXPROCS=") {
			return args, env
		}
	}
	return append(args, "-own-gomaxprocs"), append(env, oneProcessor)
}

// ProcessEnv returns the image's environment with a PATH, and a HOME for the guest; commands have the HOME of their
// user. The guest passes it on to the commands that it starts. If a variable occurs twice, the last value counts.
func ProcessEnv(image []string) []string {
	env := slices.Concat([]string{DefaultPath, "HOME=/"}, image)
	last := map[string]int{}
	for i, kv := range env {
		name, value, ok := strings.Cut(kv, "=")
		if ok && name != "" && !strings.ContainsRune(kv, 0) && (name != "HOME" || value != "") {
			last[name] = i
		}
	}
	var kept []string
	for _, i := range slices.Sorted(maps.Values(last)) {
		kept = append(kept, env[i])
	}
	return kept
}

// ownNamespaces returns one namespace of each kind. The runtime makes those without a path, inside the user namespace.
func ownNamespaces(user, network string) []specs.LinuxNamespace {
	return []specs.LinuxNamespace{
		{Type: specs.UserNamespace, Path: user}, {Type: specs.PIDNamespace}, {Type: specs.MountNamespace},
		{Type: specs.NetworkNamespace, Path: network}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace},
		{Type: specs.CgroupNamespace},
	}
}

// maxTerminals limits the terminals of one sandbox. All sandboxes of a host share some 3,072.
const maxTerminals = "max=128"

// mounts returns all mounts that the runtime makes.
func mounts(b Spec) []specs.Mount {
	list := KernelMounts(b.Limits)
	if b.Class == proto.ClassGVisor {
		// gVisor mounts a file system in memory over an empty /tmp, unless something is mounted there: itself here.
		list = append(list, specs.Mount{Destination: "/tmp", Type: "bind", Source: rootfs + "/tmp",
			Options: []string{"rbind", "rw", "nosuid", "nodev"}})
	}
	return list
}

// KernelMounts returns the mounts of kernel file systems. /dev/shm takes the sandbox's memory. Its limits, for bytes
// and for files, are well below it. /tmp is part of the writable layer.
func KernelMounts(l proto.Limits) []specs.Mount {
	return []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs",
			Options: []string{"nosuid", "strictatime", "mode=755", "size=64k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts",
			Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5", maxTerminals}},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: tmpfs(l.MemoryBytes / 4)},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
		{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup",
			Options: []string{"nosuid", "noexec", "nodev", "relatime", "ro"}},
	}
}

func tmpfs(bytes int64) []string {
	// One inode per 16 KiB; the kernel's default is one per page.
	return []string{"nosuid", "nodev", "mode=1777",
		fmt.Sprintf("size=%d", bytes), fmt.Sprintf("nr_inodes=%d", max(bytes>>14, 1024))}
}
