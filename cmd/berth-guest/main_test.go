package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	daemonsched "berth/daemon/gosched"
	"berth/guest/client"
	"berth/guest/gosched"
	"berth/guest/wire"
	"berth/guest/zygote"
	"berth/proto"
	"berth/test/needs"
)

// setup makes a namespace look like a container: with its own user list, its own /proc, and few capabilities.
const setup = `set -e
umask 022 # as in an image, whatever the tests run with
trap '' HUP # as under a daemon that nohup started
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs tmpfs /dev/shm
grep -v ':1000:' /etc/passwd >$0/passwd; grep -v ':1000:' /etc/group >$0/group
mount --bind $0/passwd /etc/passwd; mount --bind $0/group /etc/group
mkdir $0/home; mount --bind $0/home /home
exec setpriv --bounding-set=-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap,+net_bind_service,+sys_chroot \
	$0/guest -workspace $0/workspace $0/guest.sock`

// build makes the real program.
func build(t testing.TB, path string) {
	t.Helper()
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w -E main.entry", "-o", path, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
}

// start runs the real program as PID 1, as small as it is shipped, with env added to its environment.
func start(t testing.TB, env ...string) (*client.Client, *exec.Cmd, string) {
	t.Helper()
	needs.Root(t) // for PID and mount namespaces
	dir, err := os.MkdirTemp("", "berth-guest-cmd-")
	if err != nil {
		t.Fatal(err)
	}
	guest := filepath.Join(dir, "guest")
	build(t, guest)
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(guest, 0o755)); err != nil { // for the ordinary user, too
		t.Fatal(err)
	}
	cmd := exec.Command("bash", "-c", setup, dir)
	cmd.Stderr = os.Stderr
	// The host's locale need not be installed; bash would say so in each command's output.
	cmd.Env = append(append(os.Environ(), "LC_ALL=C.UTF-8"), env...)
	// The host's users do not exist in the container, so files of the daemon belong to no user there.
	const first, count = 100_000, 65_536
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: first, Size: count}}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS,
		UidMappings: ids, GidMappings: ids, GidMappingsEnableSetgroups: true,
		Credential: &syscall.Credential{},
	}
	if err := os.Chown(dir, first, first); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	})
	c := dial(t, dir)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err := c.Hello(context.Background()); err == nil {
			return c, cmd, dir
		} else if time.Now().After(deadline) {
			t.Fatalf("the guest does not answer: %v", err)
		}
	}
}

// dial makes a client of the guest in dir.
func dial(t testing.TB, dir string) *client.Client {
	c := client.NewClient(func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(dir, "guest.sock"))
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// status returns the fields of /proc/PID/status.
func status(t testing.TB, pid int) map[string]string {
	t.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]string{}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.TrimSpace(value)
	}
	return fields
}

func execute(t testing.TB, c *client.Client, cmd wire.Command) (string, wire.Exit) {
	t.Helper()
	var out strings.Builder
	p, err := c.Start(context.Background(), cmd, func(_ proto.Stream, _ int64, b []byte) { out.Write(b) })
	if err != nil {
		t.Fatalf("%+v: %v", cmd, err)
	}
	x, err := p.Wait(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), x
}

func TestPrepares(t *testing.T) {
	c, _, dir := start(t)
	out, _ := execute(t, c, wire.Command{Text: "whoami; echo $HOME; stat -c '%U %a' $HOME $PWD; umask; grep " +
		"NoNewPrivs /proc/self/status"})
	if want := "user\n/home/user\nuser 755\nuser 755\n0022\nNoNewPrivs:\t1\n"; out != want {
		t.Errorf("got %q, want %q", out, want)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, "guest.sock"), &st); err != nil || st.Mode&0o777 != 0o600 {
		t.Errorf("the socket's mode is %o, %v", st.Mode, err)
	}
}

// TestStranger checks commands, kills, terminals, files and shells where the daemon's user does not exist in the
// container, and root may not read other users' processes.
func TestStranger(t *testing.T) {
	c, _, _ := start(t)
	out, _ := execute(t, c, wire.Command{Text: "echo a >/dev/stdout; echo b >/dev/stderr; echo c | tee /dev/stderr"})
	if out != "a\nb\nc\nc\n" && len(out) != 8 {
		t.Errorf("got %q", out)
	}
	for _, user := range []string{"user", "root"} {
		p, err := c.Start(context.Background(), wire.Command{ID: "exec_1", User: user,
			Text: "env -i setsid sleep 1111 & (setsid sleep 1111 &) ; sleep 1111"}, func(proto.Stream, int64,
			[]byte) {
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := p.Kill(ctx); err != nil {
			t.Errorf("%s: %v", user, err)
		}
		if out, _ := execute(t, c, wire.Command{Text: "pgrep -a sleep"}); out != "" {
			t.Errorf("%s: a kill left %q", user, out)
		}
	}
	out, _ = execute(t, c, wire.Command{Text: "stty size; tty | cut -c1-9; echo x >$(tty)", TTY: &proto.WindowSize{
		Rows: 9, Cols: 8}})
	if out != "9 8\r\n/dev/pts/\r\nx\r\n" {
		t.Errorf("a terminal: %q", out)
	}
	fi, err := c.Write(context.Background(), "user", "a/b", wire.WriteOptions{}, strings.NewReader("x"))
	if err != nil || fi.UID != 1000 {
		t.Errorf("a file: %+v, %v", fi, err)
	}
	if _, err := c.Write(context.Background(), "user", "/root/x", wire.WriteOptions{}, strings.NewReader(
		"x")); proto.CodeOf(err) != proto.PermissionDenied {
		t.Errorf("a file of root's: %v", err)
	}
	out, x := execute(t, c, wire.Command{Shell: "s", Text: "cd /tmp; x=1; echo $x"})
	if out != "1\n" || x.Code != 0 {
		t.Errorf("a shell: %q %+v", out, x)
	}
	if list, err := c.Shells(context.Background()); err != nil || len(list) != 1 || list[0].Dir != "/tmp" {
		t.Errorf("shells: %+v, %v", list, err)
	}
}

// TestEndures checks that no signal from root of the container ends the guest.
func TestEndures(t *testing.T) {
	c, _, _ := start(t)
	before, err := c.Hello(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	execute(t, c, wire.Command{User: "root", Text: "for s in $(seq 1 64); do kill -$s 1; done 2>/dev/null; true"})
	out, x := execute(t, c, wire.Command{Text: "grep -E 'Sig(Ign|Blk)' /proc/self/status"})
	if x.Code != 0 || out != "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n" {
		t.Errorf("got %d %q", x.Code, out)
	}
	after, err := c.Hello(context.Background())
	if err != nil || after != before {
		t.Errorf("another guest answers now: %+v, %v", after, err)
	}
}

// TestTimerSlack checks that the kernel may wake Go's monitor thread late unless BERTH_GOSCHED=off, and that commands
// have the kernel's own timer slack in any case: those of an executed program and those of a prestarted bash.
func TestTimerSlack(t *testing.T) {
	runtime.LockOSThread() // for good: the thread ends with the test
	const more = 200_000   // what a daemon's monitor thread has, and so threads that it started
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, more, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	for value, monitor := range map[string]time.Duration{"on": gosched.MonitorSlack, "off": gosched.CommandSlack} {
		c, cmd, _ := start(t, "BERTH_GOSCHED="+value)
		look := func() {
			t.Helper()
			for range 5 {
				for _, what := range []wire.Command{{Text: "cat /proc/self/timerslack_ns"},
					{Argv: []string{"cat", "/proc/self/timerslack_ns"}}} {
					if out, _ := execute(t, c, what); out != fmt.Sprintln(gosched.CommandSlack.Nanoseconds()) {
						t.Errorf("%s: %+v has a timer slack of %q", value, what, out)
					}
				}
			}
			tid, err := daemonsched.MonitorThread(cmd.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(fmt.Sprintf("/proc/%d/timerslack_ns", tid))
			if err != nil || string(got) != fmt.Sprintln(monitor.Nanoseconds()) {
				t.Errorf("%s: the monitor thread has a timer slack of %q, %v", value, got, err)
			}
		}
		look()
	}
}

// TestZygotesSwitch checks that BERTH_ZYGOTES=off starts no zygote, that commands work without one, and that there is
// one otherwise.
func TestZygotesSwitch(t *testing.T) {
	if !zygote.Works {
		t.Skip("zygotes are for another architecture")
	}
	for value, want := range map[string]bool{"off": false, "on": true} {
		c, _, _ := start(t, "BERTH_ZYGOTES="+value)
		found := false
		// A zygote starts right after the second command.
		for deadline := time.Now().Add(2 * time.Second); !found && time.Now().Before(deadline); {
			if out, x := execute(t, c, wire.Command{Text: "echo $((6*7))"}); out != "42\n" || x.Code != 0 {
				t.Fatalf("%s: a command: %q %+v", value, out, x)
			}
			list, _ := execute(t, c, wire.Command{User: "root", Argv: []string{"ps", "-eo", "args="}})
			found = strings.Contains(list, zygote.WaitingText)
		}
		if found != want {
			t.Errorf("BERTH_ZYGOTES=%s: a zygote runs: %t", value, found)
		}
	}
}

// TestUndumpable checks that root of the container cannot read the memory of the guest, although the guest is root
// too.
func TestUndumpable(t *testing.T) {
	c, _, _ := start(t)
	out, _ := execute(t, c, wire.Command{User: "root", Text: "cat /proc/1/maps 2>/dev/null; echo $?"})
	if out != "1\n" {
		t.Errorf("root could read the guest's memory map: %q", out)
	}
}

// TestSpareThreads checks that the guest has threads to spare from its first command on. That command may leave no room
// for more. Of a guest without spare threads, 6 or 7 are seen here.
func TestSpareThreads(t *testing.T) {
	c, cmd, _ := start(t)
	execute(t, c, wire.Command{Text: "true"})
	if n, err := strconv.Atoi(status(t, cmd.Process.Pid)["Threads"]); err != nil || n < 8 {
		t.Errorf("it has %d threads, %v", n, err)
	}
}

// TestSmall limits the size of the program and what it links: each container has one.
func TestSmall(t *testing.T) {
	c, cmd, dir := start(t)
	for range 50 {
		execute(t, c, wire.Command{Text: "true"})
	}
	fi, err := os.Stat(filepath.Join(dir, "guest"))
	if err != nil {
		t.Fatal(err)
	}
	is := status(t, cmd.Process.Pid)
	t.Logf("binary %d KiB, VmRSS %s, RssAnon %s, %s threads", fi.Size()>>10, is["VmRSS"], is["RssAnon"], is["Threads"])
	if fi.Size() > 8<<20 {
		t.Errorf("the binary has %d bytes", fi.Size())
	}
	deps, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, far := range []string{"containerd", "bbolt", "net/http", "crypto/tls"} {
		if strings.Contains(string(deps), far) {
			t.Errorf("the guest links %s", far)
		}
	}
}

// BenchmarkExecTrue measures a command through the guest.
func BenchmarkExecTrue(b *testing.B) {
	c, _, _ := start(b)
	for b.Loop() {
		if _, x := execute(b, c, wire.Command{Text: "true"}); x.Code != 0 {
			b.Fatal(x)
		}
	}
}

// BenchmarkShellTrue measures a call on a persistent shell.
func BenchmarkShellTrue(b *testing.B) {
	c, _, _ := start(b)
	for b.Loop() {
		if _, x := execute(b, c, wire.Command{Text: "true", Shell: "s"}); x.Code != 0 {
			b.Fatal(x)
		}
	}
}

// BenchmarkBareBashTrue measures the same command without a guest, to compare with.
func BenchmarkBareBashTrue(b *testing.B) {
	for b.Loop() {
		if err := exec.Command("bash", "-c", "true").Run(); err != nil {
			b.Fatal(err)
		}
	}
}
