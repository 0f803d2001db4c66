package launch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
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
)

// Descriptors of a setup: namespaces that it joins, and
const (
	userFD  = scriptFDs + iota
	storeFD // see scriptMounts
	emptyFD
	rootFD // a mount: the root file system, which has no place yet
)

// setup is the script of a sandbox's first process: what runc would do for the same configuration.
// TestScriptIsLikeRunc compares what comes of both.
//
// The process that begins it joins the user namespace and makes the others; a child, which is the first process of
// the new PID namespace, does the rest, and becomes the guest once the daemon allows it.
func setup(spec *specs.Spec, groups []string, limits []specs.POSIXRlimit, filter []unix.SockFilter) (*Program, error) {
	if err := verifyNodes(); err != nil {
		return nil, err
	}
	s := &Program{}
	s.enterCgroups(groups)
	s.write("/proc/self/oom_score_adj", strconv.Itoa(*spec.Process.OOMScoreAdj))
	s.limit(limits)
	host := s.copyMounts(groups)
	s.enterNamespaces()
	s.beTheFirst()
	s.mountAll(spec, host)
	s.hide(spec.Linux.MaskedPaths, host.empty)
	s.becomeRoot()
	s.raiseLoopback()
	name := spec.Hostname
	s.Do("naming the host", unix.SYS_SETHOSTNAME, s.Text(name), uint64(len(name)))
	for _, p := range spec.Linux.ReadonlyPaths {
		s.protect(p)
	}
	if err := s.renounce(spec.Process); err != nil {
		return nil, err
	}
	s.Wait("waiting until it may become the guest")
	s.becomeGuest(spec.Process, filter)
	return s, nil
}

// verifyNodes looks whether the host's devices are what their names say. A plain file in place of one would be the
// same for all sandboxes, and for all to write to.
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

// enterCgroups moves the process into cgroups of v1. A thread that moves itself does not have the kernel wait until
// all processors have noticed, some 10 ms, as it does for whoever moves a process.
func (s *Program) enterCgroups(dirs []string) {
	for _, dir := range dirs {
		s.write(dir+"/tasks", "0")
	}
	// Whatever processors the daemon keeps to, these are the cgroup's.
	const processors = 8192
	all := s.bytes(bytes.Repeat([]byte{0xff}, processors/8))
	s.Do("having all processors", unix.SYS_SCHED_SETAFFINITY, 0, processors/8, all)
}

// write writes a file of the kernel's.
func (s *Program) write(path, text string) {
	open := s.Do("opening "+path, unix.SYS_OPENAT, AtCwd, s.Text(path), unix.O_WRONLY|unix.O_CLOEXEC)
	write := s.Do("writing "+path, unix.SYS_WRITE, 0, s.Text(text), uint64(len(text)))
	open.To = write.Argument(0)
}

// hostMounts are copies of the host's mounts, without a place yet.
type hostMounts struct {
	groups                       []groupMount
	nodes                        []*Step
	sys, net, proc, empty, above *Step // above is where groups have their places; nil with v2
}

// A groupMount is a cgroup of v1.
type groupMount struct {
	name string // of the hierarchy
	tree *Step
}

// copyMounts copies what the sandbox gets of the host's mounts and of the store, and leaves both.
func (s *Program) copyMounts(groups []string) (h hostMounts) {
	points, v2 := hierarchies()
	for _, point := range points {
		i := slices.IndexFunc(groups, func(dir string) bool { return strings.HasPrefix(dir, point+"/") })
		if i < 0 {
			continue // no cgroup of it is the sandbox's
		}
		h.groups = append(h.groups, groupMount{filepath.Base(point), s.copyMount(groups[i])})
	}
	for _, n := range cgroup.Nodes { // which a sandbox cannot make
		h.nodes = append(h.nodes, s.copyMount("/dev/"+n.Name))
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

// copyMount copies the mount at a path.
func (s *Program) copyMount(path string) *Step {
	return s.Do("copying the mount of "+path, unix.SYS_OPEN_TREE, AtCwd, s.Text(path),
		unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
}

// place gives a copy its place.
func (s *Program) place(tree *Step, to string) {
	tree.To = s.placeFD(0, to).Argument(0)
}

// placeFD gives the mount that a descriptor has its place.
func (s *Program) placeFD(fd uint64, to string) *Step {
	return s.Do("mounting "+to, unix.SYS_MOVE_MOUNT, fd, s.Text(""), AtCwd, s.Text(to), unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// limit gives it limits, none of which is above what it has.
func (s *Program) limit(limits []specs.POSIXRlimit) {
	for _, l := range limits {
		s.Do("setting "+l.Type, unix.SYS_PRLIMIT64, 0, uint64(rlimitNumbers[l.Type]), s.numbers(l.Soft, l.Hard), 0)
	}
}

// enterNamespaces joins the user namespace, as its root, and makes all others.
func (s *Program) enterNamespaces() {
	s.Do("joining the user namespace", unix.SYS_SETNS, userFD, unix.CLONE_NEWUSER)
	s.Do("leaving its groups", unix.SYS_SETGROUPS, 0, 0)
	s.Do("becoming root's group", unix.SYS_SETRESGID, 0, 0, 0)
	s.Do("becoming root", unix.SYS_SETRESUID, 0, 0, 0)
	s.Do("making namespaces", unix.SYS_UNSHARE,
		unix.CLONE_NEWPID|unix.CLONE_NEWNS|unix.CLONE_NEWNET|unix.CLONE_NEWIPC|unix.CLONE_NEWUTS|unix.CLONE_NEWCGROUP)
}

// beTheFirst goes on in a child, which is the first of the new PID namespace, and tells its number on the host.
func (s *Program) beTheFirst() {
	told := s.numbers(ScriptChild, 0, 0)
	child := s.Do("making the first process", unix.SYS_CLONE, uint64(unix.SIGCHLD)|unix.CLONE_PARENT_SETTID, 0, told+8)
	child.Zero = 2
	s.Do("telling its number", unix.SYS_WRITE, answerFD, told, scriptWord)
	s.Do("ending", unix.SYS_EXIT_GROUP, 0)
	s.Do("making a session", unix.SYS_SETSID)
	// What else is in the keyring of the daemon's session is not for it. A kernel may have none.
	const joinSession = 1
	s.Do("making a keyring", unix.SYS_KEYCTL, joinSession, 0).Fine = unix.ENOSYS
}

// mountAll makes the file systems of the sandbox, below its root, and enters that. Everything is mounted by names
// relative to the root, whose directories makeMountPoints has made: no link of an image's leads elsewhere.
func (s *Program) mountAll(spec *specs.Spec, h hostMounts) {
	s.place(h.net, BesideNet)   // whose interface the sysfs shows for as long as somebody has the network
	s.place(h.proc, BesideProc) // who has not all of one before its eyes may not mount another
	s.placeFD(rootFD, BesideRoot)
	s.Do("entering the root", unix.SYS_CHDIR, s.Text(BesideRoot))
	for _, m := range spec.Mounts {
		switch m.Type {
		case "cgroup":
			s.mountCgroups(m, h)
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

// mount mounts a file system of the kernel. Below /dev its directory is made, in a file system that is the sandbox's.
func (s *Program) mount(m specs.Mount) {
	flags, data := mountOptions(m.Options)
	to := strings.TrimPrefix(m.Destination, "/")
	if filepath.Dir(to) == "dev" {
		s.mkdir(to)
	}
	s.Do("mounting "+m.Destination, unix.SYS_MOUNT, s.Text(m.Source), s.Text(to), s.Text(m.Type), flags, s.Text(data))
}

func (s *Program) mkdir(path string) {
	s.Do("making "+path, unix.SYS_MKDIRAT, AtCwd, s.Text(path), 0o755)
}

// mountCgroups mounts the sandbox's cgroups. Of v1, those directories of the host's mounts: to mount the hierarchies
// anew would look the same, for the kernel tells paths as the cgroup namespace has them, but make as many file
// systems for each sandbox, and have the kernel look through those of all sandboxes for each.
func (s *Program) mountCgroups(m specs.Mount, h hostMounts) {
	flags, _ := mountOptions(m.Options)
	to := strings.TrimPrefix(m.Destination, "/")
	if _, v2 := hierarchies(); v2 {
		s.Do("mounting "+m.Destination, unix.SYS_MOUNT, s.Text("cgroup"), s.Text(to), s.Text("cgroup2"), flags)
		return
	}
	s.place(h.above, to)
	attributes := s.numbers(unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC|unix.MOUNT_ATTR_RDONLY,
		0, 0, 0)
	for _, g := range h.groups {
		dir := to + "/" + g.name
		s.place(g.tree, dir)
		s.Do("protecting the cgroup of "+g.name, unix.SYS_MOUNT_SETATTR, AtCwd, s.Text(dir), 0, attributes, 32)
	}
}

// hierarchies are where the host has v1's hierarchies, or say that there is v2 alone. They stay as they are.
var hierarchies = sync.OnceValues(func() (points []string, v2 bool) {
	if cgroups.IsCgroup2UnifiedMode() {
		return nil, true
	}
	mounts, _ := cgroups.GetCgroupMounts(false) // without any there is nothing to mount
	for _, m := range mounts {
		points = append(points, m.Mountpoint)
	}
	return points, false
})

// mountFlags are the options that are flags; all others are for the file system.
var mountFlags = map[string]uint64{
	"nosuid": unix.MS_NOSUID, "nodev": unix.MS_NODEV, "noexec": unix.MS_NOEXEC, "ro": unix.MS_RDONLY,
	"strictatime": unix.MS_STRICTATIME, "relatime": unix.MS_RELATIME,
}

// mountOptions divides options as mount(2) wants them.
func mountOptions(options []string) (flags uint64, data string) {
	var rest []string
	for _, o := range options {
		if f, ok := mountFlags[o]; ok {
			flags |= f
		} else if o != "newinstance" { // all are, since Linux 4.7
			rest = append(rest, o)
		}
	}
	return flags, strings.Join(rest, ",")
}

// becomeRoot makes the working directory the root: what it covers has nothing. To exchange roots (pivot_root) would
// come to the same, and have the kernel ask each thread of the machine for its root.
func (s *Program) becomeRoot() {
	dot := s.Text(".")
	s.Do("covering the empty root", unix.SYS_MOUNT, dot, s.Text("/"), 0, unix.MS_MOVE)
	s.Do("changing the root", unix.SYS_CHROOT, dot)
	s.Do("setting the mask of modes", unix.SYS_UMASK, 0o022)
}

// raiseLoopback makes the one network interface that there is usable.
func (s *Program) raiseLoopback() {
	lo := make([]byte, 40) // struct ifreq
	copy(lo, "lo")
	binary.NativeEndian.PutUint16(lo[unix.IFNAMSIZ:], unix.IFF_UP)
	open := s.Do("asking for the network", unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	up := s.Do("raising the loopback interface", unix.SYS_IOCTL, 0, unix.SIOCSIFFLAGS, s.bytes(lo))
	open.To = up.Argument(0)
}

// protect makes what is at a path of the sandbox read-only.
func (s *Program) protect(path string) {
	at := s.Text(path)
	self := s.Do("mounting "+path, unix.SYS_MOUNT, at, at, 0, unix.MS_BIND|unix.MS_REC)
	self.Fine, self.Skip = unix.ENOENT, 1
	s.Do("protecting "+path, unix.SYS_MOUNT_SETATTR, AtCwd, at, 0, s.numbers(unix.MOUNT_ATTR_RDONLY, 0, 0, 0), 32)
}

// hide covers what is at paths of the sandbox: a file by /dev/null, a directory by the empty one, which takes
// nothing. The kernel waits for all processors after a mount that came to nothing, so what the host has there says
// which of the two is tried first.
//
// The empty directory has its place in the host's proc and is unmounted with that, as the kernel may wait then, too.
func (s *Program) hide(paths []string, empty *Step) {
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

// maskedDirs are those of the masked paths that the host has directories at, once. What comes later costs time and
// nothing else.
var maskedDirs = sync.OnceValue(func() map[string]bool {
	dirs := map[string]bool{}
	for _, path := range MaskedPaths {
		dirs[path] = cgroup.IsDir(path)
	}
	return dirs
})

// renounce gives up all that the sandbox's root does not have.
func (s *Program) renounce(p *specs.Process) error {
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
	// Effective, permitted and inheritable, of the first 32 and then of the others.
	sets := s.numbers(low|low<<32, high<<32, high)
	header := s.numbers(unix.LINUX_CAPABILITY_VERSION_3)
	s.Do("limiting its capabilities", unix.SYS_CAPSET, header, sets)
	s.Do("renouncing new privileges", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1)
	return nil
}

// lastCapability is the highest that the kernel has.
var lastCapability = sync.OnceValue(func() int {
	text, _ := os.ReadFile("/proc/sys/kernel/cap_last_cap")
	if n, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
		return n
	}
	return unix.CAP_LAST_CAP
})

// becomeGuest executes the guest, which has nothing open but the sandbox's /dev/null. The script's own descriptors
// close as it begins, which the daemon hears.
func (s *Program) becomeGuest(p *specs.Process, filter []unix.SockFilter) {
	null := s.Text("/dev/null")
	s.Do("closing files", unix.SYS_CLOSE_RANGE, 0, 2, 0)
	for range 3 {
		s.Do("opening /dev/null", unix.SYS_OPENAT, AtCwd, null, unix.O_RDWR)
	}
	s.Do("closing files for the guest", unix.SYS_CLOSE_RANGE, 3, 1<<32-1, unix.CLOSE_RANGE_CLOEXEC)
	args, env, path := s.texts(p.Args), s.texts(p.Env), s.Text(p.Args[0])
	var program []byte
	for _, f := range filter {
		program = binary.NativeEndian.AppendUint16(program, f.Code)
		program = append(program, f.Jt, f.Jf)
		program = binary.NativeEndian.AppendUint32(program, f.K)
	}
	// runc loads it with this flag where the configuration says nothing.
	const flags = unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW
	s.Do("loading the filter of system calls", unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags,
		s.numbers(uint64(len(filter)), s.bytes(program)))
	s.Do("executing the guest", unix.SYS_EXECVE, path, args, env)
}

// Supported reports whether this machine's programs run scripts.
const Supported = runtime.GOARCH == "amd64"

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
