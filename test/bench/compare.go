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

// A comparator is another way to run containers, as its users call it: by command lines. All run the base image.
type comparator struct {
	name string
	env  []string // of its command lines
	// a container that sleeps, in the background; more are flags of its own, where it takes any
	create func(id string, more ...string) []string
	exec   func(id string, argv ...string) []string // a command in it
	remove func(id string) [][]string               // it, with force
	once   func(id string) []string                 // the whole life of a container that runs `true`
	send   func(id, from, to string) []string       // copies a file or directory into it; nil if it has no such thing
	fetch  func(id, from, to string) []string       // copies one out of it
	do     func(context.Context, []string) error    // runs a command line
	down   func()                                   // ends its daemon; nil where that is not for containers that live through it
	up     func(context.Context) error              // starts it again
	stop   func()                                   // ends what was started for it
	socket string                                   // of a containerd, for programs that use it as a library
	box    string                                   // a container for commands, made when first asked for
}

// starters are the comparators there are.
var starters = map[string]func(*bench, context.Context) (*comparator, error){
	"ctr": (*bench).startContainerd, "docker": (*bench).startDocker, liveDocker: (*bench).startLiveDocker,
	"crun": (*bench).startCrun,
}

// other starts a comparator when a row first asks for it. One that cannot be had is said to be missing in the result.
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

// fresh is a name for a container that nobody has yet, no other bench on this machine either: runtimes have one
// directory for all.
func fresh() string { return fmt.Sprintf("berth-bench-%d-%d", os.Getpid(), serial.Add(1)) }

// with is the same with more flags for its containers.
func (c *comparator) with(more ...string) *comparator {
	other := *c
	other.box, other.create = "", func(id string, _ ...string) []string { return c.create(id, more...) }
	return &other
}

// creating is the turn that makes a container with a comparator and removes it.
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

// delete removes a container, also when ctx has ended, as a command line has a bound of its own. What is left of one
// that was half made is removed as far as it is there.
func (c *comparator) delete(ctx context.Context, id string) (err error) {
	for _, line := range c.remove(id) {
		err = errors.Join(err, c.do(context.WithoutCancel(ctx), line))
	}
	return err
}

// whole is the whole life of a container. One whose command line fails, above all as ctx has ended, may be there still.
func (c *comparator) whole(ctx context.Context, id string) error {
	err := c.do(ctx, c.once(id))
	if err != nil {
		_ = c.delete(ctx, id) // it may be gone, too
	}
	return err
}

// running is the turn that runs a command in a container that is there already.
func (c *comparator) running(name string, every int, argv ...string) *turn {
	return &turn{name: name, role: Comparator, every: every, op: func(ctx context.Context) (float64, error) {
		id, err := c.container(ctx)
		if err != nil {
			return 0, err
		}
		return timed(func() error { return c.do(ctx, c.exec(id, argv...)) })
	}}
}

// container is one that runs already, for commands and files.
func (c *comparator) container(ctx context.Context) (string, error) {
	if c.box == "" {
		id := fresh()
		if err := c.do(ctx, c.create(id)); err != nil {
			_ = c.delete(ctx, id) // it may be half there
			return "", err
		}
		c.box = id
	}
	return c.box, nil
}

// pipe runs a command in a container that is there already and gives what it writes to take.
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

// environment is that of a comparator's programs: they are to find our runtimes first, and nobody's settings.
func environment(first string, more ...string) []string {
	return append([]string{"PATH=" + first + ":/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + first, "TMPDIR=" + first},
		more...)
}

// How long a command line may take, beyond which it hangs; one that unpacks an image; and how long output may stay
// open after the end, by what was left behind.
const (
	lineMost   = time.Minute
	unpackMost = 5 * time.Minute
	lineDrain  = 2 * time.Second
)

// plainly runs command lines with an environment, and waits for each as long as it may take.
func plainly(env []string, most time.Duration) func(context.Context, []string) error {
	return func(ctx context.Context, line []string) error {
		var said bytes.Buffer
		err := inTime(ctx, most, line, env, &said)
		return explain(err, line[0], said.Bytes())
	}
}

// within bounds what may hang. The cause of its end says so.
func within(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, most, fmt.Errorf("it took more than %v", most))
}

// inTime runs a command line and ends it if it hangs.
func inTime(ctx context.Context, most time.Duration, line, env []string, out io.Writer) error {
	ctx, cancel := within(ctx, most)
	defer cancel()
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = env, out, out, lineDrain
	err := cmd.Run()
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause // it was killed for that
	}
	return err
}

// A service is a comparator's daemon.
type service struct {
	cmd  *exec.Cmd
	log  bytes.Buffer // of what it says; to be read once it has ended
	done chan struct{}
}

// serviceWait is how long a comparator's daemon may take to start, and then to end.
const serviceWait = 30 * time.Second

// begin starts a program and keeps what it says; not its standard output if that has a place already.
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
		_ = cmd.Wait() // what it said tells more
	}()
	return s, nil
}

// serve starts a daemon and waits until somebody listens at its socket.
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
		case <-time.After(20 * time.Millisecond): // a socket tells nobody that it is there
		}
	}
}

// end ends the daemon, by force and with its children if it does not go.
func (s *service) end() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.done:
	case <-time.After(serviceWait):
		pids := children(strconv.Itoa(s.cmd.Process.Pid))
		_ = s.cmd.Process.Kill()
		for _, pid := range pids { // they may hold its output
			end(pid)
		}
		<-s.done
	}
}

// startContainerd starts a stock containerd of the embedded one's version, with the shim and the runc that ours has,
// and its defaults. Not the embedded one itself: that serves no gRPC, which ctr speaks.
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

// endShims ends what a containerd has left running: its shims, which go on without it, and the containers that are
// their children.
func endShims(socket string) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		line, _ := os.ReadFile(file) // one that has ended is none
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

// children are those of a process.
func children(pid string) (pids []string) {
	lists, _ := filepath.Glob(filepath.Join("/proc", pid, "task/*/children"))
	for _, list := range lists {
		line, _ := os.ReadFile(list) // one that has ended has none
		pids = append(pids, strings.Fields(string(line))...)
	}
	return pids
}

// end kills a process.
func end(pid string) {
	if n, err := strconv.Atoi(pid); err == nil && n > 1 {
		_ = syscall.Kill(n, syscall.SIGKILL) // it may have ended
	}
}

// image is the base image's name where it has one.
const image = "docker.io/library/berth-bench:1"

// clear removes the container for commands.
func (c *comparator) clear() {
	if c.box != "" {
		_ = c.delete(context.Background(), c.box) // its daemon's end and unmountBelow do the rest
		c.box = ""
	}
}

// unmountBelow takes away what a comparator may have left mounted, so that its directory can be removed.
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

// said is the first line that a program prints.
func said(ctx context.Context, name string, args ...string) string {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(first)
}
