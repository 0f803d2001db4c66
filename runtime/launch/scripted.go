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

// A Setup records whether sandboxes can be made by setup programs. runc compiles the system call filter, because it
// can make one from a list of names. So runc makes the first sandbox of a daemon, and all others get the filter of
// that one.
type Setup struct {
	Filter   atomic.Pointer[[]unix.SockFilter] // nil if not known
	Failures atomic.Int32                      // in a row
	Why      atomic.Pointer[error]             // error of the last failure
	Mounts   scriptMounts                      // required by all setup programs
}

// ManyFailures is the number of failures in a row after which setup programs are given up.
const ManyFailures = 3

// Hopeless reports whether setup programs are given up.
func (s *Setup) Hopeless() bool { return s.Failures.Load() >= ManyFailures }

// Open makes the mounts that all setup programs need, at an existing directory. If that fails, setup programs are
// given up.
func (s *Setup) Open(dir string, log *slog.Logger) {
	var err error
	if s.Mounts, err = openScriptMounts(dir); err != nil {
		s.Failures.Store(ManyFailures - 1)
		s.Failed(log, err)
	}
}

// Known returns the filter; nil if it is not known or setup programs are given up.
func (s *Setup) Known() []unix.SockFilter {
	if f := s.Filter.Load(); f != nil && !s.Hopeless() {
		return *f
	}
	return nil
}

// Learn reads the filter of a sandbox's first process, unless the filter is known. runc must have set up the process,
// which must still be waiting. verify fails if the process number belongs to another process.
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

// Failed records that a setup program failed where runc succeeded. A setup program that is too long is not counted,
// as it says nothing about others.
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

// Worked sets the number of failures back to 0 after a setup program that succeeded, unless setup programs are given
// up.
func (s *Setup) Worked() {
	if !s.Hopeless() {
		s.Failures.Store(0)
	}
}

// A SetupError says that a setup program failed. No process of the sandbox runs.
type SetupError struct{ Err error }

func (e SetupError) Error() string { return e.Err.Error() }

func (e SetupError) Unwrap() error { return e.Err }

// A Prepared is the part of a setup that does not depend on the disk. Prepare makes it in the background.
type Prepared struct {
	making errgroup.Group
	groups *cgroup.Groups
	script *Program
}

// Prepare starts to make the cgroups and the setup program of b.
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

// Wait returns when p is made or has failed.
func (p *Prepared) Wait() error {
	if p == nil {
		return nil
	}
	return p.making.Wait()
}

// A Process runs a setup program. It is a sandbox's first process before it becomes the guest, or a process that
// makes a user namespace.
type Process struct {
	script *Program
	Ask    *os.File // carries the bytes that the setup program waits for
	Answer *os.File // carries its messages; ends when it has become the guest
	PID    int      // on the host, once known
}

func (n *Process) Close() {
	if n != nil {
		n.Ask.Close()
		n.Answer.Close()
	}
}

// abandon closes Ask, which ends the setup program, and returns when it has ended or the deadline of ctx has passed.
func (n *Process) abandon(ctx context.Context) {
	n.Ask.Close()
	_ = n.bound(ctx)
	_, _ = io.Copy(io.Discard, n.Answer)
	n.Close()
}

// Create starts to set up the sandbox of bundle dir. The setup goes on until the first process waits to become the
// guest.
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
	// Not earlier: the limits of a v2 cgroup would also apply to the start of the process in it.
	if err := p.groups.Limit(); err != nil {
		return nil, SetupError{err}
	}
	if err := n.born(ctx); err != nil {
		return nil, SetupError{fmt.Errorf("setting up: %w", err)}
	}
	return n, diskpool.ReplaceFile(pidFile, []byte(strconv.Itoa(n.PID)), 0o600)
}

// born waits for the message with the process number, and stores the number in n.PID.
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

// bound limits the next read of a message to the deadline of ctx.
func (n *Process) bound(ctx context.Context) error {
	end, _ := ctx.Deadline()
	return n.Answer.SetReadDeadline(end)
}

// Hear returns the next message of the setup program. It returns io.EOF once the process has become the guest or was
// killed.
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

// LetGo lets the first process become the guest, and returns when it has.
func (n *Process) LetGo(ctx context.Context) error {
	if err := n.bound(ctx); err != nil {
		return err
	}
	if _, err := n.Ask.Write([]byte{0}); err != nil {
		return err
	}
	_, _, err := n.Hear()
	if errors.Is(err, io.EOF) { // if it was killed, the caller that waits for the guest sees that
		return nil
	}
	return fmt.Errorf("becoming the guest: %w", err)
}
