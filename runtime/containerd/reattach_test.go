package containerd

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/proto"
	"berth/runtime/cgroup"
	"berth/session"
)

func tryStart(t *testing.T, r *Runtime, class proto.RuntimeClass) (string, error) {
	t.Helper()
	id := newID(proto.ContainerPrefix)
	return id, r.Start(t.Context(), id, session.Spec{
		Image: testImage(t, r), Class: class, Workspace: newID(proto.WorkspacePrefix), Layer: newID(proto.LayerPrefix),
		Limits: testLimits,
	})
}

// A daemonSandbox is what the daemon of TestKilledDaemon tells its parent about each sandbox that it has made.
type daemonSandbox struct {
	ID   string
	Spec session.Spec
}

func newDaemonSandbox(image string, class proto.RuntimeClass) daemonSandbox {
	return daemonSandbox{newID(proto.ContainerPrefix), session.Spec{
		Image: image, Class: class, Workspace: newID(proto.WorkspacePrefix), Layer: newID(proto.LayerPrefix),
		Limits: testLimits,
	}}
}

// testDaemon is the second process of TestKilledDaemon: it makes sandboxes and waits to be killed.
func testDaemon(dir string) int {
	guestPath, binDir = os.Getenv("BERTH_TEST_GUEST"), os.Getenv("BERTH_TEST_BIN")
	fail := func(err error) int { fmt.Fprintln(os.Stderr, "daemon:", err); return 1 }
	ctx := context.Background()
	cfg := testConfig(dir)
	warm := proto.RuntimeClass(os.Getenv("BERTH_TEST_WARM"))
	if warm != "" {
		cfg.Warm = crashWarm(warm)
	}
	r, err := Open(ctx, cfg)
	if err != nil {
		return fail(err)
	}
	archive, err := os.Open(os.Getenv("BERTH_TEST_IMAGE"))
	if err != nil {
		return fail(err)
	}
	img, err := r.Images().Import(ctx, "test", archive, nil)
	if err != nil {
		return fail(err)
	}
	if warm != "" {
		return fail(useWarm(ctx, r, img.Digest, warm))
	}
	if class := os.Getenv("BERTH_TEST_LOOP"); class != "" {
		for {
			fmt.Println("starting")
			s := newDaemonSandbox(img.Digest, proto.RuntimeClass(class))
			if err := r.Start(ctx, s.ID, s.Spec); err != nil {
				return fail(err)
			}
		}
	}
	var made []daemonSandbox
	for _, class := range []proto.RuntimeClass{proto.ClassRunc, proto.ClassGVisor, proto.ClassRunc} {
		s := newDaemonSandbox(img.Digest, class)
		if err := r.Start(ctx, s.ID, s.Spec); err != nil {
			return fail(err)
		}
		if ans, err := tryAsk(ctx, r, s.ID, guestRequest{Op: "write", Path: "/workspace/kept",
			Size: 1 << 20}); err != nil || ans.Err != "" {
			return fail(fmt.Errorf("writing: %v %v", ans, err))
		}
		made = append(made, s)
	}
	if err := json.NewEncoder(os.Stdout).Encode(made); err != nil {
		return fail(err)
	}
	select {} // the parent kills us
}

// TestKilledDaemon checks that sandboxes outlive a killed daemon, and that the next daemon finds them.
func TestKilledDaemon(t *testing.T) {
	dir := t.TempDir()
	var made []daemonSandbox
	said := killedDaemon(t, dir, 1, 0)
	if err := json.Unmarshal([]byte(said), &made); err != nil {
		t.Fatalf("the daemon said %q: %v", said, err)
	}
	r := openIn(t, dir)
	if n := loopsOver(t, filepath.Join(dir, "pool.img")); n != 1 {
		t.Errorf("%d loop devices over one pool", n)
	}
	for _, s := range made {
		if got := ask(t, r, s.ID, guestRequest{Op: "ping"}).Text; got != "pong" {
			t.Errorf("%s answers %q", s.ID, got)
		}
		if err := r.Start(t.Context(), s.ID, s.Spec); err != nil {
			t.Errorf("starting what runs: %v", err)
		}
		if got := ask(t, r, s.ID, guestRequest{Op: "read", Path: "/workspace/kept"}); len(got.Text) == 0 ||
			got.Err != "" {
			t.Errorf("its file is gone: %s", got.Err)
		}
		// The limit still holds, and the file system is the same.
		if got := ask(t, r, s.ID, guestRequest{Op: "write", Path: "/workspace/big", Size: 64 << 20}); got.Err == "" {
			t.Error("no disk limit after the restart")
		}
		if st, err := os.Stat(filepath.Join(r.disk.WorkspacePath(s.Spec.Workspace), "kept")); err != nil ||
			st.Size() != 1<<20 {
			t.Errorf("the new daemon does not see the file: %v", err)
		}
	}
	if r.ids.Count() != len(made) {
		t.Errorf("%d ranges learnt from %d sandboxes", r.ids.Count(), len(made))
	}
	for _, class := range []proto.RuntimeClass{proto.ClassRunc, proto.ClassGVisor} {
		if id, err := tryStart(t, r, class); err != nil {
			t.Errorf("starting one more of %s: %v", class, err)
		} else if got := ask(t, r, id, guestRequest{Op: "ping"}).Text; got != "pong" {
			t.Errorf("the new one answers %q", got)
		}
	}
	// A sandbox of the old daemon is removed completely, and its workspace serves a new one.
	old := made[0]
	if err := r.Stop(t.Context(), old.ID); err != nil {
		t.Fatalf("stopping an old one: %v", err)
	}
	next := newID(proto.ContainerPrefix)
	if err := r.Start(t.Context(), next, old.Spec); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, r, next, guestRequest{Op: "read", Path: "/workspace/kept"}); len(got.Text) == 0 {
		t.Errorf("the file did not come along: %s", got.Err)
	}
	stopAll(t, r)
	var ids []string
	for _, s := range made {
		ids = append(ids, s.ID)
	}
	nothingOf(t, r, ids)
}

// killedDaemon runs a daemon in dir and kills it the time later after its nth line. It returns that line.
func killedDaemon(t *testing.T, dir string, n int, later time.Duration, env ...string) string {
	t.Helper()
	return killedDaemonLines(t, dir, n, later, env...)[n-1]
}

// killedDaemonLines works like killedDaemon, but returns all lines.
func killedDaemonLines(t *testing.T, dir string, n int, later time.Duration, env ...string) []string {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image.tar")
	if err := os.WriteFile(image, ociArchive(t), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(append(os.Environ(), "BERTH_TEST_DAEMON="+dir, "BERTH_TEST_GUEST="+guestPath,
		"BERTH_TEST_BIN="+binDir, "BERTH_TEST_IMAGE="+image), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(out)
	var lines []string
	for range n {
		var line string
		if line, err = in.ReadString('\n'); err != nil {
			break
		}
		lines = append(lines, line)
	}
	time.Sleep(later) // the caller varies the step in which the daemon dies
	if killErr := cmd.Process.Kill(); killErr != nil {
		t.Fatal(killErr)
	}
	for err == nil { // lines written until then
		var line string
		if line, err = in.ReadString('\n'); err == nil {
			lines = append(lines, line)
		}
	}
	_ = cmd.Wait()
	if len(lines) < n {
		t.Fatalf("the daemon ended early: %v", err)
	}
	return lines
}

// TestKilledWhileStarting checks that the next daemon can list and remove all parts, wherever in a start a daemon
// dies.
func TestKilledWhileStarting(t *testing.T) {
	for class, times := range map[proto.RuntimeClass][]time.Duration{ // in milliseconds
		proto.ClassRunc: {0, 2, 15, 30, 50, 70}, proto.ClassGVisor: {20, 60, 120, 200, 300},
	} {
		t.Run(string(class), func(t *testing.T) { killedWhileStarting(t, class, times) })
	}
}

func killedWhileStarting(t *testing.T, class proto.RuntimeClass, times []time.Duration) {
	for _, later := range times {
		dir := t.TempDir()
		killedDaemon(t, dir, 3, later*time.Millisecond, "BERTH_TEST_LOOP="+string(class))
		r := openIn(t, dir)
		inv, err := r.List(t.Context())
		if err != nil || len(inv.Sandboxes) < 2 {
			t.Fatalf("listed %v, %v", inv.Sandboxes, err)
		}
		stopAll(t, r)
		nothingOf(t, r, inv.Sandboxes)
		if id, err := tryStart(t, r, class); err != nil {
			t.Errorf("starting after that: %v", err)
		} else if err := r.Stop(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
}

// nothingOf checks that no part of any of these sandboxes of r is left.
func nothingOf(t *testing.T, r *Runtime, ids []string) {
	t.Helper()
	noMore(t, r, map[string]int{
		"run dirs": 0, "sockets": 0, "bundles": 0, "layers": 0, "ranges": 0, "records": 0, "processes": 0, "states": 0,
	})
	for _, id := range ids {
		if left := cgroup.Dirs(id); len(left) > 0 {
			t.Errorf("cgroups left: %v", left)
		}
	}
}

func loopsOver(t *testing.T, img string) int {
	t.Helper()
	bound, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	n := 0
	for _, b := range bound {
		if path, err := os.ReadFile(b); err == nil && strings.TrimSpace(string(path)) == img {
			n++
		}
	}
	return n
}

// TestSecondDaemon checks that a second daemon cannot open a data directory: two would ruin it.
func TestSecondDaemon(t *testing.T) {
	r := openTest(t)
	if _, err := Open(t.Context(), r.cfg); proto.CodeOf(err) != proto.Conflict {
		t.Errorf("a second daemon: %v", err)
	}
}
