package packaging_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// The tests of the release need root and what `make release` has made: BERTH_DIST is its directory.

// A root is a root file system of a distribution with processes of its own: they have their own mounts, PIDs and
// network, and end with the test.
type root struct {
	t      *testing.T
	dir    string
	holder string // PID of its first process
}

// suites are the systems that packages are installed into, by the archive that mmdebstrap takes them from. Debian's
// machines cannot check the signatures of Ubuntu, whose keys Debian does not have.
var suites = map[string][]string{
	"bookworm": {},
	"trixie":   {},
	"noble":    {"deb [trusted=yes] http://archive.ubuntu.com/ubuntu noble main universe"},
}

func needsDist(t *testing.T) string {
	t.Helper()
	dist := os.Getenv("BERTH_DIST")
	if dist == "" {
		t.Skip("needs a release: make test-release")
	}
	return dist
}

// dist returns the path of the one file of the release that matches pattern.
func distFile(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(needsDist(t), pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %v, %v; want one file", pattern, found, err)
	}
	return found[0]
}

// newRoot unpacks a minimal system of the suite. Its packages are fetched once.
func newRoot(t *testing.T, suite string) *root {
	t.Helper()
	cache, err := filepath.Abs("../.cache/release/roots")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	tar := filepath.Join(cache, suite+".tar")
	if _, err := os.Stat(tar); errors.Is(err, os.ErrNotExist) {
		run(t, "mmdebstrap", slices.Concat([]string{"--quiet", "--variant=minbase", "--include=apt", "--format=tar",
			suite, tar + ".new"}, suites[suite])...)
		if err := os.Rename(tar+".new", tar); err != nil {
			t.Fatal(err)
		}
	}
	r := &root{t: t, dir: filepath.Join(t.TempDir(), "root")}
	if err := os.Mkdir(r.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	run(t, "tar", "-xf", tar, "-C", r.dir, "--exclude=./dev/*")
	r.hold()
	return r
}

// setup makes the mounts that a booted system has, and then keeps the namespaces. Its cgroups are the host's.
const setup = `set -e
ip link set lo up 2>/dev/null || true
mount --bind "$0" "$0"
mount -t proc proc "$0/proc"
mount --rbind /sys "$0/sys"
mount --rbind /dev "$0/dev"
mount -t tmpfs -o mode=755 run "$0/run"
cp /etc/resolv.conf "$0/run/resolv.conf"; rm -f "$0/etc/resolv.conf"; ln -s /run/resolv.conf "$0/etc/resolv.conf"
cd "$0"
mkdir -p mnt/old
pivot_root . mnt/old
umount -l mnt/old
rmdir mnt/old
echo ready
exec sleep infinity`

func (r *root) hold() {
	r.t.Helper()
	cmd := exec.Command("unshare", "--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child", "sh", "-c",
		setup, r.dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		_ = cmd.Process.Kill() // its child dies with it, and all processes of the PID namespace with that
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		r.t.Fatalf("making the root: %q, %v", line, err)
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", cmd.Process.Pid, cmd.Process.Pid))
	if err != nil {
		r.t.Fatal(err)
	}
	r.holder = strings.TrimSpace(string(children))
}

// command returns a command that runs in the root.
func (r *root) command(script string, namespaces ...string) *exec.Cmd {
	args := slices.Concat([]string{"--target", r.holder, "--mount", "--pid", "--ipc", "--uts"}, namespaces,
		[]string{"env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root",
			"DEBIAN_FRONTEND=noninteractive", "sh", "-ec", script})
	return exec.Command("nsenter", args...)
}

// run runs a script in the root, and returns its output.
func (r *root) run(script string) string {
	r.t.Helper()
	return r.output(r.command(script, "--net"))
}

// fetch is run for a script that needs the host's network, such as one that installs packages.
func (r *root) fetch(script string) string {
	r.t.Helper()
	return r.output(r.command(script))
}

func (r *root) output(cmd *exec.Cmd) string {
	r.t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("%s: %v\n%s", cmd.Args[len(cmd.Args)-1], err, out)
	}
	return strings.TrimSpace(string(out))
}

// put copies a file of the host to a path in the root.
func (r *root) put(from, to string) {
	r.t.Helper()
	run(r.t, "cp", from, filepath.Join(r.dir, to))
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// A service is the daemon, run as systemd runs the unit.
type service struct {
	r      *root
	cmd    *exec.Cmd
	notify *net.UnixConn
	log    *readyLog
	ended  chan error // gets how it ended
}

// A readyLog keeps what the daemon logs, and knows when the daemon has logged that it is ready.
type readyLog struct {
	mu    sync.Mutex
	text  strings.Builder
	ready chan struct{}
}

func (l *readyLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := strings.Contains(l.text.String(), "berth is ready")
	l.text.Write(p)
	if !was && strings.Contains(l.text.String(), "berth is ready") {
		close(l.ready)
	}
	return len(p), nil
}

func (l *readyLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// start runs the unit's ExecStart with what the unit says of capabilities, limits and mounts, and returns when the
// daemon has notified that it is ready.
func (r *root) start(t *testing.T) *service {
	t.Helper()
	unit := readUnit(t, filepath.Join(r.dir, "usr/lib/systemd/system/berth.service"))
	// systemd makes these directories, and the mounts, in a mount namespace of the service.
	s := r.startCommand(t, "mkdir -p -m 0711 /var/lib/berth /run/berth; mkdir -p /var/cache/berth\n"+
		"exec unshare --mount --propagation slave sh -ec '"+sandboxOf(t, unit)+"'")
	s.wait(t, "READY=1", time.Minute)
	return s
}

// startCommand starts a script that becomes the daemon. It returns when the daemon has logged that it is ready.
func (r *root) startCommand(t *testing.T, script string) *service {
	t.Helper()
	s := &service{r: r, cmd: r.command("export NOTIFY_SOCKET=/run/notify; "+script, "--net"),
		log: &readyLog{ready: make(chan struct{})}}
	path := filepath.Join("/proc", r.holder, "root/run/notify")
	_ = os.Remove(path)
	var err error
	if s.notify, err = listenUnix(path); err != nil {
		t.Fatal(err)
	}
	s.cmd.Stderr, s.cmd.Stdout = s.log, s.log
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.notify.Close()
		if t.Failed() {
			t.Logf("the daemon's log:\n%s", s.log.String())
		}
	})
	s.ended = make(chan error, 1)
	go func() { s.ended <- s.cmd.Wait() }()
	select {
	case <-s.log.ready:
	case err := <-s.ended:
		t.Fatalf("the daemon ended before it was ready: %v", err)
	case <-time.After(5 * time.Minute):
		t.Fatal("the daemon is not ready")
	}
	return s
}

// listenUnix listens at a path that is too long for an address: it goes through the directory's descriptor.
func listenUnix(path string) (*net.UnixConn, error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	short := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path))
	return net.ListenUnixgram("unixgram", &net.UnixAddr{Name: short, Net: "unixgram"})
}

// wait returns when the daemon has sent a notification with this line.
func (s *service) wait(t *testing.T, line string, most time.Duration) {
	t.Helper()
	if err := s.notify.SetReadDeadline(time.Now().Add(most)); err != nil {
		t.Fatal(err)
	}
	for buf := make([]byte, 64<<10); ; {
		n, err := s.notify.Read(buf)
		if err != nil {
			t.Fatalf("waiting for %s: %v\n%s", line, err, s.log.String())
		}
		if slices.Contains(strings.Split(string(buf[:n]), "\n"), line) {
			return
		}
	}
}

// stop ends the daemon as `systemctl stop` does with KillMode=process.
func (s *service) stop(t *testing.T) {
	t.Helper()
	pid := s.pid(t)
	s.r.run("kill -TERM " + pid)
	if err := <-s.ended; err != nil {
		t.Errorf("the daemon ended with %v\n%s", err, s.log.String())
	}
	_ = s.notify.Close()
}

// pid returns the daemon's PID as the root sees it.
func (s *service) pid(t *testing.T) string {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", descendant(t, s.cmd.Process.Pid)))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`NSpid:.*\s(\d+)\n`).FindSubmatch(status)
	return string(m[1])
}

// descendant follows nsenter, which has one child, to the daemon that its other programs became by exec.
func descendant(t *testing.T, pid int) int {
	t.Helper()
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		t.Fatal(err)
	}
	if strings.TrimSpace(string(name)) == "berth" {
		return pid
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(children)))
	if err != nil {
		t.Fatalf("process %d (%s) has the children %q", pid, name, children)
	}
	return descendant(t, child)
}

// sandboxOf returns a script that takes from itself what the unit takes from the daemon, and becomes the daemon.
func sandboxOf(t *testing.T, unit map[string][]string) string {
	t.Helper()
	var lines []string
	for _, read := range []struct{ key, want, script string }{
		{"ProtectSystem", "full", "for d in /usr /boot /etc; do mount --rbind $d $d; mount -o remount,bind,ro $d; done"},
		{"ProtectHome", "read-only", "for d in /home /root; do mount --rbind $d $d; mount -o remount,bind,ro $d; done"},
		{"PrivateTmp", "yes", "mount -t tmpfs tmp /tmp; mount -t tmpfs tmp /var/tmp"},
		{"UMask", "0077", "umask 0077"},
	} {
		if !slices.Equal(unit[read.key], []string{read.want}) {
			t.Fatalf("the unit has %s=%v, and this test applies %s only", read.key, unit[read.key], read.want)
		}
		lines = append(lines, read.script)
	}
	var dropped []string
	for _, set := range unit["CapabilityBoundingSet"] {
		for name := range strings.FieldsSeq(strings.TrimPrefix(set, "~")) {
			dropped = append(dropped, "-"+strings.ToLower(strings.TrimPrefix(name, "CAP_")))
		}
	}
	if len(dropped) == 0 {
		t.Fatal("the unit drops no capability")
	}
	// A machine whose root may not raise limits runs the rest of the test.
	return strings.Join(append(lines, "ulimit -n "+unit["LimitNOFILE"][0]+" 2>/dev/null || ulimit -n $(ulimit -Hn)",
		"exec setpriv --bounding-set "+strings.Join(dropped, ",")+" --inh-caps -all "+unit["ExecStart"][0]), "\n")
}

// readUnit reads the settings of a unit, without those of [Unit] and [Install].
func readUnit(t *testing.T, path string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	settings, section := map[string][]string{}, ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			section = line
		}
		if key, value, ok := strings.Cut(line, "="); ok && section == "[Service]" && !strings.HasPrefix(line, "#") {
			settings[key] = append(settings[key], value)
		}
	}
	return settings
}
