package containerd

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/pkg/shim"
	"golang.org/x/sys/unix"

	"berth/proto"
	"berth/runtime/cgroup"
	"berth/runtime/diskpool"
	"berth/runtime/images"
	"berth/runtime/removetree"
)

// task returns containerd's task of a sandbox that has a shim.
func (r *Runtime) task(ctx context.Context, name string) (client.Task, error) {
	c, err := r.client.LoadContainer(r.ns(ctx), name)
	if err != nil {
		return nil, err
	}
	return c.Task(r.ns(ctx), nil)
}

// runsGVisor reports whether a sandbox is of the class gvisor.
func (r *Runtime) runsGVisor(ctx context.Context, sandbox string) (bool, error) {
	if r.bundles.Has(sandbox) {
		return r.gvisor.Runs(sandbox), nil
	}
	return r.isGVisor(ctx, sandbox)
}

// isGVisor reports whether a sandbox is of that class.
func (r *Runtime) isGVisor(ctx context.Context, name string) (bool, error) {
	info, err := r.client.ContainerService().Get(r.ns(ctx), name)
	return info.Labels[labelClass] == string(proto.ClassGVisor), err
}

// endTask ends the processes of a sandbox, whichever daemon started it: an older daemon had a shim for each sandbox.
func (r *Runtime) endTask(ctx context.Context, id string) error {
	if r.bundles.Has(id) {
		return r.bundles.End(ctx, id, r.killRuntimes)
	}
	clean, err := r.shim.End(ctx, id)
	if !clean || r.hasTaskDir(id) { // if containerd cannot remove a bundle, it only logs that
		err = errors.Join(err, r.cleanUp(ctx, id))
	}
	return err
}

// cleanUp removes the parts of sandbox id that containerd no longer knows, because containerd or the shim was killed
// in the middle of a create. A shim without a connection may still be at work. So cleanUp ends processes first, and
// then removes what they were making.
func (r *Runtime) cleanUp(ctx context.Context, id string) error {
	if err := r.killRuntimes(ctx, id); err != nil {
		return err
	}
	dirs := r.taskDirs(id)
	state := dirs[0]
	errs := mount.UnmountRecursive(filepath.Join(state, "rootfs"), 0)
	if errors.Is(errs, fs.ErrNotExist) {
		errs = nil
	}
	if errs != nil {
		return errs // a removal would reach the image and the workspace below it
	}
	left, err := filepath.Glob(filepath.Join(r.run, "r", images.Namespace, "*"+id+"*"))
	if err != nil {
		return err
	}
	if socket, err := shim.CreateSocketAddress(ctx, filepath.Join(r.run, "s"), filepath.Join(r.run, "g"), id,
		false); err == nil {
		left = append(left, strings.TrimPrefix(socket, "unix://"))
	}
	for _, path := range append(left, dirs[:]...) {
		errs = errors.Join(errs, os.RemoveAll(path))
	}
	return errs
}

// taskDirs returns the two directories that containerd has for sandbox id: its state, with the root file system, and
// its work directory.
func (r *Runtime) taskDirs(id string) [2]string {
	work := filepath.Join(r.cfg.Dir, "ctr", "io.containerd.runtime.v2.task", images.Namespace, id)
	return [2]string{filepath.Join(r.cfg.taskDir(), id), work}
}

// taskDir returns the directory in which containerd keeps the state of sandboxes, by ID.
func (c Config) taskDir() string {
	return filepath.Join(c.rundir(), "c", "io.containerd.runtime.v2.task", images.Namespace)
}

// finishRemovals removes the bundles that the containerd of a killed daemon was removing. containerd hides a bundle
// before it empties it, and does not look at hidden ones again.
func (r *Runtime) finishRemovals() {
	bundles, err := diskpool.Names(r.cfg.taskDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // the directory does not exist yet
		r.log.Warn("the state of sandboxes cannot be listed", "err", err)
	}
	for _, name := range bundles {
		if !strings.HasPrefix(name, ".") {
			continue
		}
		if err := removetree.All(filepath.Join(r.cfg.taskDir(), name)); err != nil {
			r.log.Warn("what is left of a sandbox cannot be removed", "err", err)
		}
	}
}

// listBundles returns the IDs for which containerd or the daemon itself has directories.
func (c Config) listBundles() ([]string, error) {
	var all []string
	for _, dir := range []string{c.taskDir(), c.bundleDir()} {
		ids, err := diskpool.Names(dir)
		// the directory does not exist yet, or another containerd has it
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		all = append(all, ids...)
	}
	return all, nil
}

// hasTaskDir reports whether containerd has a directory for sandbox id. If it has, no sandbox of that ID can be made.
func (r *Runtime) hasTaskDir(id string) bool {
	paths := r.taskDirs(id)
	return slices.ContainsFunc(paths[:], diskpool.Exists)
}

// deleteGrace is the time that containerd's own cleanup after a dead shim may take. The cleanup runs as a program of
// its own and knows best what it has mounted.
const deleteGrace = 5 * time.Second

// killRuntimes kills the shim and runtime processes of sandbox id, and the processes in its cgroups, until none are
// left. A process may start another one during a search, so killRuntimes ends when a search finds none.
func (r *Runtime) killRuntimes(ctx context.Context, id string) error {
	patience := time.Now().Add(deleteGrace)
	for {
		cgroup.Kill(id)
		found := r.runtimesOf(id)
		if len(found) == 0 {
			return nil
		}
		for _, p := range found {
			if !p.deletes || time.Now().After(patience) {
				_ = unix.Kill(p.pid, unix.SIGKILL)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// A runtimeProcess is a shim or runtime that works on one sandbox.
type runtimeProcess struct {
	pid     int
	deletes bool // the process removes the sandbox
}

// runtimesOf finds the processes that run one of our runtime programs and name the sandbox among their arguments.
// Both must hold, because users' commands name sandboxes, too.
func (r *Runtime) runtimesOf(id string) []runtimeProcess {
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []runtimeProcess
	for _, p := range procs {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		args, err := os.ReadFile(filepath.Join("/proc", p.Name(), "cmdline"))
		if err != nil || !strings.Contains(string(args), id) {
			continue
		}
		exe, err := os.Readlink(filepath.Join("/proc", p.Name(), "exe"))
		if err == nil && r.isRuntime(strings.TrimSuffix(exe, " (deleted)")) {
			deletes := slices.Contains(strings.Split(string(args), "\x00"), "delete")
			found = append(found, runtimeProcess{pid, deletes})
		}
	}
	return found
}

// isRuntime reports whether exe is one of our programs that make sandboxes. A rebuilt program counts: its old file
// has lost its name but not its path in /proc.
func (r *Runtime) isRuntime(exe string) bool {
	for _, name := range []string{"containerd-shim-runc-v2", "runc", "runsc"} {
		path, err := filepath.EvalSymlinks(filepath.Join(r.cfg.BinDir, name))
		if err == nil && path == exe {
			return true
		}
	}
	return false
}
