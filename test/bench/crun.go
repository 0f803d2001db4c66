package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
)

// A thread runs functions on one operating system thread with its own mount namespace. Programs started there use the
// same namespace.
type thread struct {
	work chan func()
	done chan struct{}
}

// newThread starts a thread and runs prepare on it.
func newThread(prepare func() error) (*thread, error) {
	t := &thread{work: make(chan func()), done: make(chan struct{})}
	ready := make(chan error, 1)
	go func() {
		defer close(t.done)
		runtime.LockOSThread() // never unlocked: the thread ends together with its namespace
		err := syscall.Unshare(syscall.CLONE_FS | syscall.CLONE_NEWNS)
		if err == nil {
			err = syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "")
		}
		if err == nil {
			err = prepare()
		}
		ready <- err
		if err != nil {
			return
		}
		for f := range t.work {
			f()
		}
	}()
	if err := <-ready; err != nil {
		return nil, err
	}
	return t, nil
}

// do runs f on the thread and waits for it.
func (t *thread) do(f func() error) (err error) {
	over := make(chan struct{})
	t.work <- func() { defer close(over); err = f() }
	<-over
	return err
}

// end ends the thread. t may be nil.
func (t *thread) end() {
	if t != nil {
		close(t.work)
		<-t.done
	}
}

// hybrid is where systemd mounts cgroup v2 beside v1. crun refuses hosts that have both. So it sees only the version
// that has the controllers.
const hybrid = "/sys/fs/cgroup/unified"

func hideHybrid() error {
	if err := syscall.Unmount(hybrid, syscall.MNT_DETACH); err != nil && !errors.Is(err, syscall.EINVAL) &&
		!errors.Is(err, syscall.ENOENT) {
		return err
	}
	return nil
}

// startCrun prepares a bundle for crun, the fastest OCI runtime, which has no daemon.
func (b *bench) startCrun(ctx context.Context) (_ *comparator, err error) {
	crun, err := exec.LookPath("crun")
	if err != nil {
		return nil, errors.New("there is no crun; `make setup-bench` installs Debian's")
	}
	root, err := b.root(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(b.tmp, "crun-")
	if err != nil {
		return nil, err
	}
	for _, bundle := range []string{"sleep", "true"} {
		if err := b.crunBundle(ctx, crun, filepath.Join(dir, bundle), root, bundle); err != nil {
			return nil, err
		}
	}
	if b.locked == nil {
		if b.locked, err = newThread(hideHybrid); err != nil {
			return nil, err
		}
	}
	state := filepath.Join(dir, "state")
	line := func(args ...string) []string { return append([]string{crun, "--root", state}, args...) }
	c := &comparator{
		name: "crun",
		create: func(id string, _ ...string) []string {
			return line("run", "-d", "-b", filepath.Join(dir, "sleep"),
				id)
		},
		exec:   func(id string, argv ...string) []string { return line(append([]string{"exec", id}, argv...)...) },
		remove: func(id string) [][]string { return [][]string{line("delete", "-f", id)} },
		once:   func(id string) []string { return line("run", "-b", filepath.Join(dir, "true"), id) },
	}
	c.do = func(ctx context.Context, line []string) error {
		return b.locked.do(func() error { return toFile(ctx, dir, line) })
	}
	c.stop = c.clear
	if err := c.whole(ctx, fresh()); err != nil { // detect early that crun refuses this host
		return nil, err
	}
	b.part(ctx, "crun", crun)
	return c, nil
}

// toFile runs a command line with its output in a file. A pipe would stay open as long as the background processes of
// crun run.
func toFile(ctx context.Context, dir string, line []string) error {
	f, err := os.CreateTemp(dir, "out-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if err = inTime(ctx, lineMost, line, environment(dir), f); err == nil {
		return nil
	}
	said, _ := os.ReadFile(f.Name())
	return explain(err, line[0], said)
}

// crunBundle writes crun's default bundle with the base image. program is one of two programs.
func (b *bench) crunBundle(ctx context.Context, crun, dir, root, program string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, crun, "spec")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return explain(err, crun, out)
	}
	file := filepath.Join(dir, "config.json")
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var spec map[string]any
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber() // keep numbers as they are written
	if err := dec.Decode(&spec); err != nil {
		return err
	}
	process, ok := spec["process"].(map[string]any)
	if !ok {
		return errors.New("crun spec wrote no process")
	}
	process["terminal"], process["args"] = false, []string{"true"}
	if program == "sleep" {
		process["args"] = []string{"sleep", "infinity"}
	}
	spec["root"] = map[string]any{"path": root, "readonly": true}
	if data, err = json.Marshal(spec); err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o644)
}

// bubblewrap returns a turn that runs `true` in bubblewrap, or nil if bubblewrap is missing.
func (b *bench) bubblewrap(ctx context.Context, res *Result) (*turn, error) {
	root, err := b.root(ctx)
	if err != nil || b.Alone {
		return nil, err
	}
	bwrap, err := exec.LookPath("bwrap")
	if err != nil || root == "" {
		res.Missing = append(res.Missing, Missing{"bwrap", "it needs Debian's bubblewrap (`make setup-bench`), " +
			"--base FILE and root"})
		return nil, nil
	}
	b.part(ctx, "bwrap", bwrap)
	line := []string{bwrap, "--unshare-all", "--ro-bind", root, "/", "--proc", "/proc", "--dev", "/dev", "true"}
	do := plainly(environment("/usr/local/bin"), lineMost)
	return &turn{name: "bwrap", role: Comparator, op: func(ctx context.Context) (float64, error) {
		return timed(func() error { return do(ctx, line) })
	}}, nil
}
