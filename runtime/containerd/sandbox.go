package containerd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"berth/proto"
	"berth/proto/span"
	"berth/runtime/cgroup"
	"berth/runtime/diskpool"
	"berth/runtime/forkserver"
	"berth/runtime/images"
	"berth/runtime/launch"
	"berth/runtime/layer"
	"berth/runtime/ocispec"
	"berth/runtime/outbound"
	"berth/runtime/warmpool"
	"berth/session"
	"berth/session/inventory"
)

// Labels of a container record.
const (
	labelFirstID   = "berth/first-id"
	labelWorkspace = "berth/workspace"
	labelClass     = "berth/class"
	labelNetwork   = "berth/network" // set if warmpool.Kind.Network is
	labelSudo      = "berth/sudo"    // set if warmpool.Kind.Sudo is
	labelWarm      = "berth/warm"    // of sandboxes that the warm pool made; see warmpool.Label

	// labelChain keeps an image's layers from containerd's garbage collector while the sandbox exists, even if the
	// image loses its name.
	labelChain = "containerd.io/gc.ref.snapshot." + images.Snapshotter
)

const (
	// removeTimeout limits the removal of a sandbox, which does not end with the caller's context. Twice
	// launch.EndGrace of that is for the runtime.
	removeTimeout = 30 * time.Second
	// startTimeout limits each half of a start: the work of the runtime, and the wait for the guest's first answer.
	// On an overloaded machine a start has taken seconds.
	startTimeout = 30 * time.Second
)

// Start makes sandbox id as spec says. See session.Runtime.
func (r *Runtime) Start(ctx context.Context, id string, spec session.Spec) error {
	if err := checkSpec(id, spec); err != nil {
		return err
	}
	class, err := r.pickClass(spec.Class)
	if err != nil {
		return err
	}
	if spec.Sudo && (spec.Class != proto.ClassRunc || !r.direct) {
		return proto.Errorf(proto.Unsupported, "start", id, "sudo is for class %s of a daemon that embeds containerd; "+
			"create the container without it and run commands as user root", proto.ClassRunc)
	}
	unlock, err := r.lockBoth(ctx, id, spec.Workspace)
	if err != nil {
		return err
	}
	defer unlock()
	if err := ctx.Err(); err != nil { // the pool does not check it
		return err
	}
	if !spec.New {
		if conn, err := r.dialAgain(ctx, id); err == nil {
			return conn.Close()
		}
	}
	if spec.HasFiles && !diskpool.Exists(r.disk.WorkspacePath(spec.Workspace)) {
		return inventory.Gone(spec.Workspace)
	}
	if spec.New && !spec.HasFiles {
		if err := r.beginWorkspace(ctx, spec); err != nil {
			return r.fail(ctx, "start", id, err)
		}
	}
	pooled := (spec.New || !r.hasTraces(id)) && r.takePooled(ctx, id, spec)
	span.Of(ctx).Bool(span.FromPool, pooled)
	if pooled {
		return nil
	}
	if err := r.startCold(ctx, id, spec, class); err != nil {
		return r.fail(ctx, "start", id, err)
	}
	return nil
}

// startCold makes a sandbox when the warm pool has none. If the pool has one once a start slot is free, it takes that
// one.
func (r *Runtime) startCold(ctx context.Context, id string, spec session.Spec, class launch.Class) error {
	select {
	case r.starts <- struct{}{}:
		defer func() { <-r.starts }()
	case <-ctx.Done():
		return ctx.Err()
	}
	// First remove the rest of a sandbox that ended or was never finished.
	if err := r.removeOf(ctx, id); err != nil {
		return err
	}
	if r.takePooled(ctx, id, spec) {
		return nil
	}
	poolable := r.poolable(spec)
	err := r.disk.WithRoom(spec.Owner, func() error { return r.makeOrUndo(ctx, id, spec, class) })
	if err != nil && strings.Contains(err.Error(), unix.EIO.Error()) {
		r.disk.AcknowledgeErrors()
		err = r.makeOrUndo(ctx, id, spec, class)
	}
	if err == nil && poolable {
		r.warm.Missed(r.kindOf(spec), spec.Limits)
	}
	return err
}

// hasTraces reports whether parts of the sandbox of session id may exist. It does not ask containerd.
func (r *Runtime) hasTraces(id string) bool {
	_, claimed := r.claims.get(id)
	return claimed || r.ids.Has(id) || r.hasTaskDir(id) || r.bundles.Has(id) || diskpool.Exists(r.disk.LayerPath(id))
}

// removeOf removes the sandbox of session id, whether claimed or made for the session.
func (r *Runtime) removeOf(ctx context.Context, id string) error {
	if held, ok := r.claims.get(id); ok {
		if err := r.removeSandbox(ctx, held.sandbox); err != nil {
			return err
		}
		r.claims.drop(id)
	}
	return r.removeSandbox(ctx, id)
}

// makeOrUndo makes a sandbox, or leaves nothing of it. If a setup program fails, runc makes the sandbox.
func (r *Runtime) makeOrUndo(ctx context.Context, id string, spec session.Spec, class launch.Class) error {
	err := r.tryToMake(ctx, id, spec, class, false)
	var useless launch.SetupError
	if !errors.As(err, &useless) {
		return err
	}
	if err := r.tryToMake(ctx, id, spec, class, true); err != nil {
		return errors.Join(err, useless)
	}
	r.forked.Failed(useless)
	return nil
}

func (r *Runtime) tryToMake(ctx context.Context, id string, spec session.Spec, class launch.Class, byRunc bool) error {
	err := r.makeSandbox(ctx, id, spec, class, byRunc)
	if err != nil {
		if undo := r.removeSandbox(ctx, id); undo != nil {
			r.log.Error("undoing a start", "sandbox", id, "err", undo)
		}
	}
	return err
}

// Stop ends and removes sandbox id. See session.Runtime.
func (r *Runtime) Stop(ctx context.Context, id string) error {
	if !proto.ValidID(proto.ContainerPrefix, id) {
		return nil // no such sandbox can exist
	}
	unlock, err := r.locks.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	if err := r.removeOf(ctx, id); err != nil {
		return r.fail(ctx, "stop", id, err)
	}
	return nil
}

// RemoveWorkspace removes a workspace with its files. See session.Runtime.
func (r *Runtime) RemoveWorkspace(ctx context.Context, workspace string) error {
	if !proto.ValidID(proto.WorkspacePrefix, workspace) {
		return nil
	}
	unlock, err := r.locks.Lock(ctx, workspace)
	if err != nil {
		return err
	}
	defer unlock()
	if user := r.index.user(workspace); user != "" {
		if id, ok := r.claims.session(user); ok {
			user = id
		}
		return proto.Errorf(proto.Conflict, "remove workspace", workspace,
			"workspace %s is in use by container %s; delete that first", workspace, user)
	}
	if err := r.disk.RemoveWorkspace(workspace); err != nil {
		return r.fail(ctx, "remove workspace", workspace, err)
	}
	return nil
}

// RemoveLayer removes a kept layer with its files. See session.Runtime.
func (r *Runtime) RemoveLayer(ctx context.Context, layer string) error {
	if !proto.ValidID(proto.LayerPrefix, layer) {
		return nil
	}
	if err := r.disk.RemoveKept(layer); err != nil {
		return r.fail(ctx, "remove layer", layer, err)
	}
	return nil
}

// Alive returns an error if the runtime cannot do its work: containerd does not answer, or the disk pool is gone. Its
// cost does not depend on the number of sandboxes.
func (r *Runtime) Alive(ctx context.Context) error {
	_, err := r.client.ContainerService().Get(r.ns(ctx), "none")
	if errdefs.IsNotFound(err) { // containerd has answered
		_, err = os.Stat(r.disk.LayerDir())
	}
	if err != nil {
		return r.fail(ctx, "alive", "", err)
	}
	return nil
}

// List returns the sandboxes and workspaces of this machine, also those made in part. See session.Runtime.
func (r *Runtime) List(ctx context.Context) (session.Inventory, error) {
	var inv session.Inventory
	var err error
	layers, err1 := r.disk.Layers()
	bundles, err2 := r.cfg.listBundles()
	bundles = slices.DeleteFunc(bundles, func(id string) bool { return !proto.ValidID(proto.ContainerPrefix, id) })
	layers, bundles = slices.DeleteFunc(layers, r.steps.has), slices.DeleteFunc(bundles, r.steps.has)
	inv.Pool, inv.LostWrites = r.disk.Place(), r.lostWrites
	inv.Workspaces, err = r.disk.Workspaces()
	var err3 error
	inv.Layers, err3 = r.disk.Kept()
	var err4 error
	inv.Snapshots, err4 = r.disk.Snapshots()
	if err := errors.Join(err, err1, err2, err3, err4); err != nil {
		return inv, r.fail(ctx, "list", "", err)
	}
	inv.Sandboxes = r.inventory(slices.Concat(r.index.sandboxes(), layers, bundles))
	return inv, nil
}

// checkSpec refuses a spec that cannot be run, before anything is made. Only valid IDs are safe as names of
// directories.
func checkSpec(id string, spec session.Spec) error {
	bad := func(item, why string) error {
		return proto.Errorf(proto.InvalidArgument, "start", item, "%s", why)
	}
	l := spec.Limits
	switch {
	case !proto.ValidID(proto.ContainerPrefix, id):
		return bad("id", "the container ID is not one of ours")
	case !proto.ValidID(proto.WorkspacePrefix, spec.Workspace):
		return bad("workspace", "the workspace ID is not one of ours")
	case !proto.ValidID(proto.LayerPrefix, spec.Layer):
		return bad("layer", "the layer ID is not one of ours")
	case l.CPUs < 0.01:
		return bad("cpus", "cpus must be 0.01 or more")
	case l.MemoryBytes < 16<<20:
		return bad("memory_bytes", "memory_bytes must be 16 MiB or more")
	case l.PIDs < 16:
		return bad("pids", "pids must be 16 or more")
	case l.DiskBytes < 16<<20:
		return bad("disk_bytes", "disk_bytes must be 16 MiB or more")
	case l.OpenFiles < 256 || uint64(l.OpenFiles) > cgroup.HardLimit(unix.RLIMIT_NOFILE):
		return bad("open_files", fmt.Sprintf("open_files must be from 256 to %d, which is the daemon's own hard "+
			"limit; start it with a higher one (LimitNOFILE= in its unit)", cgroup.HardLimit(unix.RLIMIT_NOFILE)))
	}
	return nil
}

// lockBoth takes the session's lock and then its workspace's. Start and RemoveWorkspace of one workspace must not
// overlap.
func (r *Runtime) lockBoth(ctx context.Context, id, workspace string) (func(), error) {
	first, err := r.locks.Lock(ctx, id)
	if err != nil {
		return nil, err
	}
	second, err := r.locks.Lock(ctx, workspace)
	if err != nil {
		first()
		return nil, err
	}
	return func() { second(); first() }, nil
}

// makeSandbox makes record, user namespace and disk, all at the same time, and then the process. Only the workspace
// belongs to the session alone. A spec without a workspace is for a pooled sandbox, which gets one later.
func (r *Runtime) makeSandbox(ctx context.Context, id string, spec session.Spec, class launch.Class,
	byRunc bool) error {
	b := &launch.Sandbox{Spec: ocispec.Spec{ID: id, Class: spec.Class, Limits: spec.Limits,
		Sudo: spec.Sudo}, Guest: r.guest,
		Server: r.server, Run: r.runPath(id)}
	b.Hostname = cmp.Or(spec.Hostname, session.DefaultHostname)
	var err error
	if b.FirstID, err = r.ids.Take(id); err != nil {
		return err
	}
	namespace := r.enterNamespace(b)
	defer namespace.Leave()
	if !r.direct { // its record names the namespace
		if b.UserNamespace, err = namespace.Path(); err != nil {
			return err
		}
	}
	if err := r.pin(ctx, b, spec, class); err != nil {
		return err
	}
	defer func() { _ = b.Recorded() }() // the code that undoes this start must find the record
	defer r.figures.Made(id)
	if err := r.mountFigures(b); err != nil {
		return err
	}
	if r.pairs(spec) {
		network, err := outbound.NewPair()
		if err != nil {
			return err
		}
		defer network.Close() // gVisor's kernel is in it by then
		b.Network = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), network.Fd())
	}
	if err := r.makeDisk(b, spec); err != nil {
		return err
	}
	if b.UserNamespace, err = namespace.Path(); err != nil {
		return err
	}
	return r.launch(ctx, b, r.launcher(spec.Class, byRunc || spec.Sudo)) // setup programs always renounce privileges
}

// enterNamespace starts to make the user namespace of b, unless the runtime makes it.
func (r *Runtime) enterNamespace(b *launch.Sandbox) *forkserver.OwnNamespace {
	n := &forkserver.OwnNamespace{}
	if r.ownCounts && b.Class == proto.ClassRunc {
		n.Making.Go(func() (err error) {
			n.File, err = forkserver.NewUserNamespace(b.Server, b.FirstID, b.FirstID)
			return err
		})
	}
	return n
}

// makeDisk makes the sandbox's directories on the disk.
func (r *Runtime) makeDisk(b *launch.Sandbox, spec session.Spec) (err error) {
	if spec.Workspace != "" {
		if b.Workspace, err = r.makeWorkspace(spec); err != nil {
			return err
		}
	}
	var c diskpool.Claim
	if spec.Workspace != "" {
		c = claimOf(b.ID, spec)
	}
	if b.Layer, b.New, err = r.disk.MakeLayer(b.ID, c, b.FirstID, spec.Limits.DiskBytes); err != nil {
		return err
	}
	if err := r.disk.Own(spec.Owner, b.Layer); err != nil {
		return err
	}
	return r.disk.BeyondBound(b.Layer, func() error { return makeHosts(b.Layer, b.FirstID, b.Hostname) })
}

// makeWorkspace makes the workspace, unless it exists, with its limit, and counts it for its owner.
func (r *Runtime) makeWorkspace(spec session.Spec) (string, error) {
	path, err := r.disk.MakeWorkspace(spec.Workspace, spec.Limits.DiskBytes)
	if err != nil {
		return "", err
	}
	return path, r.disk.Own(spec.Owner, path)
}

// claimOf returns what the disk records about a sandbox of session id.
func claimOf(id string, spec session.Spec) diskpool.Claim {
	return diskpool.Claim{Session: id, Workspace: spec.Workspace, Layer: spec.Layer}
}

// launcher chooses how a sandbox of a class is started.
func (r *Runtime) launcher(class proto.RuntimeClass, byRunc bool) launch.Launcher {
	switch {
	case !r.direct:
		return r.shim
	case class == proto.ClassGVisor:
		return r.gvisor
	case byRunc || !r.ownCounts || !r.forked.Usable():
		return launch.Runc{Binary: r.class[proto.ClassRunc].Binary, Bundles: r.bundles}
	}
	return &r.forked
}

// launch starts the first process of b and waits until its guest answers.
func (r *Runtime) launch(ctx context.Context, b *launch.Sandbox, launcher launch.Launcher) error {
	// If a runtime is cancelled half way, parts are left that no call of ours can find. So the runtime runs to its
	// end, and ctx is checked again below.
	run, cancel := context.WithTimeout(r.ns(context.WithoutCancel(ctx)), startTimeout)
	defer cancel()
	first, err := launcher.Create(run, b)
	if first != nil {
		defer first.Close()
	}
	if err != nil {
		return fmt.Errorf("creating the sandbox: %w", err)
	}
	if err := errors.Join(cgroup.SetWeight(), cgroup.InheritProcessors()); err != nil {
		return fmt.Errorf("preparing the cgroup of all sandboxes: %w", err)
	}
	gone, forget, err := launch.WatchProcess(first.PID)
	if err != nil {
		return fmt.Errorf("watching the guest: %w", err)
	}
	defer forget()
	if err := b.Recorded(); err != nil {
		return fmt.Errorf("writing its record: %w", err)
	}
	if err := ctx.Err(); err != nil { // before any code of the sandbox runs
		return err
	}
	if err := first.Start(run); err != nil {
		return fmt.Errorf("starting the guest: %w", err)
	}
	ctx, stop := context.WithTimeout(ctx, startTimeout)
	defer stop()
	if err := awaitGuest(ctx, b.Run, gone); err != nil {
		return err
	}
	if b.New {
		if err := layer.Mark(b.Layer); err != nil {
			return err
		}
	}
	return ctx.Err() // the guest may have answered at once, after the caller left
}

// pin finds the image and starts to write the container record, which keeps the image. Until the record is written,
// no sweep can run and no process of the sandbox runs.
func (r *Runtime) pin(ctx context.Context, b *launch.Sandbox, spec session.Spec, class launch.Class) error {
	root, unlock, err := r.images.Pin(ctx, spec.Image)
	if err != nil {
		return err
	}
	b.Env, b.Lowers = root.Env, root.Lowers
	var writing errgroup.Group
	record := *b // other fields are set meanwhile
	writing.Go(func() error {
		defer unlock()
		return r.record(ctx, &record, spec, root.Id, class)
	})
	b.Recorded = writing.Wait
	return nil
}

// record writes the container record. From then on, List names the sandbox.
func (r *Runtime) record(ctx context.Context, b *launch.Sandbox, spec session.Spec, chain string,
	class launch.Class) error {
	runtime, config, err := r.runtimeOf(b, class)
	if err != nil {
		return err
	}
	labels := map[string]string{
		labelFirstID: strconv.FormatUint(uint64(b.FirstID), 10),
		labelClass:   string(spec.Class),
		labelChain:   chain,
	}
	if r.pairs(spec) {
		labels[labelNetwork] = "yes"
	}
	if spec.Sudo {
		labels[labelSudo] = "yes"
	}
	if spec.Workspace != "" {
		labels[labelWorkspace] = spec.Workspace
	} else {
		labels[labelWarm] = warmpool.NewLabel(b.Guest, spec.Limits)
	}
	_, err = r.client.ContainerService().Create(r.ns(ctx), containers.Container{
		ID:      b.ID,
		Image:   images.DigestName(spec.Image),
		Labels:  labels,
		Runtime: runtime,
		Spec:    config,
	})
	if err == nil {
		r.index.add(b.ID, spec.Workspace)
	}
	return err
}

// runtimeOf returns the part of a record that says how its sandbox is run. containerd requires it but never reads it
// for a direct sandbox, whose configuration is in its bundle. So for those it is almost empty, because records are
// read often.
func (r *Runtime) runtimeOf(b *launch.Sandbox, class launch.Class) (info containers.RuntimeInfo, spec typeurl.Any,
	err error) {
	if r.direct {
		spec, err = typeurl.MarshalAny(&specs.Spec{Version: specs.Version})
		return containers.RuntimeInfo{Name: class.Binary}, spec, err
	}
	info.Name = r.shimPath
	info.Options, err = typeurl.MarshalAny(&options.Options{
		BinaryName: class.Binary,
		Root:       filepath.Join(r.run, "r"), // not the directory of other containerds on this host
	})
	if err == nil {
		spec, err = typeurl.MarshalAny(ocispec.New(b.Spec))
	}
	return info, spec, err
}

// removeSandbox removes all parts of sandbox id. It goes on after errors, so one stuck part does not keep the others.
func (r *Runtime) removeSandbox(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(r.ns(context.WithoutCancel(ctx)), removeTimeout)
	defer cancel()
	known, err := r.exists(ctx, id)
	if err == nil && !known {
		r.ids.Release(id) // of a start that ended before its record
		r.index.drop(id)  // of a record that another program removed
	}
	if err != nil || !known {
		return err
	}
	r.releaseToEnd(ctx, id)
	defer r.figures.Forget(id)
	defer r.gauges.Drop(id) // drops gauges that a reader opens meanwhile, too
	errTask := r.endTask(ctx, id)
	errLayer := r.disk.ReleaseLayer(id)
	if err := errors.Join(errTask, errLayer, cgroup.Remove(ctx, id)); err != nil {
		return err
	}
	// The record comes last, because it holds the UID range, which must not be given away earlier.
	err = r.client.ContainerService().Delete(ctx, id)
	if err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	r.index.drop(id)
	r.ids.Release(id)
	return nil
}

// exists reports whether any part of sandbox id exists. The record is removed last. But files on disk may be older,
// and containerd may be another one than before, so files count, too.
func (r *Runtime) exists(ctx context.Context, id string) (bool, error) {
	if r.hasTaskDir(id) || r.bundles.Has(id) || diskpool.Exists(r.disk.LayerPath(id)) {
		return true, nil
	}
	_, err := r.client.ContainerService().Get(ctx, id)
	if errdefs.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// fail logs err and returns an error that may be shown to the caller. It returns our own errors as they are. If the
// caller has left, it returns the error of ctx and logs nothing.
func (r *Runtime) fail(ctx context.Context, op, item string, err error) error {
	var known *proto.Error
	if errors.As(err, &known) {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r.log.Error("runtime", "op", op, "item", item, "err", err)
	switch {
	case errors.Is(err, errGuestEnded):
		return proto.Errorf(proto.Unavailable, op, item, "container %s ended before its guest answered; the "+
			"daemon's log has more", item)
	case errors.Is(err, context.DeadlineExceeded):
		return proto.Errorf(proto.TimedOut, op, item, "%s took too long; the daemon's log has more", op)
	case errors.Is(err, unix.EDQUOT) && r.cfg.OwnerBytes > 0:
		return proto.Errorf(proto.QuotaExceeded, op, item, "the containers and snapshots of this owner have the %d "+
			"bytes on disk that it may have (serve --owner-disk-bytes); remove files, containers or snapshots",
			r.cfg.OwnerBytes)
	case images.DiskFull(err):
		return proto.Errorf(proto.QuotaExceeded, op, item,
			"the disk pool is full; delete containers, workspaces or images")
	}
	return proto.Errorf(proto.Internal, op, item, "%s failed; the daemon's log has more", op)
}
