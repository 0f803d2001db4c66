package containerd

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/mount"

	"berth/proto"
	"berth/runtime/cgroup"
	"berth/runtime/diskpool"
	"berth/session"
)

// TestPlainPool checks that containers run without a pool, and that Facts says what is missing.
func TestPlainPool(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.PoolBytes = 1 << 20 // too small for btrfs
	r := openWith(t, cfg)
	if f := r.Facts(); f.Pool != diskpool.Plain || f.DiskLimits || f.PoolWhy == "" {
		t.Fatalf("facts: %+v", f)
	}
	id, spec := startTest(t, r, proto.ClassRunc)
	owners(t, r, id)
	fileNumbers(t, r, id, spec)
	if err := r.Stop(t.Context(), id); err != nil {
		t.Error(err)
	}
	if err := r.RemoveWorkspace(t.Context(), spec.Workspace); err != nil {
		t.Error(err)
	}
	if inv, err := r.List(t.Context()); err != nil || len(inv.Sandboxes)+len(inv.Workspaces) > 0 {
		t.Errorf("left %+v, %v", inv, err)
	}
}

// TestRangeWithoutRecord checks that a running sandbox keeps its user IDs even if containerd has lost its record.
func TestRangeWithoutRecord(t *testing.T) {
	dir := t.TempDir()
	r := openIn(t, dir)
	id, _ := startTest(t, r, proto.ClassRunc)
	first := r.ids.Base(id)
	// as "chown 1000 /" does inside
	if err := os.Chown(filepath.Join(r.disk.LayerPath(id), "upper"), int(first)+1000, int(first)); err != nil {
		t.Fatal(err)
	}
	if err := r.client.ContainerService().Delete(r.ns(t.Context()), id); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	next := openIn(t, dir)
	if got := next.ids.Base(id); got != first {
		t.Errorf("it has the range from %d, had that from %d", got, first)
	}
	if err := next.Stop(t.Context(), id); err != nil || next.ids.Has(id) {
		t.Errorf("after its end: %t, %v", next.ids.Has(id), err)
	}
}

// TestPoolIsRootsAlone checks that root owns on disk what a container's root makes in its workspace, set-user-ID
// programs included. No other user of the host can run one, whether the pool is mounted or not.
func TestPoolIsRootsAlone(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // like /var/lib
		t.Fatal(err)
	}
	plain := testConfig(filepath.Join(dir, "plain"))
	plain.PoolBytes = 1 << 20
	for _, cfg := range []Config{plain, testConfig(filepath.Join(dir, "loop"))} {
		r := openWith(t, cfg)
		_, spec := startTest(t, r, proto.ClassRunc)
		program, err := os.ReadFile("/bin/true")
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(r.disk.WorkspacePath(spec.Workspace), "su")
		if err := errors.Join(os.WriteFile(path, program, 0o755), os.Chmod(path, 0o755|fs.ModeSetuid)); err != nil {
			t.Fatal(err)
		}
		for uid, want := range map[uint32]error{0: nil, 65534: fs.ErrPermission} {
			cmd := exec.Command(path)
			cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
			if err := cmd.Run(); !errors.Is(err, want) {
				t.Errorf("%s pool, host user %d: %v, want %v", r.Facts().Pool, uid, err, want)
			}
		}
	}
}

func TestParallelStarts(t *testing.T) {
	r := openTest(t)
	image := testImage(t, r)
	var wg sync.WaitGroup
	for range 12 {
		wg.Go(func() {
			s := newDaemonSandbox(image, proto.ClassRunc)
			if err := r.Start(t.Context(), s.ID, s.Spec); err != nil {
				t.Error(err)
				return
			}
			if ans, err := tryAsk(t.Context(), r, s.ID, guestRequest{Op: "ping"}); err != nil || ans.Text != "pong" {
				t.Errorf("%v %v", ans, err)
			}
		})
	}
	wg.Wait()
	if n := r.ids.Count(); n != 12 {
		t.Errorf("%d ranges for 12 sandboxes", n)
	}
}

// TestSameStartTwice checks that two calls for one ID make one sandbox, and that both succeed.
func TestSameStartTwice(t *testing.T) {
	r := openTest(t)
	s := newDaemonSandbox(testImage(t, r), proto.ClassRunc)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if err := r.Start(t.Context(), s.ID, s.Spec); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if inv, err := r.List(t.Context()); err != nil || len(inv.Sandboxes) != 1 {
		t.Errorf("made %v, %v", inv.Sandboxes, err)
	}
}

// TestCanceledStart checks that nothing is left of a sandbox whose caller leaves while it is made.
func TestCanceledStart(t *testing.T) {
	r := openTest(t)
	s := newDaemonSandbox(testImage(t, r), proto.ClassRunc)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for !r.bundles.Has(s.ID) && ctx.Err() == nil {
			time.Sleep(50 * time.Microsecond)
		}
		cancel()
	}()
	if err := r.Start(ctx, s.ID, s.Spec); proto.CodeOf(err) != proto.Canceled {
		t.Errorf("starting for nobody: %v", err)
	}
	inv, err := r.List(t.Context())
	if err != nil || len(inv.Sandboxes) > 0 {
		t.Errorf("left %v, %v", inv.Sandboxes, err)
	}
	nothingOf(t, r, []string{s.ID})
}

func TestRefusedSpecs(t *testing.T) {
	r := openTest(t)
	good := newDaemonSandbox(testImage(t, r), proto.ClassRunc)
	cases := map[string]struct {
		change func(id *string, s *session.Spec)
		code   proto.Code
	}{
		"id as a path": {func(id *string, _ *session.Spec) { *id = "container_../../../../../etc" },
			proto.InvalidArgument},
		"workspace as a path": {func(_ *string, s *session.Spec) { s.Workspace = "../../etc" }, proto.InvalidArgument},
		"no workspace":        {func(_ *string, s *session.Spec) { s.Workspace = "" }, proto.InvalidArgument},
		"no such class":       {func(_ *string, s *session.Spec) { s.Class = "kata" }, proto.Unsupported},
		"no class":            {func(_ *string, s *session.Spec) { s.Class = "" }, proto.Unsupported},
		"no such image":       {func(_ *string, s *session.Spec) { s.Image = "sha256:" + sha(nil) }, proto.NotFound},
		"a name as the image": {func(_ *string, s *session.Spec) { s.Image = "test" }, proto.NotFound},
		"no memory":           {func(_ *string, s *session.Spec) { s.Limits.MemoryBytes = 0 }, proto.InvalidArgument},
		"negative pids":       {func(_ *string, s *session.Spec) { s.Limits.PIDs = -1 }, proto.InvalidArgument},
		"no cpu":              {func(_ *string, s *session.Spec) { s.Limits.CPUs = 0 }, proto.InvalidArgument},
		"tiny disk":           {func(_ *string, s *session.Spec) { s.Limits.DiskBytes = 1 }, proto.InvalidArgument},
	}
	for name, c := range cases {
		id, spec := good.ID, good.Spec
		c.change(&id, &spec)
		if err := r.Start(t.Context(), id, spec); proto.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
	for _, id := range []string{"", "..", "container_..", "/etc", good.ID + "/x"} {
		if _, err := r.Dial(t.Context(), id); proto.CodeOf(err) != proto.NotFound {
			t.Errorf("dialling %q: %v", id, err)
		}
		if err := r.Stop(t.Context(), id); err != nil {
			t.Errorf("stopping %q: %v", id, err)
		}
		if err := r.RemoveWorkspace(t.Context(), id); err != nil {
			t.Errorf("removing workspace %q: %v", id, err)
		}
	}
	if inv, err := r.List(t.Context()); err != nil || len(inv.Sandboxes)+len(inv.Workspaces) > 0 {
		t.Errorf("made %+v, %v", inv, err)
	}
}

func TestWorkspaceInUse(t *testing.T) {
	r := openTest(t)
	_, spec := startTest(t, r, proto.ClassRunc)
	if err := r.RemoveWorkspace(t.Context(), spec.Workspace); proto.CodeOf(err) != proto.Conflict {
		t.Errorf("removing a workspace in use: %v", err)
	}
}

// TestAfterReboot checks that sandboxes are listed, and start again with their workspace, when processes and /run are
// gone but the data directory exists.
func TestAfterReboot(t *testing.T) {
	dir := t.TempDir()
	r := openIn(t, dir)
	id, spec := startTest(t, r, proto.ClassRunc)
	if got := ask(t, r, id, guestRequest{Op: "write", Path: "/workspace/kept", Size: 100}); got.Err != "" {
		t.Fatal(got.Err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.killRuntimes(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if err := cgroup.Remove(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if err := mount.UnmountRecursive(r.run, 0); err != nil {
		t.Fatal(err)
	}
	// A reboot would have ended containerd, too. Here it may still clean up after the shim that it lost.
	err := os.RemoveAll(r.run)
	for end := time.Now().Add(10 * time.Second); err != nil && time.Now().Before(end); {
		err = os.RemoveAll(r.run)
	}
	if err != nil {
		t.Fatal(err)
	}
	next := openIn(t, dir)
	if inv, err := next.List(t.Context()); err != nil || len(inv.Sandboxes) != 1 || inv.Sandboxes[0] != id {
		t.Errorf("listed %v, %v", inv.Sandboxes, err)
	}
	if _, err := next.Dial(t.Context(), id); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("dialling: %v", err)
	}
	if err := next.Start(t.Context(), id, spec); err != nil {
		t.Fatalf("starting again: %v", err)
	}
	if got := ask(t, next, id, guestRequest{Op: "read", Path: "/workspace/kept"}); got.Err != "" || got.Text == "" {
		t.Errorf("the workspace is not the same: %s", got.Err)
	}
}

// TestMissingClass checks that a class whose program is missing is refused by name and never replaced.
func TestMissingClass(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.BinDir = t.TempDir()
	for _, name := range []string{"containerd-shim-runc-v2", "runc", guestName} {
		if err := os.Symlink(filepath.Join(binDir, name), filepath.Join(cfg.BinDir, name)); err != nil {
			t.Fatal(err)
		}
	}
	r := openWith(t, cfg)
	if f := r.Facts(); f.Missing[proto.ClassGVisor] == "" || f.Classes[proto.ClassRunc] == "" {
		t.Errorf("facts: %+v", f)
	}
	startTest(t, r, proto.ClassRunc)
	_, err := tryStart(t, r, proto.ClassGVisor)
	if proto.CodeOf(err) != proto.Unsupported || !strings.Contains(err.Error(), `"gvisor"`) {
		t.Errorf("starting a class that is not there: %v", err)
	}
	os.Remove(filepath.Join(cfg.BinDir, "runc"))
	cfg.Dir = t.TempDir()
	if _, err := Open(t.Context(), cfg); proto.CodeOf(err) != proto.Unsupported {
		t.Errorf("opening without runc: %v", err)
	}
	if err := os.Symlink(filepath.Join(binDir, "runc"), filepath.Join(cfg.BinDir, "runc")); err != nil {
		t.Fatal(err)
	}
}

// TestAlive checks that a runtime without its disk pool is not alive.
func TestAlive(t *testing.T) {
	r := openTest(t)
	if err := r.Alive(t.Context()); err != nil {
		t.Errorf("a runtime that works: %v", err)
	}
	layers := r.disk.LayerDir()
	if err := os.Rename(layers, layers+"-away"); err != nil {
		t.Fatal(err)
	}
	if err := r.Alive(t.Context()); proto.CodeOf(err) != proto.Internal && proto.CodeOf(err) != proto.Unavailable {
		t.Errorf("a runtime without layers: %v", err)
	}
	if err := os.Rename(layers+"-away", layers); err != nil {
		t.Fatal(err)
	}
}
