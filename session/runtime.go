package session

import (
	"context"
	"io"
	"net"

	"berth/egress"
	"berth/proto"
	"berth/session/limits"
)

// A Runtime makes sandboxes: with containerd on this machine, and later with Kubernetes. The pool, the images on disk
// and the mounts are internal to it. Every method is idempotent and safe for concurrent use; calls for different IDs
// run in parallel.
//
// A sandbox has its session's ID. Start makes it, and Stop removes it. What it has written stays, in two parts with
// IDs of their own: a workspace, until RemoveWorkspace, and a layer, until RemoveLayer.
type Runtime interface {
	// Start makes the sandbox id according to spec and returns once its guest can be dialled. If a sandbox with that
	// ID runs already, Start returns nil. If Start fails or ctx ends, nothing of the sandbox is left; a workspace
	// that it made stays.
	Start(ctx context.Context, id string, spec Spec) error

	// Dial connects to the guest of a running sandbox. It fails with proto.NotFound if there is no such sandbox.
	Dial(ctx context.Context, id string) (net.Conn, error)

	// Stop ends every process of the sandbox and removes it; its workspace and its layer stay. A layer without
	// anything in it may go.
	Stop(ctx context.Context, id string) error

	// RemoveWorkspace removes a workspace that no sandbox uses, with all its files.
	RemoveWorkspace(ctx context.Context, workspace string) error

	// RemoveLayer removes a layer that no sandbox uses, with all its files.
	RemoveLayer(ctx context.Context, layer string) error

	// TakeSnapshot makes the snapshot of a session's workspace and layer, as of one moment: the processes of its
	// sandbox, if it runs, are frozen for that, unless it is paused. It fails with proto.Unsupported if the disk or the
	// host cannot do that. On any failure there is no snapshot. If the daemon is killed meanwhile, the sandbox may stay
	// paused.
	TakeSnapshot(ctx context.Context, id string, spec Spec, snapshot string) error

	// Revert gives a session without a sandbox the files of a snapshot in place of its workspace's, and its layer if
	// that does not exist. A second call with the same name of the copy changes nothing.
	Revert(ctx context.Context, id string, spec Spec, snapshot, copied string) error

	// SnapshotSize returns the bytes of a snapshot's files, shared ones too, and those that nothing else has. It is
	// fast. Both are 0 if they are unknown.
	SnapshotSize(snapshot string) (all, exclusive int64)

	// RemoveSnapshot removes a snapshot; copies of it stay.
	RemoveSnapshot(ctx context.Context, snapshot string) error

	// WriteSnapshot writes an OCI archive of the image with that digest and the files of a snapshot. CommitSnapshot
	// stores that as an image of its own.
	WriteSnapshot(ctx context.Context, snapshot, digest, name string, w io.Writer) error
	CommitSnapshot(ctx context.Context, snapshot, digest, name string, progress func(ImageProgress)) (Image, error)

	// List returns what exists, for reconciliation.
	List(ctx context.Context) (Inventory, error)

	// Pause returns once no process of the sandbox runs. A paused sandbox stays paused, also when the daemon ends;
	// Stop works on it as on any other. Pause fails with proto.NotFound if there is no sandbox, and with
	// proto.Unsupported if the runtime or the host cannot pause. On any failure the sandbox continues.
	Pause(ctx context.Context, id string) error
	// Resume continues a sandbox; a running one keeps running. Resume fails with proto.NotFound if there is no
	// sandbox, or if it has ended.
	Resume(ctx context.Context, id string) error
	// Paused reports whether the sandbox is paused. It is fast: some reads from memory, or a request to another
	// program of the host.
	Paused(id string) bool

	// SetHostname changes the host name of a running sandbox, and what the name resolves to inside. It fails with
	// proto.Unsupported if the class cannot do that while a sandbox runs; then the next Start does.
	SetHostname(ctx context.Context, id, name string) error

	// SetLimits changes the limits of a sandbox that was started as had, and of its workspace; without a sandbox those
	// of the workspace alone. Limits that cannot be changed while it runs stay until the next Start. It fails with
	// proto.Conflict if the sandbox uses more already. On a failure the limits are as before.
	SetLimits(ctx context.Context, id string, had Spec, want proto.Limits) error

	// OpenOutbound opens the sockets that receive what the sandbox's programs send beyond its loopback. It fails with
	// proto.Unsupported if the class or the host has none.
	OpenOutbound(ctx context.Context, id string) (egress.Outbound, error)

	// Inspect reports how a running sandbox is isolated. Anything not reported counts as absent: we never claim
	// isolation that was not verified. A HostUID of -1 means unknown.
	Inspect(ctx context.Context, id string) (proto.Isolation, error)

	// Measure reads, from outside of the sandbox, what sandbox id and its workspace have used and were refused. It is
	// fast, never fails, and takes no value from inside the sandbox. A runtime that cannot measure returns
	// limits.Unknown; then only the guest's view explains an end.
	Measure(id, workspace string) limits.Reading
	// CPUSeconds reads, from outside of the sandbox, how much CPU time all its processes have used. It is as fast as
	// Measure and returns -1 if it is unknown.
	CPUSeconds(id string) float64
}

// DefaultHostname is the host name of sandboxes whose session has no name.
const DefaultHostname = "berth"

// A Spec is the input of Runtime.Start. All fields but Owner, Hostname, New and HasFiles are set.
type Spec struct {
	Owner     string             // what it has on disk counts for this owner; "": for nobody
	Image     string             // digest of an image that Images holds, "sha256:…"
	Class     proto.RuntimeClass // isolation; the Runtime never replaces it by another
	Sudo      bool               // its user may become its root by set-user-ID programs
	Workspace string             // workspace_…; mounted at /workspace, made if missing
	Layer     string             // layer_…; all other files that the container has written, made if missing
	Limits    proto.Limits       // no field is zero
	Network   bool               // has one, so OpenOutbound will be asked for its sockets
	Hostname  string             // resolves to a loopback address inside; "" is DefaultHostname
	New       bool               // no sandbox of this ID was started before, so Start need not look for one
	// the workspace was made before: Start fails with proto.NotFound if it is missing, and makes none
	HasFiles bool
}

// An Inventory lists what a Runtime holds at one moment.
type Inventory struct {
	Sandboxes  []string // session IDs of sandboxes that run, or are half made
	Workspaces []string // workspace IDs on disk
	Layers     []string // IDs of layers on disk that no sandbox uses
	Snapshots  []string // IDs of snapshots on disk
	Pool       string   // where the workspaces are, for messages
	LostWrites bool     // the disk has lost the writes of some time up to now
}

// Images provides a Runtime's root file systems. People write references ("base", "debian:12"); sessions keep
// digests.
type Images interface {
	// Resolve finds the local image that ref names, without the network. A NotFound error names the reference and how
	// to get the image.
	Resolve(ctx context.Context, ref string) (Image, error)
	List(ctx context.Context) ([]Image, error)
	// Import reads an OCI or Docker archive (a tar, may be gzip or zstd compressed). It gives the image this name, or
	// the one in the archive if name is empty.
	Import(ctx context.Context, name string, archive io.Reader, progress func(ImageProgress)) (Image, error)
	// Pull fetches ref from its registry.
	Pull(ctx context.Context, ref string, progress func(ImageProgress)) (Image, error)
	// Remove removes a name. Running sandboxes keep the image that they use.
	Remove(ctx context.Context, ref string) error
}

// Wire types that runtimes return.
type (
	Image         = proto.Image
	ImageProgress = proto.ImageProgress
)

// measure returns the Reading of the session.
func (s *Session) measure() limits.Reading { return s.core.cfg.Runtime.Measure(s.id, s.workspace) }
