package launch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"berth/runtime/cgroup"
	"berth/runtime/mountns"
)

// Shim starts sandboxes through a containerd shim, which then holds them. These are all sandboxes if the containerd is
// not ours, and sandboxes that an older daemon started.
type Shim struct {
	Client *client.Client
	Log    *slog.Logger
	Roots  string // a directory in which roots are mounted while a shim takes them over
}

// Create lets the shim's runtime make the first process. See Launcher.
func (l Shim) Create(ctx context.Context, b *Sandbox) (*Waiting, error) {
	if err := b.Recorded(); err != nil { // containerd reads the record
		return nil, err
	}
	c, err := l.Client.LoadContainer(ctx, b.ID)
	if err != nil {
		return nil, err
	}
	root, forget, err := l.mountRoot(b)
	if err != nil {
		return nil, err
	}
	defer forget()
	task, err := c.NewTask(ctx, cio.NullIO, client.WithRootFS([]mount.Mount{
		{Type: "bind", Source: root, Options: []string{"rbind", "rw", "nodev"}},
	}))
	if err != nil {
		return nil, err
	}
	return &Waiting{PID: int(task.Pid()), Start: task.Start, Close: func() {}}, setRlimits(b, int(task.Pid()))
}

// mountRoot mounts the root file system of b where the shim sees it. forget unmounts it again; the shim's own mount
// of it stays.
func (l Shim) mountRoot(b *Sandbox) (root string, forget func(), err error) {
	dir := filepath.Join(l.Roots, b.ID)
	forget = func() {
		err := mount.UnmountRecursive(filepath.Join(dir, bundleRoot), unix.MNT_DETACH)
		if err := errors.Join(err, os.RemoveAll(dir)); err != nil {
			l.Log.Warn("leaving the root of a sandbox", "sandbox", b.ID, "err", err)
		}
	}
	if err := os.RemoveAll(dir); err != nil { // of a daemon that was killed here; its mounts are gone
		return "", nil, err
	}
	if err := makeBundle(dir, b.FirstID); err != nil {
		return "", nil, fmt.Errorf("making the mount points of its root: %w", err)
	}
	tree, err := detachedRoot(dir, b)
	if err == nil {
		defer tree.Close()
		root = filepath.Join(dir, bundleRoot)
		err = mountns.Attach(int(tree.Fd()), root)
	}
	if err != nil {
		forget()
		return "", nil, err
	}
	return root, forget, nil
}

// EndGrace is how long a runtime has to end a sandbox itself, and again once the kernel has killed all its processes.
// What is left after that is removed without the runtime.
const EndGrace = 5 * time.Second

// End ends the sandbox through containerd. clean says that containerd did all of it and nothing of the runtime
// is left.
func (l Shim) End(ctx context.Context, id string) (clean bool, err error) {
	c, err := l.Client.LoadContainer(ctx, id)
	if errdefs.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	// A runtime waits for its sandbox, which may take any time, and a shim that hangs does not answer.
	polite, cancel := context.WithTimeout(ctx, EndGrace)
	defer cancel()
	task, err := c.Task(polite, nil)
	switch {
	case errdefs.IsNotFound(err):
		return false, nil
	// our deadline, or containerd's own for a shim
	case errors.Is(err, context.DeadlineExceeded) || errdefs.IsDeadlineExceeded(err):
		return false, nil // the caller needs no shim to go on
	case err != nil:
		return false, err
	}
	_, err = task.Delete(polite, client.WithProcessKill)
	if err == nil {
		return true, nil
	}
	l.Log.Debug("a sandbox cannot be asked to end; killing its processes", "sandbox", id, "err", err)
	return false, forceTask(ctx, task, id)
}

// forceTask ends a sandbox that its runtime cannot end. runsc cannot once its kernel was killed for lack of memory.
// forceTask kills the processes in the cgroup until the shim sees that none is left.
func forceTask(ctx context.Context, task client.Task, id string) error {
	forced, cancel := context.WithTimeout(ctx, EndGrace)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		cgroup.Kill(id)
		_, err := task.Delete(forced)
		if err == nil || errdefs.IsNotFound(err) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("ending the sandbox: %w", err)
		case <-forced.Done():
			return nil // the shim hangs; the caller ends it, too
		case <-tick.C:
		}
	}
}
