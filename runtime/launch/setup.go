package launch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/containerd/containerd/v2/pkg/cap"
	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"berth/runtime/cgroup"
	"berth/runtime/diskpool"
	"berth/runtime/forkserver"
	"berth/runtime/ocispec"
)

// A setupProgram is the setup program of a sandbox's first process. Its methods add steps.
type setupProgram struct{ forkserver.Program }

// Descriptors of the setup program of a sandbox: namespaces that it joins, and a mount.
const (
	userFD  = forkserver.FirstFD + iota
	storeFD // see scriptMounts
	emptyFD
	rootFD // the root file system, a mount that is not attached yet
)

// setup returns the setup program of a sandbox's first process. It does what runc would do for the same
// configuration. TestScriptIsLikeRunc compares the results of both.
//
// The process that starts it joins the user namespace and makes the other namespaces. Its child is the first process
// of the new PID namespace. The child does the rest and becomes the guest once the daemon allows it.
func setup(spec *specs.Spec, groups []string, limits []specs.POSIXRlimit, filter []unix.SockFilter) (
	*forkserver.Program, error) {
	if err := verifyNodes(); err != nil {
		return nil, err
	}
	s := &setupProgram{}
	s.enterCgroups(groups)
	s.write("/proc/self/oom_score_adj", strconv.Itoa(*spec.Process.OOMScoreAdj))
	s.limit(limits)
	host := s.copyMounts(groups, spec.Mounts)
	s.enterNamespaces()
	s.beTheFirst()
	s.mountAll(spec, host)
	s.hide(spec.Linux.MaskedPaths, host.empty)
	s.becomeRoot()
	s.raiseLoopback()
	name := spec.Hostname
	s.Do("naming the host", unix.SYS_SETHOSTNAME, s.Text(name), uint64(len(name)))
	for _, setting := range slices.Sorted(maps.Keys(spec.Linux.Sysctl)) {
		s.write("/proc/sys/"+strings.ReplaceAll(setting, ".", "/"), spec.Linux.Sysctl[setting])
	}
	for _, p := range spec.Linux.ReadonlyPaths {
		s.protect(p)
	}
	if err := s.renounce(spec.Process); err != nil {
		return nil, err
	}
	s.Wait("waiting until it may become the guest")
	s.becomeGuest(spec.Process, filter)
	return &s.Program, nil
}

// verifyNodes checks that the host's device files are the devices of those names. A plain file in place of a device
// would be shared by all sandboxes, and all of them could write to it.
func verifyNodes() error {
	for _, n := range cgroup.Nodes {
		path := filepath.Join("/dev", n.Name)
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return fmt.Errorf("looking at %s: %w", path, err)
		}
		if st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != unix.Mkdev(n.Major, n.Minor) {
			return fmt.Errorf("%s of the host is not the device of that name", path)
		}
	}
	return nil
}

// enterCgroups moves the process into cgroups of v1. If a thread moves itself, the kernel does not wait until all
// processors have noticed. Moving another process takes that wait, some 10 ms.
func (s *setupProgram) enterCgroups(dirs []string) {
	for _, dir := range dirs {
		s.write(dir+"/tasks", "0")
	}
	// The sandbox may use all processors of its cgroup, even if the daemon is bound to a few.
	const processors = 8192
	all := s.Bytes(bytes.Repeat([]byte{0xff}, processors/8))
	s.Do("having all processors", unix.SYS_SCHED_SETAFFINITY, 0, processors/8, all)
}

// write adds steps that write text to a file of the kernel.
func (s *setupProgram) write(path, text string) {
	open := s.Do("opening "+path, unix.SYS_OPENAT, AtCwd, s.Text(path), unix.O_WRONLY|unix.O_CLOEXEC)
	write := s.Do("writing "+path, unix.SYS_WRITE, 0, s.Text(text), uint64(len(text)))
	open.To = write.Argument(0)
}

// hostMounts are copies of the host's mounts that are not attached yet.
type hostMounts struct {
	groups                       []groupMount
	nodes                        []*forkserver.Step
	binds                        map[string]*forkserver.Step // by the path in the sandbox
	sys, net, proc, empty, above *forkserver.Step            // above holds the mount points of groups; nil with v2
}

// A groupMount is a cgroup of v1.
type groupMount struct {
	name string // of the v1 hierarchy
	tree *forkserver.Step
}

// copyMounts adds steps that copy the mounts that the sandbox gets from the host and the store, and leave both.
func (s *setupProgram) copyMounts(groups []string, mounts []specs.Mount) (h hostMounts) {
	points, v2 := hierarchies()
	for _, point := range points {
		i := slices.IndexFunc(groups, func(dir string) bool { return strings.HasPrefix(dir, point+"/") })
		if i < 0 {
			continue // the sandbox has no cgroup in this hierarchy
		}
		h.groups = append(h.groups, groupMount{filepath.Base(point), s.copyMount(groups[i])})
	}
	for _, n := range cgroup.Nodes { // a sandbox cannot make device files
		h.nodes = append(h.nodes, s.copyMount("/dev/"+n.Name))
	}
	h.binds = map[string]*forkserver.Step{}
	for _, m := range mounts {
		if m.Type == "bind" { // with the options of the mount that it is a copy of
			h.binds[m.Destination] = s.copyMount(m.Source)
		}
	}
	s.Do("going to the store of mounts", unix.SYS_SETNS, storeFD, unix.CLONE_NEWNS)
	h.sys, h.net, h.proc, h.empty = s.copyMount(BesideSys), s.copyMount(BesideNet), s.copyMount(BesideProc),
		s.copyMount(storeEmpty)
	if !v2 {
		h.above = s.copyMount(storeGroups)
	}
	s.Do("going where no mounts are", unix.SYS_SETNS, emptyFD, unix.CLONE_NEWNS)
	return h
}

// copyMount adds a step that copies the mount at a path.
func (s *setupProgram) copyMount(path string) *forkserver.Step {
	return s.Do("copying the mount of "+path, unix.SYS_OPEN_TREE, AtCwd, s.Text(path),
		unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
}

// place adds a step that attaches a copied mount.
func (s *setupProgram) place(tree *forkserver.Step, to string) {
	tree.To = s.placeFD(0, to).Argument(0)
}

// placeFD adds a step that attaches the mount of a descriptor.
func (s *setupProgram) placeFD(fd uint64, to string) *forkserver.Step {
	return s.Do("mounting "+to, unix.SYS_MOVE_MOUNT, fd, s.Text(""), AtCwd, s.Text(to), unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// limit adds steps that set limits, none of which is above the present one.
func (s *setupProgram) limit(limits []specs.POSIXRlimit) {
	for _, l := range limits {
		s.Do("setting "+l.Type, unix.SYS_PRLIMIT64, 0, uint64(ocispec.RlimitNumbers[l.Type]),
			s.Numbers(l.Soft, l.Hard), 0)
	}
}

// enterNamespaces adds steps that join the user namespace, as its root, and make all other namespaces.
func (s *setupProgram) enterNamespaces() {
	s.Do("joining the user namespace", unix.SYS_SETNS, userFD, unix.CLONE_NEWUSER)
	s.Do("leaving its groups", unix.SYS_SETGROUPS, 0, 0)
	s.Do("becoming root's group", unix.SYS_SETRESGID, 0, 0, 0)
	s.Do("becoming root", unix.SYS_SETRESUID, 0, 0, 0)
	s.Do("making namespaces", unix.SYS_UNSHARE,
		unix.CLONE_NEWPID|unix.CLONE_NEWNS|unix.CLONE_NEWNET|unix.CLONE_NEWIPC|unix.CLONE_NEWUTS|unix.CLONE_NEWCGROUP)
}

// beTheFirst adds steps that fork a child, the first process of the new PID namespace, and send its number on the
// host to the daemon. The parent ends and the child continues.
func (s *setupProgram) beTheFirst() {
	told := s.Numbers(forkserver.ScriptChild, 0, 0)
	child := s.Do("making the first process", unix.SYS_CLONE, uint64(unix.SIGCHLD)|unix.CLONE_PARENT_SETTID, 0, told+8)
	child.Zero = 2
	s.Do("telling its number", unix.SYS_WRITE, forkserver.AnswerFD, told, forkserver.MessageSize)
	s.Do("ending", unix.SYS_EXIT_GROUP, 0)
	s.Do("making a session", unix.SYS_SETSID)
	// The sandbox must not get the keyring of the daemon's session. A kernel may have no keyrings.
	const joinSession = 1
	s.Do("making a keyring", unix.SYS_KEYCTL, joinSession, 0).Fine = unix.ENOSYS
}

// mountAll adds steps that make the file systems of the sandbox, below its root, and enter that root. All mounts use
// paths relative to the root, whose directories MakeMountPoints has made. So no symlink of an image leads elsewhere.
func (s *setupProgram) mountAll(spec *specs.Spec, h hostMounts) {
	s.place(h.net, BesideNet)   // the sysfs shows its interface while the network exists
	s.place(h.proc, BesideProc) // the kernel allows a new proc only to a process that sees a whole one
	s.placeFD(rootFD, BesideRoot)
	s.Do("entering the root", unix.SYS_CHDIR, s.Text(BesideRoot))
	for _, m := range spec.Mounts {
		switch m.Type {
		case "cgroup":
			s.mountCgroups(m, h)
		case "bind":
			s.place(h.binds[m.Destination], strings.TrimPrefix(m.Destination, "/"))
		case "sysfs":
			s.place(h.sys, strings.TrimPrefix(m.Destination, "/"))
		default:
			s.mount(m)
		}
	}
	for i, n := range cgroup.Nodes {
		s.Do("making /dev/"+n.Name, unix.SYS_MKNODAT, AtCwd, s.Text("dev/"+n.Name), unix.S_IFREG|0o666, 0)
		s.place(h.nodes[i], "dev/"+n.Name)
	}
	for _, l := range [][2]string{{"pts/ptmx", "ptmx"}, {"/proc/self/fd", "fd"}, {"/proc/self/fd/0", "stdin"},
		{"/proc/self/fd/1", "stdout"},
		{"/proc/self/fd/2", "stderr"}, {"/proc/kcore", "core"}} {
		if l[1] == "core" && !diskpool.Exists(l[0]) {
			continue
		}
		s.Do("linking /dev/"+l[1], unix.SYS_SYMLINKAT, s.Text(l[0]), AtCwd, s.Text("dev/"+l[1]))
	}
}

// AtCwd is AT_FDCWD.
const AtCwd = ^uint64(99)

// mount adds steps that mount a file system of the kernel. Below /dev, which is a file system of the sandbox, they
// make the mount point first.
func (s *setupProgram) mount(m specs.Mount) {
	flags, data := mountOptions(m.Options)
	to := strings.TrimPrefix(m.Destination, "/")
	if filepath.Dir(to) == "dev" {
		s.mkdir(to)
	}
	s.Do("mounting "+m.Destination, unix.SYS_MOUNT, s.Text(m.Source), s.Text(to), s.Text(m.Type), flags, s.Text(data))
}

func (s *setupProgram) mkdir(path string) {
	s.Do("making "+path, unix.SYS_MKDIRAT, AtCwd, s.Text(path), 0o755)
}

// mountCgroups adds steps that mount the sandbox's cgroups. With v1 they attach copies of the sandbox's directories
// in the host's mounts. New mounts of the hierarchies would look the same, because the kernel shows paths relative to
// the cgroup namespace. But they would make one file system per hierarchy for each sandbox, and the kernel would
// search those of all sandboxes for each one.
func (s *setupProgram) mountCgroups(m specs.Mount, h hostMounts) {
	flags, _ := mountOptions(m.Options)
	to := strings.TrimPrefix(m.Destination, "/")
	if _, v2 := hierarchies(); v2 {
		s.Do("mounting "+m.Destination, unix.SYS_MOUNT, s.Text("cgroup"), s.Text(to), s.Text("cgroup2"), flags)
		return
	}
	s.place(h.above, to)
	attributes := s.Numbers(unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC|unix.MOUNT_ATTR_RDONLY,
		0, 0, 0)
	for _, g := range h.groups {
		dir := to + "/" + g.name
		s.place(g.tree, dir)
		s.Do("protecting the cgroup of "+g.name, unix.SYS_MOUNT_SETATTR, AtCwd, s.Text(dir), 0, attributes, 32)
	}
}

// hierarchies returns the mount points of the host's v1 hierarchies, or says that the host has v2 only. The result is
// read once.
var hierarchies = sync.OnceValues(func() (points []string, v2 bool) {
	if cgroups.IsCgroup2UnifiedMode() {
		return nil, true
	}
	mounts, _ := cgroups.GetCgroupMounts(false) // without v1 hierarchies there is nothing to mount
	for _, m := range mounts {
		points = append(points, m.Mountpoint)
	}
	return points, false
})

// mountFlags maps the options that are flags. All other options are for the file system.
var mountFlags = map[string]uint64{
	"nosuid": unix.MS_NOSUID, "nodev": unix.MS_NODEV, "noexec": unix.MS_NOEXEC, "ro": unix.MS_RDONLY,
	"strictatime": unix.MS_STRICTATIME, "relatime": unix.MS_RELATIME,
}

// mountOptions splits options into the flags and the data of mount(2).
func mountOptions(options []string) (flags uint64, data string) {
	var rest []string
	for _, o := range options {
		if f, ok := mountFlags[o]; ok {
			flags |= f
		} else if o != "newinstance" { // the default since Linux 4.7
			rest = append(rest, o)
		}
	}
	return flags, strings.Join(rest, ",")
}

// becomeRoot adds steps that make the working directory the root. The root that it covers is empty. pivot_root would
// have the same result, but the kernel would then check the root of each thread of the machine.
func (s *setupProgram) becomeRoot() {
	dot := s.Text(".")
	s.Do("covering the empty root", unix.SYS_MOUNT, dot, s.Text("/"), 0, unix.MS_MOVE)
	s.Do("changing the root", unix.SYS_CHROOT, dot)
	s.Do("setting the mask of modes", unix.SYS_UMASK, 0o022)
}

// raiseLoopback adds steps that bring up the loopback interface, the only network interface.
func (s *setupProgram) raiseLoopback() {
	lo := make([]byte, 40) // struct ifreq
	copy(lo, "lo")
	binary.NativeEndian.PutUint16(lo[unix.IFNAMSIZ:], unix.IFF_UP)
	open := s.Do("asking for the network", unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	up := s.Do("raising the loopback interface", unix.SYS_IOCTL, 0, unix.SIOCSIFFLAGS, s.Bytes(lo))
	open.To = up.Argument(0)
}

// protect adds steps that make a path of the sandbox read-only.
func (s *setupProgram) protect(path string) {
	at := s.Text(path)
	self := s.Do("mounting "+path, unix.SYS_MOUNT, at, at, 0, unix.MS_BIND|unix.MS_REC)
	self.Fine, self.Skip = unix.ENOENT, 1
	s.Do("protecting "+path, unix.SYS_MOUNT_SETATTR, AtCwd, at, 0, s.Numbers(unix.MOUNT_ATTR_RDONLY, 0, 0, 0), 32)
}

// hide adds steps that cover paths of the sandbox: a file with /dev/null, a directory with the read-only empty one. A
// mount that fails makes the kernel wait for all processors. So the type of the path on the host decides which of the
// two is tried first.
//
// The empty directory is attached inside the host's proc and unmounted with it, because an unmount may make the
// kernel wait, too.
func (s *setupProgram) hide(paths []string, empty *forkserver.Step) {
	const aside = BesideProc + "/fs"
	s.place(empty, aside)
	covers := [2]uint64{s.Text("dev/null"), s.Text(aside)}
	for _, path := range paths {
		at, likely := s.Text(strings.TrimPrefix(path, "/")), btoi(maskedDirs()[path])
		first := s.Do("hiding "+path, unix.SYS_MOUNT, covers[likely], at, 0, unix.MS_BIND)
		first.Fine, first.Skip, first.Zero, first.Instead = unix.ENOENT, 1, 1, unix.ENOTDIR
		s.Do("hiding "+path+" by what the host does not have there", unix.SYS_MOUNT, covers[1-likely], at, 0,
			unix.MS_BIND)
	}
	s.Do("leaving the host's proc", unix.SYS_UMOUNT2, s.Text(BesideProc), unix.MNT_DETACH)
}

// maskedDirs returns the masked paths that are directories on the host, read once. A later change costs only time.
var maskedDirs = sync.OnceValue(func() map[string]bool {
	dirs := map[string]bool{}
	for _, path := range ocispec.MaskedPaths {
		dirs[path] = cgroup.IsDir(path)
	}
	return dirs
})

// renounce adds steps that give up all privileges that the sandbox's root does not have.
func (s *setupProgram) renounce(p *specs.Process) error {
	known, last := cap.Known(), lastCapability()
	var kept uint64
	for _, name := range p.Capabilities.Bounding {
		n := slices.Index(known, name)
		if n < 0 {
			return fmt.Errorf("capability %s is unknown", name)
		}
		kept |= 1 << n
	}
	for n := range last + 1 {
		if kept&(1<<n) == 0 {
			s.Do("giving up a capability", unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, uint64(n))
		}
	}
	s.Do("giving up ambient capabilities", unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL)
	low, high := kept&0xffffffff, kept>>32
	// Effective, permitted and inheritable sets: the first 32 capabilities, then the others.
	sets := s.Numbers(low|low<<32, high<<32, high)
	header := s.Numbers(unix.LINUX_CAPABILITY_VERSION_3)
	s.Do("limiting its capabilities", unix.SYS_CAPSET, header, sets)
	s.Do("renouncing new privileges", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1)
	return nil
}

// lastCapability returns the highest capability of the kernel.
var lastCapability = sync.OnceValue(func() int {
	text, _ := os.ReadFile("/proc/sys/kernel/cap_last_cap")
	if n, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
		return n
	}
	return unix.CAP_LAST_CAP
})

// becomeGuest adds steps that execute the guest. The guest has no open files except the sandbox's /dev/null. The
// setup program's own descriptors close when the guest starts, and the daemon sees that.
func (s *setupProgram) becomeGuest(p *specs.Process, filter []unix.SockFilter) {
	null := s.Text("/dev/null")
	s.Do("closing files", unix.SYS_CLOSE_RANGE, 0, 2, 0)
	for range 3 {
		s.Do("opening /dev/null", unix.SYS_OPENAT, AtCwd, null, unix.O_RDWR)
	}
	s.Do("closing files for the guest", unix.SYS_CLOSE_RANGE, 3, 1<<32-1, unix.CLOSE_RANGE_CLOEXEC)
	args, env, path := s.Texts(p.Args), s.Texts(p.Env), s.Text(p.Args[0])
	var program []byte
	for _, f := range filter {
		program = binary.NativeEndian.AppendUint16(program, f.Code)
		program = append(program, f.Jt, f.Jf)
		program = binary.NativeEndian.AppendUint32(program, f.K)
	}
	// runc uses this flag if the configuration does not say otherwise.
	const flags = unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW
	s.Do("loading the filter of system calls", unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags,
		s.Numbers(uint64(len(filter)), s.Bytes(program)))
	s.Do("executing the guest", unix.SYS_EXECVE, path, args, env)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
