// Package build builds images from Dockerfiles, by BuildKit.
//
//	builds    the builds of the daemon: intake of the context, limits, cancel
//	builder   one build: the program berth-builder, and the HTTP server that it calls
//	step      one command of a Dockerfile, in a sandbox
//	intake    the context: a tar, stored without compression
//
// BuildKit runs in a program of its own, one for each build, in a cgroup: what a Dockerfile makes it need is bounded,
// and a crash of it is not the daemon's. It solves the graph over the daemon's containerd. Everything else is the
// daemon's: base images come from its image store, which pulls them; each command of the Dockerfile runs in a sandbox
// like a container's, with the same filter, users and limits; and its network is the proxy with an allow-list.
//
// A build does not survive its daemon: the builder ends with the pipe to it, and its sandboxes are removed by the next
// daemon. The cache does, and is one owner's alone, since a step's result depends on what its network answered.
package build

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"berth/build/wire"
	"berth/proto"
	"berth/proto/span"
	"berth/session"
	"berth/session/validate"
	"berth/state/keylock"
)

// A Machine runs steps. Package containerd's Runtime has one.
type Machine interface {
	// StartStep starts a sandbox over file systems of the builder's. The caller calls End.
	StartStep(ctx context.Context, class proto.RuntimeClass, limits proto.Limits, trees []wire.Tree) (Step, error)
	// ServeContent serves containerd's content, images and layers on a socket.
	ServeContent(socket string) (stop func(), err error)
	// Confine puts a process into a cgroup of its own.
	Confine(pid int, id string, limits proto.Limits) (release func(), err error)
	// Unconfine ends what an earlier daemon has confined, and removes its cgroup.
	Unconfine(id string)
}

// A Step is the sandbox of one command.
type Step interface {
	Dial(ctx context.Context) (net.Conn, error) // to its guest
	Guest() string                              // path of the guest's program inside
	End(ctx context.Context) error              // ends and removes it; the file systems stay
}

// Images is the image store.
type Images interface {
	session.Images
	// Manifest describes a stored image.
	Manifest(ctx context.Context, digest string) (wire.Found, error)
	// NameBuilt unpacks an image of which all content is stored, and names it.
	NameBuilt(ctx context.Context, name string, built wire.Built, progress func(proto.ImageProgress)) (proto.Image,
		error)
	// KeepReserve returns a context that ends when too little of the disk is free.
	KeepReserve(ctx context.Context, op, image string) (context.Context, func())
}

// A Config has what builds need. All fields but the bounds are required.
type Config struct {
	Dir     string // below the data directory: caches and contexts
	Sockets string // a directory with a short path, for sockets
	Program string // berth-builder

	Namespace, Snapshots string // of the runtime's containerd: its namespace and snapshotter

	Images  Images
	Machine Machine
	Egress  session.Proxy // nil: no build has a network
	Audit   func(proto.AuditEntry)
	Log     *slog.Logger

	Limits       proto.Limits     // of a step that says nothing, and the most
	Classes      validate.Classes // that builds may ask for
	AtOnce       int              // builds that run at once; 0 is 2
	ContextBytes int64            // most bytes of a context, unpacked; 0 is 4 GiB
	CacheBytes   int64            // most bytes of one owner's cache; 0 is 10 GiB
	CacheAge     time.Duration    // unused parts of a cache go after this time; 0 is 14 days
	Timeout      time.Duration    // of a build that says nothing; 0 is an hour
}

// maxWaiting bounds the builds that wait or run, of all owners.
const maxWaiting = 32

// MaxTimeout is the longest time of a build.
const MaxTimeout = 6 * time.Hour

func (c Config) withDefaults() Config {
	c.AtOnce = cmp.Or(c.AtOnce, 2)
	c.ContextBytes = cmp.Or(c.ContextBytes, 4<<30)
	c.CacheBytes = cmp.Or(c.CacheBytes, 10<<30)
	c.CacheAge = cmp.Or(c.CacheAge, 14*24*time.Hour)
	c.Timeout = cmp.Or(c.Timeout, time.Hour)
	c.Limits = c.Limits.Or(session.DefaultLimits)
	return c
}

// Builds are the builds of a daemon.
type Builds struct {
	cfg    Config
	owners keylock.Set   // a cache has one user at a time
	slots  chan struct{} // one for each build that runs

	mu      sync.Mutex        // guards what follows
	running map[string]*entry // by ID
	closed  bool
	wg      sync.WaitGroup
}

// An entry is a build that waits or runs.
type entry struct {
	proto.Build
	owner  string
	cancel context.CancelCauseFunc
}

// Open removes what builds of an earlier daemon have left.
func Open(cfg Config) (*Builds, error) {
	cfg = cfg.withDefaults()
	b := &Builds{cfg: cfg, slots: make(chan struct{}, cfg.AtOnce), running: map[string]*entry{}}
	left, _ := os.ReadDir(b.scratchDir()) // none before the first build
	for _, build := range left {
		if proto.ValidID(proto.BuildPrefix, build.Name()) {
			cfg.Machine.Unconfine(build.Name())
		}
	}
	for _, dir := range []string{b.scratchDir(), cfg.Sockets} {
		if err := os.RemoveAll(dir); err != nil {
			return nil, fmt.Errorf("removing what earlier builds left: %w", err)
		}
	}
	return b, nil
}

// Close cancels all builds and waits for their ends.
func (b *Builds) Close() error {
	b.mu.Lock()
	b.closed = true
	for _, e := range b.running {
		e.cancel(proto.Errorf(proto.Unavailable, "build", e.ID, "the daemon ends; build again"))
	}
	b.mu.Unlock()
	b.wg.Wait()
	return nil
}

func (b *Builds) scratchDir() string { return filepath.Join(b.cfg.Dir, "running") }

// cacheDir returns the directory of an owner's cache. Owners may have any name.
func (b *Builds) cacheDir(owner string) string {
	return filepath.Join(b.cfg.Dir, "cache", nameOf(owner))
}

func nameOf(owner string) string {
	sum := sha256.Sum256([]byte(owner))
	return hex.EncodeToString(sum[:12])
}

// Build stores the context and builds the image. emit gets each event but the last, from one goroutine at a time; an
// error of Build is the last. The build ends with ctx.
func (b *Builds) Build(ctx context.Context, o proto.BuildOptions, in io.Reader, emit func(proto.BuildEvent)) (
	img proto.Image, err error) {
	o, err = b.check(o)
	if err != nil {
		return proto.Image{}, err
	}
	plain, err := openContext(in)
	if err != nil {
		return proto.Image{}, err
	}
	defer plain.Close()
	e, ctx, err := b.add(ctx, o)
	if err != nil {
		return proto.Image{}, err
	}
	defer b.drop(e)
	ctx, sp := span.Start(ctx, "image.build")
	sp.String(span.BuildID, e.ID)
	defer func() { sp.End(err) }()
	img, err = b.build(ctx, e, o, plain, emit)
	var known *proto.Error
	if err != nil && errors.As(context.Cause(ctx), &known) { // cancelled, or out of time or disk
		err = known
	}
	return img, err
}

// build does the work of Build in the build's own context.
func (b *Builds) build(ctx context.Context, e *entry, o proto.BuildOptions, plain io.Reader,
	emit func(proto.BuildEvent)) (img proto.Image, err error) {
	scratch := filepath.Join(b.scratchDir(), e.ID)
	if err := os.MkdirAll(scratch, 0o700); err != nil {
		return img, err
	}
	defer func() {
		if err := os.RemoveAll(scratch); err != nil {
			b.cfg.Log.Error("removing what a build left", "build", e.ID, "err", err)
		}
	}()
	ctx, enough := b.cfg.Images.KeepReserve(ctx, "build", o.Name)
	defer enough()
	stored := filepath.Join(scratch, "context.tar")
	if err := storeContext(ctx, stored, plain, b.cfg.ContextBytes); err != nil {
		return img, err
	}
	emit(proto.BuildEvent{Type: proto.BuildBegun, Build: &e.Build})
	unlock, err := b.wait(ctx, e)
	if err != nil {
		return img, err
	}
	defer unlock()
	ctx, stop := withTimeout(ctx, b.timeout(o))
	defer stop()
	r := &runningBuild{Builds: b, ctx: ctx, entry: e, options: o, emit: emit, scratch: scratch,
		secrets: newSecrets(o.Secrets), steps: map[string]*buildStep{}, step: make(chan struct{}, 1)}
	img, err = r.run(ctx, stored)
	return img, r.secrets.hide(err)
}

// wait waits for the owner's earlier build, and for a slot.
func (b *Builds) wait(ctx context.Context, e *entry) (unlock func(), err error) {
	own, err := b.owners.Lock(ctx, e.owner)
	if err != nil {
		return nil, err
	}
	select {
	case b.slots <- struct{}{}:
	case <-ctx.Done():
		own()
		return nil, ctx.Err()
	}
	b.mu.Lock()
	e.State = "running"
	b.mu.Unlock()
	return func() { <-b.slots; own() }, nil
}

// check checks the options and fills in the defaults.
func (b *Builds) check(o proto.BuildOptions) (proto.BuildOptions, error) {
	o.Dockerfile = cmp.Or(o.Dockerfile, "Dockerfile")
	if err := b.cfg.Classes.Check(o.Class); err != nil {
		return o, err
	}
	o.Class = cmp.Or(o.Class, b.cfg.Classes.Usual())
	if o.Name == "" {
		return o, proto.Invalid("name", "name must be the name of the image to build, such as tools or tools:2.")
	}
	if err := proto.CheckBuildSecrets(o.Secrets); err != nil {
		return o, err
	}
	if slices.Contains(o.MoreNames, "") {
		return o, proto.Invalid("name", "one of the names is empty; leave it out.")
	}
	if own := "linux/" + runtime.GOARCH; o.Platform != "" && o.Platform != own {
		return o, proto.Errorf(proto.Unsupported, "build", "platform", "platform %.80q: this daemon builds for %s, "+
			"the platform of its host", o.Platform, own)
	}
	if !filepath.IsLocal(o.Dockerfile) {
		return o, proto.Invalid("dockerfile", "dockerfile must be a path in the build context, not %.80q.",
			o.Dockerfile)
	}
	if o.TimeoutSeconds < 0 || o.TimeoutSeconds > int64(MaxTimeout/time.Second) {
		return o, proto.Invalid("timeout_seconds", "timeout_seconds must be from 0 to %d.", MaxTimeout/time.Second)
	}
	for name := range o.Args {
		if name == "" || strings.ContainsAny(name, "= \t\n\x00") {
			return o, proto.Invalid("build_arg", "build_arg %.80q: write build_arg=NAME=value.", name)
		}
		if strings.HasPrefix(name, "BUILDKIT_") {
			return o, proto.Invalid("build_arg", "build_arg %.80q: settings of BuildKit are the daemon's.", name)
		}
	}
	asked := o.Limits
	o.Limits = o.Limits.Or(b.cfg.Limits)
	if err := checkLimits(asked, b.cfg.Limits); err != nil {
		return o, err
	}
	var err error
	o.Network, err = b.grant(o.Network)
	return o, err
}

// checkLimits refuses limits above the daemon's, and those below which no step starts.
func checkLimits(asked, most proto.Limits) error {
	least := validate.LeastLimits
	for _, l := range []struct {
		name               string
		asked, least, most float64
	}{
		{"cpus", asked.CPUs, least.CPUs, most.CPUs},
		{"memory_bytes", float64(asked.MemoryBytes), float64(least.MemoryBytes), float64(most.MemoryBytes)},
		{"pids", float64(asked.PIDs), float64(least.PIDs), float64(most.PIDs)},
		{"disk_bytes", float64(asked.DiskBytes), float64(least.DiskBytes), float64(most.DiskBytes)},
	} {
		if l.asked != 0 && !(l.asked >= l.least && l.asked <= l.most) {
			return proto.Invalid(l.name, "%s must be from %v to %v, which is this daemon's limit.", l.name,
				strconv.FormatFloat(l.least, 'f', -1, 64), strconv.FormatFloat(l.most, 'f', -1, 64))
		}
	}
	return nil
}

// grant checks the network that a build asks for.
func (b *Builds) grant(asked proto.Network) (n proto.Network, err error) {
	switch {
	case b.cfg.Egress != nil:
		n, err = b.cfg.Egress.AllowList(asked)
	case asked.Mode.Covers(proto.NetworkAllowlist) || len(asked.Allow) > 0:
		err = proto.Errorf(proto.Unsupported, "", "network", "this daemon gives builds no network")
	}
	if n.Mode == proto.NetworkNone {
		n.Mode = ""
	}
	return n, err
}

func (b *Builds) timeout(o proto.BuildOptions) time.Duration {
	return cmp.Or(time.Duration(o.TimeoutSeconds)*time.Second, b.cfg.Timeout)
}

// withTimeout returns a context that ends with an error for the caller.
func withTimeout(ctx context.Context, after time.Duration) (context.Context, func()) {
	return context.WithTimeoutCause(ctx, after, proto.Errorf(proto.TimedOut, "build", "",
		"the build has taken longer than %v; ask for more timeout_seconds, or make it shorter", after))
}

// add registers a build.
func (b *Builds) add(ctx context.Context, o proto.BuildOptions) (*entry, context.Context, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return nil, nil, proto.Errorf(proto.Unavailable, "build", "", "the daemon ends; build again")
	case len(b.running) >= maxWaiting:
		return nil, nil, proto.Errorf(proto.TooMany, "build", "", "%d builds wait or run, which is the most; try "+
			"again later", maxWaiting)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	e := &entry{owner: proto.CallerOf(ctx).Owner, cancel: cancel, Build: proto.Build{
		ID: proto.NewID(proto.BuildPrefix), Name: o.Name, State: "waiting", StartedAt: time.Now().UTC()}}
	b.running[e.ID] = e
	b.wg.Add(1)
	return e, ctx, nil
}

func (b *Builds) drop(e *entry) {
	e.cancel(nil)
	b.mu.Lock()
	delete(b.running, e.ID)
	b.mu.Unlock()
	b.wg.Done()
}

// List returns an owner's builds that wait or run, oldest first, and the size of the owner's cache after the last one.
func (b *Builds) List(owner string) ([]proto.Build, proto.BuildCache) {
	b.mu.Lock()
	var list []proto.Build
	for _, e := range b.running {
		if e.owner == owner {
			list = append(list, e.Build)
		}
	}
	b.mu.Unlock()
	slices.SortFunc(list, func(a, b proto.Build) int {
		return cmp.Or(a.StartedAt.Compare(b.StartedAt), strings.Compare(a.ID, b.ID))
	})
	var cache proto.BuildCache
	if text, err := os.ReadFile(filepath.Join(b.cacheDir(owner), usageFile)); err == nil {
		_ = json.Unmarshal(text, &cache) // a torn file counts as an empty cache until the next build
	}
	return list, cache
}

// Cancel ends a build of an owner.
func (b *Builds) Cancel(owner, id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.running[id]
	if !ok || e.owner != owner {
		return proto.Errorf(proto.NotFound, "cancel build", id, "there is no build %.80q that waits or runs", id)
	}
	e.cancel(proto.Errorf(proto.Canceled, "build", id, "the build was cancelled"))
	return nil
}
