package session

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"strings"
	"time"

	"berth/egress"
	"berth/proto"
	"berth/session/secrets"
	"berth/state/ledger"
)

// Config is what Open needs. Runtime, Images, Ledger, Jobs and Dir must be set.
type Config struct {
	Dir     string // for the kept output of background execs; made if missing
	Runtime Runtime
	Images  Images
	Ledger  *ledger.DB
	Jobs    Jobs
	Egress  *egress.Proxy          // for sessions with a network; nil: none can have one
	Tools   Tools                  // for sessions whose code may call tools; nil: none may
	Vault   secrets.Vault          // for environments and secrets; nil: containers can have neither
	Quotas  Quotas                 // of API keys; nil: none has any
	Audit   func(proto.AuditEntry) // told of what becomes of containers and commands; nil: nobody is
	Log     *slog.Logger           // nil: slog.Default
	Now     func() time.Time       // the wall clock; nil: time.Now
	Mounts  MountSource            // what sessions can be furnished with; nil: nothing
	// Elapsed is a monotonic clock: how much time has passed since any fixed moment. nil: as Now has it, of which
	// time.Now carries one along.
	Elapsed func() time.Duration
	Boot    string // names this boot of the host; "" asks the kernel

	Image       string             // default image; "" is "base"
	Class       proto.RuntimeClass // default class; "" is runc
	Limits      proto.Limits       // defaults for what a request leaves out; zero fields from DefaultLimits
	IdleTimeout time.Duration      // default rolling lease; 0 is 5 minutes, as the hosted tool has
	PauseAfter  time.Duration      // have a session stand still that nobody has used for this long; 0: none
	// have a session's guest give back its memory that nobody has used for this long; 0: none
	DozeAfter    time.Duration
	MaxLifetime  time.Duration // default cap from creation; 0 is 30 days
	ExecTimeout  time.Duration // default time limit of a foreground exec; 0 is 5 minutes
	MaxOutput    int64         // default bytes kept of each stream; 0 is 1 MiB
	OutputMemory int64         // bytes of memory for what commands wrote, all together; 0 is 256 MiB
	OutputDisk   int64         // bytes of files for what of ended commands is not in memory; 0 is 4 GiB
	MaxSessions  int           // that are not expired, of all owners; 0 is 10,000
	MaxExecs     int           // at once in one session; 0 is 64
	StartTimeout time.Duration // for one sandbox to come up; 0 is 60 s
	Tombstone    time.Duration // how long an expired session's ID answers "expired" before "not found"; 0 is 7 days
	StrayKeep    time.Duration // how long a workspace that the ledger does not know is set aside; 0 is 7 days
}

// DefaultLimits are the hosted tool's: 1 CPU, 5 GiB of memory, 5 GiB of disk. PIDs times OpenFiles stays below
// what small hosts allow in all (fs.file-max), so that no container alone uses up the host's.
var DefaultLimits = proto.Limits{CPUs: 1, MemoryBytes: 5 << 30, PIDs: 512, DiskBytes: 5 << 30, OpenFiles: 4096}

// LeastLimits are the smallest that a request may ask for: with less no container starts.
var LeastLimits = proto.Limits{CPUs: 0.01, MemoryBytes: 16 << 20, PIDs: 16, DiskBytes: 16 << 20, OpenFiles: 256}

// Bounds of what a request may ask for.
const (
	minIdle, maxIdle         = time.Second, 30 * 24 * time.Hour
	minLifetime, maxLifetime = time.Second, 365 * 24 * time.Hour
	maxExecTimeout           = 24 * time.Hour
	maxOutputLimit           = 16 << 20
	maxCommand               = 1 << 20 // bytes of command text, or of all arguments
	maxEnv                   = 256     // entries
	maxEnvBytes              = 128 << 10
	maxLabels                = 64
	maxLabelBytes            = 256
)

// keptExecs bounds how many ended execs a session remembers, keptOutput the bytes of
// their output that stay in memory.
const (
	keptExecs  = 100
	keptOutput = 4 << 20
)

// Check refuses a default that no request may ask for: with it no container could be made, or no command run. The
// error's item is the field of a request that asks for the same, and its message goes behind the value.
func (c Config) Check() error {
	c = c.withDefaults()
	return cmp.Or(
		checkLeast("limits.cpus", c.Limits.CPUs, LeastLimits.CPUs),
		checkLeast("limits.memory_bytes", c.Limits.MemoryBytes, LeastLimits.MemoryBytes),
		checkLeast("limits.pids", c.Limits.PIDs, LeastLimits.PIDs),
		checkLeast("limits.disk_bytes", c.Limits.DiskBytes, LeastLimits.DiskBytes),
		checkLeast("limits.open_files", c.Limits.OpenFiles, LeastLimits.OpenFiles),
		checkDefault("idle_timeout_seconds", c.IdleTimeout, minIdle, maxIdle),
		checkDefault("max_lifetime_seconds", c.MaxLifetime, minLifetime, maxLifetime),
		checkDefault("timeout_seconds", c.ExecTimeout, 0, maxExecTimeout),
	)
}

func checkLeast[T int64 | float64](field string, v, least T) error {
	if !(v >= least) { // as NaN is not
		return invalid(field, "is too little for a container; %v is the least", least)
	}
	return nil
}

func checkDefault(field string, d, lo, hi time.Duration) error {
	if d < lo || d > hi {
		return invalid(field, "is not from %v to %v", lo, hi)
	}
	return nil
}

func (c Config) withDefaults() Config {
	setDefault(&c.Log, slog.Default())
	if c.Now == nil {
		c.Now = time.Now
	}
	setDefault(&c.Boot, hostBoot())
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
	setDefault(&c.Image, "base")
	setDefault(&c.Class, proto.ClassRunc)
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
	setDefault(&c.Tombstone, 7*24*time.Hour)
	setDefault(&c.StrayKeep, 7*24*time.Hour)
	return c
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// hostBoot names this boot of the host; "" if the kernel does not tell.
func hostBoot() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// Jobs keeps the books of what execs make: inputs before, outputs and the manifest after.
// artifacts.Jobs is the one there is; it is an interface because artifacts stands above
// this package. Its methods are called while the session is in use, so they may use its files. In End and
// Changed that fails once the sandbox was stopped: no entry in a book is worth starting it again.
type Jobs interface {
	// Begin puts stored files into $INPUT_DIR. It fails with the item's name and
	// leaves nothing new behind if one of them cannot be had.
	Begin(ctx context.Context, s *Session, files []string) error
	// End is told of an exec that ended while the guest was still there. It
	// publishes the top-level files of $OUTPUT_DIR and brings the job's manifest up to date. seen is
	// what the guest saw of the job's directory at that end.
	End(ctx context.Context, f Files, e proto.Exec, stderrTail string, seen DirectoryState) Produced
	// Changed is told of a file that the API wrote or removed at an absolute path;
	// origin is "uploaded" or "edited".
	Changed(ctx context.Context, f Files, path, origin string)
	// Drop forgets all jobs of a workspace that is being removed.
	Drop(ctx context.Context, workspace string) error
}

// A DirectoryState is what a guest says of a job's directory at the end of an exec.
type DirectoryState struct {
	Fingerprint string // proto.Gist of it; "" where it was not looked at
}

// Produced is what an exec made.
type Produced struct {
	FileIDs []string // stored files, in the order of their names
	Paths   []string // created or changed in the job's directory, relative to it
	Notes   []string // for the caller: what could not be stored, and why
}

// Quotas are the bounds of API keys, as package keys has them. The session that counts them is here.
type Quotas interface {
	MaxSessions(key string) int64       // that have not expired, at once; 0 is no bound
	MayRun(key string) error            // TooMany when the key's CPU time is used up
	Ran(key string, cpuSeconds float64) // charges the key for an exec that ended
}

// unbounded are the quotas of a daemon that has none.
type unbounded struct{}
