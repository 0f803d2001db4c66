package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"berth/runtime/cgroup"
	"berth/runtime/diskpool"
	"berth/runtime/mountns"
	"berth/runtime/ocispec"
)

// Bundles is the directory of the bundles of sandboxes that have no shim, by ID. Forked and Runc make those
// sandboxes. containerd keeps only their record, and no process except the sandbox's own stays behind. A bundle is
// made before any process runs and removed when none is left. So a bundle shows what a crash has left half done.
type Bundles string

// Contents of a bundle, beside config.json and the mount points of the root file system.
const (
	bundleState = "state" // runc's own state; runsc's is in the bundle itself
	bundleLog   = "log"   // the log of runc or runsc, as JSON lines
	bundlePID   = "pid"   // the first process's number; once it exists, the sandbox is made
)

// Path returns the bundle of sandbox id.
func (d Bundles) Path(id string) string { return filepath.Join(string(d), id) }

// Has reports whether sandbox id has a bundle.
func (d Bundles) Has(id string) bool { return diskpool.Exists(d.Path(id)) }

// make makes a bundle without a configuration. The sandbox's mapped root walks through the bundle to its root file
// system; no other user can.
func (d Bundles) make(b *Sandbox) (dir string, err error) {
	dir = d.Path(b.ID)
	if err := makeBundle(dir, b.FirstID); err != nil {
		return "", fmt.Errorf("making the bundle: %w", err)
	}
	return dir, nil
}

// makeBundle makes the directory dir with the mount points of a root file system. Host user group may walk through
// it.
func makeBundle(dir string, group uint32) error {
	for _, sub := range []string{"", bundleRoot, bundleLower, bundleLayer} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o710); err != nil {
			return err
		}
	}
	return os.Chown(dir, 0, int(group))
}

// Runc starts sandboxes of its class by runc, without a shim.
type Runc struct {
	Binary  string
	Bundles Bundles
}

// Create lets runc make the sandbox up to the point where its first process waits. See Launcher.
func (l Runc) Create(ctx context.Context, b *Sandbox) (*Waiting, error) {
	dir, err := l.Bundles.make(b)
	if err != nil {
		return nil, err
	}
	pid, err := createByRuntime(ctx, dir, b, l.Binary, []string{
		"--root", filepath.Join(dir, bundleState), "--log", filepath.Join(dir, bundleLog), "--log-format", "json"})
	if err != nil {
		return nil, err
	}
	var pipe *os.File
	start := func(context.Context) (err error) {
		pipe, err = letGo(dir, b.ID)
		return err
	}
	return &Waiting{PID: pid, Start: start, Close: func() { _ = pipe.Close() }}, setRlimits(b, pid)
}

// createByRuntime lets the program runc or runsc make the sandbox of bundle dir up to the point where its first process
// waits, and returns that process. flags go before the command. The root file system is mounted in a namespace that the
// program inherits. The namespace ends with the program, and no other process ever sees it.
func createByRuntime(ctx context.Context, dir string, b *Sandbox, binary string, flags []string) (pid int, err error) {
	pidFile := filepath.Join(dir, bundlePID)
	cmd := exec.CommandContext(ctx, binary, slices.Concat(flags, []string{
		"create", "--bundle", dir, "--pid-file", pidFile + ".new", b.ID})...)
	cmd.Dir = dir
	// The runtime gets nothing of the daemon's environment. Some variables that a service manager sets would change
	// what runc does.
	cmd.Env = []string{ocispec.DefaultPath}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // keeps an interrupt at the daemon's terminal away
	err = mountns.InOwn(func() error {
		mount := mountRoot
		if b.Trees != nil {
			mount = mountTrees
		}
		if err := mount(dir, b); err != nil {
			return fmt.Errorf("mounting its root: %w", err)
		}
		if err := writeConfig(dir, b.Spec); err != nil {
			return err
		}
		return cmd.Run()
	})
	if err != nil {
		return 0, errors.Join(err, runtimeSaid(dir))
	}
	if err := os.Rename(pidFile+".new", pidFile); err != nil {
		return 0, err
	}
	return readPID(dir)
}

// writeConfig writes the OCI configuration of a sandbox into its bundle.
func writeConfig(dir string, spec ocispec.Spec) error {
	config, err := json.Marshal(ocispec.New(spec))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600)
}

// MayGain reports whether sandbox id was made for programs that gain privileges. Its configuration says so, which only
// the daemon writes.
func (d Bundles) MayGain(id string) bool {
	text, err := os.ReadFile(filepath.Join(d.Path(id), "config.json"))
	if err != nil {
		return false
	}
	var spec specs.Spec
	return json.Unmarshal(text, &spec) == nil && spec.Process != nil && !spec.Process.NoNewPrivileges
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
// may have ended and another process may have its number; see LivePID.
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

// LivePID returns the first process of a direct sandbox, or an error of fs.ErrNotExist if it has ended. The number
// alone is not proof: the process must be in the sandbox's cgroup, which no other process enters.
func (d Bundles) LivePID(id string) (int, error) {
	pid, err := readPID(d.Path(id))
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

// runtimeSaid returns the errors that runc or runsc logged in bundle dir, for our log.
func runtimeSaid(dir string) error {
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
	return errors.New("the runtime says: " + strings.Join(said, "; "))
}

// End ends every process of sandbox id and removes its bundle. kill kills a runtime that is still at work on it.
func (d Bundles) End(ctx context.Context, id string, kill func(ctx context.Context, id string) error) error {
	dir := d.Path(id)
	_, err := os.Lstat(filepath.Join(dir, bundlePID))
	// A daemon that was killed leaves the runtime that makes the sandbox, or runsc that pauses it, at work.
	if err != nil || (Gvisor{Bundles: d}).Runs(id) {
		if err := kill(ctx, id); err != nil {
			return err
		}
	}
	if pid, err := d.LivePID(id); err == nil {
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
	gone, forget, err := WatchProcess(pid)
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

// WatchProcess returns a channel that is closed when process pid has ended or when forget is called. It asks the
// kernel and not the runtime, whose events may come late or not at all.
func WatchProcess(pid int) (gone <-chan struct{}, forget func(), err error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, nil, err
	}
	file := os.NewFile(uintptr(fd), "pidfd")
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		// A pidfd becomes readable when its process ends. Close ends the wait, too.
		_ = raw.Read(func(fd uintptr) bool {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			return n > 0 || err != nil && err != unix.EINTR
		})
	}()
	return ended, func() { file.Close(); <-ended }, nil
}
