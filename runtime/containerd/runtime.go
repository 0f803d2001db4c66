package containerd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"golang.org/x/sys/unix"

	"berth/proto"
	"berth/runtime/cgroup"
	"berth/runtime/diskpool"
	"berth/runtime/forkserver"
	"berth/runtime/images"
	"berth/runtime/inprocess"
	"berth/runtime/inside"
	"berth/runtime/launch"
	"berth/runtime/layer"
	"berth/runtime/meter"
	"berth/runtime/outbound"
	"berth/runtime/warmpool"
	"berth/session"
	"berth/state/keylock"
)

// A Runtime keeps sandboxes and images on this machine. It is a session.Runtime; Images returns the image store.
type Runtime struct {
	cfg      Config
	log      *slog.Logger
	run      string // cfg.rundir()
	client   *client.Client
	disk     *diskpool.Pool
	ids      *diskpool.IDRanges
	shimPath string // of the runc shim
	guest    string // path of the guest that new sandboxes run
	server   *forkserver.Server
	class    map[proto.RuntimeClass]launch.Class
	starts   chan struct{} // one slot per running Start
	locks    keylock.Set   // by session and workspace ID
	index    index

	images *images.Store
	warm   *warmpool.Pool // set by Open
	claims claims
	gauges meter.Gauges

	figures *inside.Files // nil if sandboxes see the machine's

	lostWrites bool        // the pool was opened as it was before its file system failed
	ownCounts  bool        // NewUserNamespace makes the user namespaces of sandboxes
	direct     bool        // new sandboxes have no shim. A containerd that is not ours knows sandboxes by their shims.
	outbound   func() bool // whether the host can receive what sandboxes send
	bundles    launch.Bundles
	forked     launch.Forked
	gvisor     launch.Gvisor
	shim       launch.Shim

	embedded *inprocess.Containerd // nil if the containerd is not ours
	steps    steps                 // sandboxes of builds

	lock  *os.File // held while this daemon uses the data directory
	close func()   // stops containerd
}

var (
	_ session.Runtime = (*Runtime)(nil)
	_ session.Images  = (*images.Store)(nil)
)

// Open prepares the data directory, mounts the disk pool, starts or connects to containerd, and finds the existing
// sandboxes. It changes none of them. It fails with proto.Conflict if another daemon uses the directory.
func Open(ctx context.Context, cfg Config) (_ *Runtime, err error) {
	if cfg, err = cfg.withDefaults(); err != nil {
		return nil, err
	}
	if err := cfg.makeDirs(); err != nil {
		return nil, fmt.Errorf("making the data directory: %w", err)
	}
	hearHangups()
	r := &Runtime{
		cfg: cfg, log: cfg.Log, run: cfg.rundir(), ids: diskpool.NewIDRanges(cfg.FirstID),
		starts: make(chan struct{}, cfg.Starts), bundles: launch.Bundles(cfg.bundleDir()),
		shimPath: filepath.Join(cfg.BinDir, "containerd-shim-runc-v2"), direct: cfg.Address == "",
	}
	defer func() {
		if err != nil {
			_ = r.Close()
		}
	}()
	if r.lock, err = lockDir(cfg.Dir); err != nil {
		return nil, err
	}
	if err := r.findPrograms(); err != nil {
		return nil, err
	}
	if err := r.openDisk(ctx); err != nil {
		return nil, fmt.Errorf("opening the disk pool: %w", err)
	}
	if r.guest, err = r.disk.KeepGuest(cfg.Guest); err != nil {
		return nil, fmt.Errorf("copying the guest: %w", err)
	}
	program := r.guest
	if cfg.Starter() != cfg.Guest {
		if program, err = r.disk.KeepGuest(cfg.Starter()); err != nil {
			return nil, fmt.Errorf("copying the program that starts processes: %w", err)
		}
	}
	r.server = forkserver.New(program)
	r.tryUserNamespace()
	if r.ownCounts {
		r.forked.Open(r.bundles, r.server, r.log)
	}
	if err := r.connect(ctx); err != nil {
		return nil, err
	}
	r.outbound = sync.OnceValue(func() bool { return outbound.Try() == nil })
	r.shim = launch.Shim{Client: r.client, Log: r.log, Roots: cfg.rootDir()}
	if !r.poolable(session.Spec{Class: cfg.Warm.Class}) {
		cfg.Warm.Image = ""
	}
	r.warm = warmpool.New(warmpool.Config{
		Size: cfg.Warm, Guest: r.guest, Workspace: layer.InsideWorkspace, Handshake: cfg.Handshake, Log: r.log,
	}, poolMaker{r})
	r.images = images.New(images.Config{
		Client: r.client, Log: r.log, Dir: cfg.Dir, Shared: cfg.Address != "", Changed: r.warm.ImagesChanged,
		Release: r.warm.Forget,
	})
	if err := r.learnClaims(); err != nil {
		return nil, err
	}
	if err := r.learn(ctx); err != nil {
		return nil, err
	}
	r.openFigures()
	r.adoptFigures(r.ns(ctx))
	if err := r.disk.DropGuests(r.guest, program); err != nil {
		r.log.Warn("removing guests of earlier builds", "err", err)
	}
	return r, nil
}

// openDisk opens the disk pool.
func (r *Runtime) openDisk(ctx context.Context) (err error) {
	if r.cfg.HasFiles {
		if err := diskpool.CheckThere(r.cfg.Dir); err != nil {
			return err
		}
	}
	r.disk, err = diskpool.Open(r.cfg.Dir, r.cfg.PoolBytes, r.log)
	if errors.Is(err, diskpool.ErrHeld) {
		if err = r.endHeld(ctx); err == nil {
			r.lostWrites = true
			r.disk, err = diskpool.Reopen(r.cfg.Dir, r.cfg.PoolBytes, r.log)
		}
	}
	if err != nil {
		return err
	}
	return r.disk.LimitOwners(r.cfg.OwnerBytes)
}

// tryUserNamespace checks whether the fork server can make user namespaces. If it cannot, runc makes them, and a
// warning is logged.
func (r *Runtime) tryUserNamespace() {
	ns, err := forkserver.NewUserNamespace(r.server, r.ids.First, r.ids.First)
	if err != nil { // the fork server may have been killed; the next call starts another one
		ns, err = forkserver.NewUserNamespace(r.server, r.ids.First, r.ids.First)
	}
	if err != nil {
		r.log.Warn(
			"containers share the host's inotify limits, so that one can use them up; berth doctor says what to do",
			"err", err)
		return
	}
	ns.Close()
	r.ownCounts = true
}

// endHeld ends the sandboxes that keep a pool mounted to which the kernel no longer writes.
func (r *Runtime) endHeld(ctx context.Context) error {
	running, err := r.cfg.listBundles()
	if err != nil {
		return err
	}
	r.log.Error("the disk below the containers' files has failed to write; the pool is opened again as it was up to "+
		"30 seconds ago, and containers that still run on it are ended", "containers", len(running))
	for _, id := range running {
		if f, err := cgroup.FindFreezer(id); err == nil { // a frozen process does not die
			_ = f.Resume(ctx)
		}
		if err := r.killRuntimes(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// Close leaves all sandboxes of sessions running for the next daemon, and removes the sandboxes without a session.
// The Runtime must not be used afterwards; a second Close does nothing.
func (r *Runtime) Close() error {
	var errs error
	if r.warm != nil {
		r.warm.Close()
	}
	r.claims.close()
	r.gauges.Close()
	r.figures.Close()
	r.forked.Mounts.Close()
	r.server.Close()
	if r.client != nil {
		errs = r.client.Close()
	}
	if r.close != nil {
		r.close()
	}
	if r.disk != nil {
		errs = errors.Join(errs, r.disk.Close())
	}
	if r.lock != nil {
		r.removeRundir()
		errs = errors.Join(errs, r.lock.Close())
	}
	r.client, r.close, r.disk, r.lock = nil, nil, nil, nil
	return errs
}

// removeRundir removes the run directory if no sandbox is left in it. So a data directory that is used once leaves
// nothing below /run. Busy files stay, and the next Open copes with them.
func (r *Runtime) removeRundir() {
	if left, err := r.cfg.listBundles(); len(left) > 0 || err != nil {
		return
	}
	_ = mount.UnmountRecursive(r.cfg.rundir(), unix.MNT_DETACH) // runsc keeps an empty network namespace there
	_ = os.RemoveAll(r.cfg.rundir())
}

// connect sets r.client.
func (r *Runtime) connect(ctx context.Context) (err error) {
	if r.cfg.Address != "" {
		r.client, err = client.New(r.cfg.Address, client.WithDefaultNamespace(images.Namespace))
		if err != nil {
			return proto.Errorf(proto.Unavailable, "opening the runtime", "",
				"the containerd given by address does not answer: %v", err)
		}
		return nil
	}
	r.finishRemovals()
	r.embedded, err = inprocess.Start(ctx, inprocess.Config{
		Dir: r.cfg.Dir, Run: r.run, Log: r.log, Running: r.cfg.listBundles,
	})
	if err == nil {
		r.client, r.close = r.embedded.Client, r.embedded.Stop
	}
	return err
}

// learn reads the UID ranges of the existing sandboxes, and which of them a warm pool left.
func (r *Runtime) learn(ctx context.Context) error {
	records, err := r.client.ContainerService().List(r.ns(ctx))
	if err != nil {
		return fmt.Errorf("reading the sandboxes there are: %w", err)
	}
	for _, rec := range records {
		if base, err := strconv.ParseUint(rec.Labels[labelFirstID], 10, 32); err == nil {
			r.ids.Learn(rec.ID, uint32(base))
		}
		r.index.add(rec.ID, rec.Labels[labelWorkspace])
		if _, claimed := r.claims.session(rec.ID); !claimed {
			r.warm.Learn(leftOf(rec))
		}
	}
	return r.disk.LearnOwners(r.ids)
}

// leftOf returns what a record says about a sandbox that a warm pool made; the label is empty if none did.
func leftOf(rec containers.Container) warmpool.Left {
	kind := warmpool.Kind{Image: rec.Image, Class: proto.RuntimeClass(rec.Labels[labelClass]),
		Network: rec.Labels[labelNetwork] != "", Sudo: rec.Labels[labelSudo] != ""}
	return warmpool.Left{Name: rec.ID, Label: rec.Labels[labelWarm], Kind: kind}
}

// Images returns the store of the images from which r makes root file systems.
func (r *Runtime) Images() *images.Store { return r.images }

// Disk returns the disk pool.
func (r *Runtime) Disk() *diskpool.Pool { return r.disk }

// ns returns ctx with containerd's namespace.
func (r *Runtime) ns(ctx context.Context) context.Context {
	return namespaces.WithNamespace(ctx, images.Namespace)
}

// lockWait limits how long a daemon waits for an earlier daemon's lock. If that daemon was killed while it started a
// program, the half-started child holds the lock until the kernel has removed it.
const lockWait = 2 * time.Second

// lockDir locks the data directory against a second daemon. Two daemons over one pool or one database would ruin
// both.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	for end := time.Now().Add(lockWait); err != nil && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond) // flock has no wait with a time limit
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		f.Close()
		return nil, proto.Errorf(proto.Conflict, "opening the runtime", "",
			"another daemon uses this data directory; stop it or choose another with --data")
	}
	return f, nil
}
