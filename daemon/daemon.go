// Package daemon connects the parts of berth into one running daemon: the runtime, the core, the edges and the
// sweeper. It has no logic of its own.
package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"berth/api"
	"berth/api/anthropic"
	"berth/api/approvals"
	"berth/api/e2b"
	"berth/api/e2b/access"
	"berth/api/e2b/templates"
	"berth/api/librechat"
	"berth/api/manual"
	"berth/api/mcp"
	"berth/api/native"
	"berth/api/ports"
	"berth/api/ports/address"
	"berth/api/ports/signed"
	"berth/artifacts"
	"berth/backup"
	"berth/build"
	"berth/code"
	"berth/console"
	"berth/daemon/acme"
	"berth/daemon/certs"
	"berth/daemon/traces"
	"berth/docs"
	"berth/egress"
	"berth/egress/proxy"
	"berth/events"
	"berth/events/webhook"
	"berth/files"
	"berth/gateway"
	"berth/gateway/containers"
	"berth/gateway/messages"
	"berth/gateway/messages/batches"
	"berth/gateway/upstream"
	"berth/gc"
	"berth/proto"
	"berth/session"
	"berth/session/asking"
	"berth/session/inbound"
	"berth/session/inventory"
	"berth/session/listening"
	"berth/session/stats"
	"berth/state/audit"
	"berth/state/keys"
	"berth/state/ledger"
	"berth/state/logins"
	"berth/state/tokens"
	"berth/state/vault"
	"berth/tools/bridge"
	"berth/tools/skills"
	"berth/tools/toolstore"
)

// A Config has the values of the flags of `berth serve`.
type Config struct {
	Listen  string // host:port; port 0 takes a free port
	Dir     string // data directory, absolute
	BinDir  string // directory of the runtimes and the guest, absolute
	Address string // socket of an existing containerd; "" embeds one
	Version string

	TLSCert, TLSKey string // PEM files; "" means no TLS, unless TLSSelfSigned
	TLSSelfSigned   bool   // TLS with a certificate that the daemon creates in Dir

	ACME       acme.Config // authority, mail address and challenge; without an authority: no ACME
	ACMEConfig string      // file of settings for ACME; "": none

	OAuth tokens.Config // whose access tokens are taken; without an issuer: none

	// Domain is the name below which each port of a container has a host name, see address.Parse; "" is localhost where
	// the daemon listens on loopback without TLS, and none elsewhere
	Domain string

	Egress          proxy.Config   // the most network access that containers can get
	AskTime         time.Duration  // how long a connection waits for a decision; 0: 2 minutes; below: not
	ToolCallbacks   []string       // servers that may receive tool calls of code; none: no server
	WebhookPrivate  []netip.Prefix // addresses that webhooks may be posted to although they are not public
	EgressCA        string         // file of CAs to trust for hosts that receive secrets, beside the system's; "": none
	Session         session.Config // limits and times; the daemon sets the other parts
	AcceptLoss      Losses         // damage in spite of which the daemon starts
	PoolBytes       int64          // size of a new disk pool; 0: half of the free space
	OwnerDisk       int64          // bytes in the pool that an owner may have; 0 is no limit
	FileQuota       int64          // bytes of stored files per owner; 0 is no limit
	MaxFileBytes    int64          // maximum size of one stored file; 0 is 500 MiB
	StrictDownloads bool           // uploaded files cannot be downloaded, as in the hosted API
	Origins         []string       // web origins whose pages may use the API
	OpenMetrics     bool           // /metrics needs no key, also where the port is not loopback
	SweepEvery      time.Duration  // interval between sweeps; 0 is 10 s
	WarmMin         int            // started containers to keep ready for new sessions, for each image in use
	RegistryMirrors []string       // REGISTRY=HOST[:PORT]: registries that are asked first
	WarmMax         int            // maximum of them over all images; 0 keeps none
	StopOnExit      bool           // stop all containers when the daemon ends; their files stay

	Upstreams       []upstream.Config // upstreams for Messages requests; none: these requests are refused
	UpstreamKeys    string            // file of API keys for upstreams; "": none
	UpstreamTimeout time.Duration     // maximum wait for a response header; 0: package upstream's default
	UpstreamIdle    time.Duration     // maximum wait between bytes of a response; 0: package upstream's default

	MaxRounds int           // requests to an upstream in one turn; 0 is 50
	MaxTurn   time.Duration // a turn pauses after this time; 0 is 10 minutes
	// Skills has the limits, and the directory of skills for all owners. The daemon sets its other parts.
	Skills skills.Config

	ProviderKeys string // file of model providers' API keys for stored tools; "": none

	Pprof string // loopback address for profiles of this process; "": none

	Log *slog.Logger // nil: slog.Default

	// Progress is called with what Open does at the moment, for people who wait for it; nil: nothing is called
	Progress func(step string)
}

// maySudo reports whether containers that name no class may have sudo.
func (c Config) maySudo() bool {
	return !c.Session.NoSudo && c.Address == "" && c.Session.Classes.Usual() == proto.ClassRunc
}

// Losses are kinds of damage to the data directory that an operator accepts. Otherwise the daemon does not start.
type Losses struct {
	Journal    bool // the ledger's journal has lost acknowledged updates
	Workspaces bool // the disk pool has lost workspaces
}

// Accept adds the kinds in text, which are separated by commas.
func (l *Losses) Accept(text string) error {
	for kind := range strings.SplitSeq(text, ",") {
		switch kind {
		case "journal":
			l.Journal = true
		case "workspaces":
			l.Workspaces = true
		default:
			return fmt.Errorf("%q is not journal or workspaces", kind)
		}
	}
	return nil
}

// A Daemon is a running daemon.
type Daemon struct {
	origins    api.Origins    // of web pages
	domain     address.Domain // of ports
	cfg        Config
	closers    []io.Closer // in closing order
	listener   net.Listener
	certs      *certs.Source  // nil: no TLS
	acme       *acme.Manager  // nil: no certificate by ACME
	tokens     *tokens.Source // nil: no access tokens
	server     *api.Server
	keys       *keys.Store
	logins     *logins.Store
	sessions   *session.Sessions
	builds     *build.Builds
	backups    *backup.Taker
	skills     *skills.Store
	code       *code.Runner
	models     *upstream.Set // the upstreams
	gateway    *gateway.Gateway
	hosts      *containers.Host // containers for the gateway's turns
	tools      *toolstore.Store
	secrets    *vault.Vault
	books      *ledger.DB
	files      *files.Store
	warmMax    atomic.Int64 // of cfg.WarmMax, which a reload changes
	machine    machine
	metrics    *metrics
	audit      *audit.Log
	events     *events.Feed
	stats      *stats.Store
	traffic    *stats.Traffic
	listening  *listening.Watcher
	webhooks   *webhook.Store
	registries registryKeeper
	egress     *proxy.Proxy
	bridge     *bridge.Bridge
	desk       *asking.Desk
}

// Open starts everything except the HTTP server. If it fails, it closes what it opened.
func Open(ctx context.Context, cfg Config) (_ *Daemon, err error) {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Progress == nil {
		cfg.Progress = func(string) {}
	}
	if cfg.SweepEvery == 0 {
		cfg.SweepEvery = 10 * time.Second
	}
	d := &Daemon{cfg: cfg, metrics: newMetrics(cfg.Version)}
	d.warmMax.Store(int64(cfg.WarmMax))
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	recorder, err := traces.Open(ctx, cfg.Log)
	if err != nil {
		return nil, err
	}
	if recorder != nil {
		d.keep(recorder)
	}
	if d.origins, err = api.ParseOrigins(cfg.Origins); err != nil {
		return nil, err
	}
	if err := openDir(cfg.Dir, cfg.Log); err != nil {
		return nil, err
	}
	return d, d.open(ctx)
}

// open opens the parts in the order of their dependencies. It reads the key file and takes the port first, because
// both fail often: a wrong file mode, or another daemon on the port. They should fail before the ledger is locked and
// containers are touched.
func (d *Daemon) open(ctx context.Context) error {
	secret, err := keys.ReadFile(KeyFile(d.cfg.Dir), Group())
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
	if err := d.openTokens(); err != nil {
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
	d.cfg.Progress("reading the records")
	if err := d.openRecords(); err != nil {
		return err
	}
	books := d.books
	if d.keys, err = keys.Open(keys.Config{Ledger: books, Secret: secret, Log: d.cfg.Log}); err != nil {
		return err
	}
	d.keep(d.keys)
	if d.logins, err = logins.Open(logins.Config{Ledger: books, Keys: d.keys}); err != nil {
		return err
	}
	d.keep(d.logins)
	if _, err := books.Backup(backupAge); err != nil { // the daemon can work without a backup
		d.cfg.Log.Error("backing up the ledger; free some space below the data directory", "error", err)
	}
	d.cfg.Progress("checking the stored files")
	store, err := files.Open(files.Config{
		Dir: filepath.Join(d.cfg.Dir, "files"), Ledger: books, QuotaBytes: d.cfg.FileQuota, KeyQuota: d.keys.MaxStorage,
		MaxFileBytes: d.cfg.MaxFileBytes, Log: d.cfg.Log,
	})
	if err != nil {
		return err
	}
	d.files = store
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
		Vault: d.secrets, NetworkMax: d.egress.Most(), ProviderKeys: providers, Audit: d.audit.Append,
		Log: d.cfg.Log}); err != nil {
		return err
	}
	d.keep(d.tools)
	if err := d.openGateway(jobs, store); err != nil {
		return err
	}
	if err := d.openWebhooks(); err != nil {
		return err
	}
	sweeper, err := d.openSweeper(books, store)
	if err != nil {
		return err
	}
	return d.openServer(jobs, store, sweeper)
}

// openRecords opens the ledger and the audit log.
func (d *Daemon) openRecords() (err error) {
	open := ledger.Open
	if d.cfg.AcceptLoss.Journal {
		open = ledger.OpenLossy
	}
	if d.books, err = open(filepath.Join(d.cfg.Dir, "ledger.db")); err != nil {
		return err
	}
	d.keep(d.books)
	if lost := d.books.Lost(); lost != "" {
		d.cfg.Log.Error("records are lost, as --accept-loss=journal permits; what was made or changed since the "+
			"ledger's last checkpoint is unknown", "found", lost)
	}
	if d.audit, err = audit.Open(audit.Config{Dir: d.cfg.Dir, Ledger: d.books, Log: d.cfg.Log}); err != nil {
		return err
	}
	d.keep(d.audit)
	d.events = events.New(d.audit)
	return nil
}

// keep adds a closer in front of the others: the last part opened is the first closed.
func (d *Daemon) keep(c io.Closer) { d.closers = slices.Insert(d.closers, 0, c) }

// openSessions opens the runtime, the vault and the core. The vault comes before the core: a container with secrets
// can only be started again when its secrets can be read.
func (d *Daemon) openSessions(ctx context.Context, books *ledger.DB, jobs *artifacts.Jobs) (err error) {
	hasFiles, err := inventory.HasWorkspaces(books)
	if err != nil {
		return err
	}
	d.cfg.Progress("starting the container runtime")
	if d.machine, err = openMachine(ctx, d.cfg, hasFiles); err != nil {
		return err
	}
	d.keep(d.machine.close)
	if err := d.loadRestored(ctx); err != nil {
		return err
	}
	if err := d.openBackups(); err != nil {
		return err
	}
	cfg := d.cfg.Session
	if err := d.machine.checkClasses(append(slices.Clone(cfg.Classes.Allowed), cfg.Classes.Usual())...); err != nil {
		return err
	}
	cfg.Dir, cfg.Runtime, cfg.Images, cfg.Ledger = d.cfg.Dir, d.machine.Runtime, d.machine.images, books
	cfg.Jobs, cfg.Log, cfg.Quotas, cfg.AcceptLoss = jobs, d.cfg.Log, d.keys, d.cfg.AcceptLoss.Workspaces
	if d.secrets, err = vault.Open(filepath.Join(d.cfg.Dir, secretKeyFile), books); err != nil {
		return err
	}
	if err := d.secrets.Problem(); err != nil {
		d.cfg.Log.Error("containers and tools with secrets cannot be used", "error", err)
	}
	if err := d.openRegistries(); err != nil {
		return err
	}
	cfg.Vault, cfg.Mounts = d.secrets, d.skills
	d.desk = asking.Open(asking.Config{Ledger: books, Wait: d.cfg.AskTime, Log: d.cfg.Log})
	d.keep(d.desk)
	cfg.Egress = sessionProxy{d.egress, d.desk}
	if err := d.openBridge(); err != nil {
		return err
	}
	cfg.Tools = d.bridge
	d.traffic = stats.NewTraffic()
	// Count the entry before it is appended, so that metrics show it even if the disk is full.
	cfg.Audit = func(e proto.AuditEntry) {
		d.metrics.ended(e)
		d.audit.Append(e)
		d.traffic.Observe(e)
		d.listening.Saw(e)
	}
	told := listening.Config{Ledger: books, Audit: d.audit.Append, Log: d.cfg.Log}
	if d.listening, err = listening.New(told); err != nil {
		return err
	}
	d.cfg.Progress("taking over the containers")
	// The audit log attributes this reconciliation to the daemon, because no client requested it.
	d.sessions, err = session.Open(as(ctx, proto.ActorReconcile), cfg)
	if err != nil {
		return err
	}
	d.keep(d.sessions)
	d.keep(d.listening)
	d.stats = stats.Open(stats.Config{List: d.sessions.Infos, Meter: d.machine.meter, Traffic: d.traffic,
		Limits: cfg.Limits.Or(session.DefaultLimits)})
	d.keep(d.stats)
	d.bridge.Attach(d.sessions)
	if err := d.desk.Attach(d.sessions); err != nil {
		return err
	}
	d.metrics.watch(d.sessions, d.machine.host)
	return d.openBuilds(cfg)
}

// openBuilds opens the builds of images. Their steps have the limits, the network and the audit of sessions.
func (d *Daemon) openBuilds(s session.Config) (err error) {
	cfg := d.machine.builds
	cfg.Dir, cfg.Egress, cfg.Audit, cfg.Log = filepath.Join(d.cfg.Dir, "builds"), s.Egress, s.Audit, d.cfg.Log
	cfg.Limits, cfg.Classes = s.Limits, s.Classes
	if d.builds, err = build.Open(cfg); err != nil {
		return err
	}
	d.keep(d.builds)
	return nil
}

// templates returns the templates that clients of E2B have built. Steps of builds have the network of sandboxes that
// ask for none.
func (d *Daemon) templates() *templates.Templates {
	network := proto.Network{Mode: proto.NetworkNone}
	if d.egress.Most() == proto.NetworkOpen {
		network.Mode = proto.NetworkOpen
	}
	return templates.New(templates.Config{Builds: d.builds, Images: d.machine.images, Network: network,
		Dir: filepath.Join(d.cfg.Dir, "e2b"), Limits: d.cfg.Session.Limits.Or(session.DefaultLimits),
		Reserved: e2b.ReservedTemplates(), Aliases: e2b.TemplateAliases()})
}

// MissingImage returns the name of the image of containers that name none, if the daemon does not have it, or "".
func (d *Daemon) MissingImage(ctx context.Context) string {
	name := cmp.Or(d.cfg.Session.Image, session.DefaultImage)
	if _, err := d.machine.images.Resolve(ctx, name); proto.CodeOf(err) == proto.NotFound {
		return name
	}
	return ""
}

// openSkills opens the skills. The sessions use them and are opened later.
func (d *Daemon) openSkills(books *ledger.DB) (err error) {
	cfg := d.cfg.Skills
	cfg.Dir, cfg.Ledger, cfg.Log = filepath.Join(d.cfg.Dir, "skills"), books, d.cfg.Log
	d.skills, err = skills.Open(cfg)
	return err
}

// A sessionProxy is the proxy as sessions see it, with who asks people about connections.
type sessionProxy struct {
	*proxy.Proxy
	desk *asking.Desk
}

// Gate returns the gate of one session. About a build, which has none, nobody is asked.
func (p sessionProxy) Gate(s *session.Session, n proto.Network, secrets []egress.Secret,
	report func(egress.Report)) session.Gate {
	var ask egress.Ask
	if s != nil {
		ask = p.desk.For(s)
	}
	return p.Proxy.Gate(n, secrets, ask, report)
}

// openEgress checks the flags for container networks. It opens no connection and no listener.
func (d *Daemon) openEgress() (err error) {
	cfg := d.cfg.Egress
	cfg.Log, cfg.Ready = d.cfg.Log, func() error { return d.audit.Ready() }
	cfg.NoAsk = d.cfg.AskTime < 0
	cfg.Authority = newAuthorityFile(d.cfg.Dir, d.cfg.Log).get
	if cfg.Roots, err = readRoots(d.cfg.EgressCA); err != nil {
		return err
	}
	d.egress, err = proxy.New(cfg)
	return err
}

// openGateway opens the gateway, which runs the turns of Messages requests.
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

// openWebhooks opens the webhooks. Run starts them.
func (d *Daemon) openWebhooks() error {
	dialer, err := proxy.NewPublicDialer(d.cfg.WebhookPrivate, d.cfg.Egress.Resolver)
	if err != nil {
		return err
	}
	d.webhooks, err = webhook.Open(webhook.Config{Feed: d.events, Ledger: d.books, Vault: d.secrets,
		Dial: dialer.DialContext, Reach: dialer.Reach, Audit: d.audit.Append, Log: d.cfg.Log})
	if err == nil {
		d.keep(d.webhooks)
	}
	return err
}

// openBridge opens the bridge, which takes tool calls of code in containers. It must be open before the sessions.
func (d *Daemon) openBridge() error {
	cfg := bridge.Config{Ledger: d.books, Ready: d.audit.Ready, Log: d.cfg.Log}
	if len(d.cfg.ToolCallbacks) > 0 {
		dialer, err := proxy.NewDialer(d.cfg.ToolCallbacks, d.cfg.Egress.Resolver)
		if err != nil {
			return err
		}
		cfg.Reach, cfg.Dial = dialer.Reach, dialer.DialContext
	}
	d.bridge = bridge.Open(cfg)
	d.keep(d.bridge)
	return nil
}

// mayPrestart reports whether a container may be kept ready for an API key that runs code. It returns false for a key
// with a limit on sessions, since the container would count. It also returns false if the warm pool is off.
func (d *Daemon) mayPrestart(key string) bool {
	return d.warmMax.Load() > 0 && (key == "" || d.keys.MaxSessions(key) == 0)
}

// as returns a context that names a part of the daemon as the actor, for the audit log.
func as(ctx context.Context, actor string) context.Context {
	return proto.WithCaller(ctx, proto.Caller{KeyID: actor})
}

// openSweeper starts the sweeps that remove expired items. Sessions, files and keys share one interval, so an item is
// removed at most one interval after it expires.
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
			{Name: "logins", Schedule: every, Sweep: counted(d.logins.Sweep)},
			{Name: "tools", Schedule: every, Sweep: counted(d.tools.Sweep)},
			{Name: "turns", Schedule: every, Sweep: func(context.Context) (map[string]int, error) {
				removed := d.gateway.Forget(gateway.RepeatTime) + d.hosts.Forget(gateway.RepeatTime)
				return map[string]int{"removed": removed}, nil
			}},
			{Name: "calls", Schedule: every, Sweep: counted(d.bridge.Sweep)},
			{Name: "approvals", Schedule: every, Sweep: counted(d.desk.Sweep)},
			{Name: "images", Schedule: imageSweep, Sweep: d.sweepImages},
			{Name: "ledger", Schedule: "@hourly", Sweep: func(context.Context) (map[string]int, error) {
				kept, err := books.Backup(backupAge)
				if kept {
					return map[string]int{"kept": 1}, err
				}
				return map[string]int{"kept": 0}, err
			}},
		},
	})
	if err == nil {
		d.keep(sweeper)
	}
	return sweeper, err
}

// backupAge is the minimum age of the newest backup before the ledger is backed up again. Without it, a daemon that
// restarts often would push out all older backups. It is below one hour, so that the hourly schedule is not skipped.
const backupAge = 50 * time.Minute

// counted wraps a sweep so that it returns its counts by name.
func counted[T interface{ Counts() map[string]int }](sweep func(context.Context) (T, error)) func(
	context.Context) (map[string]int, error) {
	return func(ctx context.Context) (map[string]int, error) {
		done, err := sweep(ctx)
		return done.Counts(), err
	}
}

// imageSweep is the schedule for removing images without a name or a user. Every six hours is often enough to free
// disk space, and rare enough for a query of containerd.
const imageSweep = "17 */6 * * *"

// sweepImages removes unused images. An image is kept while it has a name or a session uses it, because a stopped
// container is started from it again.
func (d *Daemon) sweepImages(ctx context.Context) (map[string]int, error) {
	gone, err := d.machine.host.SweepImages(ctx, d.sessions.Digests())
	return map[string]int{"removed": len(gone)}, err
}

// openServer opens the edges and the HTTP server. It runs last, so that requests arrive only when all parts can
// answer.
func (d *Daemon) openServer(jobs *artifacts.Jobs, store *files.Store, sweeper *gc.Collector) (err error) {
	clients := mcp.Open(mcp.Config{
		Sessions: d.sessions, Code: d.code, Tools: d.tools, Jobs: jobs, Files: store, Life: d.keys.Life, Audit: d.audit,
		Version: d.cfg.Version, Origins: d.origins, Log: d.cfg.Log,
	})
	d.keep(clients)
	operations := api.Ops(api.OpsConfig{Metrics: d.metrics.registry, Ready: d.ready, Open: d.cfg.OpenMetrics,
		OpenLocally: isLoopback(d.listener), Documents: d.documents()})
	asked := messages.New(messages.Config{Turns: d.gateway, Upstreams: d.models, Files: store, Check: d.hosts})
	hosted := anthropic.New(anthropic.Config{Files: store, MaxFileBytes: store.MaxFileBytes(), Skills: d.skills,
		SkillChanges: d.skills, MaxSkillBytes: d.skills.MaxBytes(), StrictDownloads: d.cfg.StrictDownloads,
		Messages: asked, Batches: batches.New(batches.Config{Upstreams: d.models, Ledger: d.books, Messages: asked})})
	dialed := inbound.New()
	apps := ports.New(ports.Config{Sessions: d.sessions, Ports: dialed, Knows: d.knowsKey, Life: d.keys.Life,
		Max: d.cfg.Session.PortsMax, Clean: e2b.CleanHeaders, Domain: d.domain, Tokens: signed.New(d.books, d.secrets),
		Audit: d.audit.Append, Log: d.cfg.Log})
	built := d.templates()
	d.keep(built)
	foreign := e2b.New(e2b.Config{Builds: built, Sessions: d.sessions, Code: d.code, Images: d.machine.images,
		Keys: d.keys, Events: d.events, Stats: d.stats, NetworkMax: d.egress.Most(), Limits: d.cfg.Session.Limits,
		PortsMax: d.cfg.Session.PortsMax, Apps: apps, Domain: d.domain, Sudo: d.cfg.maySudo(), Log: d.cfg.Log})
	d.keep(foreign)
	chat := librechat.New(librechat.Config{Sessions: d.sessions, Files: store, Bridge: d.bridge,
		MaxFileBytes: store.MaxFileBytes(), Log: d.cfg.Log})
	d.keep(chat)
	decided := approvals.New(approvals.Config{Desk: d.desk, Bridge: d.bridge, Tools: d.tools})
	own, document := native.Open(native.Config{
		Sessions: d.sessions, Code: d.code, Tools: d.tools, Bridge: d.bridge, Jobs: jobs, Files: store,
		Images: d.machine.images, Builds: d.builds, Registries: d.registries,
		Sweep: sweeper.Sweep, Rotate: d.rotate, Forget: d.forget, Backup: d.backups.Take,
		Keys: d.keys, Quotas: quotas{d.keys, d.machine.space}, Audit: d.audit, Events: d.events,
		Stats: d.stats, Webhooks: d.webhooks,
		Ports: dialed, Apps: apps, Version: d.cfg.Version,
		Origins: d.origins, Log: d.cfg.Log, Info: d.info(store),
	}, operations, hosted, decided)
	page, err := console.New(console.Config{Logins: d.logins, Audit: d.audit.Append})
	if err != nil {
		return err
	}
	d.server, err = api.New(api.Config{
		Auth: d.authenticator(), Logins: d.logins, Challenge: d.challenge(), Audit: d.audit, Hide: d.sessions.Hide,
		Metrics: d.metrics.registry, Log: d.cfg.Log,
		ContainerID: d.sessions.IDOf,
		Origins:     d.origins,
		Raws:        []api.Raw{foreign.Match, apps.Match},
		Edges: []api.Edge{
			operations, hosted, clients.Edge(), foreign.Control(), chat.Edge(), decided, page, own,
			manual.New(manual.Config{Document: document, Guides: docs.Files}),
		},
	})
	return err
}

// knowsKey reports whether a text is an API key, in any spelling, or an access token, or looks like one.
func (d *Daemon) knowsKey(text string) bool { return d.knowsSecret(access.Key(text)) }

// info returns the daemon's description of itself. The native edge adds the defaults of the core.
func (d *Daemon) info(store *files.Store) native.Info {
	s := d.cfg.Session
	return native.Info{
		RuntimeClasses: d.machine.classes(s.Classes.All()), DefaultRuntimeClass: s.Classes.Usual(),
		DefaultImage:  s.Image,
		DefaultLimits: s.Limits, NetworkMax: d.cfg.Egress.Most, PortsMax: s.PortsMax,
		IdleTimeoutSeconds: int64(s.IdleTimeout.Seconds()), MaxLifetimeSeconds: int64(s.MaxLifetime.Seconds()),
		MaxFileBytes: store.MaxFileBytes(),
	}
}

// ready returns an error if the daemon cannot do its work. It checks the runtime, the only part that can fail while
// this process lives.
func (d *Daemon) ready(ctx context.Context) error {
	if err := d.machine.host.Alive(ctx); err != nil {
		return proto.Errorf(proto.Unavailable, "", "runtime", "the container runtime does not answer")
	}
	return nil
}

// Addr returns the listening address.
func (d *Daemon) Addr() net.Addr { return d.listener.Addr() }

// Run serves until ctx ends and the requests in progress are answered.
func (d *Daemon) Run(ctx context.Context) error {
	if err := d.tell(); err != nil {
		return err
	}
	defer os.Remove(URLFile(d.cfg.Dir)) // a leftover file would name a daemon that does not answer
	d.sessions.HandshakeAll()
	d.listening.Attach(d.sessions)
	d.webhooks.Start()
	if d.acme != nil {
		d.acme.Start()
	}
	d.machine.host.KeepWarm()
	defer context.AfterFunc(ctx, d.sessions.Leave)()
	return d.server.Serve(ctx, d.accept())
}

// Close ends what Open started. Containers continue to run without the daemon, and the next daemon attaches to them.
// With StopOnExit it stops them.
//
// The closers run in reverse order of opening. All run even if one fails: an unclosed ledger would keep its lock.
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

// secretKeyFile is the name of the vault's key file in the data directory.
const secretKeyFile = "secret-key"

// KeyFile returns the path of the API key in a data directory.
func KeyFile(dir string) string { return filepath.Join(dir, "api-key") }

// A quietCloser ignores the error of closing a listener that its server has closed already.
type quietCloser struct{ net.Listener }

func (q quietCloser) Close() error {
	if err := q.Listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
