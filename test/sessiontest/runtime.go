// Package sessiontest gives tests a Runtime without containers, the whole core over it, and the conformance suite
// that every Runtime passes.
//
// Its sandboxes are the real guest with the real bash of this machine, in their own namespaces over a read-only view
// of the host. They have no images, no limits, no user namespace and no security. The core above session.Runtime
// cannot tell the difference.
package sessiontest

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"

	"berth/proto"
	"berth/session"
	"berth/session/inventory"
	"berth/test/needs"

	"golang.org/x/sys/unix"
)

// socketName is the guest's socket in a sandbox's run directory. The guest makes it at its start, and a start waits
// for it.
const socketName = "guest.sock"

// enter makes the file system that a sandbox sees and becomes the guest. Its arguments are the
// new root, the workspace, the run directory, the guest and the layer.
//
// It is a shell script, since a Go process with its threads cannot change its own mount namespace safely.
//
//go:embed enter.sh
var enter string

// A Runtime is session.Runtime on bare namespaces.
type Runtime struct {
	dir   string
	guest string

	// mu guards both maps. It is held during a start, so two starts of the same ID make one sandbox.
	mu  sync.Mutex
	run map[string]*sandbox
	not map[string]error // Start fails with these errors; see FailStart
	cpu map[string]float64
	// Specs of all starts, in order.
	started []session.Spec
}

// A sandbox is one guest with its namespaces. Its process is the first of its PID namespace: the kernel ends all
// others with it.
type sandbox struct {
	cmd *exec.Cmd
	dir string // of its sockets
	// Closed when the process has ended and was waited for.
	done chan struct{}
	// Standard error, for the message of a failed start.
	errs *bytes.Buffer
}

// NewRuntime makes a Runtime in a temporary directory. It needs root. Its sandboxes end with the test.
func NewRuntime(t testing.TB) *Runtime {
	t.Helper()
	needs.Root(t) // for mount and PID namespaces
	dir, err := os.MkdirTemp("", "berth-test-")
	if err != nil {
		t.Fatal(err)
	}
	rt := &Runtime{dir: dir, guest: GuestBinary(t), run: map[string]*sandbox{}, not: map[string]error{}, cpu: map[string]float64{}}
	t.Cleanup(func() {
		inv, _ := rt.List(context.Background())
		for _, id := range inv.Sandboxes {
			_ = rt.Stop(context.Background(), id)
		}
		os.RemoveAll(dir)
	})
	return rt
}

// guestBinary is built at most once, since a build takes seconds and every test needs it.
var guestBinary struct {
	once sync.Once
	path string
	err  error
}

// GuestBinary returns the guest from $BERTH_BIN, or builds one, once per test process.
func GuestBinary(t testing.TB) string {
	t.Helper()
	// A variable that is set wins even if the file is missing: a test must not run with another guest than the one
	// that was built for it.
	if bin := os.Getenv("BERTH_BIN"); bin != "" {
		return filepath.Join(bin, "berth-guest")
	}
	guestBinary.once.Do(func() {
		dir, err := os.MkdirTemp("", "berth-guest-")
		if err != nil {
			guestBinary.err = err
			return
		}
		guestBinary.path = filepath.Join(dir, "guest")
		build := exec.Command("go", "build", "-ldflags=-E main.entry", "-o", guestBinary.path, "berth/cmd/berth-guest")
		// Without cgo the program is static, and starts in any root file system.
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			guestBinary.err = fmt.Errorf("building the guest: %w\n%s", err, out)
		}
	})
	if guestBinary.err != nil {
		t.Fatal(guestBinary.err)
	}
	return guestBinary.path
}

// FailStart makes Start fail for every sandbox until it is called with nil.
func (rt *Runtime) FailStart(err error) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.not["*"] = err
}

// Kill ends a sandbox without notice, as a crash would. The core must find out by itself.
func (rt *Runtime) Kill(id string) {
	rt.mu.Lock()
	sb := rt.run[id]
	rt.mu.Unlock()
	if sb != nil {
		_ = sb.cmd.Process.Kill()
		<-sb.done
	}
}

// Freeze freezes a sandbox's guest, or continues it. It simulates a guest that hangs: the kernel accepts connections,
// and the guest does not answer.
func (rt *Runtime) Freeze(id string, still bool) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	sig := syscall.SIGCONT
	if still {
		sig = syscall.SIGSTOP
	}
	if sb := rt.run[id]; sb != nil {
		_ = sb.cmd.Process.Signal(sig)
	}
}

// Start runs the guest in its own namespaces. It leaves a running sandbox as it is, as the contract of
// session.Runtime says, and replaces one that has ended.
func (rt *Runtime) Start(ctx context.Context, id string, spec session.Spec) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if err := rt.not["*"]; err != nil {
		return err
	}
	if sb := rt.run[id]; sb != nil {
		if !sb.ended() {
			return nil
		}
		sb.remove()
		delete(rt.run, id)
	}
	if _, err := os.Stat(rt.workspace(spec.Workspace)); spec.HasFiles && err != nil {
		return inventory.Gone(spec.Workspace)
	}
	sb, err := rt.start(ctx, id, spec)
	if err != nil {
		return err
	}
	rt.run[id] = sb
	rt.started = append(rt.started, spec)
	return nil
}

// Started returns the specs of all starts so far, in order. A container that is deleted at once is among them.
func (rt *Runtime) Started() []session.Spec {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return slices.Clone(rt.started)
}

// LastStarted returns how the sandbox that was started last is confined.
func (st *Stack) LastStarted(t testing.TB) proto.Confinement {
	t.Helper()
	all := st.Runtime.(*Runtime).Started()
	if len(all) == 0 {
		t.Fatal("nothing was started")
	}
	last := all[len(all)-1]
	return proto.Confinement{RuntimeClass: last.Class, Limits: last.Limits}
}

// start makes the directories, runs the script and waits until the guest listens.
func (rt *Runtime) start(ctx context.Context, id string, spec session.Spec) (*sandbox, error) {
	sb := &sandbox{dir: filepath.Join(rt.dir, "run", id), done: make(chan struct{}), errs: &bytes.Buffer{}}
	root := filepath.Join(sb.dir, "root")
	sock := filepath.Join(sb.dir, "s")
	for _, d := range []string{root, sock, rt.workspace(spec.Workspace), rt.layer(spec.Layer)} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, err
		}
	}
	// The watch is set before the process starts: otherwise an event in between would be lost, and the wait would not
	// end.
	watch, err := watchDir(sock)
	if err != nil {
		return nil, err
	}
	defer watch.Close()
	sb.cmd = exec.Command("sh", "-ec", enter, "sh", root, rt.workspace(spec.Workspace), sock, rt.guest,
		rt.layer(spec.Layer))
	sb.cmd.Stderr = sb.errs
	sb.cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"}
	sb.cmd.SysProcAttr = &syscall.SysProcAttr{
		// The guest listens on a unix socket in the file system, so the new network namespace needs no addresses.
		// With Pdeathsig the kernel ends the sandbox when the tests are killed, so no run leaves processes behind.
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET,
		Setsid:     true, Pdeathsig: syscall.SIGKILL,
	}
	if err := sb.cmd.Start(); err != nil {
		return nil, err
	}
	// Closing the watch wakes a start that waits for a guest that has ended.
	go func() { _ = sb.cmd.Wait(); close(sb.done); watch.Close() }()
	if err := sb.ready(ctx, watch); err != nil {
		_ = sb.cmd.Process.Kill()
		<-sb.done
		sb.remove()
		return nil, err
	}
	return sb, nil
}

// watchDir returns a file that is readable when an entry appears in dir. It uses inotify and not a loop with sleeps,
// so tests start as fast as the guest.
func watchDir(dir string) (*os.File, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_MOVED_TO); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "inotify"), nil
}

// ready waits until the guest listens. Between bind and listen the guest refuses connections, so ready repeats the
// dial until the guest has ended or ctx ends.
func (sb *sandbox) ready(ctx context.Context, watch *os.File) error {
	buf := make([]byte, 4096)
	for {
		if c, err := sb.dial(ctx); err == nil {
			return c.Close()
		}
		if _, err := os.Stat(filepath.Join(sb.dir, "s", socketName)); err == nil {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-sb.done:
			default:
				continue // the socket exists, and the guest is about to listen
			}
			// The names in the events do not matter.
		}
		if _, err := watch.Read(buf); err != nil {
			return fmt.Errorf("the guest did not start: %s", sb.errs)
		}
	}
}

// dial connects to the guest through a descriptor of its directory: the path of a unix socket has 108 bytes, and that of
// a temporary directory may be longer.
func (sb *sandbox) dial(ctx context.Context) (net.Conn, error) {
	dir, err := os.Open(filepath.Join(sb.dir, "s"))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	var d net.Dialer
	return d.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), socketName))
}

// ended reports whether the process is gone, without waiting.
func (sb *sandbox) ended() bool {
	select {
	case <-sb.done:
		return true
	default:
		return false
	}
}

// remove removes the sockets and the mount point. The mounts have gone with their namespace.
func (sb *sandbox) remove() { os.RemoveAll(sb.dir) }

// Dial connects to a sandbox's guest.
func (rt *Runtime) Dial(ctx context.Context, id string) (net.Conn, error) {
	rt.mu.Lock()
	sb := rt.run[id]
	rt.mu.Unlock()
	// As in a real runtime, the error's code tells a missing sandbox from one that does not answer.
	if sb == nil {
		return nil, proto.Errorf(proto.NotFound, "", id, "container %s is not running", id)
	}
	c, err := sb.dial(ctx)
	switch {
	case ctx.Err() != nil && err != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, proto.Errorf(proto.Unavailable, "", id, "container %s does not answer", id)
	}
	return c, nil
}

// Stop kills a sandbox and removes its files. Stopping a missing one is no error, because the core stops again after
// a crash.
func (rt *Runtime) Stop(_ context.Context, id string) error {
	rt.mu.Lock()
	// Taken out of the map before the wait, so the lock is not held meanwhile.
	sb := rt.run[id]
	delete(rt.run, id)
	rt.mu.Unlock()
	if sb == nil {
		return nil
	}
	_ = sb.cmd.Process.Kill()
	<-sb.done
	sb.remove()
	return nil
}

// workspace returns the directory of a workspace, which stays when its sandbox is removed.
func (rt *Runtime) workspace(id string) string { return filepath.Join(rt.dir, "workspaces", id) }

// RemoveWorkspace removes a workspace's files.
func (rt *Runtime) RemoveWorkspace(_ context.Context, id string) error {
	// root removes the path with its content, so only a well-formed ID may become a part of it.
	if !proto.ValidID(proto.WorkspacePrefix, id) {
		return proto.Errorf(proto.InvalidArgument, "", id, "%q is not a workspace", id)
	}
	return os.RemoveAll(rt.workspace(id))
}

// layer returns the directory of a layer.
func (rt *Runtime) layer(id string) string { return filepath.Join(rt.dir, "layers", id) }

// RemoveLayer removes a layer's files.
func (rt *Runtime) RemoveLayer(_ context.Context, id string) error {
	if !proto.ValidID(proto.LayerPrefix, id) {
		return proto.Errorf(proto.InvalidArgument, "", id, "%q is not a layer", id)
	}
	return os.RemoveAll(rt.layer(id))
}

// snapshot returns the directory of a snapshot.
func (rt *Runtime) snapshot(id string) string { return filepath.Join(rt.dir, "snapshots", id) }

// TakeSnapshot copies a session's files while its processes are stopped.
func (rt *Runtime) TakeSnapshot(_ context.Context, id string, spec session.Spec, snapshot string) error {
	if !proto.ValidID(proto.SnapshotPrefix, snapshot) {
		return proto.Errorf(proto.InvalidArgument, "", snapshot, "%q is not a snapshot", snapshot)
	}
	rt.Freeze(id, true)
	defer rt.Freeze(id, false)
	to := rt.snapshot(snapshot)
	return errors.Join(os.MkdirAll(to, 0o700), copyTree(rt.workspace(spec.Workspace), filepath.Join(to, "workspace")),
		copyTree(rt.layer(spec.Layer), filepath.Join(to, "layer")))
}

// Revert copies the files of a snapshot, unless that was done.
func (rt *Runtime) Revert(_ context.Context, _ string, spec session.Spec, snapshot, copied string) error {
	from, done := rt.snapshot(snapshot), filepath.Join(rt.dir, "copied", copied)
	if _, err := os.Stat(from); err != nil {
		return proto.Errorf(proto.NotFound, "", snapshot, "snapshot %s has no files", snapshot)
	}
	if _, err := os.Stat(done); err == nil {
		return nil
	}
	return errors.Join(os.RemoveAll(rt.workspace(spec.Workspace)),
		copyTree(filepath.Join(from, "workspace"), rt.workspace(spec.Workspace)),
		copyTree(filepath.Join(from, "layer"), rt.layer(spec.Layer)), os.MkdirAll(done, 0o700))
}

// SnapshotSize returns the bytes of a snapshot's regular files, which share nothing.
func (rt *Runtime) SnapshotSize(id string) (all, exclusive int64) {
	_ = filepath.WalkDir(rt.snapshot(id), func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				all += info.Size()
			}
		}
		return nil
	})
	return all, all
}

// RemoveSnapshot removes a snapshot's files.
func (rt *Runtime) RemoveSnapshot(_ context.Context, id string) error {
	if !proto.ValidID(proto.SnapshotPrefix, id) {
		return proto.Errorf(proto.InvalidArgument, "", id, "%q is not a snapshot", id)
	}
	return os.RemoveAll(rt.snapshot(id))
}

// WriteSnapshot is not supported.
func (rt *Runtime) WriteSnapshot(context.Context, string, string, string, io.Writer) error {
	return unsupported()
}

// CommitSnapshot is not supported.
func (rt *Runtime) CommitSnapshot(context.Context, string, string, string, func(session.ImageProgress)) (session.Image,
	error) {
	return session.Image{}, unsupported()
}

// copyTree copies a directory, if there is one, with owners and times.
func copyTree(from, to string) error {
	if _, err := os.Stat(from); err != nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	out, err := exec.Command("cp", "-a", from, to).CombinedOutput()
	if err != nil {
		return fmt.Errorf("copying: %w: %s", err, out)
	}
	return nil
}

// List lists sandboxes and workspaces. It includes sandboxes that have ended: at Open the core removes what it does
// not know.
func (rt *Runtime) List(context.Context) (session.Inventory, error) {
	var inv session.Inventory
	rt.mu.Lock()
	for id := range rt.run {
		inv.Sandboxes = append(inv.Sandboxes, id)
	}
	rt.mu.Unlock()
	for dir, list := range map[string]*[]string{"workspaces": &inv.Workspaces, "layers": &inv.Layers,
		"snapshots": &inv.Snapshots} {
		entries, err := os.ReadDir(filepath.Join(rt.dir, dir))
		if err != nil && !os.IsNotExist(err) {
			return inv, err
		}
		for _, e := range entries {
			*list = append(*list, e.Name())
		}
	}
	return inv, nil
}
