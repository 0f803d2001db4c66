package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A sysctl is a kernel limit that many sessions can reach.
type sysctl struct {
	name string // in the notation of sysctl(8)
	min  int64  // for 1,000 sessions
	why  string
}

// sysctls are the needs of 1,000 sessions. A session has a guest with some 8 threads and a handful of programs. Under
// gVisor it also has a shim and a kernel with some 30 more threads. It has one network namespace, one keyring and one
// seccomp filter of a few pages.
var sysctls = []sysctl{
	{"kernel.pid_max", 65536, "1,000 sessions with guest, programs and under gVisor a shim have more threads than " +
		"process numbers"},
	{"kernel.threads-max", 65536,
		"guests and programs, and under gVisor shims and kernels, are some 30 threads a session"},
	{"kernel.pty.max", 2048, "each terminal takes one, and a session may have several"},
	{"kernel.keys.root_maxkeys", 2000, "each container has a keyring; beyond this none starts"},
	{"fs.inotify.max_user_instances", 128, "each start watches a directory, and so do programs inside that reload; " +
		"the daemon and each container may have this many"},
	{"fs.inotify.max_user_watches", 65536, "programs inside watch whole source trees"},
	{"fs.mount-max", 10000, "a mount table holds some 40 mounts of the host and of a sandbox"},
	{"fs.file-max", 262144, "sockets, pipes and files of all sessions together"},
	{"net.core.somaxconn", 1024, "connections wait here while the daemon is busy"},
	{"net.core.bpf_jit_limit", 64 << 20,
		"each container's seccomp filter is compiled; beyond this starts fail with error 524"},
	{"user.max_user_namespaces", 2000, "each container has one"},
	{"user.max_net_namespaces", 2000, "each container has one"},
	{"user.max_mnt_namespaces", 2000, "each container has one"},
	{"user.max_pid_namespaces", 2000, "each container has one"},
}

func checkSysctls() []Finding {
	var out []Finding
	for _, s := range sysctls {
		if f, ok := s.check(); ok {
			out = append(out, f)
		}
	}
	return append(out, checkOpenFiles(), checkLoops())
}

// check reports false for a limit that this kernel does not have.
func (s sysctl) check() (Finding, bool) {
	path := filepath.Join("/proc/sys", strings.ReplaceAll(s.name, ".", "/"))
	b, err := os.ReadFile(path)
	if err != nil {
		return Finding{}, false
	}
	found := strings.TrimSpace(string(b))
	n, err := strconv.ParseInt(found, 10, 64)
	if err == nil && n < s.min {
		return Finding{s.name, Warn, found, s.why, fmt.Sprintf("sysctl -w %s=%d for 1,000 sessions", s.name, s.min)},
			true
	}
	// A value beyond int64 means no limit.
	return good(s.name, found), true
}

func checkOpenFiles() Finding {
	const name, need = "open files", 16384
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return Finding{name, Warn, "unknown", "each session takes some", "look at ulimit -Hn"}
	}
	found := strconv.FormatUint(lim.Max, 10)
	if lim.Max < need {
		return Finding{name, Warn, found, "each session takes several in the daemon, and programs inside get no " +
			"more than the daemon has",
			fmt.Sprintf("start the daemon with a hard limit of %d or more (LimitNOFILE= in its unit)", need)}
	}
	return good(name, found)
}

// checkLoops checks the limit of loop devices, which a kernel parameter may set. The pool takes one device.
func checkLoops() Finding {
	const name = "loop devices"
	used, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	found := fmt.Sprintf("%d in use", len(used))
	all, _ := filepath.Glob("/dev/loop[0-9]*")
	if _, err := os.Stat("/dev/loop-control"); err != nil && len(used) >= len(all) {
		return Finding{name, Warn, found + ", none free", "the disk pool takes one",
			"load the loop module (modprobe loop)"}
	}
	return good(name, found)
}
