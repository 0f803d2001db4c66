package containerd

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"berth/proto"
	"berth/session"
)

// storedSpec is the OCI configuration that the runtime really got: what is in the shim's bundle.
func storedSpec(t *testing.T, r *Runtime, id string) *specs.Spec {
	t.Helper()
	c, err := r.client.LoadContainer(r.ns(t.Context()), id)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := c.Spec(r.ns(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

func TestSpec(t *testing.T) {
	r := openTest(t)
	id, _ := startTest(t, r, proto.ClassRunc)
	spec := storedSpec(t, r, id)
	if !spec.Process.NoNewPrivileges {
		t.Error("no_new_privs is off")
	}
	caps := spec.Process.Capabilities
	for _, set := range [][]string{caps.Bounding, caps.Effective, caps.Permitted} {
		if !slices.Equal(set, capabilities) {
			t.Errorf("capabilities %v", set)
		}
	}
	if len(caps.Inheritable)+len(caps.Ambient) > 0 {
		t.Error("inheritable or ambient capabilities")
	}
	var kinds []string
	for _, n := range spec.Linux.Namespaces {
		kinds = append(kinds, string(n.Type))
		if n.Path != "" {
			t.Errorf("joins a namespace: %v", n)
		}
	}
	slices.Sort(kinds)
	if got := strings.Join(kinds, " "); got != "cgroup ipc mount network pid user uts" {
		t.Errorf("namespaces %s", got)
	}
	for _, m := range spec.Mounts {
		if m.Type == "bind" || slices.Contains(m.Options, "bind") {
			t.Errorf("a bind mount in the configuration: %v", m)
		}
	}
	if spec.Linux.Seccomp == nil || spec.Linux.Seccomp.DefaultAction != specs.ActErrno {
		t.Fatal("no seccomp filter, or one that allows by default")
	}
	if a := spec.Linux.Seccomp.Architectures; len(a) != 1 {
		t.Errorf("seccomp architectures %v", a)
	}
	for _, rule := range spec.Linux.Seccomp.Syscalls {
		for _, name := range rule.Names {
			bad := slices.Contains(deniedSyscalls, name) || slices.Contains(argumentSyscalls, name) && len(rule.Args) == 0
			if rule.Action == specs.ActAllow && bad {
				t.Errorf("seccomp allows %s", name)
			}
		}
	}
	if len(spec.Linux.MaskedPaths) == 0 || len(spec.Linux.ReadonlyPaths) == 0 || spec.Hooks != nil {
		t.Error("masked or read-only paths are missing, or there are hooks")
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
		"netlink_route": "ok", "netlink_netfilter": "EPERM", "mknod": "EPERM", "chroot": "ok",
		"subvolume": "EPERM", "reflink": "ok",
	}
	for name, errno := range want {
		if got[name] != errno {
			t.Errorf("%s: %q, want %q", name, got[name], errno)
		}
	}
	for _, path := range []string{"/proc/kallsyms", "/proc/timer_list", "/proc/keys"} {
		if got := ask(t, r, id, guestRequest{Op: "read", Path: path}); got.Text != "" {
			t.Errorf("%s can be read: %.40q", path, got.Text)
		}
	}
	if got := ask(t, r, id, guestRequest{Op: "list", Path: "/sys/firmware"}); got.Text != "" {
		t.Errorf("/sys/firmware shows %q", got.Text)
	}
	for _, name := range []string{"write_proc_sys", "write_cgroup", "write_memory_cgroup", "write_guest"} {
		if got[name] == "" {
			t.Errorf("%s is possible", name)
		}
	}
}

func TestInside(t *testing.T) {
	r := openTest(t)
	testImage(t, r)
	classes(t, func(t *testing.T, class proto.RuntimeClass) {
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
		if env := ask(t, r, id, guestRequest{Op: "env"}).Text; !strings.Contains(env, "FOO=bar") || !strings.Contains(env, "PATH=/usr/local/sbin") {
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
		// Programs such as mv copy when told that this is another file system, and only then.
		ask(t, r, id, guestRequest{Op: "write", Path: "/home/moved", Size: 10})
		if got := ask(t, r, id, guestRequest{Op: "rename", Path: "/home/moved"}); !strings.Contains(got.Err, "cross-device") {
			t.Errorf("renaming into the workspace: %q", got.Err)
		}
	})
}

// owners checks that files of the image and the workspace have inside the numbers they were given.
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

// fileNumbers checks the numbers on the host's disk, and that PID 1 can act for another user.
func fileNumbers(t *testing.T, r *Runtime, id string, spec session.Spec) {
	t.Helper()
	for _, uid := range []int{0, 1000} {
		if got := ask(t, r, id, guestRequest{Op: "child", Path: "touch", UID: uid}); got.Err != "" {
			t.Fatalf("writing as %d: %v", uid, got)
		}
		var st unix.Stat_t
		err := unix.Lstat(filepath.Join(r.disk.workspacePath(spec.Workspace), fmt.Sprintf("by-%d", uid)), &st)
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

// TestHostIdentity: every process of a sandbox is, for the host, a user of the sandbox's own range.
func TestHostIdentity(t *testing.T) {
	r := openTest(t)
	a, _ := startTest(t, r, proto.ClassRunc)
	b, _ := startTest(t, r, proto.ClassRunc)
	seen := make(map[uint32]bool)
	for _, id := range []string{a, b} {
		c, err := r.client.LoadContainer(r.ns(t.Context()), id)
		if err != nil {
			t.Fatal(err)
		}
		task, err := c.Task(r.ns(t.Context()), nil)
		if err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Stat(fmt.Sprintf("/proc/%d", task.Pid()), &st); err != nil {
			t.Fatal(err)
		}
		if st.Uid < defaultFirstID || st.Uid%idRange != 0 || seen[st.Uid] {
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
	if err := os.Remove(filepath.Join(r.runPath(id), socketName)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(r.runPath(id), socketName), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Dial(t.Context(), id); proto.CodeOf(err) != proto.Unavailable {
		t.Errorf("dialling a pipe: %v", err)
	}
}
