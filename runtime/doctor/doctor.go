package doctor

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"berth/proto"
	"berth/runtime/btrfs"
	"berth/runtime/cgroup"
	"berth/runtime/containerd"
	"berth/runtime/diskpool"
	"berth/runtime/forkserver"
	"berth/runtime/launch"
	"berth/runtime/outbound"
)

// A Grade is the severity of a Finding.
type Grade string

// The grades.
const (
	OK   Grade = "ok"
	Warn Grade = "warn" // works in part, or for few containers only
	Fail Grade = "fail" // containers cannot be run safely, or at all
)

// A Finding is the result of one check.
type Finding struct {
	Name  string `json:"name"`
	Grade Grade  `json:"grade"`
	Found string `json:"found"`         // the state of the host
	Why   string `json:"why,omitempty"` // what needs it; empty if ok
	Fix   string `json:"fix,omitempty"` // how to fix it; empty if ok
}

// Doctor checks this machine without changing it, for a Runtime that would be opened with cfg. It needs no Runtime,
// and the data directory need not exist.
func Doctor(ctx context.Context, cfg containerd.Config) []Finding {
	found := []Finding{checkRoot(), checkKernel(), checkCgroups(), checkUserNamespaces(cfg.Starter()), checkSeccomp(),
		checkOutbound()}
	found = append(found, checkMounts(ctx)...)
	found = append(found, checkPrograms(cfg)...)
	found = append(found, checkPool(cfg))
	return append(found, checkSysctls()...)
}

func good(name, found string) Finding { return Finding{Name: name, Grade: OK, Found: found} }

func checkRoot() Finding {
	if os.Geteuid() != 0 {
		return Finding{"root", Fail, fmt.Sprintf("user %d", os.Geteuid()),
			"making containers takes root", "run the daemon as root"}
	}
	if !hasCapability(unix.CAP_SYS_ADMIN) {
		return Finding{"root", Fail, "root without CAP_SYS_ADMIN",
			"mounts and namespaces take it", "run the daemon outside this container, or give it CAP_SYS_ADMIN"}
	}
	if !hasCapability(unix.CAP_SYS_RESOURCE) {
		return good("root", "root, without CAP_SYS_RESOURCE (nothing here needs it)")
	}
	return good("root", "root")
}

// hasCapability asks the kernel, because root in a container may have few capabilities.
func hasCapability(c int) bool {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&hdr, &data[0]) != nil {
		return false
	}
	return data[c/32].Effective&(1<<(c%32)) != 0
}

// checkKernel checks for Linux 5.19, which introduced id-mapped layers below an overlay.
func checkKernel() Finding {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return Finding{"kernel", Warn, "unknown", "its version decides what can be isolated", "look at uname -r"}
	}
	release := unix.ByteSliceToString(u.Release[:])
	if !launch.AtLeast(release, 5, 19) {
		return Finding{"kernel", Fail, release, "user namespaces over id-mapped layers need Linux 5.19",
			"use a newer kernel"}
	}
	return good("kernel", release)
}

// checkCgroups checks for the controllers of CPU, memory and process limits, in v1 or v2.
func checkCgroups() Finding {
	mode, controllers := cgroupMode()
	found := mode + ": " + strings.Join(controllers, " ")
	var missing []string
	for _, need := range []string{"cpu", "memory", "pids"} {
		if !strings.Contains(" "+strings.Join(controllers, " ")+" ", " "+need+" ") {
			missing = append(missing, need)
		}
	}
	if len(missing) > 0 {
		return Finding{"cgroups", Fail, found, "limits need the controllers " + strings.Join(missing, ", "),
			"mount them below " + cgroup.Root + ", or boot with cgroup_enable=memory"}
	}
	return good("cgroups", found)
}

// cgroupMode returns how this host mounts cgroups, and the controllers that can limit.
func cgroupMode() (mode string, controllers []string) {
	if b, err := os.ReadFile(filepath.Join(cgroup.Root, "cgroup.controllers")); err == nil {
		return "v2", strings.Fields(string(b))
	}
	mode = "v1"
	if _, err := os.Stat(filepath.Join(cgroup.Root, "unified", "cgroup.controllers")); err == nil {
		mode = "hybrid"
	}
	for _, c := range []string{"cpu", "memory", "pids", "cpuset", "blkio", "devices", "freezer"} {
		if _, err := os.Stat(filepath.Join(cgroup.Root, c, "cgroup.procs")); err == nil {
			controllers = append(controllers, c)
		}
	}
	return mode, controllers
}

func checkUserNamespaces(program string) Finding {
	if _, err := os.Stat("/proc/self/ns/user"); err != nil {
		return Finding{"user namespaces", Fail, "none", "root in a container must be nobody on the host",
			"use a kernel built with CONFIG_USER_NS"}
	}
	st := forkserver.New(program)
	defer st.Close()
	ns, err := forkserver.NewUserNamespace(st, trialFirstID, trialFirstID)
	if err != nil {
		return Finding{"user namespaces", Warn, "only root's own: " + err.Error(), "containers share the host's " +
			"inotify and namespace limits, so that one can use them up for all",
			"run it as root; have the security module of this host allow it to berth-guest; else raise " +
				"fs.inotify.max_user_instances and max_user_watches a hundredfold"}
	}
	ns.Close()
	return good("user namespaces", "yes, with limits of their own")
}

func checkSeccomp() Finding {
	actions, err := os.ReadFile("/proc/sys/kernel/seccomp/actions_avail")
	if err != nil || !strings.Contains(string(actions), "errno") {
		return Finding{"seccomp", Fail, "none", "containers may only make the system calls they need",
			"use a kernel built with CONFIG_SECCOMP_FILTER"}
	}
	return good("seccomp", strings.TrimSpace(string(actions)))
}

func checkOutbound() Finding {
	const name = "networks without a proxy"
	if err := outbound.Try(); err != nil {
		return Finding{name, Warn, err.Error(), "programs that heed no proxy variables reach the network of their " +
			"container through BPF (sk_lookup)", "use Linux 5.9 or newer with CONFIG_BPF_SYSCALL, and give the " +
			"daemon all capabilities"}
	}
	return good(name, "programs need no proxy variables in class runc")
}

func checkPrograms(cfg containerd.Config) []Finding {
	return []Finding{
		checkProgram("shim", filepath.Join(cfg.BinDir, "containerd-shim-runc-v2")),
		checkProgram("guest", cfg.GuestProgram()),
		checkRunc(cfg.BinDir), checkRunsc(cfg.BinDir),
	}
}

func checkProgram(name, path string) Finding {
	if launch.Executable(path) != nil {
		return Finding{name, Fail, "missing", "the daemon does not start without it", "build it with make"}
	}
	return good(name, filepath.Base(path))
}

// checkRunc checks runc's version and features: runc without libseccomp would ignore our filter silently.
func checkRunc(dir string) Finding {
	name, info := "class "+string(proto.ClassRunc), launch.RuncClass(dir)
	if info.Missing != "" {
		return Finding{name, Fail, "none", info.Missing, "make runtimes"}
	}
	out, _ := exec.Command(info.Binary, "--version").Output() // it ran a moment ago
	if !strings.Contains(string(out), "libseccomp") {
		return Finding{name, Fail, "runc " + info.Version + " without seccomp",
			"its containers could make every system call", "install libseccomp-dev and build it with make runtimes"}
	}
	return good(name, "runc "+info.Version)
}

// checkRunsc checks for gVisor. Without it one runtime class is missing, which is no failure.
func checkRunsc(dir string) Finding {
	name := "class " + string(proto.ClassGVisor)
	version, missing := launch.ProgramVersion(filepath.Join(dir, "runsc"), "runsc")
	if missing != "" {
		return Finding{name, Warn, "none", missing, "make runtimes"}
	}
	return good(name, "runsc "+version)
}

// checkPool reports the kind of the present disk pool, or of the one that would be made.
func checkPool(cfg containerd.Config) Finding {
	const name, why = "disk limits", "without them one container can fill the disk for all"
	dir := cfg.Dir
	for dir != "/" {
		if _, err := os.Stat(dir); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	if btrfs.Is(dir) {
		return good(name, "the data directory is on btrfs")
	}
	if !knownFilesystem("btrfs") {
		return Finding{name, Warn, diskpool.Plain, why, "use a kernel with btrfs (modprobe btrfs)"}
	}
	if _, err := os.Stat(filepath.Join(cfg.Dir, "pool.img")); err != nil {
		if _, err := exec.LookPath("mkfs.btrfs"); err != nil {
			return Finding{name, Warn, diskpool.Plain, why, "install btrfs-progs"}
		}
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		return Finding{name, Warn, diskpool.Plain, why,
			"load the loop module (modprobe loop), or put the data directory on btrfs"}
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return Finding{name, Warn, "unknown", why, "make the data directory readable"}
	}
	free := int64(st.Bavail) * st.Bsize
	if free/2 < diskpool.MinPool {
		return Finding{name, Fail, fmt.Sprintf("%d MiB free", free>>20), "images and workspaces need room",
			"free some, or choose another data directory"}
	}
	return good(name, fmt.Sprintf("a btrfs in a file below the data directory, %d GiB free there", free>>30))
}

// knownFilesystem reports whether the kernel supports a file system. It loads the module if necessary.
func knownFilesystem(name string) bool {
	known := func() bool {
		list, _ := os.ReadFile("/proc/filesystems")
		return strings.Contains(string(list), "\t"+name+"\n")
	}
	if !known() {
		_ = exec.Command("modprobe", name).Run()
	}
	return known()
}
