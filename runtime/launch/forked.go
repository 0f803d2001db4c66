package launch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"berth/proto"
	"berth/runtime/cgroup"
	"berth/runtime/diskpool"
	"berth/runtime/forkserver"
	"berth/runtime/ocispec"
)

// Forked starts sandboxes of runc's class by setup programs, in a fraction of the time that runc takes. What a setup
// program makes does not differ from what runc makes. If setup programs fail where runc succeeds, they are given up.
type Forked struct {
	Filter   atomic.Pointer[[]unix.SockFilter] // loaded by all sandboxes; nil if there are to be no setup programs
	Failures atomic.Int32                      // in a row
	Why      atomic.Pointer[error]             // error of the last failure
	Mounts   scriptMounts                      // required by all setup programs

	bundles Bundles
	server  *forkserver.Server
	log     *slog.Logger
}

// manyFailures is the number of failures in a row after which setup programs are given up.
const manyFailures = 3

// Open prepares what all setup programs need. The directory of the bundles exists. If Open fails, or if the
// environment variable BERTH_FORKSERVER is off, or on an architecture without setup programs, Usable returns false.
func (f *Forked) Open(bundles Bundles, server *forkserver.Server, log *slog.Logger) {
	f.bundles, f.server, f.log = bundles, server, log
	if !forkserver.Supported || os.Getenv("BERTH_FORKSERVER") == "off" {
		return
	}
	filter, err := ocispec.Filter(proto.ClassRunc)
	if err == nil {
		f.Mounts, err = openScriptMounts(string(bundles))
	}
	if err != nil {
		f.Failures.Store(manyFailures - 1)
		f.Failed(err)
		return
	}
	f.Filter.Store(&filter)
}

// Usable reports whether the next sandbox can be made by a setup program.
func (f *Forked) Usable() bool { return f.Filter.Load() != nil && !f.GivenUp() }

// GivenUp reports whether setup programs have failed too often.
func (f *Forked) GivenUp() bool { return f.Failures.Load() >= manyFailures }

// Failed records that a setup program failed where runc succeeded. A setup program that is too long is not counted,
// as it says nothing about others.
func (f *Forked) Failed(why error) {
	if errors.Is(why, forkserver.ErrTooLong) {
		return
	}
	f.Why.Store(&why)
	if f.Failures.Add(1) < manyFailures {
		f.log.Warn("a container was made by runc, which takes longer; nothing else is different", "err", why)
		return
	}
	f.log.Warn("containers are made by runc alone from now on", "err", why)
}

// A SetupError says that a setup program failed. No process of the sandbox runs.
type SetupError struct{ Err error }

func (e SetupError) Error() string { return e.Err.Error() }

func (e SetupError) Unwrap() error { return e.Err }

// Create makes the first process by a setup program. See Launcher. It fails with a SetupError if runc may succeed.
func (f *Forked) Create(ctx context.Context, b *Sandbox) (_ *Waiting, err error) {
	user, err := os.Open(b.UserNamespace)
	if err != nil {
		return nil, err
	}
	defer user.Close()
	p := prepare(b.Spec, *f.Filter.Load())
	defer func() { _ = p.making.Wait() }() // the code that undoes this start must find the cgroups
	dir, err := f.bundles.make(b)
	if err != nil {
		return nil, err
	}
	tree, err := detachedRoot(dir, b)
	if err != nil {
		return nil, err
	}
	defer tree.Close()
	if err := p.making.Wait(); err != nil {
		return nil, SetupError{err}
	}
	n, err := f.server.Start(p.program, p.groups.V2, user, f.Mounts.store, f.Mounts.empty, tree)
	if err != nil {
		return nil, SetupError{err}
	}
	defer func() {
		if err != nil {
			n.Abandon(ctx)
		}
	}()
	// Not earlier: the limits of a v2 cgroup would also apply to the start of the process in it.
	if err := p.groups.Limit(); err != nil {
		return nil, SetupError{err}
	}
	if err := n.Born(ctx); err != nil {
		return nil, SetupError{fmt.Errorf("setting up: %w", err)}
	}
	err = diskpool.ReplaceFile(filepath.Join(dir, bundlePID), []byte(strconv.Itoa(n.PID)), 0o600)
	start := func(ctx context.Context) error { return f.start(ctx, b.ID, n) }
	return &Waiting{PID: n.PID, Start: start, Close: n.Close}, err
}

// start lets a process become the guest.
func (f *Forked) start(ctx context.Context, id string, n *forkserver.Process) error {
	if err := n.LetGo(ctx); err != nil {
		cgroup.Kill(id)
		return SetupError{err}
	}
	if !f.GivenUp() {
		f.Failures.Store(0)
	}
	return nil
}

// A preparation is the part of a setup that does not depend on the disk. It is made in the background.
type preparation struct {
	making  errgroup.Group
	groups  *cgroup.Groups
	program *forkserver.Program
}

// prepare starts to make the cgroups and the setup program of b.
func prepare(b ocispec.Spec, filter []unix.SockFilter) *preparation {
	p := &preparation{}
	p.making.Go(func() (err error) {
		spec := ocispec.WithoutFilter(b)
		if p.groups, err = cgroup.Make(spec); err == nil {
			p.program, err = setup(spec, p.groups.V1, ocispec.Rlimits(b.Class, b.Limits), filter)
		}
		return err
	})
	return p
}
