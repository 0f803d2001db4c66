package launch

import (
	"context"

	"berth/build/wire"
	"berth/runtime/forkserver"
	"berth/runtime/ocispec"
)

// A Launcher starts the first process of sandboxes, in one of several ways: Forked, Runc and Shim.
type Launcher interface {
	// Create makes the first process of b. The process waits, before any code of the sandbox runs, until the caller
	// calls Start of the result. After a failure the caller removes what is left of the sandbox.
	Create(ctx context.Context, b *Sandbox) (*Waiting, error)
}

// A Waiting is the first process of a sandbox that waits to become the guest.
type Waiting struct {
	PID   int                         // on the host
	Start func(context.Context) error // lets it become the guest
	Close func()                      // frees what Start needs; the process goes on
}

// A Sandbox says what a Launcher starts. Paths are the host's.
type Sandbox struct {
	ocispec.Spec
	Guest     string             // the guest's program
	Run       string             // the sandbox's run directory
	Workspace string             // "" for a pooled sandbox, which gets one later
	Lowers    []string           // the image's directories, topmost first; all below one directory
	Layer     string             // the writable layer, as diskpool.MakeLayer has made it
	New       bool               // no sandbox has used the layer before
	Upper     string             // of a step of a build whose root has none: what it writes is dropped
	Work      string             // with Upper
	Server    *forkserver.Server // makes user namespaces
	Recorded  func() error       // returns when the container record is written; no process runs before

	// Trees, if set, are the file systems of a build's step, its root first. Then Lowers and Workspace are not used,
	// and Upper and Work only for a root that is read-only. Runc sets Stubs.
	Trees []wire.Tree
	Stubs *Stubs
}

// setRlimits sets the limits of a process that a runtime has made. If the runtime made the user namespace, too, it
// has set the limits.
func setRlimits(b *Sandbox, pid int) error {
	if b.UserNamespace == "" {
		return nil
	}
	return ocispec.SetRlimits(b.Spec, pid)
}
