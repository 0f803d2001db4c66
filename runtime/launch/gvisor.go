package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"berth/runtime/cgroup"
	"berth/runtime/diskpool"
	"berth/runtime/ocispec"
)

// Gvisor starts sandboxes of its class by runsc, without a shim. Two processes stay behind: gVisor's kernel (the
// sentry), and the gofer, in whose mount namespace the kernel opens files of the host. runsc's own state is in the
// bundle.
type Gvisor struct {
	Binary  string // runsc
	Bundles Bundles
}

// Create lets runsc make the kernel of the sandbox, which waits. See Launcher.
func (l Gvisor) Create(ctx context.Context, b *Sandbox) (*Waiting, error) {
	dir, err := l.Bundles.make(b)
	if err != nil {
		return nil, err
	}
	network := loopbackAlone
	if b.Network != "" {
		network = "--network=sandbox" // what the namespace has; see package outbound
	}
	pid, err := createByRuntime(ctx, dir, b, l.Binary, append(l.flags(dir), network))
	if err != nil {
		return nil, err
	}
	start := func(ctx context.Context) error { return l.run(ctx, b.ID, network, "start") }
	return &Waiting{PID: pid, Start: start, Close: func() {}}, setRlimits(b, pid)
}

// flags returns what goes before every command of runsc for the sandbox of bundle dir.
func (l Gvisor) flags(dir string) []string {
	return slices.Concat(gvisorFlags, []string{
		"--dcache=" + strconv.FormatUint(min(mostDentries, cgroup.HardLimit(unix.RLIMIT_NOFILE)/4), 10),
		// The empty network namespace that all gofers may share is a mount. It would be in the namespace of the first
		// runsc alone.
		"--gofer-network-namespace=new",
		// The path of a socket in it may have 107 characters, which leaves no room for a directory below the bundle.
		"--root", dir,
		"--log", filepath.Join(dir, bundleLog), "--log-format", "json",
	})
}

// mostDentries is how many files gVisor's kernel remembers, and so how many descriptors of the host it keeps open, at
// the most. By default it remembers 1,000. A walk over 4,000 files took 1.7 times as long then, and a tar of them 1.15
// times.
const mostDentries = 8192

// run runs a command of runsc, which flags may precede, on a sandbox.
func (l Gvisor) run(ctx context.Context, id string, command ...string) error {
	dir := l.Bundles.Path(id)
	cmd := exec.CommandContext(ctx, l.Binary, slices.Concat(l.flags(dir), command, []string{id})...)
	cmd.Dir = dir
	cmd.Env = []string{ocispec.DefaultPath}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Run(); err != nil {
		return errors.Join(fmt.Errorf("runsc %s: %w", command[len(command)-1], err), runtimeSaid(dir))
	}
	return nil
}

// Pause has the kernel of a sandbox pause all its processes.
func (l Gvisor) Pause(ctx context.Context, id string) error { return l.run(ctx, id, "pause") }

// Resume has the kernel of a sandbox resume all its processes.
func (l Gvisor) Resume(ctx context.Context, id string) error { return l.run(ctx, id, "resume") }

// Paused reports whether the last command that succeeded was Pause.
func (l Gvisor) Paused(id string) bool {
	state, err := l.state(id)
	return err == nil && state.Status == "paused"
}

// Gofer returns the process number of a sandbox's gofer, or an error of fs.ErrNotExist if it has ended.
func (l Gvisor) Gofer(id string) (int, error) {
	state, err := l.state(id)
	if err == nil {
		err = isIn(id, state.Gofer)
	}
	if err != nil {
		return 0, fmt.Errorf("finding the gofer: %w", err)
	}
	return state.Gofer, nil
}

// A gvisorState is the part of runsc's state that we read.
type gvisorState struct {
	Status string `json:"status"`
	Gofer  int    `json:"goferPid"`
}

func (l Gvisor) state(id string) (state gvisorState, err error) {
	text, err := os.ReadFile(l.statePath(id))
	if err == nil {
		err = json.Unmarshal(text, &state)
	}
	return state, err
}

func (l Gvisor) statePath(id string) string {
	return filepath.Join(l.Bundles.Path(id), id+"_sandbox:"+id+".state")
}

// Runs reports whether sandbox id has a bundle and gVisor runs it.
func (l Gvisor) Runs(id string) bool { return diskpool.Exists(l.statePath(id)) }

// GoferRoot is where the root file system of a sandbox is mounted in its gofer's mount namespace. What is mounted below
// it is found by gVisor's kernel, unless a process of the sandbox has looked there before; see CheckUnseen.
const GoferRoot = "/root"

// CheckUnseen fails if the gVisor kernel that is process sentry has looked at a directory below GoferRoot. It keeps a
// descriptor of each that it knows. If it has one from before something was mounted there, it goes on to use what is
// below.
func (l Gvisor) CheckUnseen(sentry int, dir string) error {
	fds, err := os.Open(fmt.Sprintf("/proc/%d/fd", sentry))
	if err != nil {
		return err
	}
	defer fds.Close()
	names, err := fds.Readdirnames(-1)
	if err != nil {
		return err
	}
	buf := make([]byte, len(dir)+1)
	for _, name := range names {
		n, err := unix.Readlinkat(int(fds.Fd()), name, buf)
		if err == nil && string(buf[:n]) == dir {
			return fmt.Errorf("the sandbox has looked at %s too early", dir)
		}
	}
	return nil
}
