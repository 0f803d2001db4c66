package session

import (
	"context"
	"io"
	"net"

	"berth/proto"
)

// A Runtime makes sandboxes: containerd's on this machine, and later Kubernetes'.
// The pool, images on disk and mounts are its private matter. Every method is
// idempotent and safe for concurrent use; calls for different IDs run in parallel.
//
// A sandbox is named by its session's ID and is throw-away: Start makes it, Stop
// removes it with all it held outside its workspace. A workspace is named by its own ID and
// lives until RemoveWorkspace.
type Runtime interface {
	// Start makes the sandbox id as spec says and returns once its guest can be
	// dialled. If a sandbox of that ID runs already, it returns nil. If it
	// fails or ctx ends, nothing of the sandbox is left; a workspace it made stays.
	Start(ctx context.Context, id string, spec Spec) error

	// Dial connects to the guest of a running sandbox. It fails with
	// proto.NotFound if there is none.
	Dial(ctx context.Context, id string) (net.Conn, error)

	// Stop ends every process of the sandbox and removes it; the workspace stays.
	Stop(ctx context.Context, id string) error

	// RemoveWorkspace removes a workspace that no sandbox uses, with all its files.
	RemoveWorkspace(ctx context.Context, workspace string) error

	// List says what exists, for reconciliation.
	List(ctx context.Context) (Inventory, error)
}

// A Pauser is a Runtime that can have a sandbox stand still and go on, memory and all. Whether it
// stands still is known to the Runtime alone, and outlives the daemon. Stop works on a paused sandbox
// as on any other.
type Pauser interface {
	// Pause returns once no process of the sandbox runs. One that is paused stays so. It fails with
	// proto.NotFound if there is no sandbox, with proto.Unsupported if the host cannot do it; on any
	// failure the sandbox goes on.
	Pause(ctx context.Context, id string) error
	// Resume has it go on; one that goes on does so still. It fails with proto.NotFound if there is none, or
	// it has ended.
	Resume(ctx context.Context, id string) error
	// Paused reports whether it stands still. It is fast: some reads from memory, or a question to another program of
	// the host.
	Paused(id string) bool
}

// A Dozer is a Runtime that can tell whether the guest of a sandbox dozes (see wire.Dozer) without waking it.
type Dozer interface {
	// Dozes reports whether it does, and so is there and runs nothing. It is fast: some reads from memory.
	Dozes(id string) bool
}

// A Spec is what Runtime.Start needs to know. All fields but New are set.
type Spec struct {
	Image     string             // digest of an image that Images holds, "sha256:…"
	Class     proto.RuntimeClass // isolation; never replaced by another
	Workspace string             // workspace_…; mounted at /workspace, made if missing
	Limits    proto.Limits       // no field zero
	New       bool               // nobody has started a sandbox of this ID before, so none need be looked for
}

// An Inventory is what a Runtime holds at a moment.
type Inventory struct {
	Sandboxes  []string // session IDs that run, or are half made
	Workspaces []string // workspace IDs on disk
}

// Images is where a Runtime's root file systems come from. References are what people
// type ("base", "debian:12"); digests are what sessions keep.
type Images interface {
	// Resolve finds the image that ref names here, without the network. NotFound names the
	// reference and how to get it.
	Resolve(ctx context.Context, ref string) (Image, error)
	List(ctx context.Context) ([]Image, error)
	// Import reads an OCI or Docker archive (a tar, may be gzip or zstd compressed) and names
	// its image name, or what the archive says if name is empty.
	Import(ctx context.Context, name string, archive io.Reader, progress func(ImageProgress)) (Image, error)
	// Pull fetches ref from its registry.
	Pull(ctx context.Context, ref string, progress func(ImageProgress)) (Image, error)
	// Remove forgets a name. Running sandboxes keep what they use.
	Remove(ctx context.Context, ref string) error
}

// Wire types that runtimes answer with.
type (
	Image         = proto.Image
	ImageProgress = proto.ImageProgress
)

// An Inspector is a Runtime that can tell how a running sandbox is isolated. What is not told counts as not
// there: nobody is told of a separation that was not looked at.
type Inspector interface {
	Inspect(ctx context.Context, id string) (proto.Isolation, error)
}

// A Meter is a Runtime that can also tell, from outside of a sandbox, what the sandbox has used and
// been refused. Without one, ends are told by what the guest sees alone.
type Meter interface {
	// Measure reads the meters of sandbox id over a workspace. It is fast, never fails, and takes nothing
	// of what is asked of it from inside the sandbox; what it cannot tell it says so.
	Measure(id, workspace string) Reading
}

// A Reading is what a Meter shows at one moment.
type Reading struct {
	OOMKills    int64 // processes that the kernel killed for memory since the start; -1 unknown
	PIDRefusals int64 // processes and threads that it refused since then; -1 unknown
	Workspace   Space
	Layer       Space // the writable layer: all that is neither the workspace nor in memory
	Pool        Space // what workspaces and layers share
}

// unread is the reading of a Runtime that is no Meter.
var unread = Reading{OOMKills: -1, PIDRefusals: -1}

// A Space is a file system with a limit, in bytes. The zero Space is one that is not known.
type Space struct{ Used, Limit int64 }

// spareBytes is how much may be left in a space that programs find full: a file system refuses what does not fit
// as a whole, and reserves more for a change than it then takes. Measured: a flood of empty files stops with some
// 300 KB left, one of data with 16 KB.
const spareBytes = 1 << 20

// Full reports whether next to nothing fits any more.
func (s Space) Full() bool { return s.Limit > 0 && s.Limit-s.Used < spareBytes }

// measure reads the meters of s.
func (s *Session) measure() Reading {
	m, ok := s.core.cfg.Runtime.(Meter)
	if !ok {
		return unread
	}
	return m.Measure(s.id, s.workspace)
}
