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

// A direct sandbox is one that the daemon makes itself, with runc or by a script (scripted.go): containerd keeps its
// record and nothing else, and no process but the sandbox's own stays behind. Its bundle, a directory below the run
// directory, is made before anything runs and removed when nothing does, so it names what a crash has left half done.
// See docs/decisions/0010.

// What is in a bundle, beside config.json.
const (
	bundleState = "state" // runc's own
	bundleLog   = "log"   // what runc says, as JSON lines
	bundlePID   = "pid"   // of the guest; from here on runc has nothing more to do
)

// runsDirect reports whether sandboxes of a class are direct. gVisor needs its shim, and a containerd that is
// not ours knows sandboxes by theirs.
func (r *Runtime) runsDirect(class proto.RuntimeClass) bool {
	return class == proto.ClassRunc && r.direct
}

// directDir holds the bundles of direct sandboxes, by ID.
func (c Config) directDir() string { return filepath.Join(c.rundir(), "d") }

func (r *Runtime) directPath(id string) string { return filepath.Join(r.cfg.directDir(), id) }

// isDirect reports whether there is a bundle of sandbox id.
func (r *Runtime) isDirect(id string) bool { return diskpool.Exists(r.directPath(id)) }

// launchByRunc is launch for a direct sandbox that runc makes.
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

// makeBundle makes a bundle without a configuration. The sandbox's mapped root walks through it to its root file
// system; no other user can.
func makeBundle(dir string, b launch.Spec) error {
	for _, d := range []string{dir, filepath.Join(dir, launch.BundleRoot), filepath.Join(dir, launch.BundleLower)} {
		if err := os.Mkdir(d, 0o710); err != nil {
			return err
		}
	}
	return os.Chown(dir, 0, int(b.FirstID))
}

// createByRunc has runc make the sandbox up to the point where its first process waits to become the guest. The root
// file system is mounted in a namespace that runc inherits and that ends with it: nobody else ever sees it.
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
	// Nothing of the daemon's environment is for runc, and some of it, as a service manager sets it, changes what
	// runc does.
	cmd.Env = []string{launch.DefaultPath}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // an interrupt at the daemon's terminal is not for it
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

// letGo makes the waiting first process the guest: it waits until somebody reads a pipe of runc's. All that "runc
// start" would do is to read it; it would be one more program to start. The pipe must be kept open until the guest
// runs.
func letGo(dir, id string) (*os.File, error) {
	path := filepath.Join(dir, bundleState, id, "exec.fifo")
	// Opened for both, it waits for nobody.
	pipe, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil { // by this runc knows what runs
		pipe.Close()
		return nil, err
	}
	return pipe, nil
}

// readPID is the host's number of the first process of the sandbox that dir is the bundle of. It may have ended, and
// another have its number: see livePID.
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

// livePID is the first process of a direct sandbox, or an error of fs.ErrNotExist if it has ended. A number says
// little: the process must be in the sandbox's cgroup, which nobody else gets into.
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

// isIn fails with an error of fs.ErrNotExist if a process is not in the cgroup of sandbox id.
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

// runcSaid is what runc logged of its failure in bundle dir, for our log.
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
		// The daemon was killed while runc was at work, which may still be.
		if err := r.killRuntimes(ctx, id); err != nil {
			return err
		}
	} else if pid, err := r.livePID(id); err == nil {
		if err := killAndWait(ctx, id, pid); err != nil {
			return fmt.Errorf("ending the guest: %w", err)
		}
	}
	cgroup.Kill(id) // what is not below the guest, if anything is
	return os.RemoveAll(dir)
}

// killAndWait kills what is in the sandbox's cgroups and waits for the end of its first process, with which all
// others of its PID namespace have ended.
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
		case <-time.After(100 * time.Millisecond): // something may have been starting
		}
	}
}
