package containerd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/mount"
	"golang.org/x/sys/unix"

	"berth/proto"
	"berth/session"
)

// TestPlainPool: without a pool containers run all the same, and Facts says what is lost.
func TestPlainPool(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.PoolBytes = 1 << 20 // too small for a btrfs
	r := openWith(t, cfg)
	if f := r.Facts(); f.Pool != PoolPlain || f.DiskLimits || f.PoolWhy == "" {
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

// TestPoolStays: where containers' files are is where they are looked for. Plain directories that hold some are not
// covered by a file system, and one that cannot be mounted is not replaced by plain directories.
func TestPoolStays(t *testing.T) {
	log := testConfig("").Log
	dir := t.TempDir()
	d, err := openPool(dir, 1<<20, log) // too small for a btrfs
	if err != nil {
		t.Fatal(err)
	}
	ws, err := d.makeWorkspace("ws", 1<<20)
	if err == nil {
		err = os.WriteFile(filepath.Join(ws, "kept"), nil, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if d, err = openPool(dir, 1<<30, log); err != nil || d.kind != PoolPlain ||
		!strings.Contains(d.why, "plain directories") {
		t.Errorf("%+v, %v", d, err)
	}
	if !exists(filepath.Join(ws, "kept")) {
		t.Error("the files are hidden")
	}

	dir = t.TempDir()
	if err := os.WriteFile(poolFile(dir), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if d, err := openPool(dir, 1<<30, log); err == nil || !strings.Contains(err.Error(), poolFile(dir)) {
		t.Errorf("with a file that is no file system: %+v, %v", d, err)
	}
}

// TestMadeWhole: what a crash or a power cut left half made is made whole.
func TestMadeWhole(t *testing.T) {
	r := openTest(t)
	guest, err := os.ReadFile(r.cfg.Guest)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(r.guest, 0); err != nil {
		t.Fatal(err)
	}
	if path, err := r.disk.keepGuest(r.cfg.Guest); err != nil || path != r.guest {
		t.Errorf("%q, %v", path, err)
	}
	if kept, err := os.ReadFile(r.guest); err != nil || !bytes.Equal(kept, guest) {
		t.Errorf("the guest that is kept has %d bytes of %d, %v", len(kept), len(guest), err)
	}

	name := newID(proto.WorkspacePrefix)
	if _, err := r.disk.make(r.disk.workspacePath(name)); err != nil {
		t.Fatal(err)
	}
	path, err := r.disk.makeWorkspace(name, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || st.Uid != sessionUser || st.Gid != sessionUser ||
		st.Mode&0o777 != 0o755 {
		t.Errorf("a workspace is %d:%d's with mode %o, %v", st.Uid, st.Gid, st.Mode, err)
	}
}

// TestRangeWithoutRecord: a sandbox that runs has its user IDs for itself although containerd's record of it is lost.
func TestRangeWithoutRecord(t *testing.T) {
	dir := t.TempDir()
	r := openIn(t, dir)
	id, _ := startTest(t, r, proto.ClassRunc)
	first := r.ids.of[id]
	// as "chown 1000 /" inside does
	if err := os.Chown(filepath.Join(r.disk.layerPath(id), "upper"), int(first)+1000, int(first)); err != nil {
		t.Fatal(err)
	}
	if err := r.client.ContainerService().Delete(r.ns(t.Context()), id); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	next := openIn(t, dir)
	if got := next.ids.of[id]; got != first || next.ids.taken[first] != id {
		t.Errorf("it has the range from %d, had that from %d", got, first)
	}
	if err := next.Stop(t.Context(), id); err != nil || next.ids.has(id) {
		t.Errorf("after its end: %t, %v", next.ids.has(id), err)
	}
}

// TestRangeOfLayer: a range is learnt as it was handed out, whoever owns which part of the layer.
func TestRangeOfLayer(t *testing.T) {
	const first, base = 100_000, 100_000 + 3*idRange
	for what, c := range map[string]struct {
		owners map[string]int
		want   uint32
	}{
		"as it was made":      {map[string]int{"upper": base, "work": base}, base},
		"given away":          {map[string]int{"upper": base + 1000, "work": base}, base},
		"the upper one alone": {map[string]int{"upper": base + idRange - 1}, base},
		"the work one alone":  {map[string]int{"work": base}, base},
		"half made":           {map[string]int{"upper": base, "work": 0}, base},
		"root's":              {map[string]int{"upper": 0, "work": 0}, 0},
		"of another time":     {map[string]int{"upper": first - 1, "work": first - 1}, 0},
		"empty":               {nil, 0},
	} {
		r := &Runtime{disk: &disk{root: t.TempDir(), kind: PoolPlain}, ids: newIDPool(first)}
		if err := os.MkdirAll(r.disk.layerPath("it"), 0o755); err != nil {
			t.Fatal(err)
		}
		for dir, owner := range c.owners {
			path := filepath.Join(r.disk.layerPath("it"), dir)
			if err := errors.Join(os.Mkdir(path, 0o755), os.Chown(path, owner, owner)); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.learnOwners(); err != nil || r.ids.of["it"] != c.want {
			t.Errorf("%s: learnt %d, %v, want %d", what, r.ids.of["it"], err, c.want)
		}
	}
}

// deepen makes a chain of directories below dir and calls in for the last of them.
func deepen(t *testing.T, dir string, depth int, in func(at int) error) {
	t.Helper()
	d, err := openDir(unix.AT_FDCWD, dir)
	for range depth {
		if err == nil {
			err = unix.Mkdirat(int(d.Fd()), "d", 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		above := d
		d, err = openDir(int(above.Fd()), "d")
		above.Close()
	}
	if err == nil {
		defer d.Close()
		err = in(int(d.Fd()))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// spareDescriptors leaves the process n descriptors more than it has, for the time of the test.
func spareDescriptors(t *testing.T, n int) {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	highest := 0
	for _, fd := range entries(t, "/proc/self/fd") {
		if n, err := strconv.Atoi(fd); err == nil {
			highest = max(highest, n)
		}
	}
	low := unix.Rlimit{Cur: uint64(highest + n), Max: was.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &was) })
}

// TestRemoveTree: a tree of any depth and width goes with few descriptors, and what its links lead to stays.
func TestRemoveTree(t *testing.T) {
	dir := t.TempDir()
	d := &disk{root: dir, kind: PoolPlain}
	outside, tree := filepath.Join(dir, "outside"), filepath.Join(dir, "tree")
	kept := filepath.Join(outside, "kept")
	if err := errors.Join(os.Mkdir(outside, 0o755), os.WriteFile(kept, nil, 0o600), os.Mkdir(tree, 0o755)); err != nil {
		t.Fatal(err)
	}
	fill := func(at int) error {
		err := unix.Symlinkat(outside, at, "link")
		for i := range 1100 { // more than are read at once
			err = errors.Join(err, unix.Mknodat(at, fmt.Sprint("file ", i), unix.S_IFREG|0o600, 0))
		}
		for i := range 20 { // directories that hold something
			name := fmt.Sprint("dir\n", i)
			err = errors.Join(err, unix.Mkdirat(at, name, 0), unix.Mkdirat(at, name+"/.berth-removing-1", 0o755),
				unix.Symlinkat(kept, at, name+"/link"))
		}
		return errors.Join(err, unix.Mknodat(at, "pipe", unix.S_IFIFO, 0))
	}
	for _, depth := range []int{0, openLevels, openLevels + 1, 2000} {
		sub := filepath.Join(tree, fmt.Sprint(depth))
		if err := os.Mkdir(sub, 0o755); err != nil {
			t.Fatal(err)
		}
		deepen(t, sub, depth, fill)
	}
	if err := errors.Join(os.Symlink(outside, filepath.Join(dir, "link")), os.WriteFile(filepath.Join(dir, "file"), nil,
		0o600)); err != nil {
		t.Fatal(err)
	}
	spareDescriptors(t, 100)
	for _, name := range []string{"tree", "link", "file", "nothing", "nothing/below"} {
		path := filepath.Join(dir, name)
		if err := d.remove(path); err != nil || exists(path) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left := entries(t, dir); len(left) != 1 || !exists(kept) {
		t.Errorf("left %v", left)
	}
}

// TestRemoveTreeStopsAtMounts: what is mounted in a tree is not the tree's.
func TestRemoveTreeStopsAtMounts(t *testing.T) {
	for _, depth := range []int{0, openLevels + 10} {
		tree, elsewhere := filepath.Join(t.TempDir(), "tree"), t.TempDir()
		kept := filepath.Join(elsewhere, "kept")
		if err := errors.Join(os.Mkdir(tree, 0o755), os.WriteFile(kept, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		deepen(t, tree, depth, func(at int) error { return unix.Mkdirat(at, "mnt", 0o755) })
		mnt := filepath.Join(tree, strings.Repeat("d/", depth), "mnt")
		if err := unix.Mount(elsewhere, mnt, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		if err := removeTree(tree); !errors.Is(err, unix.EBUSY) || !exists(kept) {
			t.Errorf("removed with what is mounted there: %v", err)
		}
		if err := unix.Unmount(mnt, 0); err != nil {
			t.Fatal(err)
		}
		if err := removeTree(tree); err != nil || exists(tree) {
			t.Errorf("afterwards: %v", err)
		}
	}
}

// TestRemoveNestedSubvolumes: a subvolume with others inside goes, too.
func TestRemoveNestedSubvolumes(t *testing.T) {
	d := newLoopPool(t)
	path, err := d.makeWorkspace("ws", 1<<20)
	if err == nil {
		err = createSubvolume(filepath.Join(path, "inner"))
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(path, "inner", "file"), nil, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := d.removeWorkspace("ws"); err != nil || exists(path) {
		t.Errorf("left: %v", err)
	}
}

// TestPoolIsRootsAlone: what a container's root makes in its workspace is root's on disk, set-user-ID programs too.
// No other user of the host can run one, in a pool that is mounted and in one that is not.
func TestPoolIsRootsAlone(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // as /var/lib is
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
		path := filepath.Join(r.disk.workspacePath(spec.Workspace), "su")
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
	if n := len(r.ids.taken); n != 12 {
		t.Errorf("%d ranges for 12 sandboxes", n)
	}
}

// TestSameStartTwice: two calls for one ID make one sandbox, and both succeed.
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

// TestCanceledStart: a caller that goes away while a sandbox is made leaves nothing of it.
func TestCanceledStart(t *testing.T) {
	r := openTest(t)
	s := newDaemonSandbox(testImage(t, r), proto.ClassRunc)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	bell := r.bells.hang(r.cfg.directDir())
	defer bell.takeDown()
	go func() { bell.wait(time.Minute); cancel() }() // when its bundle appears
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

// TestAfterReboot: when processes and /run are gone but the data directory is there, sandboxes are
// listed, and start again with their workspace.
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
	if err := removeCgroups(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if err := mount.UnmountRecursive(r.run, 0); err != nil {
		t.Fatal(err)
	}
	// Containerd, which a reboot would have ended with all else, may still tidy up after the shim that it lost.
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

// TestMissingClass: a class whose program is not there is refused by name and never replaced.
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

// TestAlive: a runtime without its disk pool says so.
func TestAlive(t *testing.T) {
	r := openTest(t)
	if err := r.Alive(t.Context()); err != nil {
		t.Errorf("a runtime that works: %v", err)
	}
	layers := r.disk.layerDir()
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
