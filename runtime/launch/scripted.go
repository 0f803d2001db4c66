package launch

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"berth/runtime/cgroup"
	"berth/runtime/diskpool"
)

// Setup is what a Runtime knows of whether sandboxes can be set up by scripts. The filter of system calls is
// runc's work, which knows how to make one of a list of names: the first sandbox of a daemon is made by runc, and has
// the filter that all others get.
type Setup struct {
	Filter   atomic.Pointer[[]unix.SockFilter] // nil: not known
	Failures atomic.Int32                      // one after the other
	Why      atomic.Pointer[error]             // the last of them
	Mounts   scriptMounts                      // without them there are no scripts
}

// ManyFailures in a row are no accident.
const ManyFailures = 3

// Hopeless reports whether there is no use in scripts.
func (s *Setup) Hopeless() bool { return s.Failures.Load() >= ManyFailures }

// Open makes what all scripts need, at an existing directory. Without it there are none.
func (s *Setup) Open(dir string, log *slog.Logger) {
	var err error
	if s.Mounts, err = openScriptMounts(dir); err != nil {
		s.Failures.Store(ManyFailures - 1)
		s.Failed(log, err)
	}
}

// Known is the filter, if scripts are of use.
func (s *Setup) Known() []unix.SockFilter {
	if f := s.Filter.Load(); f != nil && !s.Hopeless() {
		return *f
	}
	return nil
}

// Learn reads the filter of the first process of a sandbox, which runc has set up and which does nothing yet, unless
// it is known. verify fails if the process is another one.
func (s *Setup) Learn(log *slog.Logger, pid int, verify func() error) {
	if !Supported || s.Hopeless() || s.Filter.Load() != nil {
		return
	}
	filter, err := FilterOf(pid, verify)
	if err != nil {
		s.Failed(log, err)
		return
	}
	s.Filter.Store(&filter)
}

// Failed takes note of a script that was of no use where runc was. One that is too long says nothing of others.
func (s *Setup) Failed(log *slog.Logger, why error) {
	if errors.Is(why, errScriptLong) {
		return
	}
	s.Why.Store(&why)
	if s.Failures.Add(1) < ManyFailures {
		log.Warn("a container was made by runc, which takes longer; nothing else is different", "err", why)
		return
	}
	log.Warn("containers are made by runc alone from now on", "err", why)
}

// Worked forgets the failures before a script that was of use, unless that came too late.
func (s *Setup) Worked() {
	if !s.Hopeless() {
		s.Failures.Store(0)
	}
}

// A scriptError says that a script was of no use. Nothing of it runs.
type SetupError struct{ Err error }

func (e SetupError) Error() string { return e.Err.Error() }

func (e SetupError) Unwrap() error { return e.Err }

// A prepared is what a script needs that has nothing to do with the disk. It is being made.
type Prepared struct {
	making errgroup.Group
	groups *cgroup.Groups
	script *Program
}

// Prepare begins to make the cgroups and the script of b.
func Prepare(b Spec, filter []unix.SockFilter) *Prepared {
	p := &Prepared{}
	p.making.Go(func() (err error) {
		spec := plainSpec(b)
		if p.groups, err = cgroup.Make(spec); err == nil {
			p.script, err = setup(spec, p.groups.V1, rlimits(b.Session.Class, b.Session.Limits), filter)
		}
		return err
	})
	return p
}

// Wait returns when it is made, or cannot be.
func (p *Prepared) Wait() error {
	if p == nil {
		return nil
	}
	return p.making.Wait()
}

// A nascent is a process that runs a script: a sandbox's first before it is the guest, or one that makes a user
// namespace.
type Process struct {
	script *Program
	Ask    *os.File // bytes that the script waits for
	Answer *os.File // what it says; ends when it has become the guest
	PID    int      // on the host, once it is born
}

func (n *Process) Close() {
	if n != nil {
		n.Ask.Close()
		n.Answer.Close()
	}
}

// abandon has the script end, as it does when nobody is there to let it go on, and returns when it has.
func (n *Process) abandon(ctx context.Context) {
	n.Ask.Close()
	_ = n.bound(ctx)
	_, _ = io.Copy(io.Discard, n.Answer)
	n.Close()
}

// Create begins to set up the sandbox of bundle dir, which goes on until its first process waits to become
// the guest.
func (s *Setup) Create(ctx context.Context, dir, pidFile string, b Spec, root Root, p *Prepared) (
	_ *Process, err error) {
	user, err := os.Open(b.UserNamespace)
	if err != nil {
		return nil, err
	}
	defer user.Close()
	tree, err := root.detached(dir, b)
	if err != nil {
		return nil, err
	}
	defer tree.Close()
	if err := p.Wait(); err != nil {
		return nil, SetupError{err}
	}
	n, err := b.Starter.Start(p.script, p.groups.V2, user, s.Mounts.store, s.Mounts.empty, tree)
	if err != nil {
		return nil, SetupError{err}
	}
	defer func() {
		if err != nil {
			n.abandon(ctx)
		}
	}()
	// Not before: while a process is started in a cgroup of v2, its limits would count for that too.
	if err := p.groups.Limit(); err != nil {
		return nil, SetupError{err}
	}
	if err := n.born(ctx); err != nil {
		return nil, SetupError{fmt.Errorf("setting up: %w", err)}
	}
	return n, diskpool.ReplaceFile(pidFile, []byte(strconv.Itoa(n.PID)), 0o600)
}

// born returns when the process is there that the script tells of.
func (n *Process) born(ctx context.Context) error {
	if err := n.bound(ctx); err != nil {
		return err
	}
	word, number, err := n.Hear()
	if err == nil && word != ScriptChild {
		err = fmt.Errorf("it says %d", word)
	}
	n.PID = int(number)
	return err
}

// bound has what is awaited next come within ctx's time.
func (n *Process) bound(ctx context.Context) error {
	end, _ := ctx.Deadline()
	return n.Answer.SetReadDeadline(end)
}

// Hear returns what the script says next; io.EOF once it has become the guest, or was killed.
func (n *Process) Hear() (word, value uint64, err error) {
	var b [scriptWord]byte
	if _, err := io.ReadFull(n.Answer, b[:]); err != nil {
		return 0, 0, err
	}
	ne := binary.NativeEndian
	word, value = ne.Uint64(b[:]), ne.Uint64(b[8:])
	if word == scriptFailed {
		return 0, 0, n.script.failure(value, ne.Uint64(b[16:]))
	}
	return word, value, nil
}

// LetGo returns when the first process has become the guest, which it may from now on.
func (n *Process) LetGo(ctx context.Context) error {
	if err := n.bound(ctx); err != nil {
		return err
	}
	if _, err := n.Ask.Write([]byte{0}); err != nil {
		return err
	}
	_, _, err := n.Hear()
	if errors.Is(err, io.EOF) { // if it was killed, whoever waits for the guest sees that
		return nil
	}
	return fmt.Errorf("becoming the guest: %w", err)
}
