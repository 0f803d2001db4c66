package bench

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// A comparator is another way to run containers. It is used as its users do: by command lines. All run the base
// image.
type comparator struct {
	name string
	env  []string // for its command lines
	// starts a sleeping container in the background; more are additional flags
	create func(id string, more ...string) []string
	exec   func(id string, argv ...string) []string // runs a command in it
	remove func(id string) [][]string               // removes it by force
	once   func(id string) []string                 // creates a container that runs `true`, and removes it
	// creates a container that runs a command to its end, and leaves it; nil if not supported
	attached func(id string, argv ...string) []string
	send     func(id, from, to string) []string    // copies a file or directory into it; nil if not supported
	fetch    func(id, from, to string) []string    // copies a file or directory out of it
	do       func(context.Context, []string) error // runs a command line
	down     func()                                // stops its daemon; nil if its containers do not survive that
	up       func(context.Context) error           // starts its daemon again
	stop     func()                                // stops everything that was started for it
	socket   string                                // of its containerd, for programs that use containerd as a library
	box      string                                // a container for commands, created on first use
}

// starters maps names of comparators to functions that start them.
var starters = map[string]func(*bench, context.Context) (*comparator, error){
	"ctr": (*bench).startContainerd, "docker": (*bench).startDocker, liveDocker: (*bench).startLiveDocker,
	"crun": (*bench).startCrun,
}

// other starts a comparator on its first use. If it cannot start, the result lists it as missing.
func (b *bench) other(ctx context.Context, res *Result, name string) *comparator {
	if b.Alone {
		return nil
	}
	if b.others[name] == nil && b.reason[name] == "" {
		b.say("  starting %s", name)
		c, err := b.startOther(ctx, name)
		if err != nil {
			b.reason[name] = err.Error()
		} else {
			b.others[name] = c
		}
	}
	if m := (Missing{name, b.reason[name]}); m.Reason != "" && !slices.Contains(res.Missing, m) { // a row may ask twice
		res.Missing = append(res.Missing, m)
	}
	return b.others[name]
}

func (b *bench) startOther(ctx context.Context, name string) (*comparator, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("it needs root")
	}
	if b.Base == "" {
		return nil, errors.New("it needs the base image: --base FILE")
	}
	return starters[name](b, ctx)
}

var serial atomic.Int64

// fresh returns an unused container name. It is unique on the machine, since runtimes share one directory.
func fresh() string { return fmt.Sprintf("berth-bench-%d-%d", os.Getpid(), serial.Add(1)) }

// with returns the comparator with additional flags for its containers.
func (c *comparator) with(more ...string) *comparator {
	other := *c
	other.box, other.create = "", func(id string, _ ...string) []string { return c.create(id, more...) }
	return &other
}

// creating returns a turn that creates a container and removes it.
func (c *comparator) creating(name string, every int) *turn {
	var id string
	return &turn{name: name, role: Comparator, every: every,
		op: func(ctx context.Context) (float64, error) {
			id = fresh()
			return timed(func() error { return c.do(ctx, c.create(id)) })
		},
		after: func(ctx context.Context) error { return c.delete(ctx, id) },
	}
}

// delete removes a container. It works even if ctx has ended, since each command line has its own time limit. It also
// removes the parts of a container whose creation failed.
func (c *comparator) delete(ctx context.Context, id string) (err error) {
	for _, line := range c.remove(id) {
		err = errors.Join(err, c.do(context.WithoutCancel(ctx), line))
	}
	return err
}

// whole runs the whole life of a container. If the command line fails, for example because ctx has ended, whole
// deletes the container, which may still exist.
func (c *comparator) whole(ctx context.Context, id string) error {
	err := c.do(ctx, c.once(id))
	if err != nil {
		_ = c.delete(ctx, id) // it may be gone already
	}
	return err
}

// running returns a turn that runs a command in an existing container.
func (c *comparator) running(name string, every int, argv ...string) *turn {
	return &turn{name: name, role: Comparator, every: every, op: func(ctx context.Context) (float64, error) {
		id, err := c.container(ctx)
		if err != nil {
			return 0, err
		}
		return timed(func() error { return c.do(ctx, c.exec(id, argv...)) })
	}}
}

// container returns a running container for commands and files.
func (c *comparator) container(ctx context.Context) (string, error) {
	if c.box == "" {
		id := fresh()
		if err := c.do(ctx, c.create(id)); err != nil {
			_ = c.delete(ctx, id) // it may be partly created
			return "", err
		}
		c.box = id
	}
	return c.box, nil
}

// pipe runs a command in an existing container and passes its output to take.
func (c *comparator) pipe(ctx context.Context, take func(io.Reader) error, argv ...string) error {
	id, err := c.container(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := within(ctx, lineMost)
	defer cancel()
	line := c.exec(id, argv...)
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Env = c.env
	if err := pipe(cmd, take); err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	return nil
}

// environment returns the environment for a comparator's programs. They find our runtimes first in PATH, and no user
// settings.
func environment(first string, more ...string) []string {
	return append([]string{"PATH=" + first + ":/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + first, "TMPDIR=" + first},
		more...)
}

// Time limits: for a command line, beyond which it counts as hung; for one that unpacks an image; and for output that
// background processes keep open after the end.
const (
	lineMost   = time.Minute
	unpackMost = 5 * time.Minute
	lineDrain  = 2 * time.Second
)

// plainly returns a function that runs command lines with an environment and a time limit.
func plainly(env []string, most time.Duration) func(context.Context, []string) error {
	return func(ctx context.Context, line []string) error {
		var said bytes.Buffer
		err := inTime(ctx, most, line, env, &said)
		return explain(err, line[0], said.Bytes())
	}
}

// within returns a context with a time limit, whose cause names the limit.
func within(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, most, fmt.Errorf("it took more than %v", most))
}

// inTime runs a command line and kills it at the time limit.
func inTime(ctx context.Context, most time.Duration, line, env []string, out io.Writer) error {
	ctx, cancel := within(ctx, most)
	defer cancel()
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = env, out, out, lineDrain
	err := cmd.Run()
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause // it was killed for that reason
	}
	return err
}

// A service is a comparator's daemon.
type service struct {
	cmd  *exec.Cmd
	log  bytes.Buffer // its output; read only after it has ended
	done chan struct{}
}

// serviceWait limits how long a comparator's daemon may take to start, and also to end.
const serviceWait = 30 * time.Second

// begin starts a program and records its output. It does not redirect a standard output that is already set.
func begin(cmd *exec.Cmd, env []string) (*service, error) {
	s := &service{cmd: cmd, done: make(chan struct{})}
	if cmd.Env, cmd.Stderr = env, &s.log; cmd.Stdout == nil {
		cmd.Stdout = &s.log
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(s.done)
		_ = cmd.Wait() // its output says more than the error
	}()
	return s, nil
}

// serve starts a daemon and waits until it listens on its socket.
func serve(ctx context.Context, socket string, env []string, line ...string) (*service, error) {
	s, err := begin(exec.Command(line[0], line[1:]...), env)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, serviceWait)
	defer cancel()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if err == nil {
			return s, conn.Close()
		}
		select {
		case <-s.done:
			return nil, explain(errors.New("it ended"), line[0], s.log.Bytes())
		case <-ctx.Done():
			s.end()
			return nil, explain(ctx.Err(), line[0], s.log.Bytes())
		case <-time.After(20 * time.Millisecond): // poll: there is no event for a new socket
		}
	}
}

// end stops the daemon. If it does not end, end kills it and its children.
func (s *service) end() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.done:
	case <-time.After(serviceWait):
		pids := children(strconv.Itoa(s.cmd.Process.Pid))
		_ = s.cmd.Process.Kill()
		for _, pid := range pids { // they may hold its output open
			end(pid)
		}
		<-s.done
	}
}

// startContainerd starts a stock containerd of the same version as the embedded one, with the same shim and runc, and
// default settings. The embedded one cannot be used: it does not serve gRPC, which ctr needs.
func (b *bench) startContainerd(ctx context.Context) (*comparator, error) {
	bin := filepath.Dir(b.Program)
	ctr := filepath.Join(bin, "ctr")
	for _, program := range []string{"ctr", "containerd"} {
		if _, err := os.Stat(filepath.Join(bin, program)); err != nil {
			return nil, fmt.Errorf("%s is not beside berth; `make comparators` builds it", program)
		}
	}
	dir, err := os.MkdirTemp(b.tmp, "containerd-")
	if err != nil {
		return nil, err
	}
	socket, env := filepath.Join(dir, "s"), environment(bin)
	s, err := serve(ctx, socket, env, filepath.Join(bin, "containerd"), "--config", "/dev/null", "--root",
		filepath.Join(dir, "root"), "--state", filepath.Join(dir, "state"), "--address", socket)
	if err != nil {
		return nil, err
	}
	line := func(args ...string) []string { return append([]string{ctr, "--address", socket}, args...) }
	c := &comparator{
		name: "ctr", env: env, socket: socket, do: plainly(env, lineMost),
		create: func(id string, more ...string) []string {
			return line(slices.Concat([]string{"run", "-d"}, more, []string{image, id, "sleep", "infinity"})...)
		},
		exec: func(id string, argv ...string) []string {
			return line(append([]string{"task", "exec", "--exec-id", fresh(), id}, argv...)...)
		},
		remove: func(id string) [][]string {
			return [][]string{line("task", "rm", "-f", id), line("container", "rm", id)}
		},
		once: func(id string) []string { return line("run", "--rm", image, id, "true") },
	}
	c.stop = func() { c.clear(); s.end(); endShims(socket); unmountBelow(dir) }
	if err := plainly(env, unpackMost)(ctx, line("image", "import", "--index-name", image, b.Base)); err != nil {
		c.stop()
		return nil, err
	}
	b.part(ctx, "ctr", filepath.Join(bin, "containerd"))
	b.part(ctx, "runc", filepath.Join(bin, "runc"))
	return c, nil
}

// endShims kills the shims that a containerd has left running, and their child processes, the containers.
func endShims(socket string) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		line, _ := os.ReadFile(file) // empty if the process has ended
		argv := strings.Split(string(line), "\x00")
		if !strings.HasPrefix(filepath.Base(argv[0]), "containerd-shim") || !slices.Contains(argv, socket) {
			continue
		}
		shim := filepath.Base(filepath.Dir(file))
		for _, pid := range children(shim) {
			end(pid)
		}
		end(shim)
	}
}

// children returns the child processes of a process.
func children(pid string) (pids []string) {
	lists, _ := filepath.Glob(filepath.Join("/proc", pid, "task/*/children"))
	for _, list := range lists {
		line, _ := os.ReadFile(list) // empty if the process has ended
		pids = append(pids, strings.Fields(string(line))...)
	}
	return pids
}

// end kills a process.
func end(pid string) {
	if n, err := strconv.Atoi(pid); err == nil && n > 1 {
		_ = syscall.Kill(n, syscall.SIGKILL) // fails if it has ended
	}
}

// image is the name of the base image in comparators that name images.
const image = "docker.io/library/berth-bench:1"

// clear removes the container for commands.
func (c *comparator) clear() {
	if c.box != "" {
		_ = c.delete(context.Background(), c.box) // if this fails, the end of its daemon and unmountBelow clean up
		c.box = ""
	}
}

// unmountBelow unmounts what a comparator has left mounted, so that its directory can be removed.
func unmountBelow(dir string) {
	table, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return
	}
	for line := range strings.Lines(string(table)) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], dir+"/") {
			_ = syscall.Unmount(fields[1], syscall.MNT_DETACH)
		}
	}
}

// said returns the first line that a program prints.
func said(ctx context.Context, name string, args ...string) string {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(first)
}
