// Command berth-guest is PID 1 of a container. It answers the daemon on a unix
// socket, runs what the daemon asks for, reaps orphans, and does not end before
// the container does. Called as tools, it is the command of that name.
//
// It has one processor whatever the cgroup says, and keeps no files of the cgroup open to see that change.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"

	"golang.org/x/sys/unix"

	"berth/guest/buildstep"
	"berth/guest/capacity"
	"berth/guest/gosched"
	"berth/guest/pid1"
	"berth/guest/signals"
	"berth/guest/user"
	"berth/guest/wire"
	"berth/tools/bridge/inside/command"
)

// version is set when the program is linked.
var version = "dev"

// The guest is nearly always idle, and each container has one. So it uses little memory and few threads; speed at its
// rare work matters less.
const (
	gcPercent   = 20
	memoryLimit = 48 << 20 // bytes; above this the GC works harder, but the heap may still grow
	// applies even if the environment does not set it; the guest's work takes some microseconds, and a second
	// processor costs thread switches
	maxProcs = 1
)

// init keeps main on the main thread, which has to be the parent of all commands, see pid1.Serve.
func init() { runtime.LockOSThread() }

func main() {
	if os.Args[0] == helperName { // reached only if the program was linked without the entry
		os.Exit(int(syscall.ENOSYS))
	}
	if len(os.Args) == 2 && os.Args[1] == wire.StepCommandFlag {
		buildstep.Main()
	}
	if args, ok := command.Asked(os.Args); ok {
		os.Exit(command.Main(args))
	}
	cfg := config{}
	flag.StringVar(&cfg.socket, "socket", "/.berth/run/guest.sock", "unix socket to listen on")
	flag.StringVar(&cfg.workspace, "workspace", "/workspace", "directory of the workspace")
	flag.StringVar(&cfg.root, "root", "/", "root of the image; a missing user is added to its /etc/passwd")
	flag.IntVar(&cfg.uid, "uid", 1000, "user and group ID of commands")
	flag.BoolVar(&cfg.mayGain, "allow-new-privileges", false, "let set-user-ID programs such as sudo gain privileges")
	flag.BoolVar(&cfg.later, "workspace-later", false, "do not look at the workspace before a command does: it may be "+
		"mounted later, and belongs to its user")
	flag.StringVar(&cfg.nameServer, "name-server", "", "address of a name server, where loopback has none")
	flag.BoolVar(&cfg.ownProcs, "own-gomaxprocs", false, "do not pass GOMAXPROCS of the environment on to commands")
	flag.BoolVar(&cfg.step, "step", false, "run a step of an image's build: leave the image as it is")
	flag.Parse()
	if flag.NArg() == 1 {
		cfg.socket = flag.Arg(0)
	}
	if err := run(context.Background(), cfg); err != nil {
		fmt.Fprintln(os.Stderr, "berth-guest:", err)
		os.Exit(1)
	}
}

// config holds the command line's options.
type config struct {
	socket, workspace, root string
	later                   bool // -workspace-later
	nameServer              string
	uid                     int
	mayGain                 bool
	step                    bool
	ownProcs                bool
}

// run serves until ctx ends. For PID 1 ctx never ends.
func run(ctx context.Context, cfg config) error {
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(memoryLimit)
	runtime.GOMAXPROCS(min(maxProcs, runtime.NumCPU()))
	log := slog.New(slog.NewTextHandler(stderr{}, nil))
	if err := signals.Ignore(); err != nil {
		log.Error("preparing for signals", "err", err)
	}
	if err := gosched.Tune(); err != nil {
		log.Error("setting the timer slack", "err", err)
	}
	harden(log, cfg.mayGain)
	opt := pid1.ServerOptions{Log: log, Version: version, Workspace: cfg.workspace, UID: cfg.uid, GID: cfg.uid,
		Init: true, NoZygotes: os.Getenv("BERTH_ZYGOTES") == "off"}
	if cfg.ownProcs {
		_ = os.Unsetenv("GOMAXPROCS")
	}
	opt.Env = os.Environ() // of commands
	ln, err := begin(log, cfg)
	if err != nil {
		return err
	}
	if !cfg.mayGain && !cfg.step {
		opt.Home = func() {
			if err := capacity.Start(); err != nil {
				log.Info("the kernel answers for the container's limits", "err", err)
			}
		}
	}
	return pid1.Serve(ctx, ln, opt)
}

// begin prepares the container and opens the listener.
func begin(log *slog.Logger, cfg config) (net.Listener, error) {
	if cfg.step {
		return listen(cfg.socket)
	}
	// If the image is not writable, the guest still runs what it can.
	if err := user.EnsureUser(cfg.root, cfg.uid, cfg.uid); err != nil {
		log.Warn("adding the user to the image", "err", err)
	}
	if cfg.mayGain {
		if err := user.AllowSudo(cfg.root, cfg.uid); err != nil {
			log.Warn("letting the user call sudo", "err", err)
		}
	}
	if cfg.nameServer != "" {
		if err := nameServer(cfg.root, cfg.nameServer); err != nil {
			log.Warn("naming the name server", "err", err)
		}
	}
	if !cfg.later {
		if err := adopt(cfg.workspace, cfg.uid); err != nil {
			log.Warn("preparing the workspace", "err", err)
		}
	}
	return listen(cfg.socket)
}

// stderr is os.Stderr without Go's special case: Go ends the program if the reader of os.Stderr is gone.
type stderr struct{}

func (stderr) Write(p []byte) (int, error) { return unix.Write(unix.Stderr, p) }

// harden prevents commands from gaining privileges and from inspecting the guest.
func harden(log *slog.Logger, mayGain bool) {
	syscall.Umask(0o022)
	if !mayGain {
		// The setting belongs to a thread, and any thread may start the next command. So it is set on all threads.
		if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0,
			0); errno != 0 {
			log.Error("setting no_new_privs", "err", errno)
		}
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		log.Warn("making the guest undumpable", "err", err)
	}
}

// adopt gives a new workspace to the user. A new workspace is empty and belongs to root.
func adopt(dir string, uid int) error {
	const flags = os.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW
	f, err := os.OpenFile(dir, flags, 0)
	if errors.Is(err, os.ErrNotExist) {
		if err = os.MkdirAll(dir, 0o755); err == nil {
			f, err = os.OpenFile(dir, flags, 0)
		}
	}
	if err != nil {
		return err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if names, _ := f.Readdirnames(1); len(names) > 0 || st.Uid != 0 {
		return nil
	}
	return f.Chown(uid, uid)
}

// listen opens the socket. It replaces a socket that an earlier guest left.
func listen(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	// Any process that can connect can run commands as root. The daemon is root outside and can always connect.
	if err := os.Chmod(path, 0o600); err != nil {
		_ = ln.Close()
		return nil, err
	}
	return ln, nil
}
