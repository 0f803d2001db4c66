package containerd

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"berth/proto"
	"berth/runtime/diskpool"
	"berth/runtime/images"
	"berth/runtime/isolation"
	"berth/runtime/layer"
	"berth/runtime/ocispec"
	"berth/session"
)

// finalSpec returns the OCI configuration in the bundle, which runc or runsc really got.
func finalSpec(t *testing.T, r *Runtime, id string) *specs.Spec {
	t.Helper()
	dir := r.bundles.Path(id)
	if !r.bundles.Has(id) {
		dir = r.taskDirs(id)[0]
	}
	content, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var spec specs.Spec
	if err := json.Unmarshal(content, &spec); err != nil {
		t.Fatal(err)
	}
	return &spec
}

// masked are the paths that no sandbox may see. They are written out here, and not taken from package ocispec: a test
// that compares a list with itself finds nothing missing.
var masked = []string{"/proc/acpi", "/proc/asound", "/proc/cmdline", "/proc/config.gz", "/proc/diskstats",
	"/proc/interrupts", "/proc/kallsyms", "/proc/kcore", "/proc/key-users", "/proc/keys", "/proc/latency_stats",
	"/proc/modules", "/proc/partitions", "/proc/pressure", "/proc/sched_debug", "/proc/scsi", "/proc/slabinfo",
	"/proc/timer_list", "/proc/timer_stats", "/sys/block", "/sys/class/dmi", "/sys/devices/virtual/block",
	"/sys/devices/virtual/dmi", "/sys/devices/virtual/powercap", "/sys/firmware", "/sys/fs/bpf", "/sys/fs/btrfs",
	"/sys/fs/ext4", "/sys/fs/xfs", "/sys/kernel/debug", "/sys/kernel/security", "/sys/kernel/vmcoreinfo", "/sys/module"}

// denied are the system calls that no sandbox may make, whatever their arguments.
var denied = []string{"acct", "add_key", "adjtimex", "bpf", "clock_adjtime", "clock_adjtime64", "clock_settime",
	"clock_settime64", "delete_module", "fanotify_init", "finit_module", "fsconfig", "fsmount", "fsopen", "fspick",
	"init_module", "io_uring_enter", "io_uring_register", "io_uring_setup", "kexec_file_load", "kexec_load", "keyctl",
	"lookup_dcookie", "modify_ldt", "mount", "mount_setattr", "move_mount", "name_to_handle_at", "open_by_handle_at",
	"open_tree", "open_tree_attr", "perf_event_open", "pivot_root", "quotactl", "quotactl_fd", "reboot", "request_key",
	"setns", "settimeofday", "socketcall", "stime", "swapoff", "swapon", "syslog", "umount", "umount2", "unshare",
	"uretprobe", "userfaultfd", "vhangup"}

// byArgument are the system calls that a sandbox may make with some arguments only.
var byArgument = []string{"ioctl", "socket", "socketpair"}

func TestSpec(t *testing.T) {
	r := openTest(t)
	testImage(t, r)
	defer runcAlone(r)() // which leaves its configuration
	classes(t, func(t *testing.T, class proto.RuntimeClass) {
		id, _ := startTest(t, r, class)
		spec := finalSpec(t, r, id)
		seeProcess(t, spec.Process, class)
		seeNamespaces(t, spec.Linux, class)
		seeMounts(t, spec.Mounts)
		seeSeccomp(t, spec.Linux.Seccomp)
		seeResources(t, spec.Linux.Resources, class)
		for _, path := range masked {
			if !slices.Contains(spec.Linux.MaskedPaths, path) {
				t.Errorf("%s is not masked", path)
			}
		}
		for _, path := range []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger",
			"/sys/fs/cgroup"} {
			if !slices.Contains(spec.Linux.ReadonlyPaths, path) {
				t.Errorf("%s is not read-only", path)
			}
		}
		if want := "/" + images.Namespace + "/" + id; spec.Linux.CgroupsPath != want || spec.Hooks != nil ||
			len(spec.Linux.Devices) > 0 {
			t.Errorf("cgroup %q, hooks %v, devices %v", spec.Linux.CgroupsPath, spec.Hooks, spec.Linux.Devices)
		}
	})
}

func seeProcess(t *testing.T, p *specs.Process, class proto.RuntimeClass) {
	t.Helper()
	if !p.NoNewPrivileges || p.OOMScoreAdj == nil || *p.OOMScoreAdj <= 0 || p.Terminal {
		t.Errorf("process %+v", p)
	}
	want := []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_SETGID",
		"CAP_SETUID", "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT"}
	for _, set := range [][]string{p.Capabilities.Bounding, p.Capabilities.Effective, p.Capabilities.Permitted} {
		if !slices.Equal(set, want) {
			t.Errorf("capabilities %v", set)
		}
	}
	if len(p.Capabilities.Inheritable)+len(p.Capabilities.Ambient) > 0 {
		t.Error("inheritable or ambient capabilities")
	}
	limits := map[string]uint64{}
	for _, l := range p.Rlimits {
		if limits[l.Type] = l.Hard; l.Soft != l.Hard {
			t.Errorf("%s can be raised from %d to %d", l.Type, l.Soft, l.Hard)
		}
	}
	all := map[string]uint64{} // under runc, ocispec.SetRlimits sets them
	if class == proto.ClassGVisor {
		all = map[string]uint64{"RLIMIT_NOFILE": uint64(testLimits.OpenFiles), "RLIMIT_CORE": 0,
			"RLIMIT_SIGPENDING": 1024, "RLIMIT_MSGQUEUE": 160 << 10, "RLIMIT_NPROC": uint64(testLimits.PIDs)}
	}
	if !maps.Equal(limits, all) {
		t.Errorf("limits of processes %v, want %v", limits, all)
	}
}

// TestRlimits checks the kernel's limits of the guest and of the processes that it starts.
func TestRlimits(t *testing.T) {
	r := openTest(t)
	testImage(t, r)
	for _, own := range []bool{true, false} { // with a namespace of ours and with one of runc's
		r.ownCounts = own
		id, _ := startTest(t, r, proto.ClassRunc)
		got := ask(t, r, id, guestRequest{Op: "read", Path: "/proc/self/limits"})
		for name, want := range map[string]uint64{"Max open files": uint64(testLimits.OpenFiles),
			"Max core file size": 0, "Max pending signals": 1024, "Max msgqueue size": 160 << 10} {
			soft, hard := limitIn(t, got.Text, name)
			if hard != want || soft != want {
				t.Errorf("%s: %d, at most %d; want %d", name, soft, hard, want)
			}
		}
	}
}

// limitIn finds a limit in the limits file of a process in /proc.
func limitIn(t *testing.T, table, name string) (soft, hard uint64) {
	t.Helper()
	_, rest, _ := strings.Cut(table, name)
	if _, err := fmt.Sscan(rest, &soft, &hard); err != nil {
		t.Fatalf("%s in %q: %v", name, table, err)
	}
	return soft, hard
}

// TestNamespaceOwner checks that the user who is root in a container owns its user namespace, and that this namespace
// owns all others of the container. So the kernel counts the container's resources for that user only. Where that is
// not possible, Inspect must say so.
func TestNamespaceOwner(t *testing.T) {
	r := openTest(t)
	testImage(t, r)
	if !r.ownCounts {
		t.Fatal("this machine does not let user namespaces be made as another user")
	}
	for class, own := range map[proto.RuntimeClass]bool{proto.ClassRunc: true, proto.ClassGVisor: true} {
		if got := inspected(t, r, class); got.OwnCounts != own {
			t.Errorf("%s: %+v", class, got)
		}
	}
	r.ownCounts = false
	if got := inspected(t, r, proto.ClassRunc); got.OwnCounts || got.HostUID <= 0 {
		t.Errorf("with a namespace that root made: %+v", got)
	}
}

// inspected returns the isolation of a new sandbox.
func inspected(t *testing.T, r *Runtime, class proto.RuntimeClass) proto.Isolation {
	t.Helper()
	id, _ := startTest(t, r, class)
	iso, err := r.Inspect(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return iso
}

func seeNamespaces(t *testing.T, l *specs.Linux, class proto.RuntimeClass) {
	t.Helper()
	var kinds []string
	for _, n := range l.Namespaces {
		kinds = append(kinds, string(n.Type))
		if ours := class == proto.ClassRunc && n.Type == specs.UserNamespace; ours != (n.Path != "") {
			t.Errorf("joins a namespace: %v", n)
		}
	}
	slices.Sort(kinds)
	if got := strings.Join(kinds, " "); got != "cgroup ipc mount network pid user uts" {
		t.Errorf("namespaces %s", got)
	}
	for _, ids := range [][]specs.LinuxIDMapping{l.UIDMappings, l.GIDMappings} {
		if len(ids) != 1 || ids[0].ContainerID != 0 || ids[0].HostID < diskpool.DefaultFirst ||
			ids[0].Size != diskpool.IDRange {
			t.Errorf("identities %+v", ids)
		}
	}
}

// seeMounts checks that the configuration mounts nothing of the host and allows no devices or set-user-ID programs.
func seeMounts(t *testing.T, mounts []specs.Mount) {
	t.Helper()
	for _, m := range mounts {
		if m.Destination == "/tmp" && m.Source == "rootfs/tmp" { // onto itself, for gVisor
			continue
		}
		figures := m.Destination == "/proc/meminfo" || m.Destination == layer.InsideCapacity // see TestFiguresInside
		bind := m.Type == "bind" || slices.Contains(m.Options, "bind") || slices.Contains(m.Options, "rbind")
		if bind && !figures {
			t.Errorf("a bind mount in the configuration: %v", m)
		}
		devices := m.Destination == "/dev" || m.Destination == "/dev/pts"
		if !slices.Contains(m.Options, "nosuid") || !devices && !slices.Contains(m.Options, "nodev") {
			t.Errorf("mounted with %v: %s", m.Options, m.Destination)
		}
		if kernel := strings.HasPrefix(m.Destination, "/sys"); kernel && !slices.Contains(m.Options, "ro") {
			t.Errorf("%s is mounted writable: %v", m.Destination, m.Options)
		}
		if m.Type == "tmpfs" && !slices.ContainsFunc(m.Options, func(o string) bool {
			return strings.HasPrefix(
				o, "size=")
		}) {
			t.Errorf("%s has no size", m.Destination)
		}
	}
}

func seeSeccomp(t *testing.T, s *specs.LinuxSeccomp) {
	t.Helper()
	if s == nil || s.DefaultAction != specs.ActErrno || len(s.Architectures) != 1 {
		t.Fatal("no seccomp filter, or one that allows by default, or of more than one way to call the kernel")
	}
	for _, rule := range s.Syscalls {
		for _, name := range rule.Names {
			bad := slices.Contains(denied, name) || slices.Contains(byArgument, name) && len(rule.Args) == 0
			if rule.Action == specs.ActAllow && bad {
				t.Errorf("seccomp allows %s", name)
			}
		}
	}
}

func seeResources(t *testing.T, l *specs.LinuxResources, class proto.RuntimeClass) {
	t.Helper()
	if *l.CPU.Quota != int64(*l.CPU.Period) || *l.CPU.Shares >= 1024 {
		t.Errorf("CPU %d of %d, weight %d", *l.CPU.Quota, *l.CPU.Period, *l.CPU.Shares)
	}
	if *l.Memory.Limit != testLimits.MemoryBytes || *l.Memory.Swap != testLimits.MemoryBytes {
		t.Errorf("memory %d, with swap %d", *l.Memory.Limit, *l.Memory.Swap)
	}
	most := testLimits.PIDs
	if class == proto.ClassGVisor {
		most *= 8
	}
	if *l.Pids.Limit < testLimits.PIDs || *l.Pids.Limit > most {
		t.Errorf("%d processes", *l.Pids.Limit)
	}
	if len(l.Devices) == 0 || l.Devices[0].Allow || l.Devices[0].Access != "rwm" {
		t.Errorf("devices %+v", l.Devices)
	}
}

// TestInspect checks that the reported isolation is the kernel's, and that a sandbox that lacks something is refused.
func TestInspect(t *testing.T) {
	r := openTest(t)
	testImage(t, r)
	ways(t, r, func(t *testing.T, class proto.RuntimeClass) {
		id, _ := startTest(t, r, class)
		iso, err := r.Inspect(t.Context(), id)
		if err != nil || !iso.UserNamespace || iso.HostUID < diskpool.DefaultFirst || !iso.Seccomp || !iso.NoNewPrivs ||
			iso.Network != string(proto.NetworkNone) {
			t.Errorf("%+v, %v", iso, err)
		}
	})
	own, err := isolation.Of(os.Getpid())
	if err != nil || own.UserNamespace || own.HostUID != 0 ||
		proto.CodeOf(isolation.Lacking("it", own, false)) != proto.Unsupported {
		t.Errorf("this very process is told to be isolated: %+v, %v", own, err)
	}
}

// TestSudo checks that a sandbox with sudo differs from others in no_new_privs alone and is known as such to the next
// daemon, and that no other sandbox may lack no_new_privs.
func TestSudo(t *testing.T) {
	r := openTest(t)
	spec := session.Spec{Image: testImage(t, r), Class: proto.ClassRunc, Workspace: newID(proto.WorkspacePrefix),
		Layer: newID(proto.LayerPrefix), Limits: testLimits, Sudo: true}
	id := newID(proto.ContainerPrefix)
	if err := r.Start(t.Context(), id, spec); err != nil {
		t.Fatal(err)
	}
	read := func(id string) string {
		t.Helper()
		text := ask(t, r, id, guestRequest{Op: "read", Path: "/proc/self/status"}).Text
		return strings.Join(regexp.MustCompile(`(?m)^(Cap|NoNewPrivs|Seccomp).*`).FindAllString(text, -1), "\n")
	}
	other, _ := startTest(t, r, proto.ClassRunc)
	if with, without := read(id), read(other); with == without || strings.Replace(with, "NoNewPrivs:\t0", "NoNewPrivs:\t1",
		1) != without {
		t.Errorf("with sudo:\n%s\nwithout:\n%s", with, without)
	}
	iso, err := r.Inspect(t.Context(), id)
	if err != nil || iso.NoNewPrivs || !iso.Seccomp || !iso.UserNamespace || !iso.OwnCounts {
		t.Errorf("%+v %v", iso, err)
	}
	if err := isolation.Lacking(id, iso, false); proto.CodeOf(err) != proto.Unsupported {
		t.Errorf("a sandbox without no_new_privs that did not ask for sudo: %v", err)
	}
}

// TestSudoFromThePool checks that the pool keeps sandboxes with sudo apart from the others.
func TestSudoFromThePool(t *testing.T) {
	r := openWarm(t)
	pooled := func(sudo bool) bool {
		t.Helper()
		id := newID(proto.ContainerPrefix)
		if err := r.Start(t.Context(), id, session.Spec{Image: testImage(t, r), Class: proto.ClassRunc, Sudo: sudo,
			Workspace: newID(proto.WorkspacePrefix), Layer: newID(proto.LayerPrefix), Limits: testLimits}); err != nil {
			t.Fatal(err)
		}
		if iso, err := r.Inspect(t.Context(), id); err != nil || iso.NoNewPrivs == sudo {
			t.Errorf("sudo %t: %+v, %v", sudo, iso, err)
		}
		return r.claims.sandbox(id) != id
	}
	if pooled(true) {
		t.Error("a sandbox that was made without sudo got it")
	}
	awaitWarm(t, r, 4) // two of each kind
	if !pooled(true) || !pooled(false) {
		t.Error("one was made although the pool had it")
	}
}

func TestProbesFromInside(t *testing.T) {
	r := openTest(t)
	id, _ := startTest(t, r, proto.ClassRunc)
	got := ask(t, r, id, guestRequest{Op: "probes"}).Probes
	want := map[string]string{
		"bpf": "EPERM", "io_uring_setup": "EPERM", "userfaultfd": "EPERM", "keyctl": "EPERM", "add_key": "EPERM",
		"perf_event_open": "EPERM", "mount": "EPERM", "fsopen": "EPERM", "setns": "EPERM", "unshare_user": "EPERM",
		"clone_user": "EPERM", "clone3": "ENOSYS", "settimeofday": "EPERM",
		"AF_UNIX": "ok", "AF_INET": "ok", "AF_INET6": "ok", "AF_VSOCK": "EPERM", "AF_ALG": "EPERM",
		"AF_KEY": "EPERM", "AF_PACKET": "EPERM", "AF_TIPC": "EPERM",
		"netlink_route": "ok", "netlink_netfilter": "EPERM", "netlink_audit": "EPROTONOSUPPORT", "mknod": "EPERM", "chroot": "ok",
		"subvolume": "EPERM", "reflink": "ok",
	}
	for name, errno := range want {
		if got[name] != errno {
			t.Errorf("%s: %q, want %q", name, got[name], errno)
		}
	}
	for _, path := range []string{"/proc/kallsyms", "/proc/timer_list", "/proc/keys", "/proc/cmdline",
		"/proc/diskstats", "/proc/partitions"} {
		if got := ask(t, r, id, guestRequest{Op: "read", Path: path}); got.Text != "" {
			t.Errorf("%s can be read: %.40q", path, got.Text)
		}
	}
	for _, path := range []string{"/sys/firmware", "/sys/fs/btrfs", "/sys/devices/virtual/block", "/sys/module"} {
		if got := ask(t, r, id, guestRequest{Op: "list", Path: path}); got.Text != "" {
			t.Errorf("%s shows %q", path, got.Text)
		}
	}
	for _, name := range []string{"write_proc_sys", "write_cgroup", "write_memory_cgroup", "write_guest"} {
		if got[name] == "" {
			t.Errorf("%s is possible", name)
		}
	}
}

// TestSpawn checks that the C library's first attempt to start a program gets the error that makes it try the next
// one. Otherwise system() fails.
func TestSpawn(t *testing.T) {
	r := openTest(t)
	testImage(t, r)
	ways(t, r, func(t *testing.T, class proto.RuntimeClass) {
		id, _ := startTest(t, r, class)
		if got := ask(t, r, id, guestRequest{Op: "probes"}).Probes["clone3"]; got != "ENOSYS" {
			t.Errorf("clone3: %q", got)
		}
	})
}

func TestInside(t *testing.T) {
	r := openTest(t)
	testImage(t, r)
	ways(t, r, func(t *testing.T, class proto.RuntimeClass) {
		id, spec := startTest(t, r, class)
		status := ask(t, r, id, guestRequest{Op: "read", Path: "/proc/self/status"}).Text
		// chown 0, dac_override 1, fowner 3, fsetid 4, kill 5, setgid 6, setuid 7, setpcap 8,
		// net_bind_service 10, sys_chroot 18
		for _, want := range []string{"CapEff:\t00000000000405fb", "CapBnd:\t00000000000405fb", "Seccomp:\t2"} {
			if !strings.Contains(status, want) {
				t.Errorf("status lacks %q:\n%s", want, status)
			}
		}
		if class == proto.ClassRunc && !strings.Contains(status, "NoNewPrivs:\t1") {
			t.Error("no_new_privs is off")
		}
		if got := ask(t, r, id, guestRequest{Op: "hostname"}).Text; got != "berth" {
			t.Errorf("hostname %q", got)
		}
		if env := ask(t, r, id, guestRequest{Op: "env"}).Text; !strings.Contains(env, "FOO=bar") ||
			!strings.Contains(env, "PATH=/usr/local/sbin") {
			t.Errorf("environment %s", env)
		}
		if n := ask(t, r, id, guestRequest{Op: "interfaces"}).Number; n != 1 {
			t.Errorf("%d network interfaces, want loopback alone", n)
		}
		if got := ask(t, r, id, guestRequest{Op: "stat", Path: "/etc/resolv.conf"}); got.Err == "" {
			t.Error("there is a resolv.conf")
		}
		owners(t, r, id)
		fileNumbers(t, r, id, spec)
		// Programs such as mv copy only if the error says that this is another file system.
		ask(t, r, id, guestRequest{Op: "write", Path: "/home/moved", Size: 10})
		if got := ask(t, r, id, guestRequest{Op: "rename", Path: "/home/moved"}); !strings.Contains(
			got.Err, "cross-device") {
			t.Errorf("renaming into the workspace: %q", got.Err)
		}
	})
}

// owners checks that files of the image and the workspace have inside the owners that they were given.
func owners(t *testing.T, r *Runtime, id string) {
	t.Helper()
	for path, want := range map[string]string{
		"/etc/shadow": "0:0 100600", "/home": "1000:1000 40755", "/workspace": "1000:1000 40755",
	} {
		if got := ask(t, r, id, guestRequest{Op: "stat", Path: path}); got.Text != want {
			t.Errorf("%s is %q %s, want %q", path, got.Text, got.Err, want)
		}
	}
	if got := ask(t, r, id, guestRequest{Op: "read", Path: "/etc/shadow"}); got.Text != "secret" {
		t.Errorf("root cannot read its files: %v", got)
	}
}

// fileNumbers checks the owners on the host's disk, and that PID 1 can act for another user.
func fileNumbers(t *testing.T, r *Runtime, id string, spec session.Spec) {
	t.Helper()
	for _, uid := range []int{0, 1000} {
		if got := ask(t, r, id, guestRequest{Op: "child", Path: "touch", UID: uid}); got.Err != "" {
			t.Fatalf("writing as %d: %v", uid, got)
		}
		var st unix.Stat_t
		err := unix.Lstat(filepath.Join(r.disk.WorkspacePath(spec.Workspace), fmt.Sprintf("by-%d", uid)), &st)
		if err != nil || st.Uid != uint32(uid) {
			t.Errorf("the file of %d belongs to %d on disk (%v)", uid, st.Uid, err)
		}
	}
	status := ask(t, r, id, guestRequest{Op: "child", Path: "status", UID: 1000}).Text
	if !strings.Contains(status, "CapEff:\t0000000000000000") {
		t.Errorf("uid 1000 has capabilities:\n%s", status)
	}
	if got := ask(t, r, id, guestRequest{Op: "kill", UID: 1000}); got.Err != "" {
		t.Errorf("PID 1 cannot kill another user's process: %s", got.Err)
	}
}

// TestHostIdentity checks that on the host every process of a sandbox runs as a user of the sandbox's own range.
func TestHostIdentity(t *testing.T) {
	r := openTest(t)
	a, _ := startTest(t, r, proto.ClassRunc)
	b, _ := startTest(t, r, proto.ClassRunc)
	seen := make(map[uint32]bool)
	for _, id := range []string{a, b} {
		pid, err := r.bundles.LivePID(id)
		if err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Stat(fmt.Sprintf("/proc/%d", pid), &st); err != nil {
			t.Fatal(err)
		}
		if st.Uid < diskpool.DefaultFirst || st.Uid%diskpool.IDRange != 0 || seen[st.Uid] {
			t.Errorf("PID 1 of %s is host user %d (seen before: %v)", id, st.Uid, seen[st.Uid])
		}
		seen[st.Uid] = true
	}
}

func TestHostileSocket(t *testing.T) {
	r := openTest(t)
	id, _ := startTest(t, r, proto.ClassRunc)
	// A socket of the host, at a path the daemon may reach and the sandbox may not.
	outside := filepath.Join(t.TempDir(), "host.sock")
	l := listenUnix(t, outside)
	defer l.Close()
	if got := ask(t, r, id, guestRequest{Op: "symlink", Path: outside}); got.Err != "" {
		t.Fatalf("planting the symlink: %s", got.Err)
	}
	if _, err := r.Dial(t.Context(), id); proto.CodeOf(err) != proto.Unavailable {
		t.Errorf("dialling a symlink: %v", err)
	}
	if err := os.Remove(filepath.Join(r.runPath(id), ocispec.SocketName)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(r.runPath(id), ocispec.SocketName), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Dial(t.Context(), id); proto.CodeOf(err) != proto.Unavailable {
		t.Errorf("dialling a pipe: %v", err)
	}
}
