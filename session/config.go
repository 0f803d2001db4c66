package session

import (
	"context"
	"log/slog"
	"math"
	"time"

	"berth/proto"
	"berth/session/lease"
	"berth/session/secrets"
	"berth/session/validate"
	"berth/state/ledger"
)

// DefaultImage is the name of the image of containers that name none, unless the daemon has another default.
const DefaultImage = "base"

// Config is what Open needs. Runtime, Images, Ledger, Jobs and Dir must be set.
type Config struct {
	Dir     string // for kept output of ended commands; made if missing
	Runtime Runtime
	Images  Images
	Ledger  *ledger.DB
	Jobs    Jobs
	Egress  Proxy                  // for sessions with a network; nil: no session can have one
	Tools   Tools                  // for sessions whose code may call tools; nil: none may
	Vault   secrets.Vault          // for environments and secrets; nil: sessions can have neither
	Quotas  Quotas                 // of API keys; nil: no quotas
	Audit   func(proto.AuditEntry) // called for each action on containers and commands; nil: no audit
	Log     *slog.Logger           // nil: slog.Default
	Now     func() time.Time       // the wall clock; nil: time.Now
	Mounts  MountSource            // where the trees of mounts come from; nil: no mounts
	// Elapsed is a monotonic clock: the time since any fixed moment. nil: derived from Now, whose time.Now carries a
	// monotonic reading.
	Elapsed func() time.Duration
	// AfterFunc calls a function on a goroutine after a time, unless it is stopped before. It acts on absolute leases
	// when they end; without it, sweeps do. nil: time.AfterFunc, or nothing if Now is set.
	AfterFunc func(time.Duration, func()) (stop func() bool)
	Boot      string // boot ID of the host; "": asks the kernel

	Image       string           // default image; "" is DefaultImage
	Classes     validate.Classes // runtime classes of requests
	Limits      proto.Limits     // defaults of a request; zero fields come from DefaultLimits
	PortsMax    proto.PortAccess // the widest access to ports that requests may ask for; "" is proto.PortsSigned
	IdleTimeout time.Duration    // default rolling lease; 0 is 5 minutes, as in the hosted tool
	PauseAfter  time.Duration    // idle time after which a session is paused; 0: never
	// unused time after which a session without processes is stopped; 0: never before its lease ends
	StopAfter   time.Duration
	PauseKeep   time.Duration // how long a session is kept paused; 0 is 30 days
	MaxLifetime time.Duration // default lifetime from creation; 0 is 30 days
	// lifetime of a session that is never used after its creation; 0: that of all others
	UnusedLifetime time.Duration
	NoSudo         bool          // no request may ask for sudo
	ExecTimeout    time.Duration // default time limit of a foreground exec; 0 is 5 minutes
	MaxOutput      int64         // default for bytes kept of each stream; 0 is 1 MiB
	OutputMemory   int64         // bytes of memory for the output of all commands; 0 is 256 MiB
	OutputDisk     int64         // bytes of files for output of ended commands; 0 is 4 GiB
	MaxSessions    int           // sessions of all owners that have not expired; 0 is 10,000
	MaxExecs       int           // at a time in one session; 0 is 64
	StartTimeout   time.Duration // bound of one sandbox start; 0 is 60 s
	// how long the ID of an expired session answers "expired", before "not found"; 0 is 7 days
	Tombstone  time.Duration
	AcceptLoss bool          // open although the disk lacks workspaces; otherwise that is an error
	OrphanKeep time.Duration // how long a workspace that the ledger does not know is kept; 0 is 7 days
}

// DefaultLimits are those of the hosted tool: 1 CPU, 5 GiB of memory, 5 GiB of disk. PIDs times OpenFiles stays below
// what small hosts allow in total (fs.file-max), so that one container cannot use up all descriptors of the host.
var DefaultLimits = proto.Limits{CPUs: 1, MemoryBytes: 5 << 30, PIDs: 512, DiskBytes: 5 << 30, OpenFiles: 4096}

// keptExecs is how many ended execs a session remembers; keptOutput is how many bytes of their output stay in memory.
const (
	keptExecs  = 100
	keptOutput = 4 << 20
)

// Check refuses defaults that no request may ask for; see validate.Defaults.
func (c Config) Check() error {
	c = c.withDefaults()
	return validate.Defaults(c.Limits, c.IdleTimeout, c.MaxLifetime, c.ExecTimeout)
}

func (c Config) withDefaults() Config {
	setDefault(&c.Log, slog.Default())
	if c.Now == nil {
		c.Now = time.Now
		if c.AfterFunc == nil {
			c.AfterFunc = func(d time.Duration, fn func()) func() bool { return time.AfterFunc(d, fn).Stop }
		}
	}
	if c.AfterFunc == nil {
		c.AfterFunc = func(time.Duration, func()) func() bool { return func() bool { return true } }
	}
	setDefault(&c.Boot, lease.HostBoot())
	if c.Vault == nil {
		c.Vault = secrets.None{}
	}
	if c.Quotas == nil {
		c.Quotas = unbounded{}
	}
	if c.Elapsed == nil {
		begin := c.Now()
		c.Elapsed = func() time.Duration { return c.Now().Sub(begin) }
	}
	if c.Audit == nil {
		c.Audit = func(proto.AuditEntry) {}
	}
	setDefault(&c.Image, DefaultImage)
	c.Limits = c.Limits.Or(DefaultLimits)
	setDefault(&c.IdleTimeout, 5*time.Minute)
	setDefault(&c.MaxLifetime, 30*24*time.Hour)
	setDefault(&c.ExecTimeout, 5*time.Minute)
	setDefault(&c.MaxOutput, 1<<20)
	setDefault(&c.OutputMemory, 256<<20)
	setDefault(&c.OutputDisk, 4<<30)
	setDefault(&c.MaxSessions, 10_000)
	setDefault(&c.MaxExecs, 64)
	setDefault(&c.StartTimeout, time.Minute)
	setDefault(&c.PauseKeep, 30*24*time.Hour)
	setDefault(&c.Tombstone, 7*24*time.Hour)
	setDefault(&c.OrphanKeep, 7*24*time.Hour)
	return c
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// seconds converts a number of seconds to a duration, as long as one can be.
func seconds(s float64) time.Duration {
	if s >= math.MaxInt64/float64(time.Second) {
		return math.MaxInt64
	}
	return time.Duration(s * float64(time.Second))
}

// Jobs keeps the manifests of what execs make. artifacts.Jobs implements it; it is an interface because artifacts
// imports this package. Its methods are called while the session is in use, so they may use its files. In End and
// Changed file access fails once the sandbox was stopped: no manifest is worth starting it again.
type Jobs interface {
	// Begin puts stored files into $INPUT_DIR. If one of them cannot be had, it fails with the item's name and leaves
	// nothing new behind.
	Begin(ctx context.Context, f Files, files []string) error
	// End is called for an exec that ended while the guest still answered. It publishes the files of
	// $OUTPUT_DIR and updates the job's manifest. seen is the state of the job's directory at that end.
	End(ctx context.Context, f Files, e proto.Exec, stderrTail string, seen DirectoryState) Produced
	// Changed is called for a file at an absolute path that the API wrote or removed. origin is OriginUploaded or
	// OriginEdited.
	Changed(ctx context.Context, f Files, path, origin string)
	// Drop forgets all jobs of a workspace that is being removed, or of a snapshot.
	Drop(ctx context.Context, workspace string) error
	// Copy gives a workspace or a snapshot the jobs of another one, in place of its own.
	Copy(ctx context.Context, from, to string) error
}

// A DirectoryState is what a guest reports of a job's directory at the end of an exec.
type DirectoryState struct {
	// equals the state of the last walk if nothing has changed since; "" if the guest does not know
	Fingerprint string
	NoOutputs   bool // the exec's $OUTPUT_DIR was empty and is removed
}

// Produced is what an exec made.
type Produced struct {
	FileIDs []string // stored files, in the order of their names
	Paths   []string // created or changed in the job's directory, relative to it
	Notes   []string // for the caller: what could not be stored, and why
}

// Quotas are the bounds of API keys; keys.Store implements it. Sessions count themselves.
type Quotas interface {
	MaxSessions(key string) int64       // sessions that have not expired, at a time; 0: no bound
	MayRun(key string) error            // TooMany if the key's CPU time is used up
	Ran(key string, cpuSeconds float64) // charges the key for CPU time
}

// unbounded is for a daemon without quotas.
type unbounded struct{}

func (unbounded) MaxSessions(string) int64 { return 0 }

func (unbounded) MayRun(string) error { return nil }

func (unbounded) Ran(string, float64) {}
