package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"berth/daemon"
	"berth/daemon/gosched"
	"berth/daemon/notify"
	"berth/proto"
	"berth/runtime/mountns"
)

// serveCommand is `berth serve`. Each of its flags is also a setting of the configuration file and of the environment.
func serveCommand() *cobra.Command {
	o := newOptions()
	var file configFile
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the daemon",
		Long: `Run the daemon until it receives SIGINT or SIGTERM.

The first start creates an API key in DIR/api-key. Every request must carry an API key. Containers keep running when
the daemon ends; the next start attaches to them again.

Each flag is also a key of the configuration file, and the environment variable BERTH_ with the flag's name, as
BERTH_WARM_MAX. The flag wins over the variable, and the variable over the file. 'berth config example' prints a file
with every key. SIGHUP has the daemon read the file again.`,
		Example: "  berth serve\n  berth serve --listen 127.0.0.1:0 --data /srv/berth --idle-timeout 30m",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serve(cmd.Context(), readInputs(file.path(cmd.Flags()), o))
		},
	}
	cmd.Flags().AddFlagSet(o.flags)
	file.addFlag(cmd.Flags())
	return cmd
}

// serve runs the daemon until SIGINT or SIGTERM.
func serve(ctx context.Context, in inputs) error {
	o, cfg, err := load(in)
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("serve creates containers and needs root; run it with sudo")
	}
	if err := absolute(&cfg); err != nil {
		return err
	}
	// With a stricter umask, as hardened services have, roots of containers could not enter their own root file
	// systems.
	syscall.Umask(0o022)
	if cfg.Address == "" { // a running containerd could not see our mounts
		if err := mountns.Private(); err != nil {
			return err
		}
	}
	s := &service{in: in, options: o}
	cfg.Log, cfg.Version = s.newLogger(), proto.FullVersion(version)
	defer gosched.Tune(cfg.Log)()
	return s.run(ctx, cfg)
}

// absolute makes all paths absolute: the runtimes need that, and a change of the working directory must not change
// their meaning.
func absolute(cfg *daemon.Config) (err error) {
	if cfg.Dir, err = filepath.Abs(cfg.Dir); err != nil {
		return err
	}
	if cfg.Skills.Provided != "" {
		if cfg.Skills.Provided, err = filepath.Abs(cfg.Skills.Provided); err != nil {
			return err
		}
	}
	cfg.BinDir, err = binDir(cfg.BinDir)
	return err
}

// A service is the running daemon with what an operator's service manager does to it.
type service struct {
	in      inputs
	options *options // in effect
	level   slog.LevelVar
	log     *slog.Logger
	dir     string
	daemon  *daemon.Daemon
	manager *notify.Manager
}

// told logs that the service manager could not be told something. The daemon works without it.
func (s *service) told(err error) {
	if err != nil {
		s.log.Warn("the service manager does not hear the daemon", "error", err)
	}
}

// status is the line that the service manager shows of a daemon that serves.
func (s *service) status() string { return "serving at " + s.daemon.URL() }

// run opens the daemon and serves until SIGINT or SIGTERM. SIGHUP reads the configuration again.
func (s *service) run(ctx context.Context, cfg daemon.Config) (err error) {
	// From here on the first signal starts an orderly shutdown. It also cancels Open, which takes long if it attaches
	// to many containers.
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A signal that comes during the start waits for its end.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	s.dir = cfg.Dir
	if s.manager, err = notify.FromEnvironment(); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { s.told(s.manager.Stopping()) })()
	cfg.Progress = func(step string) { s.told(s.manager.Status(step)) }
	if s.daemon, err = daemon.Open(ctx, cfg); err != nil {
		return err
	}
	// One line with all that a client needs. Tests and scripts wait for it, and read the port from it if --listen had
	// port 0. The key is never logged, only the path of its file.
	cfg.Log.Info("berth is ready", append([]any{"url", s.daemon.URL(), "key_file", daemon.KeyFile(cfg.Dir), "version",
		cfg.Version}, tlsFacts(s.daemon)...)...)
	if name := s.daemon.MissingImage(ctx); name != "" {
		cfg.Log.Warn("there is no image for containers yet", "image", name, "do", "berth image build base")
	}
	if err = s.publish(); err == nil {
		defer os.Remove(publishedFile(cfg.Dir)) // a leftover file would tell of a daemon that has ended
		err = s.serve(ctx, hangups)
	}
	// Close runs even if serving failed. The first error explains the shutdown.
	if cerr := s.daemon.Close(); err == nil {
		err = cerr
	}
	return err
}

// serve serves requests and reloads until ctx ends.
func (s *service) serve(ctx context.Context, hangups <-chan os.Signal) error {
	var others sync.WaitGroup
	// Run needs the outer context: its requests end before the others here do.
	outer := ctx
	ctx, stop := context.WithCancel(ctx)
	defer others.Wait()
	defer stop()
	serving := make(chan struct{})
	others.Go(func() {
		if s.daemon.WaitServing(ctx) != nil {
			return
		}
		s.told(s.manager.Ready(s.status()))
		close(serving)
		s.manager.Watch(ctx, s.daemon.Answers)
	})
	others.Go(func() {
		// A manager that hears READY=1 after a reload during the start would take it for the end of the start.
		select {
		case <-ctx.Done():
			return
		case <-serving:
		}
		for {
			select {
			case <-ctx.Done():
				return
			case <-hangups:
				s.reload()
			}
		}
	})
	return s.daemon.Run(outer)
}

// tlsFacts returns log attributes about the certificate for clients. A person can compare the fingerprint with what a
// browser or openssl shows.
func tlsFacts(d *daemon.Daemon) (facts []any) {
	sum, file := d.Fingerprint()
	if sum != "" {
		facts = append(facts, "tls_sha256", sum)
	}
	if file != "" {
		facts = append(facts, "ca_file", file)
	}
	return facts
}

// binDir returns the directory of the helper programs: dir, or the directory of berth itself. It follows links:
// packages put a link to berth into PATH and keep the helpers beside the real program.
func binDir(dir string) (string, error) {
	if dir != "" {
		return filepath.Abs(dir)
	}
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	exe, err = filepath.EvalSymlinks(exe)
	return filepath.Dir(exe), err
}

// newLogger logs to standard error, so that standard output can be piped. Text is for people, JSON for log collectors.
func (s *service) newLogger() *slog.Logger {
	s.setLevel(s.options)
	opts := &slog.HandlerOptions{Level: &s.level}
	s.log = slog.New(slog.NewTextHandler(os.Stderr, opts))
	if s.options.jsonLog {
		s.log = slog.New(slog.NewJSONHandler(os.Stderr, opts))
	}
	return s.log
}

func (s *service) setLevel(o *options) {
	s.level.Set(slog.LevelInfo)
	if o.debug {
		s.level.Set(slog.LevelDebug)
	}
}
