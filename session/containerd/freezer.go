package containerd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/containerd/v2/client"
	"golang.org/x/sys/unix"

	"berth/proto"
	"berth/session"
)

// A paused sandbox is one whose cgroup is frozen. Nothing else knows of it: the kernel keeps it across restarts of the
// daemon, and no runtime is asked.

var _ session.Pauser = (*Runtime)(nil)

// freezeTimeout bounds how long the processes of a sandbox may take to stand still. A process in the middle of a
// call to the kernel that cannot be interrupted, such as one that waits for a disk, holds that up; v1 has shown some 10 ms.
const freezeTimeout = 5 * time.Second

// errNoFreezer is why a sandbox cannot be paused.
var errNoFreezer = errors.New("the host has no cgroup freezer")

// Pause has every process of sandbox id stand still. See session.Pauser.
func (r *Runtime) Pause(ctx context.Context, id string) error {
	unlock, f, err := r.freezer(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	if f.frozen() {
		return nil
	}
	all := context.WithoutCancel(ctx)
	ctx, cancel := context.WithTimeout(ctx, freezeTimeout)
	defer cancel()
	err = r.stillSentry(ctx, id)
	if err == nil {
		err = f.freeze(ctx)
	}
	if err != nil {
		err = errors.Join(err, f.thaw(), r.wakeSentry(all, id)) // half of it frozen would be neither
		return r.fail(all, "pause", id, err)
	}
	return nil
}

// Resume has them go on. See session.Pauser.
func (r *Runtime) Resume(ctx context.Context, id string) error {
	unlock, f, err := r.freezer(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	err = f.thaw()
	if err == nil {
		err = r.wakeSentry(ctx, id)
	}
	if err != nil {
		return r.fail(ctx, "resume", id, err)
	}
	return nil
}

// stillSentry has the kernel of a gVisor sandbox halt its processes. It traces them, and one that is frozen in the middle of that may be killed.
func (r *Runtime) stillSentry(ctx context.Context, id string) error {
	sentry, err := r.sentry(ctx, id)
	if sentry == nil || err != nil {
		return err
	}
	return sentry.Pause(r.ns(ctx))
}

// wakeSentry undoes stillSentry, where there is something to undo.
func (r *Runtime) wakeSentry(ctx context.Context, id string) error {
	sentry, err := r.sentry(ctx, id)
	if sentry == nil || err != nil {
		return err
	}
	status, err := sentry.Status(r.ns(ctx))
	if err != nil || status.Status != client.Paused {
		return err
	}
	return sentry.Resume(r.ns(ctx))
}

// sentry is the task of a gVisor sandbox, and nil for any other.
func (r *Runtime) sentry(ctx context.Context, id string) (client.Task, error) {
	name := r.claims.sandbox(id)
	if r.isDirect(name) {
		return nil, nil
	}
	if is, err := r.isGVisor(ctx, name); !is || err != nil {
		return nil, err
	}
	return r.task(ctx, name)
}

// Paused asks the kernel. See session.Pauser.
func (r *Runtime) Paused(id string) bool {
	if !proto.ValidID(proto.ContainerPrefix, id) {
		return false
	}
	f, err := findFreezer(r.claims.sandbox(id))
	return err == nil && f.frozen()
}

// freezer finds that of a sandbox that is there, and keeps others from starting or stopping it meanwhile.
func (r *Runtime) freezer(ctx context.Context, id string) (unlock func(), f freezer, err error) {
	absent := proto.Errorf(proto.NotFound, "", id, "container %.80q is not running", id)
	if !proto.ValidID(proto.ContainerPrefix, id) {
		return nil, f, absent
	}
	unlock, err = r.locks.lock(ctx, id)
	if err != nil {
		return nil, f, err
	}
	f, err = findFreezer(r.claims.sandbox(id))
	switch {
	case errors.Is(err, errNoFreezer):
		err = proto.Errorf(proto.Unsupported, "pause", id, "containers cannot be paused here: %v", err)
	case err != nil || f.empty():
		err = absent
	}
	if err != nil {
		unlock()
		return nil, f, err
	}
	return unlock, f, nil
}

// A freezer is the cgroup directory that a sandbox is frozen by.
type freezer struct {
	dir string
	v2  bool
}

// findFreezer finds what a sandbox that is there is frozen by.
func findFreezer(sandbox string) (freezer, error) {
	dir, v2 := cgroupOf(sandbox, "freezer")
	if !v2 {
		return freezer{dir: dir}, nil
	}
	switch _, err := os.Stat(filepath.Join(dir, "cgroup.freeze")); {
	case err == nil:
		return freezer{dir: dir, v2: true}, nil
	case len(cgroupDirs(sandbox)) > 0:
		return freezer{}, errNoFreezer
	}
	return freezer{}, os.ErrNotExist
}

// empty reports whether no process is left in it, or that cannot be told.
func (f freezer) empty() bool {
	list, err := os.ReadFile(filepath.Join(f.dir, "cgroup.procs"))
	return err != nil || len(bytes.TrimSpace(list)) == 0
}

func (f freezer) frozen() bool {
	if f.v2 {
		return f.says("cgroup.freeze", "1")
	}
	return f.says("freezer.state", "FROZEN") || f.says("freezer.state", "FREEZING")
}

func (f freezer) says(file, word string) bool {
	got, err := os.ReadFile(filepath.Join(f.dir, file))
	return err == nil && string(bytes.TrimSpace(got)) == word
}

func (f freezer) write(file, word string) error {
	return os.WriteFile(filepath.Join(f.dir, file), []byte(word), 0)
}

// thaw takes effect when it returns.
func (f freezer) thaw() error {
	if f.v2 {
		return f.write("cgroup.freeze", "0")
	}
	return f.write("freezer.state", "THAWED")
}

// freeze returns once everything stands still.
func (f freezer) freeze(ctx context.Context) error {
	if f.v2 {
		return f.freeze2(ctx)
	}
	// v1 tells nobody when it is done, and a process that was forked meanwhile needs the state to be written once more.
	const longest = 10 * time.Millisecond
	for pause := 50 * time.Microsecond; ; pause = min(2*pause, longest) {
		if err := f.write("freezer.state", "FROZEN"); err != nil {
			return err
		}
		if f.says("freezer.state", "FROZEN") {
			return nil
		}
		if pause == longest { // a thread that is executing a program waits for the others of its process to end, and these may stand still already
			if err := f.thaw(); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the processes do not stand still: %w", ctx.Err())
		case <-time.After(pause):
		}
	}
}

// freeze2 waits for the event that v2 has.
func (f freezer) freeze2(ctx context.Context) error {
	events, err := os.Open(filepath.Join(f.dir, "cgroup.events"))
	if err != nil {
		return err
	}
	defer events.Close()
	if err := f.write("cgroup.freeze", "1"); err != nil {
		return err
	}
	buf := make([]byte, 256)
	for {
		n, err := events.ReadAt(buf, 0) // reading is what arms the next event
		if n == 0 {
			return err
		}
		if bytes.Contains(buf[:n], []byte("frozen 1")) {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the processes do not stand still: %w", ctx.Err())
		}
		_, err = unix.Poll([]unix.PollFd{{Fd: int32(events.Fd()), Events: unix.POLLPRI}}, 100)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// thawBeforeEnd has a frozen sandbox go on, so that it can be ended: a frozen process of v1 does not even die, nor one that gVisor has halted.
func (r *Runtime) thawBeforeEnd(ctx context.Context, sandbox string) {
	f, err := findFreezer(sandbox)
	if err != nil || !f.frozen() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, endGrace)
	defer cancel()
	if err := errors.Join(f.thaw(), r.wakeSentry(ctx, sandbox)); err != nil {
		r.log.Warn("a paused sandbox that is to end does not go on", "sandbox", sandbox, "err", err)
	}
}
