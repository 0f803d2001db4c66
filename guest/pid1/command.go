package pid1

import (
	"errors"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"berth/guest/proc"
	"berth/guest/wire"
	"berth/proto"
)

// defaultPath is the PATH for images that set none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// maxArgument is the kernel's limit for one argument (MAX_ARG_STRLEN), less the terminating NUL.
const maxArgument = 128<<10 - 1

// startCommand starts a command for the caller. On an error of the command it answers the caller; its own error ends
// the connection.
func (k *caller) startCommand(req *wire.Request, fds []int) error {
	cmd := req.Command
	if cmd == nil || req.Pipes != len(fds) || cmd.Keep > 0 && len(fds) > 0 {
		wire.CloseAll(fds)
		return wire.ErrFrame
	}
	k.s.countProcessors(cmd)
	p, err := k.s.plan(cmd)
	if err != nil {
		wire.CloseAll(fds)
		return k.reply(nil, err)
	}
	e := &execution{s: k.s, by: k, cancel: make(chan struct{}), ended: make(chan struct{}), plan: p}
	k.exec = e
	if cmd.Job != "" {
		e.job = k.s.fs.Absolute(cmd.Job)
	}
	if cmd.Shell != "" {
		wire.CloseAll(fds)
		e.startFeed(cmd)
		k.s.wg.Go(func() {
			defer k.s.survive(k.conn)
			e.onShell(cmd, p)
		})
		return nil
	}
	if err := e.start(cmd, fds); err != nil {
		k.exec = nil
		e.removeOutputDir()
		return k.reply(nil, err)
	}
	return nil
}

// A plan is a command that is ready to start.
type plan struct {
	proc.Program
	text []byte // a script too long for an argument; the child reads it from descriptor 3

	output      string // its output directory; "" for none
	noOutputDir bool   // the disk is full; the command runs anyway, since it may free space
}

// plan checks cmd and makes its directories.
func (s *Server) plan(cmd *wire.Command) (*plan, error) {
	if err := check(cmd); err != nil {
		return nil, err
	}
	id, err := s.ids.Named(cmd.User)
	if err != nil {
		return nil, err
	}
	p := &plan{Program: proc.Program{User: id}}
	if id.Self || id.Same(s.ids.Default) {
		p.User = id.Current()
		err = id.Do(func() error { return s.prepare(p, cmd) })
		p.User = id
	} else { // directories of other users are made by root and by the ordinary user
		err = s.prepare(p, cmd)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// prepare does the work of plan. For root and the ordinary user, the thread already acts as the user: switching the
// user back and forth costs more than most of this work.
func (s *Server) prepare(p *plan, cmd *wire.Command) (err error) {
	if p.Dir, err = s.fs.WorkingDir(p.User, cmd.Dir); err != nil {
		return err
	}
	p.Env = s.environment(p, cmd)
	if cmd.Text != "" {
		err = p.shell(cmd)
	} else {
		p.Argv = cmd.Argv
		p.Path, err = p.program(cmd.Argv[0])
	}
	if err != nil || cmd.Output == "" {
		return err
	}
	p.output = s.fs.Absolute(cmd.Output)
	err = s.fs.FreshDir(p.User, p.output) // last, so that a command that cannot run leaves no directory
	if p.noOutputDir = proto.CodeOf(err) == proto.QuotaExceeded; p.noOutputDir {
		return nil
	}
	return err
}

// check refuses a command that no program could be started with.
func check(cmd *wire.Command) error {
	bad := func(item, text string) error { return proto.Errorf(proto.InvalidArgument, "exec", item, "%s", text) }
	switch {
	case (len(cmd.Argv) > 0) == (cmd.Text != ""):
		return bad("command", "give either a command for bash or argv, and not both")
	case len(cmd.Argv) > 0 && cmd.Argv[0] == "":
		return bad("argv", "argv[0] is empty; it names the program")
	case cmd.Keep < 0 || cmd.Keep > maxKeep:
		return bad("keep", "keep is 0 to 64 MiB")
	case cmd.Input != nil && (cmd.Stdin || cmd.Keep == 0):
		return bad("input", "input is for commands that are kept, and excludes stdin")
	case cmd.Shell != "" && cmd.Text == "":
		return bad("shell", "a persistent shell runs a command text, not argv")
	case cmd.Shell != "" && cmd.TTY != nil:
		return bad("tty", "a persistent shell has no terminal; leave out shell or tty")
	}
	for _, s := range slices.Concat(cmd.Argv, cmd.Env, cmd.Lists, []string{cmd.Text, cmd.Dir, cmd.Output, cmd.ID,
		cmd.Shell}) {
		if strings.IndexByte(s, 0) >= 0 {
			return bad("command", "it holds a NUL byte, which no argument, variable or path can")
		}
	}
	for _, kv := range cmd.Env {
		if i := strings.IndexByte(kv, '='); i <= 0 {
			return bad("env", "each variable is NAME=value with a name")
		}
	}
	for _, kv := range cmd.Lists {
		if k, _, ok := strings.Cut(kv, "="); !ok || !isName(k) {
			return bad("lists", "each list is NAME=directory with a name")
		}
	}
	return nil
}

// maxKeep limits how many bytes of each stream a command may ask to keep.
const maxKeep = 64 << 20

// processorCounts are the variables by which programs learn how many processors to use: nproc, OpenMP and the libraries
// of NumPy, and Python since 3.13. The kernel tells them the processors of the host, of which the container may use
// all, though not at once. Programs that read the limits of their cgroup need no variable.
var processorCounts = []string{"OMP_NUM_THREADS", "PYTHON_CPU_COUNT"}

// countProcessors adds the processorCounts to the command's environment, except those that the image or the caller
// sets. A persistent shell gets them with each call, so that a changed limit shows there too.
func (s *Server) countProcessors(cmd *wire.Command) {
	if cmd.CPUs <= 0 || cmd.CPUs >= runtime.NumCPU() {
		return
	}
	given := cmd.Env
	for _, name := range processorCounts {
		set := func(kv string) bool { return strings.HasPrefix(kv, name+"=") }
		if !slices.ContainsFunc(s.opt.Env, set) && !slices.ContainsFunc(given, set) {
			cmd.Env = append(cmd.Env, name+"="+strconv.Itoa(cmd.CPUs))
		}
	}
}

// environment returns the variables of the command: those of the image, the user and the caller.
func (s *Server) environment(p *plan, cmd *wire.Command) []string {
	env := newEnviron(s.opt.Env)
	if env.get("PATH") == "" {
		env.set("PATH", defaultPath)
	}
	env.set("HOME", p.User.Home)
	env.set("USER", p.User.Name)
	env.set("LOGNAME", p.User.Name)
	env.set("PWD", p.Dir)
	if p.User.Shell != "" {
		env.set("SHELL", p.User.Shell)
	} else if env.get("SHELL") == "" && s.bash != "" {
		env.set("SHELL", s.bash) // without SHELL, bash reads the list of users at each start
	}
	if cmd.TTY != nil && env.get("TERM") == "" {
		env.set("TERM", "xterm-256color")
	}
	for _, kv := range cmd.Env {
		k, v, _ := strings.Cut(kv, "=")
		env.set(k, v)
	}
	for _, kv := range cmd.Lists {
		k, v, _ := strings.Cut(kv, "=")
		env.add(k, v)
	}
	if cmd.ID != "" {
		env.set(proc.ExecIDVariable, cmd.ID)
	}
	return env.list
}

// An environ is a list of variables without duplicates.
type environ struct {
	list []string
	at   map[string]int
}

func newEnviron(from []string) *environ {
	e := &environ{at: make(map[string]int, len(from)+8)}
	for _, kv := range from {
		if k, v, ok := strings.Cut(kv, "="); ok {
			e.set(k, v)
		}
	}
	return e
}

func (e *environ) set(k, v string) {
	if i, ok := e.at[k]; ok {
		e.list[i] = k + "=" + v
		return
	}
	e.at[k] = len(e.list)
	e.list = append(e.list, k+"="+v)
}

// add appends v to the value of a variable that is a list.
func (e *environ) add(k, v string) {
	if have := e.get(k); have != "" {
		v = have + ":" + v
	}
	e.set(k, v)
}

func (e *environ) get(k string) string {
	i, ok := e.at[k]
	if !ok {
		return ""
	}
	return e.list[i][len(k)+1:]
}

// shell plans a command text. It runs in bash, or in sh if the image has no bash.
func (p *plan) shell(cmd *wire.Command) error {
	name := "bash"
	path, err := p.program(name)
	if err != nil && cmd.Shell == "" {
		name = "sh"
		path, err = p.program(name)
	}
	if err != nil {
		return proto.Errorf(proto.Unsupported, "exec", "bash",
			"the command's PATH leads to no bash, which commands and persistent shells need; if the image has none, "+
				"install it (apt-get install bash, apk add bash) or run a program by argv")
	}
	p.Path = path
	if cmd.Shell != "" {
		p.Argv = []string{name, "--norc", "--noprofile", "-c", shellDriver}
		return nil
	}
	if len(cmd.Text) <= maxArgument {
		p.Argv = []string{name, "-c", cmd.Text}
		return nil
	}
	p.Argv, p.text = []string{name, "/proc/self/fd/3"}, []byte(cmd.Text)
	return nil
}

// program finds a program as execvp would, with the user's permissions.
func (p *plan) program(name string) (string, error) {
	var path string
	err := p.User.Do(func() (err error) {
		path, err = p.search(name)
		return err
	})
	switch {
	case err == nil:
		return path, nil
	case errors.Is(err, unix.EACCES):
		return "", proto.Errorf(proto.PermissionDenied, "exec", name, "%s is not executable for user %s", name,
			p.User.Name)
	case errors.Is(err, unix.EISDIR):
		return "", proto.Errorf(proto.PermissionDenied, "exec", name, "%s is a directory, not a program", name)
	}
	return "", proto.Errorf(proto.NotFound, "exec", name, "the image has no program %q; install it or name its path",
		wire.CleanText(name, 256))
}

func (p *plan) search(name string) (_ string, err error) {
	if strings.Contains(name, "/") {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(p.Dir, path)
		}
		p.StatKey, err = executable(path)
		return path, err
	}
	path := ""
	for _, kv := range p.Env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = v
		}
	}
	found := error(unix.ENOENT)
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(p.Dir, dir)
		}
		file := filepath.Join(dir, name)
		if p.StatKey, err = executable(file); err == nil {
			return file, nil
		}
		if errors.Is(err, unix.EACCES) {
			found = err
		}
	}
	return "", found
}

// executable reports whether the calling user may run path, and returns the stat key of the file.
func executable(path string) (proc.StatKey, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return proc.StatKey{}, err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return proc.StatKey{}, unix.EISDIR
	}
	return proc.StatKeyOf(&st), unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS)
}

// notStarted explains why the kernel refused to run an existing program.
func notStarted(p *proc.Program, err error) error {
	var no syscall.Errno
	errors.As(err, &no)
	switch no {
	case unix.ENOENT, unix.ENOTDIR:
		return proto.Errorf(proto.NotFound, "exec", p.Path, "%s cannot start: the interpreter or loader that it "+
			"names is not in this image", p.Path)
	case unix.ENOEXEC:
		return proto.Errorf(proto.InvalidArgument, "exec", p.Path,
			"%s is not a program for this machine, and has no #! line", p.Path)
	case unix.E2BIG:
		return proto.Errorf(proto.TooLarge, "exec", p.Path, "arguments and environment are too large together; pass "+
			"data by a file or standard input")
	case unix.EACCES, unix.EPERM:
		return proto.Errorf(proto.PermissionDenied, "exec", p.Path, "%s may not be run", p.Path)
	case unix.EAGAIN, unix.ENOMEM:
		return proto.Errorf(proto.TooMany, "exec", p.Path, "the container's limit of processes or memory is "+
			"reached; end what runs in it, or stop the container: its next use starts it again with its files")
	}
	return wire.FileError("exec", p.Path, err)
}
