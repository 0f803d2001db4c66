package containerd

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"berth/proto"
	"berth/runtime/cgroup"
	"berth/session"
)

// TestWarmIsLikeCold compares a pooled sandbox with a cold one. Neither its contents nor the kernel's data about it
// may differ, with the limits that the pooled sandbox was made with and with others.
func TestWarmIsLikeCold(t *testing.T) {
	cold, warm := openTest(t), openWarm(t)
	other := proto.Limits{CPUs: 0.25, MemoryBytes: 64 << 20, PIDs: 33, DiskBytes: 48 << 20, OpenFiles: 300}
	larger := proto.Limits{CPUs: 2, MemoryBytes: 256 << 20, PIDs: 128, DiskBytes: 64 << 20, OpenFiles: 512}
	for _, limits := range []proto.Limits{testLimits, other, larger} {
		awaitFilled(t, warm)
		want, have := portrait(t, cold, limits), portrait(t, warm, limits)
		for what, w := range want {
			if have[what] != w {
				t.Errorf("%+v: %s\n--- cold:\n%s\n--- warm:\n%s", limits, what, w, have[what])
			}
		}
		if len(want) != len(have) {
			t.Errorf("%v and %v", slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(have)))
		}
	}
	if n := warm.WarmCounts(); n.Hits != 3 || n.Misses != 0 {
		t.Errorf("the pool served %+v", n)
	}
	if n := cold.WarmCounts(); n.Hits != 0 {
		t.Errorf("without a pool: %+v", n)
	}
}

// portrait returns everything that can be seen of a sandbox, without what differs between any two.
func portrait(t *testing.T, r *Runtime, limits proto.Limits) map[string]string {
	t.Helper()
	spec := session.Spec{Image: testImage(t, r), Class: proto.ClassRunc, Workspace: newID(proto.WorkspacePrefix),
		Layer: newID(proto.LayerPrefix), Limits: limits}
	id := newID(proto.ContainerPrefix)
	if err := r.Start(t.Context(), id, spec); err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for _, path := range []string{"/proc/self/limits", "/proc/self/cgroup", "/proc/self/oom_score_adj",
		"/proc/self/cmdline", "/proc/self/environ",
		"/proc/self/uid_map", "/proc/self/gid_map", "/proc/self/setgroups", "/proc/self/mountinfo", "/proc/self/status",
		"/proc/self/stat",
		"/proc/self/coredump_filter", "/proc/self/personality", "/proc/self/loginuid", "/proc/self/attr/current",
		"/proc/sys/kernel/hostname", "/etc/passwd", "/proc/net/dev", "/sys/class/net/lo/flags"} {
		got := ask(t, r, id, guestRequest{Op: "read", Path: path})
		seen[path] = plain(r, path, got.Text) + got.Err
	}
	for _, dir := range []string{"/", "/workspace", "/tmp", "/dev", "/dev/shm", "/home", "/.berth", "/.berth/run",
		"/proc/self/ns", "/sys/fs/cgroup"} {
		seen["ls "+dir] = ask(t, r, id, guestRequest{Op: "list", Path: dir}).Text
		if dir != "/sys/fs/cgroup" { // its owner is root, or unmapped like the owner of its contents
			seen["stat "+dir] = ask(t, r, id, guestRequest{Op: "stat", Path: dir}).Text
		}
	}
	for _, dir := range []string{"/tmp", "/dev/shm", "/dev"} {
		seen["size of "+dir] = fmt.Sprint(ask(t, r, id, guestRequest{Op: "statfs", Path: dir}).Number)
	}
	seen["files"] = plain(r, "", ask(t, r, id, guestRequest{Op: "links", Path: "/proc/self/fd"}).Text)
	seen["environment"] = ask(t, r, id, guestRequest{Op: "env"}).Text
	seen["hostname"] = ask(t, r, id, guestRequest{Op: "hostname"}).Text
	seen["interfaces"] = fmt.Sprint(ask(t, r, id, guestRequest{Op: "interfaces"}).Number)
	seen["child"] = plain(r, "/proc/self/status", ask(t, r, id, guestRequest{Op: "child", Path: "status",
		UID: 1000}).Text)
	seen["probes"] = fmt.Sprint(ask(t, r, id, guestRequest{Op: "probes"}).Probes)
	fromOutside(t, r, id, spec, seen)
	if err := r.Stop(t.Context(), id); err != nil {
		t.Error(err)
	}
	return seen
}

// fromOutside adds the host's data about the sandbox.
func fromOutside(t *testing.T, r *Runtime, id string, spec session.Spec, seen map[string]string) {
	t.Helper()
	iso, err := r.Inspect(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	iso.HostUID = 0
	seen["isolation"] = fmt.Sprintf("%+v", iso)
	m := r.Measure(id, spec.Workspace)
	seen["measures"] = fmt.Sprint(m.OOMKills, m.PIDRefusals, m.Workspace.Limit, m.Layer.Limit)
	limit := regexp.MustCompile(`limit|quota|period|shares|\.max$|swappiness|devices\.list|cpus$|mems$|notify|weight`)
	for _, dir := range cgroup.Dirs(r.claims.sandbox(id)) {
		for _, name := range entries(t, dir) {
			if limit.MatchString(name) && !strings.Contains(name, "failcnt") {
				content, _ := os.ReadFile(filepath.Join(dir, name))
				seen["cgroup "+strings.Split(dir, "/")[4]+" "+name] = string(content)
			}
		}
	}
	var st unix.Stat_t
	if err := unix.Stat(r.disk.WorkspacePath(spec.Workspace), &st); err != nil {
		t.Fatal(err)
	}
	seen["workspace on disk"] = fmt.Sprintf("%d:%d %o", st.Uid, st.Gid, st.Mode)
}

var (
	ownNames = regexp.MustCompile(`(container|workspace)_[0-9A-Za-z]{22}`)
	owner    = regexp.MustCompile(`([ug]id=)\d+`)
	numbers  = regexp.MustCompile(`\d+`)

	hierarchySource = regexp.MustCompile(`( - cgroup )\S+ `)
)

// plain removes from text of /proc what differs between any two sandboxes: numbers of mounts and devices, names,
// memory and time used.
func plain(r *Runtime, path, text string) string {
	text = ownNames.ReplaceAllString(strings.ReplaceAll(text, r.cfg.Dir, "DATA"), "$1")
	var lines []string
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case len(f) == 0:
		case strings.HasSuffix(path, "_map"):
			f[1] = "first"
		case path == "/proc/self/mountinfo":
			point := f[4]
			// the sizes of all others must be equal
			if !strings.Contains(line, " tmpfs ") || strings.Contains(line, "mode=755") {
				line = numbers.ReplaceAllString(line, "N")
			}
			line = hierarchySource.ReplaceAllString(line, "$1") // the mount source, which is any text
			if f = strings.Fields(owner.ReplaceAllString(line, "$1"))[3:]; strings.HasPrefix(f[2], "ro,") &&
				strings.Contains(line, " - tmpfs ") {
				f = []string{"read-only", point} // setup programs copy it from the store
			}
			// mounts that this one covers
			lines = slices.DeleteFunc(lines, func(l string) bool { return strings.Fields(l)[1] == f[1] })
		case path == "/proc/self/status":
			if !regexp.MustCompile(
				`^(Umask|Uid|Gid|Groups|NSpgid|NSsid|Sig(Blk|Ign|Cgt)|Cap|NoNewPrivs|Seccomp|Specul|CoreD|Cpus|Mems|TracerPid|PPid)`).MatchString(line) {
				continue
			}
		case path == "/proc/self/stat":
			// parent, groups, terminal, priorities and policy
			f = []string{f[3], f[4], f[5], f[6], f[17], f[18], f[39], f[40]}
		case path == "/proc/net/dev":
			f = f[:1]
		case path == "":
			line = numbers.ReplaceAllString(line, "N")
			f = strings.Fields(line)
		}
		lines = append(lines, strings.Join(f, " "))
	}
	if path == "/proc/self/mountinfo" || path == "" {
		slices.Sort(lines)
	}
	if path == "" { // an earlier connection may not be closed yet
		lines = slices.Compact(lines)
	}
	return strings.Join(lines, "\n")
}
