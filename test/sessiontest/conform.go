package sessiontest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"berth/guest/client"
	"berth/guest/wire"
	"berth/proto"
	"berth/session"
)

// Conform runs the suite that every Runtime passes, for one of its runtime classes. It tests the contract of
// session.Runtime first, then the whole core over it with the real guest. A new runtime class needs no tests of its
// own for this contract. A difference between two classes shows as one that fails and one that does not.
func Conform(t *testing.T, rt session.Runtime, images session.Images, class proto.RuntimeClass) {
	c := conformance{rt: rt, images: images, class: class}
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"start, dial, stop", c.lifecycle},
		{"a workspace outlives its sandbox", c.workspace},
		{"what is not there", c.absent},
		{"a start that is given up leaves nothing", c.givenUp},
		{"many at once", c.parallel},
		{"commands", c.commands},
		{"shells and terminals", c.shells},
		{"files", c.files},
		{"changes among many files", c.changes},
		{"fixtures", c.fixtures},
		{"a killed tree is gone", c.kill},
		{"a killed tree takes nothing else along", c.killBeside},
		{"a restart attaches again", c.restart},
		{"a detached command outlives the daemon", c.detached},
		{"pausing a sandbox", c.pauses},
		{"a paused container", c.paused},
		{"a snapshot", c.snapshot},
		{"a container that was idle", c.idle},
	} {
		t.Run(test.name, test.run)
	}
}

// conformance is what each part of the suite works with. The parts share no container, so each fails for its own
// reason.
type conformance struct {
	rt     session.Runtime
	images session.Images
	class  proto.RuntimeClass
}

// spec returns a small sandbox with its own workspace. Its limits are far below the defaults, so several fit on a
// machine that runs other tests.
func (c conformance) spec(t *testing.T) session.Spec {
	t.Helper()
	img, err := c.images.Resolve(context.Background(), "base")
	if err != nil {
		t.Fatal(err)
	}
	return session.Spec{
		Image: img.Digest, Class: c.class, Workspace: proto.NewID(proto.WorkspacePrefix),
		Layer: proto.NewID(proto.LayerPrefix), Limits: proto.Limits{CPUs: 1, MemoryBytes: 512 << 20, PIDs: 128, DiskBytes: 256 << 20, OpenFiles: 1024},
	}
}

// start starts a sandbox and removes it, with its workspace, after the test. It registers the clean-up before the
// start: a start that fails half way must leave nothing either.
func (c conformance) start(t *testing.T, spec session.Spec) string {
	t.Helper()
	id := proto.NewID(proto.ContainerPrefix)
	t.Cleanup(func() { c.remove(t, id, spec) })
	if err := c.rt.Start(context.Background(), id, spec); err != nil {
		t.Fatalf("starting: %v", err)
	}
	return id
}

// remove stops a sandbox, removes its workspace and its layer, and checks that all are gone. It is also called for
// sandboxes that never existed: to stop or remove a missing one is no error.
func (c conformance) remove(t *testing.T, id string, spec session.Spec) {
	t.Helper()
	ctx := context.Background()
	if err := c.rt.Stop(ctx, id); err != nil {
		t.Errorf("stopping: %v", err)
	}
	if err := c.rt.RemoveWorkspace(ctx, spec.Workspace); err != nil {
		t.Errorf("removing the workspace: %v", err)
	}
	if err := c.rt.RemoveLayer(ctx, spec.Layer); err != nil {
		t.Errorf("removing the layer: %v", err)
	}
	inv, err := c.rt.List(ctx)
	if err != nil || slices.Contains(inv.Sandboxes, id) || slices.Contains(inv.Workspaces, spec.Workspace) ||
		slices.Contains(inv.Layers, spec.Layer) {
		t.Errorf("still listed after removal: %+v %v", inv, err)
	}
}

// client returns a client of a sandbox's guest, each time on a new connection of the runtime.
func (c conformance) client(t *testing.T, id string) *client.Client {
	t.Helper()
	g := client.NewClient(func(ctx context.Context) (net.Conn, error) { return c.rt.Dial(ctx, id) })
	t.Cleanup(func() { g.Close() })
	return g
}

// lifecycle starts, dials, starts again and stops twice. After a crash the core repeats start and stop, since it
// cannot know how far it came. The second call must neither fail nor do anything.
func (c conformance) lifecycle(t *testing.T) {
	ctx := context.Background()
	spec := c.spec(t)
	id := c.start(t, spec)
	hello, err := c.client(t, id).Hello(ctx)
	// As PID 1 the guest reaps orphans, and the kernel ends every process of the sandbox with it.
	if err != nil || hello.PID != 1 {
		t.Fatalf("hello %+v, %v; the guest must be PID 1", hello, err)
	}
	if err := c.rt.Start(ctx, id, spec); err != nil {
		t.Fatalf("starting what runs: %v", err)
	}
	// Each guest makes a new boot ID: an equal one means that the same guest still runs.
	if again, err := c.client(t, id).Hello(ctx); err != nil || again.Boot != hello.Boot {
		t.Fatalf("starting what runs made another: %+v %v", again, err)
	}
	inv, err := c.rt.List(ctx)
	if err != nil || !slices.Contains(inv.Sandboxes, id) || !slices.Contains(inv.Workspaces, spec.Workspace) {
		t.Fatalf("not listed: %+v %v", inv, err)
	}
	for range 2 {
		if err := c.rt.Stop(ctx, id); err != nil {
			t.Fatalf("stopping: %v", err)
		}
	}
	// NotFound and not Unavailable: the core starts a missing sandbox again, and waits for one that does not answer.
	if _, err := c.rt.Dial(ctx, id); proto.CodeOf(err) != proto.NotFound {
		t.Fatalf("dialling what was stopped: %v", err)
	}
}

// workspace writes inside and outside of the workspace, and checks both in the next sandbox. A sandbox with another
// layer must find nothing of the first one's, or a user's files would be visible to the next.
func (c conformance) workspace(t *testing.T) {
	ctx := context.Background()
	spec := c.spec(t)
	first := c.start(t, spec)
	g := c.client(t, first)
	for user, path := range map[string]string{proto.UserDefault: "/workspace/a/b", proto.UserRoot: "/tmp/x"} {
		if _, err := g.Write(ctx, user, path, wire.WriteOptions{}, strings.NewReader("kept")); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.rt.Stop(ctx, first); err != nil {
		t.Fatal(err)
	}
	second := c.start(t, spec)
	h := c.client(t, second)
	// A user's UID must be the same in each sandbox, or its own files would belong to another user.
	for path, uid := range map[string]uint32{"/workspace/a/b": 1000, "/tmp/x": 0} {
		if fi, err := h.Stat(ctx, proto.UserDefault, path); err != nil || fi.SizeBytes != 4 || fi.UID != uid {
			t.Fatalf("in the next sandbox: %+v %v", fi, err)
		}
	}
	if err := c.rt.Stop(ctx, second); err != nil {
		t.Fatal(err)
	}
	spec.Layer = proto.NewID(proto.LayerPrefix)
	fresh := c.client(t, c.start(t, spec))
	if _, err := fresh.Stat(ctx, proto.UserDefault, "/tmp/x"); proto.CodeOf(err) != proto.NotFound {
		t.Fatalf("over another layer: %v", err)
	}
	gone := c.spec(t)
	gone.HasFiles = true
	if err := c.rt.Start(ctx, proto.NewID(proto.ContainerPrefix), gone); proto.CodeOf(err) != proto.NotFound {
		t.Fatalf("starting over a workspace that is gone: %v", err)
	}
	if inv, err := c.rt.List(ctx); err != nil || slices.Contains(inv.Workspaces, gone.Workspace) {
		t.Fatalf("it was made: %+v %v", inv, err)
	}
}

// snapshot takes a snapshot while a command writes, and gives it to another session and to the first.
func (c conformance) snapshot(t *testing.T) {
	ctx := context.Background()
	spec, other := c.spec(t), c.spec(t)
	id := c.start(t, spec)
	write := func(id, text string) {
		t.Helper()
		for user, path := range map[string]string{proto.UserDefault: "/workspace/a", proto.UserRoot: "/tmp/x"} {
			if _, err := c.client(t, id).Write(ctx, user, path, wire.WriteOptions{},
				strings.NewReader(text)); err != nil {
				t.Fatal(err)
			}
		}
	}
	check := func(id string, size int64) {
		t.Helper()
		for path, uid := range map[string]uint32{"/workspace/a": 1000, "/tmp/x": 0} {
			fi, err := c.client(t, id).Stat(ctx, proto.UserDefault, path)
			if err != nil || fi.SizeBytes != size || fi.UID != uid {
				t.Errorf("%s: %+v %v, want %d bytes", path, fi, err, size)
			}
		}
	}
	write(id, "old")
	snapshot := proto.NewID(proto.SnapshotPrefix)
	t.Cleanup(func() {
		if err := c.rt.RemoveSnapshot(ctx, snapshot); err != nil {
			t.Error(err)
		}
		if inv, err := c.rt.List(ctx); err != nil || slices.Contains(inv.Snapshots, snapshot) {
			t.Errorf("still listed: %v %v", inv.Snapshots, err)
		}
	})
	if err := c.rt.TakeSnapshot(ctx, id, spec, snapshot); err != nil {
		t.Fatal(err)
	}
	if c.rt.Paused(id) {
		t.Error("it stays frozen")
	}
	if inv, err := c.rt.List(ctx); err != nil || !slices.Contains(inv.Snapshots, snapshot) {
		t.Errorf("not listed: %v %v", inv.Snapshots, err)
	}
	write(id, "newer")

	second := proto.NewID(proto.ContainerPrefix)
	t.Cleanup(func() { c.remove(t, second, other) })
	other.HasFiles = true
	for range 2 { // as after a crash
		if err := c.rt.Revert(ctx, second, other, snapshot, "second"); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.rt.Start(ctx, second, other); err != nil {
		t.Fatal(err)
	}
	check(second, 3)
	check(id, 5)

	if err := errors.Join(c.rt.Stop(ctx, id), c.rt.RemoveLayer(ctx, spec.Layer)); err != nil {
		t.Fatal(err)
	}
	if err := c.rt.Revert(ctx, id, spec, snapshot, "undo"); err != nil {
		t.Fatal(err)
	}
	if err := c.rt.Start(ctx, id, spec); err != nil {
		t.Fatal(err)
	}
	check(id, 3)
	if err := c.rt.Revert(ctx, id, spec, proto.NewID(proto.SnapshotPrefix), "none"); err == nil {
		t.Error("a snapshot that is not there was restored under a running sandbox")
	}
}

// absent asks for sandboxes that never existed, and for workspaces whose names are paths. A name that reached the
// file system unchecked would remove other files, as root.
func (c conformance) absent(t *testing.T) {
	ctx := context.Background()
	id := proto.NewID(proto.ContainerPrefix)
	if err := c.rt.Stop(ctx, id); err != nil {
		t.Errorf("stopping what is not there: %v", err)
	}
	if err := c.rt.RemoveWorkspace(ctx, proto.NewID(proto.WorkspacePrefix)); err != nil {
		t.Errorf("removing a workspace that is not there: %v", err)
	}
	if _, err := c.rt.Dial(ctx, id); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("dialling what is not there: %v", err)
	}
	spec := c.spec(t)
	c.start(t, spec)
	for _, bad := range []string{"", ".", "..", "../../etc", "workspace_../" + spec.Workspace, "workspace_*"} {
		_ = c.rt.RemoveWorkspace(ctx, bad) // an error and a no-op are both correct
	}
	if inv, err := c.rt.List(ctx); err != nil || !slices.Contains(inv.Workspaces, spec.Workspace) {
		t.Errorf("a name that is none removed a workspace: %+v %v", inv, err)
	}
}

// givenUp starts with a context that has ended, as when a client hangs up. The caller is gone, so nothing would ever
// stop a sandbox that the start left.
func (c conformance) givenUp(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	spec := c.spec(t)
	id := proto.NewID(proto.ContainerPrefix)
	if err := c.rt.Start(ctx, id, spec); err == nil {
		t.Error("started although its context had ended")
	}
	inv, err := c.rt.List(context.Background())
	if err != nil || slices.Contains(inv.Sandboxes, id) {
		t.Errorf("left: %+v %v", inv, err)
	}
	c.remove(t, id, spec)
}

// parallel starts six sandboxes at once, to find locks, names and addresses that are shared by mistake.
func (c conformance) parallel(t *testing.T) {
	var wg sync.WaitGroup
	for range 6 {
		spec := c.spec(t)
		id := proto.NewID(proto.ContainerPrefix)
		wg.Go(func() {
			defer c.remove(t, id, spec)
			if err := c.rt.Start(context.Background(), id, spec); err != nil {
				t.Errorf("starting: %v", err)
				return
			}
			g := client.NewClient(func(ctx context.Context) (net.Conn, error) { return c.rt.Dial(ctx, id) })
			defer g.Close()
			if _, err := g.Hello(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// session makes a session over the runtime, in a stack of its own.
func (c conformance) session(t *testing.T) (*Stack, *session.Session) {
	t.Helper()
	return c.sessionWith(t, session.Config{})
}

func (c conformance) sessionWith(t *testing.T, cfg session.Config) (*Stack, *session.Session) {
	t.Helper()
	st := Over(t, c.rt, c.images, cfg)
	s := st.Create(t, proto.CreateContainer{
		RuntimeClass: c.class, Limits: proto.Limits{CPUs: 1, MemoryBytes: 512 << 20, PIDs: 128, DiskBytes: 256 << 20,
			OpenFiles: 1024},
	})
	// Sandboxes outlive a stack, as they outlive a daemon, so the session is deleted rather than closed.
	t.Cleanup(func() {
		if st.Sessions != nil {
			_ = st.Sessions.Delete(context.Background(), Owner, s.ID(), false)
		}
	})
	return st, s
}

// commands runs what a client may ask for and compares the whole result. Each line is a case that a runtime can get
// wrong.
func (c conformance) commands(t *testing.T) {
	_, s := c.session(t)
	for _, k := range []struct {
		cmd            proto.Cmd
		stdout, stderr string
		code           int
	}{
		// Both streams are separate, and the code is the command's own.
		{proto.Cmd{Command: "echo out; echo err >&2; exit 3"}, "out\n", "err\n", 3},
		// The default user, its home, and a job's directory as the working directory.
		{proto.Cmd{Command: "id -u; id -un; echo $HOME; pwd", JobID: "j"}, "1000\nuser\n/home/user\n/workspace/j\n", "",
			0},
		{proto.Cmd{Command: "id -u", User: proto.UserRoot}, "0\n", "", 0},
		// Any user of the image, by name or number, with an output directory of its own.
		{proto.Cmd{Command: "id -u; id -G; stat -c %u:%g $OUTPUT_DIR", User: "4242:77"}, "4242\n77\n4242:77\n", "", 0},
		{proto.Cmd{Command: "id -un; echo $HOME $SHELL", User: "daemon"}, "daemon\n/usr/sbin /usr/sbin/nologin\n", "", 0},
		// An ordinary user may listen on any port.
		{proto.Cmd{Argv: []string{"python3", "-c", "import socket; socket.create_server(('127.0.0.1', 80)); print('ok')"}},
			"ok\n", "", 0},
		// A shell's convention: 128 and the signal's number.
		{proto.Cmd{Command: "kill -KILL $$"}, "", "", 137},
		// More than a pipe holds (64 KiB), in both directions at once: a runtime that writes all input before it
		// reads any output hangs here.
		{proto.Cmd{Command: "cat", Stdin: strings.Repeat("x", 300_000)}, strings.Repeat("x", 300_000), "", 0},
		// 127 is a shell's code for a missing program. The text on stderr is the kernel's and may vary.
		{proto.Cmd{Argv: []string{"/no/such"}}, "", "", 127},
		// More than a frame of the guest's protocol holds, so it comes in several frames.
		{proto.Cmd{Command: "head -c 500000 /dev/zero | tr '\\0' y"}, strings.Repeat("y", 500_000), "", 0},
		// A process that is left keeps the pipe open; a runtime that waits for its end would take a thousand seconds.
		{proto.Cmd{Command: "(sleep 1000 &) ; echo quick"}, "quick\n", "", 0},
	} {
		res, err := s.Run(context.Background(), k.cmd)
		if err != nil || res.Result.Result == nil {
			t.Fatalf("%+v: %v %+v", k.cmd.Command, err, res.Exec.End)
		}
		r := res.Result.Result
		if r.Stdout != k.stdout || k.code != 127 && r.Stderr != k.stderr || r.ReturnCode != k.code {
			t.Errorf("%q: %d, %d bytes of stdout, stderr %q", k.cmd.Command, r.ReturnCode, len(r.Stdout), r.Stderr)
		}
	}
}

// shells checks that a named shell keeps its directory and variables between commands, that "exit" ends only that
// shell, and that a terminal has the requested size.
func (c conformance) shells(t *testing.T) {
	ctx := context.Background()
	_, s := c.session(t)
	// After the exit the same name is a new shell, without the variable.
	for _, k := range []struct{ text, want string }{{"cd /tmp; V=1", ""}, {"pwd; echo $V", "/tmp\n1\n"}, {"exit 4", ""},
		{"echo ${V-gone}", "gone\n"}} {
		res, err := s.Run(ctx, proto.Cmd{Command: k.text, Shell: "sh"})
		if err != nil || res.Result.Result == nil || res.Result.Result.Stdout != k.want {
			t.Fatalf("%q: %+v %v", k.text, res.Result.Result, err)
		}
	}
	// An output directory that a command left empty is removed. gVisor does not tell the working directory of a
	// shell, so there it stays.
	if out := Bash(t, s, "ls ../*/.outputs | wc -l").Stdout; c.class != proto.ClassGVisor && out != "1\n" { // its own
		t.Errorf("%s output directories are left", strings.TrimSpace(out))
	}
	// A terminal turns a line feed into carriage return and line feed, which is the kernel's default.
	res, err := s.Run(ctx, proto.Cmd{Argv: []string{"sh", "-c", "test -t 0 && stty size"}, TTY: &proto.WindowSize{
		Rows: 12, Cols: 34}})
	if err != nil || res.Result.Result == nil || res.Result.Result.Stdout != "12 34\r\n" {
		t.Fatalf("terminal: %+v %v", res.Result.Result, err)
	}
}

// files tests the API for files: a large file by ranges, an archive in both directions, permissions and the editor.
func (c conformance) files(t *testing.T) {
	ctx := context.Background()
	_, s := c.session(t)
	// 1 MiB takes many frames, and the pattern shows a part at a wrong offset.
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	if _, err := s.WriteFile(ctx, proto.UserDefault, "/workspace/j/deep/big", session.WriteOptions{Mode: 0o640},
		bytes.NewReader(big)); err != nil {
		t.Fatal(err)
	}
	r, fi, err := s.ReadFile(ctx, proto.UserDefault, "/workspace/j/deep/big", 16, 1<<20-16)
	if err != nil || fi.SizeBytes != int64(len(big)) || fi.Mode != "0640" {
		t.Fatalf("%+v %v", fi, err)
	}
	got, err := io.ReadAll(r)
	if r.Close(); err != nil || !bytes.Equal(got, big[16:]) {
		t.Fatalf("read back %d bytes, %v", len(got), err)
	}
	tarball, err := s.Tar(ctx, proto.UserDefault, "/workspace/j/deep")
	if err != nil {
		t.Fatal(err)
	}
	err = s.Untar(ctx, proto.UserDefault, "/workspace/k", tarball)
	if tarball.Close(); err != nil {
		t.Fatal(err)
	}
	if out := Bash(
		t, s, "find /workspace/k -name big | xargs cmp /workspace/j/deep/big && echo same").Stdout; out != "same\n" {
		t.Fatalf("after tar and untar: %q", out)
	}
	// Stat of /etc/shadow needs no right to the file itself, but reading does. NotFound is for images without the
	// file.
	if _, err := s.Stat(ctx, proto.UserDefault, "/etc/shadow"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.ReadFile(ctx, proto.UserDefault, "/etc/shadow", 0, -1); proto.CodeOf(
		err) != proto.PermissionDenied && proto.CodeOf(err) != proto.NotFound {
		t.Fatalf("an ordinary user reads /etc/shadow: %v", err)
	}
	// The editor is a part of the guest: it has the user's rights and the kernel's view of the files.
	text, old, new := "one\ntwo\n", "two", "2"
	for _, in := range []proto.EditorInput{
		{Command: "create", Path: "/workspace/j/e", FileText: &text}, {Command: "str_replace", Path: "/workspace/j/e",
			OldStr: &old, NewStr: &new},
	} {
		if _, err := s.Edit(ctx, proto.UserDefault, in); err != nil {
			t.Fatal(err)
		}
	}
	if out := Bash(t, s, "cat /workspace/j/e").Stdout; out != "one\n2\n" {
		t.Fatalf("edited: %q", out)
	}
}

// kill checks that a time limit ends every process that a command has started. New sessions, cleared environments and
// double forks take a process out of reach of a signal to the process group.
func (c conformance) kill(t *testing.T) {
	_, s := c.session(t)
	res, err := s.Run(context.Background(), proto.Cmd{
		// The numbers of seconds identify the processes.
		Command:        `setsid sh -c 'exec -a berth-escapee sleep 1000' & (env -i setsid sleep 1001 &) ; sleep 1002`,
		TimeoutSeconds: 1,
	})
	if err != nil || res.Exec.End.Reason != proto.EndTimeout {
		t.Fatalf("%+v %v", res.Exec.End, err)
	}
	out := Bash(
		t, s,
		`for p in /proc/[0-9]*; do tr '\0' ' ' <$p/cmdline 2>/dev/null; echo; done | grep -c 'sleep 10[0]' || true`).Stdout
	if strings.TrimSpace(out) != "0" {
		t.Errorf("%s processes are left", strings.TrimSpace(out))
	}
}

// killBeside starts commands while others are killed.
func (c conformance) killBeside(t *testing.T) {
	_, s := c.session(t)
	for range 40 {
		e, err := s.Exec(context.Background(), proto.Cmd{Command: "sleep 1000 & sleep 1000", Background: true})
		if err != nil {
			t.Fatal(err)
		}
		e.Cancel(proto.EndKilled, "the test says so")
		for range 3 {
			res, err := s.Run(context.Background(), proto.Cmd{Command: "exit 5"})
			if err != nil || res.Exec.End.Reason != proto.EndExit || res.Exec.End.ReturnCode != 5 {
				t.Fatalf("beside one that was killed: %+v %v", res.Exec.End, err)
			}
		}
	}
}

// restart closes the core and opens it again while the sandbox runs, as an update of the daemon does.
func (c conformance) restart(t *testing.T) {
	st, s := c.session(t)
	// /tmp is outside the workspace: a file there proves that it is the same sandbox, not a new one with the old
	// files.
	Bash(t, s, "echo $$ >/tmp/first")
	st.Reopen(t)
	again, err := st.Sessions.Get(Owner, s.ID())
	if err != nil {
		t.Fatal(err)
	}
	if out := Bash(t, again, "test -e /tmp/first && echo same").Stdout; out != "same\n" {
		t.Errorf("after a restart of the daemon it is another sandbox: %q", out)
	}
	// The generation counts starts. If it counted a reattach, clients would believe that their processes are gone.
	if g := again.Info().Generation; g != 1 {
		t.Errorf("generation %d, want 1: %s", g, fmt.Sprint(again.Info()))
	}
	if err := st.Sessions.Delete(context.Background(), Owner, s.ID(), false); err != nil {
		t.Error(err)
	}
}

// detached runs a counting command over a restart: no number may be lost or come twice. Without a daemon the guest
// keeps the output. The next daemon asks for it by offset.
func (c conformance) detached(t *testing.T) {
	ctx := context.Background()
	st, s := c.session(t)
	e, err := s.Exec(ctx, proto.Cmd{Command: `n=0; until test -e /workspace/stop; do n=$((n+1)); echo $n; done; exit 7`,
		Background: true, MaxOutputBytes: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	// Long enough for some numbers before the restart; how many does not matter.
	Bash(t, s, "sleep 0.2")
	st.Reopen(t)
	if s, err = st.Sessions.Get(Owner, s.ID()); err != nil {
		t.Fatal(err)
	}
	if e, err = s.FindExec(e.ID()); err != nil || e.Info().State != proto.ExecRunning {
		t.Fatalf("after a restart: %v %+v", err, e.Info())
	}
	Bash(t, s, "touch /workspace/stop")
	res, err := e.Wait(ctx)
	if err != nil || res.Exec.End.ReturnCode != 7 || res.Result.Result == nil {
		t.Fatalf("%+v %v", res.Exec.End, err)
	}
	lines := strings.Split(strings.TrimSuffix(res.Result.Result.Stdout, "\n"), "\n")
	// If the guest could not keep all output, it reports Truncated. Only an unreported gap is a failure.
	for i, line := range lines {
		if line != fmt.Sprint(i+1) && !res.Exec.Truncated {
			t.Fatalf("line %d is %.40q", i+1, line)
		}
	}
	// With less than two lines the loop did not run, and the comparison above compared nothing.
	if len(lines) < 2 {
		t.Errorf("%d lines", len(lines))
	}
	if err := st.Sessions.Delete(ctx, Owner, s.ID(), false); err != nil {
		t.Error(err)
	}
}
