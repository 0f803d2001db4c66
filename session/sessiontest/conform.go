package sessiontest

import (
	"bytes"
	"context"
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

// Conform is the suite that every Runtime passes, for one runtime class of it: the contract of
// session.Runtime first, then the whole core over it with the real guest.
// A runtime class that is added needs no tests of its own for what stands here, and a difference between
// two classes shows as one that fails and one that does not.
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
		{"fixtures", c.fixtures},
		{"a killed tree is gone", c.kill},
		{"a killed tree takes nothing else along", c.killBeside},
		{"a restart attaches again", c.restart},
		{"a detached command outlives the daemon", c.detached},
		{"pausing a sandbox", c.pauses},
		{"a paused container", c.paused},
		{"a container that dozes", c.dozes},
	} {
		t.Run(test.name, test.run)
	}
}

// conformance is what each part of the suite works with. The parts share no container: each fails for a
// reason of its own.
type conformance struct {
	rt     session.Runtime
	images session.Images
	class  proto.RuntimeClass
}

// spec is a small sandbox with a workspace of its own. Its limits are far below the defaults, so that
// several fit on a machine that runs other tests.
func (c conformance) spec(t *testing.T) session.Spec {
	t.Helper()
	img, err := c.images.Resolve(context.Background(), "base")
	if err != nil {
		t.Fatal(err)
	}
	return session.Spec{
		Image: img.Digest, Class: c.class, Workspace: proto.NewID(proto.WorkspacePrefix),
		Limits: proto.Limits{CPUs: 1, MemoryBytes: 512 << 20, PIDs: 128, DiskBytes: 256 << 20, OpenFiles: 1024},
	}
}

// start starts a sandbox that is gone after the test, with its workspace.
// Its clean-up is registered before the start: a start that fails half way must leave nothing either.
func (c conformance) start(t *testing.T, spec session.Spec) string {
	t.Helper()
	id := proto.NewID(proto.ContainerPrefix)
	t.Cleanup(func() { c.remove(t, id, spec.Workspace) })
	if err := c.rt.Start(context.Background(), id, spec); err != nil {
		t.Fatalf("starting: %v", err)
	}
	return id
}

// remove ends a sandbox with its workspace and looks whether both are gone. It is called for sandboxes
// that never were, too: stopping and removing what is not there is no error.
func (c conformance) remove(t *testing.T, id, workspace string) {
	t.Helper()
	ctx := context.Background()
	if err := c.rt.Stop(ctx, id); err != nil {
		t.Errorf("stopping: %v", err)
	}
	if err := c.rt.RemoveWorkspace(ctx, workspace); err != nil {
		t.Errorf("removing the workspace: %v", err)
	}
	inv, err := c.rt.List(ctx)
	if err != nil || slices.Contains(inv.Sandboxes, id) || slices.Contains(inv.Workspaces, workspace) {
		t.Errorf("still listed after removal: %+v %v", inv, err)
	}
}

// client talks to a sandbox's guest, each time on a new connection of the runtime's.
func (c conformance) client(t *testing.T, id string) *client.Client {
	t.Helper()
	g := client.NewClient(func(ctx context.Context) (net.Conn, error) { return c.rt.Dial(ctx, id) })
	t.Cleanup(func() { g.Close() })
	return g
}

// lifecycle starts, dials, starts again and stops twice. The core repeats both after a crash, when it
// cannot know how far it came, so neither may fail or do anything the second time.
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
	// The boot ID is made by each guest anew: the same one means that the same guest still runs.
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
	// NotFound rather than Unavailable, since the core starts a sandbox that is gone, and waits for one
	// that does not answer.
	if _, err := c.rt.Dial(ctx, id); proto.CodeOf(err) != proto.NotFound {
		t.Fatalf("dialling what was stopped: %v", err)
	}
}

// workspace writes inside and outside of the workspace and looks from the next sandbox for both.
func (c conformance) workspace(t *testing.T) {
	ctx := context.Background()
	spec := c.spec(t)
	first := c.start(t, spec)
	g := c.client(t, first)
	// The default user's UID has to be the same from one sandbox to the next, or its own files would be
	// another's.
	if _, err := g.Write(ctx, proto.UserDefault, "/workspace/a/b", wire.WriteOptions{}, strings.NewReader(
		"kept")); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Write(ctx, proto.UserRoot, "/tmp/x", wire.WriteOptions{}, strings.NewReader(
		"not kept")); err != nil {
		t.Fatal(err)
	}
	if err := c.rt.Stop(ctx, first); err != nil {
		t.Fatal(err)
	}
	second := c.start(t, spec)
	h := c.client(t, second)
	fi, err := h.Stat(ctx, proto.UserDefault, "/workspace/a/b")
	if err != nil || fi.SizeBytes != 4 || fi.UID != 1000 {
		t.Fatalf("in the next sandbox: %+v %v", fi, err)
	}
	// What stands outside is thrown away with the sandbox. A leftover there would be shown to whoever gets
	// the next one.
	if _, err := h.Stat(ctx, proto.UserDefault, "/tmp/x"); proto.CodeOf(err) != proto.NotFound {
		t.Fatalf("what was outside the workspace stayed: %v", err)
	}
}

// absent asks for what never was, and for workspaces with names that are paths. A name that reached the
// file system as it is would remove somebody else's files, as root.
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
		_ = c.rt.RemoveWorkspace(ctx, bad) // refusing is as good as finding nothing
	}
	if inv, err := c.rt.List(ctx); err != nil || !slices.Contains(inv.Workspaces, spec.Workspace) {
		t.Errorf("a name that is none removed a workspace: %+v %v", inv, err)
	}
}

// givenUp starts with a context that has ended, as when a client hangs up. Who asked is gone, so nothing
// would ever stop a sandbox that was left.
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
	c.remove(t, id, spec.Workspace)
}

// parallel starts six at once, which is where locks, names and addresses that are shared by mistake show.
func (c conformance) parallel(t *testing.T) {
	var wg sync.WaitGroup
	for range 6 {
		spec := c.spec(t)
		id := proto.NewID(proto.ContainerPrefix)
		wg.Go(func() {
			defer c.remove(t, id, spec.Workspace)
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

// commands runs what any client may ask for and compares the whole result. Each line stands for something
// that a runtime can get wrong.
func (c conformance) commands(t *testing.T) {
	_, s := c.session(t)
	for _, k := range []struct {
		cmd            proto.Cmd
		stdout, stderr string
		code           int
	}{
		// Both streams are kept apart, and the code is the command's own.
		{proto.Cmd{Command: "echo out; echo err >&2; exit 3"}, "out\n", "err\n", 3},
		// The default user, its home, and a job's directory as the working directory.
		{proto.Cmd{Command: "id -u; id -un; echo $HOME; pwd", JobID: "j"}, "1000\nuser\n/home/user\n/workspace/j\n", "",
			0},
		{proto.Cmd{Command: "id -u", User: proto.UserRoot}, "0\n", "", 0},
		// A shell's convention: 128 and the signal's number.
		{proto.Cmd{Command: "kill -KILL $$"}, "", "", 137},
		// More than a pipe holds (64 KiB), in both directions at once: who writes all input before reading
		// any output hangs here.
		{proto.Cmd{Command: "cat", Stdin: strings.Repeat("x", 300_000)}, strings.Repeat("x", 300_000), "", 0},
		// 127 is what a shell says of a program that is missing. What stands on stderr is the kernel's
		// wording, and no promise.
		{proto.Cmd{Argv: []string{"/no/such"}}, "", "", 127},
		// More than a frame of the guest's protocol holds, so that it comes in parts.
		{proto.Cmd{Command: "head -c 500000 /dev/zero | tr '\\0' y"}, strings.Repeat("y", 500_000), "", 0},
		// A process that is left holds the pipe open; waiting for its end would take a thousand seconds.
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

// shells checks that a named shell keeps its directory and variables from one command to the next, that
// "exit" ends just that shell, and that a terminal has the size that was asked for.
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
	// Where a command has put nothing into its output directory that goes. gVisor tells nobody where a shell stands,
	// and it stays there.
	if out := Bash(t, s, "ls ../*/outputs | wc -l").Stdout; c.class != proto.ClassGVisor && out != "1\n" { // its own
		t.Errorf("%s output directories are left", strings.TrimSpace(out))
	}
	// A terminal turns a line feed into carriage return and line feed, as the kernel does by default.
	res, err := s.Run(ctx, proto.Cmd{Argv: []string{"sh", "-c", "test -t 0 && stty size"}, TTY: &proto.WindowSize{
		Rows: 12, Cols: 34}})
	if err != nil || res.Result.Result == nil || res.Result.Result.Stdout != "12 34\r\n" {
		t.Fatalf("terminal: %+v %v", res.Result.Result, err)
	}
}

// files goes through the API for files: a large one by ranges, an archive there and back, permissions and
// the editor.
func (c conformance) files(t *testing.T) {
	ctx := context.Background()
	_, s := c.session(t)
	// 1 MiB, so that it takes many frames, with a pattern in which a part at a wrong place shows.
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
	// To look at /etc/shadow needs no right to the file itself; to read it does. NotFound stands for
	// images that have no such file.
	if _, err := s.Stat(ctx, proto.UserDefault, "/etc/shadow"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.ReadFile(ctx, proto.UserDefault, "/etc/shadow", 0, -1); proto.CodeOf(
		err) != proto.PermissionDenied && proto.CodeOf(err) != proto.NotFound {
		t.Fatalf("an ordinary user reads /etc/shadow: %v", err)
	}
	// The editor is a part of the guest, so that it works with the user's rights and on the kernel's view
	// of the files.
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

// kill looks whether a time limit ends all that a command has started: new sessions, cleared environments
// and double forks take a process out of reach of a signal to the process group.
func (c conformance) kill(t *testing.T) {
	_, s := c.session(t)
	res, err := s.Run(context.Background(), proto.Cmd{
		// The numbers of seconds are the marks to look for.
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

// restart closes the core and opens it again over a sandbox that runs on, which is what an update of the
// daemon is.
func (c conformance) restart(t *testing.T) {
	st, s := c.session(t)
	// /tmp is no workspace: a file there is proof that it is the very same sandbox, not a new one with the
	// old files.
	Bash(t, s, "echo $$ >/tmp/first")
	st.Reopen(t)
	again, err := st.Sessions.Get(Owner, s.ID())
	if err != nil {
		t.Fatal(err)
	}
	if out := Bash(t, again, "test -e /tmp/first && echo same").Stdout; out != "same\n" {
		t.Errorf("after a restart of the daemon it is another sandbox: %q", out)
	}
	// The generation counts starts. One that counted an attaching as a start would tell clients that their
	// processes are gone.
	if g := again.Info().Generation; g != 1 {
		t.Errorf("generation %d, want 1: %s", g, fmt.Sprint(again.Info()))
	}
	if err := st.Sessions.Delete(context.Background(), Owner, s.ID(), false); err != nil {
		t.Error(err)
	}
}

// detached runs a command over a restart: it counts, and no number is lost or comes twice.
// The output of the time without a daemon is kept by the guest, which hands it on from the offset that the
// next daemon asks for.
func (c conformance) detached(t *testing.T) {
	ctx := context.Background()
	st, s := c.session(t)
	e, err := s.Exec(ctx, proto.Cmd{Command: `n=0; until test -e /workspace/stop; do n=$((n+1)); echo $n; done; exit 7`,
		Background: true, MaxOutputBytes: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	// Long enough for some numbers to be written before the restart; how many there are does not matter.
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
	// Where the guest could not keep all of it, it says so with Truncated. A gap that nobody tells of is
	// the failure.
	for i, line := range lines {
		if line != fmt.Sprint(i+1) && !res.Exec.Truncated {
			t.Fatalf("line %d is %.40q", i+1, line)
		}
	}
	// Less than two lines would mean that the loop did not run at all, and the comparison above compared
	// nothing.
	if len(lines) < 2 {
		t.Errorf("%d lines", len(lines))
	}
	if err := st.Sessions.Delete(ctx, Owner, s.ID(), false); err != nil {
		t.Error(err)
	}
}
