package pid1

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/guest/client"
	"berth/guest/signals"
	"berth/guest/wire"
	"berth/proto"
	"berth/test/guesttest"
	"berth/test/needs"
)

// The tests run a real guest as PID 1 of a new PID namespace. It is the test program itself, executed again, so that
// the race detector checks the guest too.
const (
	initVariable = "BERTH_TEST_INIT"   // the guest's working directory
	cgroup       = "BERTH_TEST_CGROUP" // the memory cgroup of the guest, if any

	zygoteRestVariable = "BERTH_TEST_ZYGOTE_REST" // ServerOptions.ZygoteRest
	readyLine          = "ready"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(initVariable); dir != "" {
		if err := beInit(dir); err != nil {
			fmt.Fprintln(os.Stderr, "init:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	syscall.Umask(0o022) // as the guest's, for the files that tests make for the ordinary user
	os.Exit(m.Run())
}

// beInit runs the guest of a test.
func beInit(dir string) error {
	if err := signals.Ignore(); err != nil { // first, since it may execute the program again
		return err
	}
	_ = os.Unsetenv(initVariable)
	syscall.Umask(0o022)
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return err
	}
	if err := enterCgroup(os.Getenv(cgroup)); err != nil {
		return err
	}
	// The lowest limit that an image may set. Code that needs more descriptors would fail in such an image.
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1024, Max: 1024}); err != nil {
		return err
	}
	ln, err := net.Listen("unix", filepath.Join(dir, "guest.sock"))
	if err != nil {
		return err
	}
	rest, err := time.ParseDuration(cmp.Or(os.Getenv(zygoteRestVariable), "0"))
	if err != nil {
		return err
	}
	fmt.Println(readyLine)
	return Serve(context.Background(), ln, ServerOptions{
		Version: "test", Workspace: filepath.Join(dir, "workspace"), Scratch: dir,
		Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "IMAGE=yes"}, Init: true, ZygoteRest: rest,
	})
}

// enterCgroup makes dir the memory cgroup that a container sees as its own.
func enterCgroup(dir string) error {
	if dir == "" {
		return nil
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0); err != nil {
		return err
	}
	return unix.Mount(dir, filepath.Dir(dir), "", unix.MS_BIND, "")
}

// A world is a guest with a client.
type world struct {
	*client.Client
	t         testing.TB
	dir       string
	workspace string
	init      *exec.Cmd
}

// newWorld starts a guest. With frames set, descriptors cannot be passed.
func newWorld(t testing.TB, frames bool, env ...string) *world {
	t.Helper()
	needs.Root(t) // to start a guest as PID 1 of a new PID namespace
	dir, err := os.MkdirTemp("", "guest-")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, dir: dir, workspace: filepath.Join(dir, "workspace")}
	must(t, os.Chmod(dir, 0o755))
	must(t, os.Mkdir(w.workspace, 0o755))
	must(t, os.Chown(w.workspace, 1000, 1000))
	t.Cleanup(w.close)
	w.boot(env...)
	w.Client = client.NewClient(w.dialer(frames))
	return w
}

// boot starts the guest, also after an earlier one was killed.
func (w *world) boot(env ...string) {
	t := w.t
	t.Helper()
	_ = os.Remove(filepath.Join(w.dir, "guest.sock"))
	w.init = exec.Command("/proc/self/exe")
	w.init.Env = append(append(os.Environ(), initVariable+"="+w.dir), env...)
	w.init.Stderr = os.Stderr
	w.init.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	out, err := w.init.StdoutPipe()
	must(t, err)
	if err := w.init.Start(); err != nil {
		t.Fatalf("starting a guest in a new PID namespace: %v", err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || strings.TrimSpace(line) != readyLine {
		t.Fatalf("the guest did not start: %q, %v", line, err)
	}
}

// kill ends the guest and all its processes, as the kernel would.
func (w *world) kill() {
	if w.init != nil && w.init.Process != nil {
		_ = w.init.Process.Kill()
		_ = w.init.Wait()
	}
}

// inMemory creates the worlds of a test on a new file system in memory, and returns its path.
func inMemory(t *testing.T, options string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mem-")
	must(t, err)
	t.Cleanup(func() { must(t, os.Remove(dir)) })
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, options))
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	must(t, os.Chmod(dir, 0o755))
	t.Setenv("TMPDIR", dir)
	return dir
}

// dialer returns a function that connects to the guest.
func (w *world) dialer(frames bool) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, "unix", filepath.Join(w.dir, "guest.sock"))
		if err == nil && frames {
			c = guesttest.PlainConn{Conn: c}
		}
		return c, err
	}
}

func (w *world) close() {
	if w.Client != nil {
		_ = w.Client.Close()
	}
	w.kill()
	_ = os.RemoveAll(w.dir)
}

// eachMode runs a test with descriptors and with frames.
func eachMode(t *testing.T, fn func(t *testing.T, w *world)) {
	for _, m := range []struct {
		name   string
		frames bool
	}{{"pipes", false}, {"frames", true}} {
		t.Run(m.name, func(t *testing.T) {
			checkLeaks(t)
			fn(t, newWorld(t, m.frames))
		})
	}
}

// A collected stores the data that a sink gets.
type collected struct {
	mu  sync.Mutex
	out [3]bytes.Buffer
}

func (o *collected) sink(s proto.Stream, _ int64, b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.out[s].Write(b)
}

func (o *collected) stdout() string { return o.text(proto.Stdout) }
func (o *collected) stderr() string { return o.text(proto.Stderr) }

func (o *collected) text(s proto.Stream) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.out[s].String()
}

// until waits until the output contains text.
func (o *collected) until(t testing.TB, s proto.Stream, text string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%q on %v", text, s), func() bool { return strings.Contains(o.text(s), text) })
}

// result is the exit and output of a command.
type result struct {
	wire.Exit
	stdout, stderr string
}

// run runs a command to its end.
func (w *world) run(cmd wire.Command) result {
	w.t.Helper()
	var o collected
	p := w.start(cmd, &o)
	return w.wait(p, &o)
}

func (w *world) start(cmd wire.Command, o *collected) *client.Process {
	w.t.Helper()
	p, err := w.Start(short(w.t), cmd, o.sink)
	if err != nil {
		w.t.Fatalf("starting %q %q: %v", cmd.Text, cmd.Argv, err)
	}
	return p
}

func (w *world) wait(p *client.Process, o *collected) result {
	w.t.Helper()
	x, err := p.Wait(short(w.t))
	if err != nil {
		w.t.Fatalf("waiting: %v", err)
	}
	return result{x, o.stdout(), o.stderr()}
}

// bash runs a text in bash.
func (w *world) bash(text string) result {
	w.t.Helper()
	return w.run(wire.Command{Text: text})
}

// alive lists the command lines of the guest's living processes that contain text.
func (w *world) alive(text string) string {
	w.t.Helper()
	r := w.run(wire.Command{User: "root", Argv: []string{"ps", "-eo", "pid=,ppid=,stat=,args="}})
	var found []string
	for line := range strings.Lines(r.stdout) {
		if strings.Contains(line, text) && !strings.Contains(line, "ps -eo") {
			found = append(found, line)
		}
	}
	return strings.Join(found, "")
}

var (
	short      = guesttest.Short
	must       = guesttest.Must
	eventually = guesttest.Eventually
	checkLeaks = guesttest.CheckLeaks
	wantCode   = guesttest.WantCode
	frame      = guesttest.Frame
)
