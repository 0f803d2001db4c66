// Package daemon wires the parts of berth into one running daemon: the runtime at the bottom, the
// core over it, the edges on top, the sweeper beside. It holds no logic of its own.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"berth/api"
	"berth/api/anthropic"
	"berth/api/mcp"
	"berth/api/native"
	"berth/artifacts"
	"berth/code"
	"berth/daemon/certs"
	"berth/egress"
	"berth/files"
	"berth/gateway"
	"berth/gateway/containers"
	"berth/gateway/messages"
	"berth/gateway/upstream"
	"berth/gc"
	"berth/proto"
	"berth/session"
	"berth/state/audit"
	"berth/state/keys"
	"berth/state/ledger"
	"berth/state/vault"
	"berth/tools/bridge"
	"berth/tools/skills"
	"berth/tools/toolstore"
)

// A Config is what `berth serve` has flags for.
type Config struct {
	Listen  string // host:port; port 0 is a free one
	Dir     string // data directory, absolute
	BinDir  string // where the runtimes and the guest are, absolute
	Address string // socket of a containerd to use; "" embeds one
	Version string

	TLSCert, TLSKey string // PEM files; "" is no TLS, unless TLSSelfSigned
	TLSSelfSigned   bool   // with a certificate that the daemon makes for itself, in Dir

	Egress          egress.Config  // what containers may reach at most, and how
	ToolCallbacks   []string       // servers that calls of code's tools may go to; none: they go to none
	EgressCA        string         // file of authorities that hosts of secrets may have beside the system's; "": none
	Session         session.Config // limits and times; its parts are set here
	PoolBytes       int64          // size of the disk pool when it is made; 0: half of the free space
	FileQuota       int64          // bytes of stored files per owner; 0 is no limit
	MaxFileBytes    int64          // of one stored file; 0 is 500 MiB
	StrictDownloads bool           // uploaded files cannot be downloaded, as on the hosted API
	Origins         []string       // of web pages that may open websockets, beside the daemon's own
	SweepEvery      time.Duration  // 0 is 10 s
	WarmMin         int            // containers kept started for sessions to come, of each image in use
	WarmMax         int            // and at most, of all images together; 0 keeps none
	StopOnExit      bool           // stop all containers when the daemon ends; their files stay

	Upstreams       []upstream.Config // where Messages requests go; none: they are refused
	UpstreamKeys    string            // file of API keys for them; "" has none
	UpstreamTimeout time.Duration     // for the head of an answer; 0 is what upstream has
	UpstreamIdle    time.Duration     // between bytes of it; 0 is what upstream has

	MaxRounds int           // with an upstream, in one turn; 0 is 50
	MaxTurn   time.Duration // after which a turn pauses; 0 is 10 minutes
	// what skills may have, and the directory of those that everybody has; its parts are set here
	Skills skills.Config

	ProviderKeys string // file of model providers' API keys for stored tools; "" has none

	Pprof string // loopback address for profiles of this process; "" serves none

	Log *slog.Logger // nil: slog.Default
}

// A Daemon is all of it, running.
type Daemon struct {
	cfg      Config
	closers  []io.Closer // in the order to close
	listener net.Listener
	certs    *certs.Source // nil: no TLS
	server   *api.Server
	keys     *keys.Store
	sessions *session.Sessions
	skills   *skills.Store
	code     *code.Runner
	models   *upstream.Set // where they are
	gateway  *gateway.Gateway
	hosts    *containers.Host // of the gateway's turns
	tools    *toolstore.Store
	secrets  *vault.Vault
	books    *ledger.DB
	machine  machine
	metrics  *metrics
	audit    *audit.Log
	egress   *egress.Proxy
	bridge   *bridge.Bridge
}

// Open starts everything but the HTTP server. What it opened is closed again if it fails.
func Open(ctx context.Context, cfg Config) (_ *Daemon, err error) {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.SweepEvery == 0 {
		cfg.SweepEvery = 10 * time.Second
	}
	d := &Daemon{cfg: cfg, metrics: newMetrics()}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	if err := os.MkdirAll(cfg.Dir, 0o711); err != nil { // mapped users must be able to walk through
		return nil, fmt.Errorf("making the data directory: %w", err)
	}
	return d, d.open(ctx)
}

// open brings the parts up in the order in which they depend on each other. The key file is read and the
// port taken first: both fail often, by a wrong mode or another daemon, and should do so before the ledger
// is locked and containers are touched.
func (d *Daemon) open(ctx context.Context) error {
	secret, err := keys.ReadFile(KeyFile(d.cfg.Dir))
	if err != nil {
		return err
	}
	if err := d.openEgress(); err != nil {
		return err
	}
	providers, err := d.readKeys()
	if err != nil {
		return err
	}
	if err := d.openUpstreams(); err != nil {
		return err
	}
	if err := d.listen(); err != nil {
		return err
	}
	if d.cfg.Pprof != "" {
		p, err := profile(d.cfg.Pprof, d.cfg.Log)
		if err != nil {
			return err
		}
		d.keep(p)
	}
	books, err := ledger.Open(filepath.Join(d.cfg.Dir, "ledger.db"))
	if err != nil {
		return err
	}
	d.keep(books)
	d.books = books
	if d.audit, err = audit.Open(audit.Config{Dir: d.cfg.Dir, Ledger: books, Log: d.cfg.Log}); err != nil {
		return err
	}
	d.keep(d.audit)
	if d.keys, err = keys.Open(keys.Config{Ledger: books, Secret: secret, Log: d.cfg.Log}); err != nil {
		return err
	}
	d.keep(d.keys)
	if _, err := books.Backup(backupAge); err != nil { // there is work to do without one
		d.cfg.Log.Error("backing up the ledger; free some space below the data directory", "error", err)
	}
	store, err := files.Open(files.Config{
		Dir: filepath.Join(d.cfg.Dir, "files"), Ledger: books, QuotaBytes: d.cfg.FileQuota, KeyQuota: d.keys.MaxStorage,
		MaxFileBytes: d.cfg.MaxFileBytes, Log: d.cfg.Log,
	})
	if err != nil {
		return err
	}
	d.keep(store)
	if err := d.openSkills(books); err != nil {
		return err
	}
	jobs := artifacts.New(artifacts.Config{Files: store, Ledger: books, Log: d.cfg.Log})
	if err := d.openSessions(ctx, books, jobs); err != nil {
		return err
	}
	d.code = code.Open(code.Config{Sessions: d.sessions, Timeout: d.cfg.Session.ExecTimeout, MayPrestart: d.mayPrestart,
		Log: d.cfg.Log})
	d.keep(d.code)
	if d.tools, err = toolstore.Open(toolstore.Config{Ledger: books, Sessions: d.sessions, Code: d.code,
		Vault: d.secrets, NetworkMax: d.egress.Most(), ProviderKeys: providers, Log: d.cfg.Log}); err != nil {
		return err
	}
	d.keep(d.tools)
	if err := d.openGateway(jobs, store); err != nil {
		return err
	}
	sweeper, err := d.openSweeper(books, store)
	if err != nil {
		return err
	}
	return d.openServer(jobs, store, sweeper)
}

// keep adds something to close; what is opened last is closed first.
func (d *Daemon) keep(c io.Closer) { d.closers = slices.Insert(d.closers, 0, c) }

// openSessions opens the runtime and the core over it. The vault comes in between: containers with secrets
// can only be started again once their values can be read.
func (d *Daemon) openSessions(ctx context.Context, books *ledger.DB, jobs *artifacts.Jobs) (err error) {
	if d.machine, err = openMachine(ctx, d.cfg); err != nil {
		return err
	}
	d.keep(d.machine.close)
	cfg := d.cfg.Session
	cfg.Dir, cfg.Runtime, cfg.Images, cfg.Ledger, cfg.Jobs, cfg.Log = d.cfg.Dir, d.machine.Runtime, d.machine.images, books,
		jobs, d.cfg.Log
	cfg.Quotas = d.keys
	if d.secrets, err = vault.Open(filepath.Join(d.cfg.Dir, secretKeyFile), books); err != nil {
		return err
	}
	if err := d.secrets.Problem(); err != nil {
		d.cfg.Log.Error("containers and tools with secrets cannot be used", "error", err)
	}
	cfg.Vault, cfg.Mounts = d.secrets, d.skills
	cfg.Egress = d.egress
	if err := d.openBridge(); err != nil {
		return err
	}
	cfg.Tools = d.bridge
	// Metrics see an entry before it is appended, so that a full disk does not hide what happened.
	cfg.Audit = func(e proto.AuditEntry) {
		d.metrics.ended(e)
		d.audit.Append(e)
	}
	// Reconciling with what the runtime has is no client's doing, and the audit log says so.
	d.sessions, err = session.Open(as(ctx, proto.ActorReconcile), cfg)
	if err != nil {
		return err
	}
	d.keep(d.sessions)
	d.bridge.Attach(d.sessions)
	d.metrics.watch(d.sessions, d.machine.host)
	return nil
}

// openSkills opens the skills, before the sessions, which may have some.
func (d *Daemon) openSkills(books *ledger.DB) (err error) {
	cfg := d.cfg.Skills
	cfg.Dir, cfg.Ledger, cfg.Log = filepath.Join(d.cfg.Dir, "skills"), books, d.cfg.Log
	d.skills, err = skills.Open(cfg)
	return err
}

// openEgress checks the flags of containers' networks. It opens nothing yet.
func (d *Daemon) openEgress() (err error) {
	cfg := d.cfg.Egress
	cfg.Log, cfg.Ready = d.cfg.Log, func() error { return d.audit.Ready() }
	cfg.Authority = newAuthorityFile(d.cfg.Dir, d.cfg.Log).get
	if cfg.Roots, err = readRoots(d.cfg.EgressCA); err != nil {
		return err
	}
	d.egress, err = egress.New(cfg)
	return err
}

// openGateway opens what runs the turns of Messages requests.
func (d *Daemon) openGateway(jobs *artifacts.Jobs, store *files.Store) error {
	d.hosts = containers.New(containers.Config{
		Sessions: d.sessions, Code: d.code, Files: store, Jobs: jobs, Bridge: d.bridge, Skills: d.skills,
	})
	d.keep(d.hosts)
	d.gateway = gateway.New(gateway.Config{
		Containers: d.hosts, Files: store, Ledger: d.books, MaxRounds: d.cfg.MaxRounds, MaxTurn: d.cfg.MaxTurn,
		Log: d.cfg.Log,
	})
	d.keep(d.gateway)
	return nil
}

// openBridge opens what code in containers calls. The sessions need it before they are open.
func (d *Daemon) openBridge() error {
	cfg := bridge.Config{Ledger: d.books, Ready: d.audit.Ready, Log: d.cfg.Log}
	if len(d.cfg.ToolCallbacks) > 0 {
		dialer, err := egress.NewDialer(d.cfg.ToolCallbacks, d.cfg.Egress.Resolver)
		if err != nil {
			return err
		}
		cfg.Reach, cfg.Dial = dialer.Reach, dialer.DialContext
	}
	d.bridge = bridge.Open(cfg)
	d.keep(d.bridge)
	return nil
}

// mayPrestart reports whether a container may be kept ready for an API key that runs code: it would take a place
// where places are counted. A daemon without a warm pool wants none ready at all.
func (d *Daemon) mayPrestart(key string) bool {
	return d.cfg.WarmMax > 0 && (key == "" || d.keys.MaxSessions(key) == 0)
}

// as says which part of the daemon acts, for the audit log.
func as(ctx context.Context, actor string) context.Context {
	return proto.WithCaller(ctx, proto.Caller{KeyID: actor})
}

// openSweeper starts what removes expired things. Sessions, files and keys share one interval: what a
// client sees as expired is gone at most that much later.
func (d *Daemon) openSweeper(books *ledger.DB, store *files.Store) (*gc.Collector, error) {
	every := "@every " + d.cfg.SweepEvery.String()
	sweeper, err := gc.Open(gc.Config{
		Log: d.cfg.Log, Report: d.metrics.swept,
		Tasks: []gc.Task{
			{Name: "sessions", Schedule: every, Sweep: counted(func(ctx context.Context) (session.Swept, error) {
				return d.sessions.Sweep(as(ctx, proto.ActorSweeper))
			})},
			{Name: "files", Schedule: every, Sweep: counted(func(ctx context.Context) (files.Swept, error) {
				return store.Sweep(ctx, time.Now())
			})},
			{Name: "keys", Schedule: every, Sweep: counted(d.keys.Sweep)},
			{Name: "tools", Schedule: every, Sweep: counted(d.tools.Sweep)},
			{Name: "turns", Schedule: every, Sweep: func(context.Context) (map[string]int, error) {
				removed := d.gateway.Forget(gateway.AttemptTime) + d.hosts.Forget(gateway.AttemptTime)
				return map[string]int{"removed": removed}, nil
			}},
			{Name: "calls", Schedule: every, Sweep: counted(d.bridge.Sweep)},
			{Name: "images", Schedule: imageSweep, Sweep: d.sweepImages},
			{Name: "ledger", Schedule: "@hourly", Sweep: func(context.Context) (map[string]int, error) {
				return backUp(books)
			}},
		},
	})
	if err == nil {
		d.keep(sweeper)
	}
	return sweeper, err
}

// backupAge is how old the newest backup of the ledger is at least when another takes its place: daemons that are
// started over and over must not push out all that is older. Somewhat below the hour, after which the schedule comes
// round.
const backupAge = 50 * time.Minute

// backUp is the task of the ledger's schedule.
func backUp(books *ledger.DB) (map[string]int, error) {
	kept, err := books.Backup(backupAge)
	if kept {
		return map[string]int{"kept": 1}, err
	}
	return map[string]int{"kept": 0}, err
}

// counted is a sweep with its counts by name.
func counted[T interface{ Counts() map[string]int }](sweep func(context.Context) (T, error)) func(
	context.Context) (map[string]int, error) {
	return func(ctx context.Context) (map[string]int, error) {
		done, err := sweep(ctx)
		return done.Counts(), err
	}
}

// imageSweep is when images that nobody names or uses any more go: often enough for their disk space,
// and rarely, since it asks containerd.
const imageSweep = "17 */6 * * *"

// An image is kept as long as a name or a session needs it: a stopped container is started from it again.
func (d *Daemon) sweepImages(ctx context.Context) (map[string]int, error) {
	gone, err := d.machine.host.SweepImages(ctx, d.sessions.Digests())
	return map[string]int{"removed": len(gone)}, err
}

// openServer puts the edges over the core. It comes last: nobody is served before all parts can answer.
func (d *Daemon) openServer(jobs *artifacts.Jobs, store *files.Store, sweeper *gc.Collector) (err error) {
	clients := mcp.Open(mcp.Config{
		Sessions: d.sessions, Code: d.code, Tools: d.tools, Jobs: jobs, Files: store, Life: d.keys.Life, Audit: d.audit,
		Version: d.cfg.Version, Origins: d.cfg.Origins, Log: d.cfg.Log,
	})
	d.keep(clients)
	operations := api.Ops(d.metrics.registry, d.ready)
	hosted := anthropic.New(anthropic.Config{Files: store, Skills: d.skills, StrictDownloads: d.cfg.StrictDownloads,
		Messages: messages.New(messages.Config{Turns: d.gateway, Upstreams: d.models, Files: store, Tools: d.hosts})})
	d.server, err = api.New(api.Config{
		Auth: d.keys, Audit: d.audit, Hide: d.sessions.Hide, Metrics: d.metrics.registry, Log: d.cfg.Log,
		Edges: []api.Edge{
			operations, hosted, clients.Edge(),
			native.New(native.Config{
				Sessions: d.sessions, Code: d.code, Tools: d.tools, Bridge: d.bridge, Jobs: jobs, Files: store,
				Images: d.machine.images, Sweep: sweeper.Sweep, Rotate: d.rotate, Forget: d.forget, Keys: d.keys,
				Audit:   d.audit,
				Version: d.cfg.Version, Origins: d.cfg.Origins, Log: d.cfg.Log, Info: d.info(store),
			}, operations, hosted),
		},
	})
	return err
}

// info is what the daemon says of itself; the native edge fills in the core's defaults.
func (d *Daemon) info(store *files.Store) native.Info {
	s := d.cfg.Session
	return native.Info{
		RuntimeClasses: d.machine.host.Classes(), DefaultImage: s.Image,
		DefaultLimits: s.Limits, NetworkMax: d.cfg.Egress.Most,
		IdleTimeoutSeconds: int64(s.IdleTimeout.Seconds()), MaxLifetimeSeconds: int64(s.MaxLifetime.Seconds()),
		MaxFileBytes: store.MaxFileBytes(),
	}
}

// ready says whether the daemon can do its work.
// The runtime is what can be missing while this process lives.
func (d *Daemon) ready(ctx context.Context) error {
	if err := d.machine.host.Alive(ctx); err != nil {
		return proto.Errorf(proto.Unavailable, "", "runtime", "the container runtime does not answer")
	}
	return nil
}

// Addr is where it listens.
func (d *Daemon) Addr() net.Addr { return d.listener.Addr() }

// Run serves until ctx ends and the requests under way have.
func (d *Daemon) Run(ctx context.Context) error {
	if err := d.tell(); err != nil {
		return err
	}
	defer os.Remove(URLFile(d.cfg.Dir)) // one that stays names a daemon that does not answer
	d.sessions.HandshakeAll()
	d.machine.host.KeepWarm()
	return d.server.Serve(ctx, d.accept())
}

// Close ends what Open started. Containers go on without the daemon, and the next one attaches to
// them again, unless StopOnExit is set.
// The closers run in the reverse order of opening, and all of them run even if one fails: a ledger that is
// not closed would keep its lock.
func (d *Daemon) Close() error {
	var errs []error
	if d.cfg.StopOnExit && d.sessions != nil {
		errs = append(errs, d.sessions.StopAll(context.Background()))
	}
	for _, c := range d.closers {
		errs = append(errs, c.Close())
	}
	d.closers = nil
	return errors.Join(errs...)
}

// secretKeyFile is the vault's, in the data directory.
const secretKeyFile = "secret-key"

// KeyFile is where a data directory's API key is.
func KeyFile(dir string) string { return filepath.Join(dir, "api-key") }

// quietCloser closes a listener that its server may have closed already.
type quietCloser struct{ net.Listener }

func (q quietCloser) Close() error {
	if err := q.Listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
