package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"berth/cli/app"
	"berth/daemon"
	"berth/daemon/settings"
	"berth/proto"
	"berth/runtime/diskpool"
	"berth/session"
)

// options are the values of the flags of `berth serve`, wherever they come from.
type options struct {
	flags *pflag.FlagSet
	from  map[string]settings.Source // by flag; a flag that is missing has its default

	cfg            daemon.Config
	jsonLog, debug bool
	classes        []string
	limits         proto.Limits
	losses         []daemon.Losses
	sudo           bool
	acmeAgreed     bool
}

// newOptions returns the flags of `berth serve` with their defaults.
func newOptions() *options {
	o := &options{flags: pflag.NewFlagSet("serve", pflag.ContinueOnError)}
	// A copy of the core's limits: --help then shows the true defaults.
	o.limits = session.DefaultLimits
	f := o.flags
	// 0 means the default of the package that uses the value; the help text then names that default. 0 means "no
	// limit" only where the text says so.
	f.StringVar(&o.cfg.Listen, "listen", app.DefaultListen, "address to serve HTTP on; port 0 takes a free port")
	f.StringVar(&o.cfg.TLSCert, "tls-cert", "", "PEM file of the certificate and its chain; serves HTTPS; the "+
		"daemon rereads it when it changes")
	f.StringVar(&o.cfg.TLSKey, "tls-key", "", "PEM file of the private key of --tls-cert; only its owner may be "+
		"able to read it")
	f.BoolVar(&o.cfg.TLSSelfSigned, "tls-self-signed", false, "serve HTTPS with a certificate that the daemon "+
		"makes; clients trust DIR/tls/ca.pem")
	o.acmeFlags()
	o.oauthFlags()
	f.StringVar(&o.cfg.Domain, "domain", "", "NAME[:PORT] below which each port of a container has a host name of its "+
		"own; all names below it must lead here; https://NAME behind a proxy that has TLS (default: localhost if "+
		"--listen is on loopback without TLS, else none)")
	f.StringVar(&o.cfg.Dir, "data", app.DefaultDir, "data directory")
	f.StringVar(&o.cfg.BinDir, "bin", "",
		"directory of berth-guest, runc, runsc and the shim (default: the directory of berth)")
	f.StringVar(&o.cfg.Address, "containerd", "", "socket of a running containerd to use instead of the embedded "+
		"one")
	f.StringVar(&o.cfg.Session.Image, "image", session.DefaultImage, "image of containers that name none")
	f.StringVar((*string)(&o.cfg.Session.Classes.Default), "runtime-class", "", "runtime class of containers that "+
		"name none: runc or gvisor (default: the first of --runtime-classes)")
	f.StringSliceVar(&o.classes, "runtime-classes", nil, "runtime classes that a request may name, such as gvisor "+
		"alone (default runc,gvisor)")
	f.DurationVar(&o.cfg.Session.IdleTimeout, "idle-timeout", 0, "stop a container after this much idle time "+
		"(default 5m)")
	f.DurationVar(&o.cfg.Session.PauseAfter, "pause-idle-after", 0, "pause a container after this much idle time; "+
		"the next request resumes it (default never)")
	f.DurationVar(&o.cfg.Session.StopAfter, "stop-idle-after", time.Minute, "stop a container after this much idle "+
		"time if no process runs in it; it then takes no memory, keeps all its files, and starts at the next "+
		"request (0: only when its lease ends)")
	f.DurationVar(&o.cfg.Session.StopAfter, "doze-idle-after", time.Minute, "")
	_ = f.MarkDeprecated("doze-idle-after", "containers no longer doze; use --stop-idle-after")
	f.DurationVar(&o.cfg.Session.MaxLifetime, "max-lifetime", 0, "delete a container and its files this long after "+
		"its creation (default 720h)")
	f.DurationVar(&o.cfg.Session.UnusedLifetime, "unused-lifetime", 15*time.Minute, "delete a container this long "+
		"after its creation if it was never used, as when its creator lost the connection (0: after --max-lifetime)")
	f.DurationVar(&o.cfg.Session.PauseKeep, "pause-retention", 0, "stop a paused container after this long, "+
		"which ends its processes and keeps its files (default 720h)")
	f.DurationVar(&o.cfg.Session.ExecTimeout, "exec-timeout", 0, "time limit of commands that set none (default "+
		"5m)")
	f.BoolVar(&o.sudo, "allow-sudo", true, "containers may ask for sudo, which makes their user their root; "+
		"sandboxes of E2B's clients get it unasked")
	f.StringVar((*string)(&o.cfg.Egress.Most), "network-max", string(proto.NetworkNone),
		"widest network mode that a container may request: none, allowlist or open; a container has no "+
			"network unless it requests one")
	o.cfg.AskTime = 2 * time.Minute
	f.Var((*askTime)(&o.cfg.AskTime), "network-ask", "how long a connection waits for a person's decision where a "+
		"container's network has ask (0: no container may ask)")
	f.StringVar((*string)(&o.cfg.Session.PortsMax), "ports-max", string(proto.PortsSigned), "widest access to ports "+
		"of containers: private (with an API key), signed (also with a signed URL) or public (also without either, "+
		"where an owner makes a port public)")
	f.StringVar(&o.cfg.Egress.Resolver, "resolver", "", "name server, as HOST:PORT, for containers with a network "+
		"(default: the host's)")
	f.StringArrayVar(&o.cfg.ToolCallbacks, "tools-callback", nil, "server that tool calls may be posted to, as "+
		"HOST or HOST:PORT; an address that is not public has to be listed as an address or a range (may be "+
		"repeated; default: none)")
	f.Var(settings.NewList(&o.cfg.Egress.Private, parsePrefix), "egress-allow-private",
		"address or range that is not public and that containers with a network may "+
			"reach, such as 10.1.0.0/16 (may be repeated)")
	f.Var(settings.NewList(&o.cfg.WebhookPrivate, parsePrefix), "webhook-allow-private",
		"address or range that is not public and that webhooks may be posted to, such as "+
			"10.1.0.0/16 (may be repeated)")
	f.StringArrayVar(&o.cfg.RegistryMirrors, "registry-mirror", nil, "REGISTRY=HOST[:PORT]: images of REGISTRY, such "+
		"as docker.io, are pulled from HOST if it has them (may be repeated; asked in this order)")
	f.StringVar(&o.cfg.EgressCA, "egress-ca", "", "PEM file of certificate authorities to trust in addition to the "+
		"system's, for hosts that receive network secrets")
	f.Float64Var(&o.limits.CPUs, "cpus", o.limits.CPUs, "maximum CPUs of one container, and its default")
	f.Int64Var(&o.limits.MemoryBytes, "memory-bytes", o.limits.MemoryBytes, "maximum memory of one container, and "+
		"its default")
	f.Int64Var(&o.limits.PIDs, "pids", o.limits.PIDs, "maximum processes and threads of one container, and its "+
		"default")
	f.Int64Var(&o.limits.OpenFiles, "open-files", o.limits.OpenFiles,
		"maximum open files of one process in a container")
	f.Int64Var(&o.limits.DiskBytes, "disk-bytes", o.limits.DiskBytes, "maximum disk space of one container's "+
		"workspace, and of its writable layer")
	f.IntVar(&o.cfg.Session.MaxSessions, "max-containers", 0, "maximum number of containers (default 10000)")
	f.Int64Var(&o.cfg.Session.OutputMemory, "output-memory-bytes", 0, "maximum memory for output of commands, for "+
		"all containers together (default 256 MiB)")
	f.Int64Var(&o.cfg.Session.OutputDisk, "output-disk-bytes", 0, "maximum disk space for output of finished "+
		"commands that no longer fits in memory (default 4 GiB)")
	f.IntVar(&o.cfg.Session.MaxExecs, "max-execs", 0, "maximum number of running commands in one container "+
		"(default 64)")
	f.Var(settings.NewList(&o.losses, parseLoss), "accept-loss",
		"start although data was lost: journal, if the ledger's journal is damaged, or "+
			"workspaces, if the disk pool lacks some; for one start, as the daemon's error says (default: refuse)")
	f.Int64Var(&o.cfg.PoolBytes, "pool-bytes", 0, "size of the disk pool when it is created (default: half of the "+
		"free space, at most 64 GiB)")
	f.Int64Var(&o.cfg.OwnerDisk, "owner-disk-bytes", 0, "maximum bytes of the containers and snapshots of one owner; "+
		"what they share counts once (default no limit)")
	f.Int64Var(&o.cfg.FileQuota, "file-quota-bytes", 0, "maximum bytes of stored files of one owner (default no "+
		"limit)")
	f.Int64Var(&o.cfg.MaxFileBytes, "max-file-bytes", 0, "maximum bytes of one stored file (default 500 MiB)")
	f.BoolVar(&o.cfg.StrictDownloads, "strict-downloads", false, "refuse downloads of uploaded files, as the "+
		"hosted Files API does")
	f.StringVar(&o.cfg.Skills.Provided, "skills", "", "directory of skills for all owners: one subdirectory with a "+
		"SKILL.md for each; the daemon sees changes at once (default none)")
	f.Int64Var(&o.cfg.Skills.MaxBytes, "skill-max-bytes", 0, "maximum bytes of the files of one skill (default 30 "+
		"MiB)")
	f.Int64Var(&o.cfg.Skills.Quota, "skill-quota-bytes", 0, "maximum bytes of the packed skills that one owner "+
		"uploads (default 1 GiB)")
	f.IntVar(&o.cfg.Skills.MaxRefs, "max-skills", 0, "maximum number of skills in one container (default 20)")
	f.StringSliceVar(&o.cfg.Origins, "origin", nil, "web origin whose pages may use the API, websockets and /mcp "+
		"included (may be repeated)")
	f.BoolVar(&o.cfg.OpenMetrics, "open-metrics", false, "serve /metrics without an API key, also where the port is "+
		"not on loopback")
	f.DurationVar(&o.cfg.SweepEvery, "sweep-every", 0, "interval between sweeps that remove what has expired "+
		"(default 10s)")
	f.IntVar(&o.cfg.WarmMin, "warm-min", 2, "number of started containers kept in the pool for each image in use")
	f.IntVar(&o.cfg.WarmMax, "warm-max", 32, "maximum number of started containers in the pool, for all images "+
		"together; 0 disables the pool")
	o.messagesFlags()
	f.StringVar(&o.cfg.ProviderKeys, "provider-keys", "", "file with lines NAME=KEY, readable by its owner only: "+
		"OPENAI_API_KEY, ANTHROPIC_API_KEY and GEMINI_API_KEY for stored tools; read at startup")
	f.BoolVar(&o.cfg.StopOnExit, "stop-on-exit", false, "stop all containers when the daemon ends; their files "+
		"stay")
	f.StringVar(&o.cfg.Pprof, "pprof", "", "serve profiles of the daemon on this loopback address, without a key "+
		"(default none)")
	f.BoolVar(&o.jsonLog, "log-json", false, "log JSON lines")
	f.BoolVar(&o.debug, "debug", false, "log more details")
	return o
}

// config returns the configuration of the daemon, or the first fault of the values. An error that concerns a flag
// begins with it.
func (o *options) config() (daemon.Config, error) {
	cfg := o.cfg
	if err := notNegative(o.flags); err != nil {
		return cfg, err
	}
	// An unset variable in a script gives an empty path, and the daemon would fill the current directory.
	if cfg.Dir == "" {
		return cfg, fmt.Errorf("--data is empty; give the data directory, or leave --data out for %s", app.DefaultDir)
	}
	cfg.Session.Limits, cfg.Session.NoSudo = o.limits, !o.sudo
	for _, c := range o.classes {
		allowed := &cfg.Session.Classes.Allowed
		*allowed = append(*allowed, proto.RuntimeClass(strings.TrimSpace(c)))
	}
	for _, l := range o.losses {
		cfg.AcceptLoss.Journal = cfg.AcceptLoss.Journal || l.Journal
		cfg.AcceptLoss.Workspaces = cfg.AcceptLoss.Workspaces || l.Workspaces
	}
	for _, check := range []func() error{o.checkTLS, o.checkACME, o.checkOAuth, func() error {
		return bounds(o.flags, cfg)
	}, cfg.Check} {
		if err := check(); err != nil {
			return cfg, err
		}
	}
	return cfg, nil
}

// checkTLS refuses certificates that contradict each other: it would be unclear which one clients see.
func (o *options) checkTLS() error {
	switch {
	case o.cfg.TLSCert != "" && o.cfg.TLSKey == "":
		return errors.New("--tls-cert needs --tls-key, the private key of the certificate")
	case o.cfg.TLSKey != "" && o.cfg.TLSCert == "":
		return errors.New("--tls-key needs --tls-cert, the certificate of the key")
	case o.cfg.TLSCert != "" && o.cfg.TLSSelfSigned:
		return errors.New("--tls-self-signed contradicts --tls-cert; leave one of them out")
	}
	return nil
}

// parseLoss parses the kinds of damage that an operator accepts.
func parseLoss(text string) (l daemon.Losses, err error) {
	err = l.Accept(text)
	return l, err
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
	flags.VisitAll(func(f *pflag.Flag) { // no default is negative
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
