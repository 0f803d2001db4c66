package containerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"berth/proto"
	"berth/runtime/cgroup"
	"berth/runtime/diskpool"
	"berth/runtime/launch"
	"berth/runtime/mountns"
)

// A direct sandbox is one that the daemon makes itself, with runc or by a setup program (forked.go). containerd keeps
// only its record, and no process except the sandbox's own stays behind. Its bundle is a directory below the run
// directory. The bundle is made before any process runs and removed when none is left. So a bundle shows what a crash
// has left half done. See docs/decisions/0010.

// Contents of a bundle, beside config.json.
const (
	bundleState = "state" // runc's own state
	bundleLog   = "log"   // runc's log, as JSON lines
	bundlePID   = "pid"   // the guest's process number; once it exists, runc has finished
)

// runsDirect reports whether sandboxes of a class are direct. gVisor needs its shim, and a containerd that is not
// ours knows sandboxes by their shims.
func (r *Runtime) runsDirect(class proto.RuntimeClass) bool {
	return class == proto.ClassRunc && r.direct
}

// directDir returns the directory of the bundles of direct sandboxes, by ID.
func (c Config) directDir() string { return filepath.Join(c.rundir(), "d") }

func (r *Runtime) directPath(id string) string { return filepath.Join(r.cfg.directDir(), id) }

// isDirect reports whether sandbox id has a bundle.
func (r *Runtime) isDirect(id string) bool { return diskpool.Exists(r.directPath(id)) }

// launchByRunc launches a direct sandbox that runc makes.
func (r *Runtime) launchByRunc(ctx context.Context, b launch.Spec, root launch.Root) error {
	dir := r.directPath(b.ID)
	if err := makeBundle(dir, b); err != nil {
		return fmt.Errorf("making the bundle: %w", err)
	}
	var pipe *os.File
	defer func() { _ = pipe.Close() }() // if it was opened
	create := func(ctx context.Context) (int, error) {
		if err := r.createByRunc(ctx, dir, b, root); err != nil {
			return 0, err
		}
		pid, err := readPID(dir)
		if err != nil {
			return 0, err
		}
		r.learnFilter(b.ID, pid)
		return pid, launch.SetLimitsOfNew(b, pid)
	}
	err := r.launch(ctx, b, create, func(context.Context) (err error) {
		pipe, err = letGo(dir, b.ID)
		return err
	})
	if err != nil {
		err = errors.Join(err, runcSaid(dir))
	}
	return err
}

// makeBundle makes a bundle without a configuration. The sandbox's mapped root walks through the bundle to its root
// file system; no other user can.
func makeBundle(dir string, b launch.Spec) error {
	for _, d := range []string{dir, filepath.Join(dir, launch.BundleRoot), filepath.Join(dir, launch.BundleLower)} {
		if err := os.Mkdir(d, 0o710); err != nil {
			return err
		}
	}
	return os.Chown(dir, 0, int(b.FirstID))
}

// createByRunc lets runc make the sandbox up to the point where its first process waits to become the guest. The root
// file system is mounted in a namespace that runc inherits. The namespace ends with runc, and no other process ever
// sees it.
func (r *Runtime) createByRunc(ctx context.Context, dir string, b launch.Spec, root launch.Root) error {
	config, err := json.Marshal(launch.OCISpec(b))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600); err != nil {
		return err
	}
	log := filepath.Join(dir, bundleLog)
	pidFile := filepath.Join(dir, bundlePID)
	cmd := exec.CommandContext(ctx, r.class[proto.ClassRunc].Binary, "--root", filepath.Join(dir, bundleState), "--log",
		log, "--log-format", "json",
		"create", "--bundle", dir, "--pid-file", pidFile+".new", b.ID)
	cmd.Dir = dir
	// runc gets nothing of the daemon's environment. Some variables that a service manager sets would change what
	// runc does.
	cmd.Env = []string{launch.DefaultPath}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // keeps an interrupt at the daemon's terminal away
	err = mountns.InOwn(func() error {
		if err := root.Mount(dir, b); err != nil {
			return fmt.Errorf("mounting its root: %w", err)
		}
		return cmd.Run()
	})
	if err != nil {
		return err
	}
	return os.Rename(pidFile+".new", pidFile)
}

// letGo lets the waiting first process become the guest. The process waits until a reader opens a pipe of runc's.
// "runc start" would only read that pipe, but it would be one more program to start. The caller must keep the pipe
// open until the guest runs.
func letGo(dir, id string) (*os.File, error) {
	path := filepath.Join(dir, bundleState, id, "exec.fifo")
	// Opening for reading and writing does not block.
	pipe, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil { // tells runc that the sandbox runs
		pipe.Close()
		return nil, err
	}
	return pipe, nil
}

// readPID returns the process number, on the host, of the first process of the sandbox with bundle dir. The process
// may have ended and another process may have its number; see livePID.
func readPID(dir string) (int, error) {
	text, err := os.ReadFile(filepath.Join(dir, bundlePID))
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 1 {
		return 0, fmt.Errorf("runc says that the guest is process %.20q", text)
	}
	return pid, nil
}

// livePID returns the first process of a direct sandbox, or an error of fs.ErrNotExist if it has ended. The number
// alone is not proof: the process must be in the sandbox's cgroup, which no other process enters.
func (r *Runtime) livePID(id string) (int, error) {
	pid, err := readPID(r.directPath(id))
	if err == nil {
		err = isIn(id, pid)
	}
	if err != nil {
		return 0, err
	}
	return pid, nil
}

// isIn returns an error of fs.ErrNotExist if a process is not in the cgroup of sandbox id.
func isIn(id string, pid int) error {
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(groups)) {
		if strings.HasSuffix(strings.TrimSpace(line), "/"+cgroup.Parent+"/"+id) {
			return nil
		}
	}
	return fmt.Errorf("process %d is another by now: %w", pid, fs.ErrNotExist)
}

// runcSaid returns the errors that runc logged in bundle dir, for our log.
func runcSaid(dir string) error {
	log, err := os.ReadFile(filepath.Join(dir, bundleLog))
	if err != nil {
		return nil
	}
	const most = 4 << 10
	var said []string
	for line := range strings.Lines(string(log[max(0, len(log)-most):])) {
		var entry struct{ Level, Msg string }
		if json.Unmarshal([]byte(line), &entry) == nil && (entry.Level == "error" || entry.Level == "fatal") {
			said = append(said, entry.Msg)
		}
	}
	if len(said) == 0 {
		return nil
	}
	return errors.New("runc: " + strings.Join(said, "; "))
}

// endDirect ends every process of a direct sandbox and removes its bundle.
func (r *Runtime) endDirect(ctx context.Context, id string) error {
	dir := r.directPath(id)
	if _, err := os.Lstat(filepath.Join(dir, bundlePID)); err != nil {
		// The daemon was killed while runc was at work. runc may still be at work.
		if err := r.killRuntimes(ctx, id); err != nil {
			return err
		}
	} else if pid, err := r.livePID(id); err == nil {
		if err := killAndWait(ctx, id, pid); err != nil {
			return fmt.Errorf("ending the guest: %w", err)
		}
	}
	cgroup.Kill(id) // processes that are not children of the guest, if any
	return os.RemoveAll(dir)
}

// killAndWait kills the processes in the sandbox's cgroups and waits for the end of its first process. All others of
// its PID namespace have ended by then.
func killAndWait(ctx context.Context, id string, pid int) error {
	gone, forget, err := watchProcess(pid)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer forget()
	for {
		cgroup.Kill(id)
		select {
		case <-gone:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond): // a process may have been starting
		}
	}
}
