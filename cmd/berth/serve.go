package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
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

// serveCommand is `berth serve`. Its flags are the whole configuration: no file and no environment variable changes it.
func serveCommand() *cobra.Command {
	var cfg daemon.Config
	var jsonLog, debug bool
	var classes []string
	var allowSudo bool
	// A copy of the core's limits: --help then shows the true defaults.
	limits := session.DefaultLimits
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the daemon",
		Long: `Run the daemon until it receives SIGINT or SIGTERM.

The first start creates an API key in DIR/api-key. Every request must carry an API key. Containers keep running when
the daemon ends; the next start attaches to them again.`,
		Example: "  berth serve\n  berth serve --listen 127.0.0.1:0 --data /srv/berth --idle-timeout 30m",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := notNegative(cmd.Flags()); err != nil {
				return err
			}
			// An unset variable in a script gives an empty path, and the daemon would fill the current directory.
			if cfg.Dir == "" {
				return fmt.Errorf("--data is empty; give the data directory, or leave --data out for %s",
					app.DefaultDir)
			}
			cfg.Log = newLogger(jsonLog, debug)
			cfg.Version = proto.FullVersion(version)
			cfg.Session.Limits, cfg.Session.NoSudo = limits, !allowSudo
			for _, c := range classes {
				allowed := &cfg.Session.Classes.Allowed
				*allowed = append(*allowed, proto.RuntimeClass(strings.TrimSpace(c)))
			}
			if err := checkOAuth(&cfg); err != nil {
				return err
			}
			if err := bounds(cmd.Flags(), cfg); err != nil {
				return err
			}
			return serve(cmd, cfg)
		},
	}
	f := cmd.Flags()
	// 0 means the default of the package that uses the value; the help text then names that default. 0 means "no
	// limit" only where the text says so.
	f.StringVar(&cfg.Listen, "listen", app.DefaultListen, "address to serve HTTP on; port 0 takes a free port")
	f.StringVar(&cfg.TLSCert, "tls-cert", "", "PEM file of the certificate and its chain; serves HTTPS; the "+
		"daemon rereads it when it changes")
	f.StringVar(&cfg.TLSKey, "tls-key", "", "PEM file of the private key of --tls-cert; only its owner may be "+
		"able to read it")
	f.BoolVar(&cfg.TLSSelfSigned, "tls-self-signed", false, "serve HTTPS with a certificate that the daemon "+
		"makes; clients trust DIR/tls/ca.pem")
	acmeFlags(cmd, &cfg)
	oauthFlags(cmd, &cfg)
	f.StringVar(&cfg.Domain, "domain", "", "NAME[:PORT] below which each port of a container has a host name of its "+
		"own; all names below it must lead here; https://NAME behind a proxy that has TLS (default: localhost if "+
		"--listen is on loopback without TLS, else none)")
	f.StringVar(&cfg.Dir, "data", app.DefaultDir, "data directory")
	f.StringVar(&cfg.BinDir, "bin", "",
		"directory of berth-guest, runc, runsc and the shim (default: the directory of berth)")
	f.StringVar(&cfg.Address, "containerd", "", "socket of a running containerd to use instead of the embedded "+
		"one")
	f.StringVar(&cfg.Session.Image, "image", session.DefaultImage, "image of containers that name none")
	f.StringVar((*string)(&cfg.Session.Classes.Default), "runtime-class", "", "runtime class of containers that "+
		"name none: runc or gvisor (default: the first of --runtime-classes)")
	f.StringSliceVar(&classes, "runtime-classes", nil, "runtime classes that a request may name, such as gvisor "+
		"alone (default runc,gvisor)")
	f.DurationVar(&cfg.Session.IdleTimeout, "idle-timeout", 0, "stop a container after this much idle time "+
		"(default 5m)")
	f.DurationVar(&cfg.Session.PauseAfter, "pause-idle-after", 0, "pause a container after this much idle time; "+
		"the next request resumes it (default never)")
	f.DurationVar(&cfg.Session.StopAfter, "stop-idle-after", time.Minute, "stop a container after this much idle "+
		"time if no process runs in it; it then takes no memory, keeps all its files, and starts at the next "+
		"request (0: only when its lease ends)")
	f.DurationVar(&cfg.Session.StopAfter, "doze-idle-after", time.Minute, "")
	_ = f.MarkDeprecated("doze-idle-after", "containers no longer doze; use --stop-idle-after")
	f.DurationVar(&cfg.Session.MaxLifetime, "max-lifetime", 0, "delete a container and its files this long after "+
		"its creation (default 720h)")
	f.DurationVar(&cfg.Session.UnusedLifetime, "unused-lifetime", 15*time.Minute, "delete a container this long after "+
		"its creation if it was never used, as when its creator lost the connection (0: after --max-lifetime)")
	f.DurationVar(&cfg.Session.PauseKeep, "pause-retention", 0, "stop a paused container after this long, "+
		"which ends its processes and keeps its files (default 720h)")
	f.DurationVar(&cfg.Session.ExecTimeout, "exec-timeout", 0, "time limit of commands that set none (default "+
		"5m)")
	f.BoolVar(&allowSudo, "allow-sudo", true, "containers may ask for sudo, which makes their user their root; "+
		"sandboxes of E2B's clients get it unasked")
	f.StringVar((*string)(&cfg.Egress.Most), "network-max", string(proto.NetworkNone),
		"widest network mode that a container may request: none, allowlist or open; a container has no "+
			"network unless it requests one")
	cfg.AskTime = 2 * time.Minute
	f.Var((*askTime)(&cfg.AskTime), "network-ask", "how long a connection waits for a person's decision where a "+
		"container's network has ask (0: no container may ask)")
	f.StringVar((*string)(&cfg.Session.PortsMax), "ports-max", string(proto.PortsSigned), "widest access to ports of "+
		"containers: private (with an API key), signed (also with a signed URL) or public (also without either, where "+
		"an owner makes a port public)")
	f.StringVar(&cfg.Egress.Resolver, "resolver", "", "name server, as HOST:PORT, for containers with a network "+
		"(default: the host's)")
	f.StringArrayVar(&cfg.ToolCallbacks, "tools-callback", nil, "server that tool calls may be posted to, as "+
		"HOST or HOST:PORT; an address that is not public has to be listed as an address or a range (may be "+
		"repeated; default: none)")
	f.Func("egress-allow-private", "address or range that is not public and that containers with a network may "+
		"reach, such as 10.1.0.0/16 (may be repeated)", func(text string) error {
		prefix, err := parsePrefix(text)
		cfg.Egress.Private = append(cfg.Egress.Private, prefix)
		return err
	})
	f.Func("webhook-allow-private", "address or range that is not public and that webhooks may be posted to, such as "+
		"10.1.0.0/16 (may be repeated)", func(text string) error {
		prefix, err := parsePrefix(text)
		cfg.WebhookPrivate = append(cfg.WebhookPrivate, prefix)
		return err
	})
	f.StringArrayVar(&cfg.RegistryMirrors, "registry-mirror", nil, "REGISTRY=HOST[:PORT]: images of REGISTRY, such as "+
		"docker.io, are pulled from HOST if it has them (may be repeated; asked in this order)")
	f.StringVar(&cfg.EgressCA, "egress-ca", "", "PEM file of certificate authorities to trust in addition to the "+
		"system's, for hosts that receive network secrets")
	f.Float64Var(&limits.CPUs, "cpus", limits.CPUs, "maximum CPUs of one container, and its default")
	f.Int64Var(&limits.MemoryBytes, "memory-bytes", limits.MemoryBytes, "maximum memory of one container, and "+
		"its default")
	f.Int64Var(&limits.PIDs, "pids", limits.PIDs, "maximum processes and threads of one container, and its "+
		"default")
	f.Int64Var(&limits.OpenFiles, "open-files", limits.OpenFiles,
		"maximum open files of one process in a container")
	f.Int64Var(&limits.DiskBytes, "disk-bytes", limits.DiskBytes, "maximum disk space of one container's "+
		"workspace, and of its writable layer")
	f.IntVar(&cfg.Session.MaxSessions, "max-containers", 0, "maximum number of containers (default 10000)")
	f.Int64Var(&cfg.Session.OutputMemory, "output-memory-bytes", 0, "maximum memory for output of commands, for "+
		"all containers together (default 256 MiB)")
	f.Int64Var(&cfg.Session.OutputDisk, "output-disk-bytes", 0, "maximum disk space for output of finished "+
		"commands that no longer fits in memory (default 4 GiB)")
	f.IntVar(&cfg.Session.MaxExecs, "max-execs", 0, "maximum number of running commands in one container "+
		"(default 64)")
	f.Func("accept-loss", "start although data was lost: journal, if the ledger's journal is damaged, or "+
		"workspaces, if the disk pool lacks some; for one start, as the daemon's error says (default: refuse)",
		cfg.AcceptLoss.Accept)
	f.Int64Var(&cfg.PoolBytes, "pool-bytes", 0, "size of the disk pool when it is created (default: half of the "+
		"free space, at most 64 GiB)")
	f.Int64Var(&cfg.OwnerDisk, "owner-disk-bytes", 0, "maximum bytes of the containers and snapshots of one owner; "+
		"what they share counts once (default no limit)")
	f.Int64Var(&cfg.FileQuota, "file-quota-bytes", 0, "maximum bytes of stored files of one owner (default no "+
		"limit)")
	f.Int64Var(&cfg.MaxFileBytes, "max-file-bytes", 0, "maximum bytes of one stored file (default 500 MiB)")
	f.BoolVar(&cfg.StrictDownloads, "strict-downloads", false, "refuse downloads of uploaded files, as the "+
		"hosted Files API does")
	f.StringVar(&cfg.Skills.Provided, "skills", "", "directory of skills for all owners: one subdirectory with a "+
		"SKILL.md for each; the daemon sees changes at once (default none)")
	f.Int64Var(&cfg.Skills.MaxBytes, "skill-max-bytes", 0, "maximum bytes of the files of one skill (default 30 "+
		"MiB)")
	f.Int64Var(&cfg.Skills.Quota, "skill-quota-bytes", 0, "maximum bytes of the packed skills that one owner "+
		"uploads (default 1 GiB)")
	f.IntVar(&cfg.Skills.MaxRefs, "max-skills", 0, "maximum number of skills in one container (default 20)")
	f.StringSliceVar(&cfg.Origins, "origin", nil, "web origin whose pages may use the API, websockets and /mcp "+
		"included (may be repeated)")
	f.BoolVar(&cfg.OpenMetrics, "open-metrics", false, "serve /metrics without an API key, also where the port is "+
		"not on loopback")
	f.DurationVar(&cfg.SweepEvery, "sweep-every", 0, "interval between sweeps that remove what has expired "+
		"(default 10s)")
	f.IntVar(&cfg.WarmMin, "warm-min", 2, "number of started containers kept in the pool for each image in use")
	f.IntVar(&cfg.WarmMax, "warm-max", 32, "maximum number of started containers in the pool, for all images "+
		"together; 0 disables the pool")
	messagesFlags(f, &cfg)
	f.StringVar(&cfg.ProviderKeys, "provider-keys", "", "file with lines NAME=KEY, readable by its owner only: "+
		"OPENAI_API_KEY, ANTHROPIC_API_KEY and GEMINI_API_KEY for stored tools; read at startup")
	f.BoolVar(&cfg.StopOnExit, "stop-on-exit", false, "stop all containers when the daemon ends; their files "+
		"stay")
	f.StringVar(&cfg.Pprof, "pprof", "", "serve profiles of the daemon on this loopback address, without a key "+
		"(default none)")
	f.BoolVar(&jsonLog, "log-json", false, "log JSON lines")
	f.BoolVar(&debug, "debug", false, "log more details")
	// With both kinds of certificate it would be unclear which one clients see.
	cmd.MarkFlagsRequiredTogether("tls-cert", "tls-key")
	cmd.MarkFlagsMutuallyExclusive("tls-cert", "tls-self-signed")
	return cmd
}

// parsePrefix parses a range of addresses, or a single address.
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

// notNegative refuses negative numbers and durations. No flag has a meaning for them, and a daemon that accepted one
// would expire or refuse everything.
func notNegative(flags *pflag.FlagSet) (err error) {
	flags.Visit(func(f *pflag.Flag) {
		switch f.Value.Type() {
		case "int", "int64", "float64", "duration":
			if strings.HasPrefix(f.Value.String(), "-") {
				err = fmt.Errorf("--%s must not be negative, and is %s; leave it out for the default", f.Name, f.Value)
			}
		}
	})
	return err
}

// flagOf maps a field of a request to the flag that sets its default.
var flagOf = map[string]string{
	"limits.cpus": "cpus", "limits.memory_bytes": "memory-bytes", "limits.pids": "pids",
	"limits.disk_bytes": "disk-bytes", "limits.open_files": "open-files",
	"idle_timeout_seconds": "idle-timeout", "max_lifetime_seconds": "max-lifetime", "timeout_seconds": "exec-timeout",
}

// bounds refuses values with which the daemon would start but could create no container, or none with these limits.
func bounds(flags *pflag.FlagSet, cfg daemon.Config) error {
	if err := cfg.Session.Check(); err != nil {
		e := proto.AsError(err)
		f := flags.Lookup(flagOf[e.Item])
		return fmt.Errorf("--%s %s %s", f.Name, f.Value, e.Message)
	}
	if most := cfg.Session.PortsMax; !slices.Contains([]proto.PortAccess{proto.PortsPrivate, proto.PortsSigned,
		proto.PortsPublic}, most) {
		return fmt.Errorf("--ports-max: %q is not an access; use %s, %s or %s", most, proto.PortsPrivate,
			proto.PortsSigned, proto.PortsPublic)
	}
	if err := cfg.Session.Classes.CheckFlags(); err != nil {
		return err
	}
	if err := diskpool.CheckBytes(cfg.PoolBytes); err != nil {
		return fmt.Errorf("--pool-bytes: %w", err)
	}
	return nil
}

// serve runs the daemon until SIGINT or SIGTERM. It makes all paths absolute: the runtimes need that, and a change of
// the working directory must not change their meaning.
func serve(cmd *cobra.Command, cfg daemon.Config) (err error) {
	if os.Geteuid() != 0 {
		return fmt.Errorf("serve creates containers and needs root; run it with sudo")
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
	// With a stricter umask, as hardened services have, roots of containers could not enter their own root file
	// systems.
	syscall.Umask(0o022)
	if cfg.Address == "" { // a running containerd could not see our mounts
		if err := mountns.Private(); err != nil {
			return err
		}
	}
	defer gosched.Tune(cfg.Log)()
	// From here on the first signal starts an orderly shutdown. It also cancels Open, which takes long if it attaches
	// to many containers.
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	d, err := daemon.Open(ctx, cfg)
	if err != nil {
		return err
	}
	// One line with all that a client needs. Tests and scripts wait for it, and read the port from it if --listen had
	// port 0. The key is never logged, only the path of its file.
	cfg.Log.Info("berth is ready", append([]any{"url", d.URL(), "key_file", daemon.KeyFile(cfg.Dir), "version",
		cfg.Version}, tlsFacts(d)...)...)
	if name := d.MissingImage(ctx); name != "" {
		cfg.Log.Warn("there is no image for containers yet", "image", name, "do", "berth image build base")
	}
	// Close runs even if Run failed. The first error explains the shutdown.
	err = d.Run(ctx)
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
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

// An askTime is the flag --network-ask. If it is negative, no connection waits.
type askTime time.Duration

// longestAsk bounds it: a program waits no longer, and its connection takes one of the container's places.
const longestAsk = 24 * time.Hour

// Set implements pflag.Value.
func (a *askTime) Set(text string) error {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil || d < 0 || d > 0 && d < time.Second || d > longestAsk:
		return errors.New("it must be from 1s to 24h, or 0")
	case d == 0:
		d = -1
	}
	*a = askTime(d)
	return nil
}

// String implements pflag.Value.
func (a *askTime) String() string { return max(0, time.Duration(*a)).String() }

// Type implements pflag.Value.
func (a *askTime) Type() string { return "duration" }
