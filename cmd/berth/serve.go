package main

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"berth/cli/app"
	"berth/daemon"
	"berth/daemon/gosched"
	"berth/proto"
	"berth/runtime/diskpool"
	"berth/runtime/mountns"
	"berth/session"
)

// serveCommand is `berth serve`. Its flags are the operator's whole configuration: there is no file and no
// environment variable that could say otherwise.
func serveCommand() *cobra.Command {
	var cfg daemon.Config
	var jsonLog, debug bool
	// The limits are copied first, so that a flag's default is what the core would use and --help shows
	// true numbers.
	limits := session.DefaultLimits
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the daemon",
		Long: `Run the daemon until it is interrupted.

At its first start it makes an API key in DIR/api-key, which every request must carry.
When it ends, containers go on without it; the next start attaches to them again.`,
		Example: "  berth serve\n  berth serve --listen 127.0.0.1:0 --data /srv/berth --idle-timeout 30m",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := notNegative(cmd.Flags()); err != nil {
				return err
			}
			// as a variable that is not set gives; the current directory would be full of a daemon's files
			if cfg.Dir == "" {
				return fmt.Errorf("--data is empty; name the data directory, or leave it out for %s", app.DefaultDir)
			}
			cfg.Log = newLogger(jsonLog, debug)
			cfg.Version = proto.FullVersion(version)
			cfg.Session.Limits = limits
			if err := bounds(cmd.Flags(), cfg); err != nil {
				return err
			}
			return serve(cmd, cfg)
		},
	}
	f := cmd.Flags()
	// A zero stands for the default where the part that uses the value knows it; the number is then said
	// in the help text, and a zero never means "no limit" unless the text says so.
	f.StringVar(&cfg.Listen, "listen", app.DefaultListen, "address to serve HTTP on; port 0 takes a free one")
	f.StringVar(&cfg.TLSCert, "tls-cert", "", "serve HTTPS with this certificate: a PEM file with its whole chain; "+
		"read again when it changes")
	f.StringVar(&cfg.TLSKey, "tls-key", "", "private key of the certificate, a PEM file that others cannot read")
	f.BoolVar(&cfg.TLSSelfSigned, "tls-self-signed", false, "serve HTTPS with a certificate that the daemon makes "+
		"itself; clients trust DIR/tls/ca.pem")
	f.StringVar(&cfg.Dir, "data", app.DefaultDir, "data directory")
	f.StringVar(&cfg.BinDir, "bin", "",
		"directory of berth-guest, runc, runsc and the shim (default: where berth itself is)")
	f.StringVar(&cfg.Address, "containerd", "", "socket of a running containerd to use instead of the embedded one")
	f.StringVar(&cfg.Session.Image, "image", "base", "image of containers that name none")
	f.DurationVar(&cfg.Session.IdleTimeout, "idle-timeout", 0, "stop a container after this long without use "+
		"(default 5m)")
	f.DurationVar(&cfg.Session.PauseAfter, "pause-idle-after", 0, "have a container stand still after this long "+
		"without use, until its next (default never)")
	f.DurationVar(&cfg.Session.DozeAfter, "doze-idle-after", time.Minute, "have a container that nothing runs in "+
		"give back most of its memory after this long without use; its next use takes some milliseconds longer (0: never)")
	f.DurationVar(&cfg.Session.MaxLifetime, "max-lifetime", 0, "remove a container and its files this long after "+
		"its creation (default 720h)")
	f.DurationVar(&cfg.Session.ExecTimeout, "exec-timeout", 0, "time limit of commands that ask for none (default 5m)")
	f.StringVar((*string)(&cfg.Egress.Most), "network-max", string(proto.NetworkNone), "the widest network that a "+
		"container may ask for: none, allowlist or open; each container still has none unless it asks")
	f.StringVar(&cfg.Egress.Resolver, "resolver", "", "name server, host:port, that answers for containers with a "+
		"network (default: the host's)")
	f.StringArrayVar(&cfg.ToolCallbacks, "tools-callback", nil, "a server that calls of code's tools may go to, as "+
		"HOST or HOST:PORT; addresses that are not public as such, or as a range beside names that lead there (may "+
		"be repeated; default: none)")
	f.Func("egress-allow-private", "addresses that are not public and that containers with a network may reach "+
		"nevertheless, such as 10.1.0.0/16 (may be repeated)", func(text string) error {
		prefix, err := parsePrefix(text)
		cfg.Egress.Private = append(cfg.Egress.Private, prefix)
		return err
	})
	f.StringVar(&cfg.EgressCA, "egress-ca", "", "PEM file of authorities to trust beside the system's, for hosts "+
		"that network secrets go to")
	f.Float64Var(&limits.CPUs, "cpus", limits.CPUs, "most CPUs of one container, and its default")
	f.Int64Var(&limits.MemoryBytes, "memory-bytes", limits.MemoryBytes, "most memory of one container, and its default")
	f.Int64Var(&limits.PIDs, "pids", limits.PIDs, "most processes and threads of one container, and its default")
	f.Int64Var(&limits.OpenFiles, "open-files", limits.OpenFiles,
		"most files that one process in a container may have open")
	f.Int64Var(&limits.DiskBytes, "disk-bytes", limits.DiskBytes, "most disk of one container's workspace, and of "+
		"its writable layer")
	f.IntVar(&cfg.Session.MaxSessions, "max-containers", 0, "most containers at once (default 10000)")
	f.Int64Var(&cfg.Session.OutputMemory, "output-memory-bytes", 0, "most memory for what commands wrote, of all "+
		"containers together (default 256 MiB)")
	f.Int64Var(&cfg.Session.OutputDisk, "output-disk-bytes", 0, "most disk for what of ended commands is not kept "+
		"in memory (default 4 GiB)")
	f.IntVar(&cfg.Session.MaxExecs, "max-execs", 0, "most commands at once in one container (default 64)")
	f.Int64Var(&cfg.PoolBytes, "pool-bytes", 0, "size of the disk pool when it is first made (default: half of the "+
		"free space, at most 64 GiB)")
	f.Int64Var(&cfg.FileQuota, "file-quota-bytes", 0, "most bytes of stored files per owner (default no limit)")
	f.Int64Var(&cfg.MaxFileBytes, "max-file-bytes", 0, "most bytes of one stored file (default 500 MiB)")
	f.BoolVar(&cfg.StrictDownloads, "strict-downloads", false, "refuse downloads of uploaded files, as the hosted "+
		"Files API does")
	f.StringVar(&cfg.Skills.Provided, "skills", "", "directory of skills that everybody has: each a directory below "+
		"it with a SKILL.md; changes are seen at once (default none)")
	f.Int64Var(&cfg.Skills.MaxBytes, "skill-max-bytes", 0, "most bytes of the files of one skill (default 30 MiB)")
	f.Int64Var(&cfg.Skills.Quota, "skill-quota-bytes", 0, "most bytes that uploaded skills of one owner take, "+
		"packed (default 1 GiB)")
	f.IntVar(&cfg.Skills.MaxRefs, "max-skills", 0, "most skills in one container at once (default 20)")
	f.StringSliceVar(&cfg.Origins, "origin", nil, "web origin that may open websockets and use /mcp (may be repeated)")
	f.DurationVar(&cfg.SweepEvery, "sweep-every", 0, "how often expired things are removed (default 10s)")
	f.IntVar(&cfg.WarmMin, "warm-min", 2, "containers kept started for requests to come, of each image in use")
	f.IntVar(&cfg.WarmMax, "warm-max", 32, "most containers kept started, of all images together; 0 keeps none")
	messagesFlags(f, &cfg)
	f.StringVar(&cfg.ProviderKeys, "provider-keys", "", "file with lines NAME=KEY that others cannot read: "+
		"OPENAI_API_KEY, ANTHROPIC_API_KEY and GEMINI_API_KEY for stored tools; read at the start")
	f.BoolVar(&cfg.StopOnExit, "stop-on-exit", false, "stop all containers when the daemon ends; their files stay")
	f.StringVar(&cfg.Pprof, "pprof", "", "serve profiles of the daemon on this address of loopback, without a key "+
		"(default none)")
	f.BoolVar(&jsonLog, "log-json", false, "log JSON lines")
	f.BoolVar(&debug, "debug", false, "log more")
	// Half of a pair is a mistake, and both ways at once would leave open which certificate
	// clients see.
	cmd.MarkFlagsRequiredTogether("tls-cert", "tls-key")
	cmd.MarkFlagsMutuallyExclusive("tls-cert", "tls-self-signed")
	return cmd
}

// parsePrefix reads a range of addresses, or one alone.
func parsePrefix(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil || p.Masked() != p {
		return p, fmt.Errorf("%q is not a range of addresses; write it as 10.1.0.0/16", text)
	}
	return p, nil
}

// notNegative refuses a number or time below 0, which no flag has a meaning for: it is a typing error, and a daemon
// with it would expire or refuse everything.
func notNegative(flags *pflag.FlagSet) (err error) {
	flags.Visit(func(f *pflag.Flag) {
		switch f.Value.Type() {
		case "int", "int64", "float64", "duration":
			if strings.HasPrefix(f.Value.String(), "-") {
				err = fmt.Errorf("--%s %s is less than nothing; leave it out for the default", f.Name, f.Value)
			}
		}
	})
	return err
}

// flagOf is what sets the default for a field of a request.
var flagOf = map[string]string{
	"limits.cpus": "cpus", "limits.memory_bytes": "memory-bytes", "limits.pids": "pids",
	"limits.disk_bytes": "disk-bytes", "limits.open_files": "open-files",
	"idle_timeout_seconds": "idle-timeout", "max_lifetime_seconds": "max-lifetime", "timeout_seconds": "exec-timeout",
}

// bounds refuses numbers with which the daemon would start and could make no container, or none with the limits that
// were asked for.
func bounds(flags *pflag.FlagSet, cfg daemon.Config) error {
	if err := cfg.Session.Check(); err != nil {
		e := proto.AsError(err)
		f := flags.Lookup(flagOf[e.Item])
		return fmt.Errorf("--%s %s %s", f.Name, f.Value, e.Message)
	}
	if err := diskpool.CheckBytes(cfg.PoolBytes); err != nil {
		return fmt.Errorf("--pool-bytes: %w", err)
	}
	return nil
}

// serve runs the daemon until SIGINT or SIGTERM.
// A data directory that was given as a relative path must not change its meaning when something changes
// the working directory, and the runtimes are given absolute paths only.
func serve(cmd *cobra.Command, cfg daemon.Config) (err error) {
	if os.Geteuid() != 0 {
		return fmt.Errorf("serve makes containers and needs root; run it with sudo")
	}
	if cfg.Dir, err = filepath.Abs(cfg.Dir); err != nil {
		return err
	}
	if cfg.Skills.Provided != "" {
		if cfg.Skills.Provided, err = filepath.Abs(cfg.Skills.Provided); err != nil {
			return err
		}
	}
	if cfg.BinDir, err = binDir(cfg.BinDir); err != nil {
		return err
	}
	// a stricter one, as hardened services have, would shut containers' roots out of their own root file systems
	syscall.Umask(0o022)
	if cfg.Address == "" { // a running containerd could not see our mounts
		if err := mountns.Private(); err != nil {
			return err
		}
	}
	defer gosched.Tune(cfg.Log)()
	// From here on the first signal begins an orderly end. It reaches Open too, which may take long where
	// many containers are to be attached to again.
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	d, err := daemon.Open(ctx, cfg)
	if err != nil {
		return err
	}
	// One line with all that a client needs. Tests and scripts wait for it, and take the port from it
	// where --listen had port 0. The key itself is never logged, only its file.
	cfg.Log.Info("berth is ready", append([]any{"url", d.URL(), "key_file", daemon.KeyFile(cfg.Dir), "version",
		cfg.Version}, tlsFacts(d)...)...)
	// Close runs also after Run failed; the first error is the one that explains the end.
	err = d.Run(ctx)
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}

// tlsFacts are what clients need to know of the certificate, for the log.
// The fingerprint lets a person check by eye what a browser or openssl shows.
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

// binDir is where the daemon's helper programs are: beside itself, unless said otherwise.
// Links are followed, since packages put a link to berth into PATH and leave the helpers where the program
// really is.
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

// newLogger writes to standard error, so that what a command prints on standard output can be piped. Text
// is for people at a terminal, JSON for collectors of logs.
func newLogger(json, debug bool) *slog.Logger {
	opts := &slog.HandlerOptions{Level: slog.LevelInfo}
	if debug {
		opts.Level = slog.LevelDebug
	}
	if json {
		return slog.New(slog.NewJSONHandler(os.Stderr, opts))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, opts))
}
