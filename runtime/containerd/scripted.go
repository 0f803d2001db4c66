package containerd

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

// scripted is what a Runtime knows of whether sandboxes can be set up by scripts. The filter of system calls is
// runc's work, which knows how to make one of a list of names: the first sandbox of a daemon is made by runc, and has
// the filter that all others get.
type scripted struct {
	filter   atomic.Pointer[[]unix.SockFilter] // nil: not known
	failures atomic.Int32                      // one after the other
	why      atomic.Pointer[error]             // the last of them
	mounts   scriptMounts                      // without them there are no scripts
}

// manyFailures in a row are no accident.
const manyFailures = 3

// hopeless reports whether there is no use in scripts.
func (s *scripted) hopeless() bool { return s.failures.Load() >= manyFailures }

// open makes what all scripts need, at an existing directory. Without it there are none.
func (s *scripted) open(dir string, log *slog.Logger) {
	var err error
	if s.mounts, err = openScriptMounts(dir); err != nil {
		s.failures.Store(manyFailures - 1)
		s.failed(log, err)
	}
}

// known is the filter, if scripts are of use.
func (s *scripted) known() []unix.SockFilter {
	if f := s.filter.Load(); f != nil && !s.hopeless() {
		return *f
	}
	return nil
}

// learn reads the filter of the first process of a sandbox, which runc has set up and which does nothing yet, unless
// it is known. verify fails if the process is another one.
func (s *scripted) learn(log *slog.Logger, pid int, verify func() error) {
	if !scripts || s.hopeless() || s.filter.Load() != nil {
		return
	}
	filter, err := filterOf(pid, verify)
	if err != nil {
		s.failed(log, err)
		return
	}
	s.filter.Store(&filter)
}

// failed takes note of a script that was of no use where runc was. One that is too long says nothing of others.
func (s *scripted) failed(log *slog.Logger, why error) {
	if errors.Is(why, errScriptLong) {
		return
	}
	s.why.Store(&why)
	if s.failures.Add(1) < manyFailures {
		log.Warn("a container was made by runc, which takes longer; nothing else is different", "err", why)
		return
	}
	log.Warn("containers are made by runc alone from now on", "err", why)
}

// worked forgets the failures before a script that was of use, unless that came too late.
func (s *scripted) worked() {
	if !s.hopeless() {
		s.failures.Store(0)
	}
}

// A scriptError says that a script was of no use. Nothing of it runs.
type scriptError struct{ error }

func (e scriptError) Unwrap() error { return e.error }

// A prepared is what a script needs that has nothing to do with the disk. It is being made.
type prepared struct {
	making errgroup.Group
	groups *cgroup.Groups
	script *script
}

// prepare begins to make the cgroups and the script of b.
func prepare(b blueprint, filter []unix.SockFilter) *prepared {
	p := &prepared{}
	p.making.Go(func() (err error) {
		spec := plainSpec(b)
		if p.groups, err = cgroup.Make(spec); err == nil {
			p.script, err = setup(spec, p.groups.V1, rlimits(b.session.Class, b.session.Limits), filter)
		}
		return err
	})
	return p
}

// wait returns when it is made, or cannot be.
func (p *prepared) wait() error {
	if p == nil {
		return nil
	}
	return p.making.Wait()
}

// A nascent is a process that runs a script: a sandbox's first before it is the guest, or one that makes a user
// namespace.
type nascent struct {
	script *script
	ask    *os.File // bytes that the script waits for
	answer *os.File // what it says; ends when it has become the guest
	pid    int      // on the host, once it is born
}

func (n *nascent) close() {
	if n != nil {
		n.ask.Close()
		n.answer.Close()
	}
}

// abandon has the script end, as it does when nobody is there to let it go on, and returns when it has.
func (n *nascent) abandon(ctx context.Context) {
	n.ask.Close()
	_ = n.bound(ctx)
	_, _ = io.Copy(io.Discard, n.answer)
	n.close()
}

// create begins to set up the sandbox of bundle dir, which goes on until its first process waits to become
// the guest.
func (s *scripted) create(ctx context.Context, dir, pidFile string, b blueprint, root rootLayers, p *prepared) (
	_ *nascent, err error) {
	user, err := os.Open(b.userNamespace)
	if err != nil {
		return nil, err
	}
	defer user.Close()
	tree, err := root.detached(dir, b)
	if err != nil {
		return nil, err
	}
	defer tree.Close()
	if err := p.wait(); err != nil {
		return nil, scriptError{err}
	}
	n, err := b.starter.start(p.script, p.groups.V2, user, s.mounts.store, s.mounts.empty, tree)
	if err != nil {
		return nil, scriptError{err}
	}
	defer func() {
		if err != nil {
			n.abandon(ctx)
		}
	}()
	// Not before: while a process is started in a cgroup of v2, its limits would count for that too.
	if err := p.groups.Limit(); err != nil {
		return nil, scriptError{err}
	}
	if err := n.born(ctx); err != nil {
		return nil, scriptError{fmt.Errorf("setting up: %w", err)}
	}
	return n, diskpool.ReplaceFile(pidFile, []byte(strconv.Itoa(n.pid)), 0o600)
}

// born returns when the process is there that the script tells of.
func (n *nascent) born(ctx context.Context) error {
	if err := n.bound(ctx); err != nil {
		return err
	}
	word, number, err := n.hear()
	if err == nil && word != scriptChild {
		err = fmt.Errorf("it says %d", word)
	}
	n.pid = int(number)
	return err
}

// bound has what is awaited next come within ctx's time.
func (n *nascent) bound(ctx context.Context) error {
	end, _ := ctx.Deadline()
	return n.answer.SetReadDeadline(end)
}

// hear returns what the script says next; io.EOF once it has become the guest, or was killed.
func (n *nascent) hear() (word, value uint64, err error) {
	var b [scriptWord]byte
	if _, err := io.ReadFull(n.answer, b[:]); err != nil {
		return 0, 0, err
	}
	ne := binary.NativeEndian
	word, value = ne.Uint64(b[:]), ne.Uint64(b[8:])
	if word == scriptFailed {
		return 0, 0, n.script.failure(value, ne.Uint64(b[16:]))
	}
	return word, value, nil
}

// letGo returns when the first process has become the guest, which it may from now on.
func (n *nascent) letGo(ctx context.Context) error {
	if err := n.bound(ctx); err != nil {
		return err
	}
	if _, err := n.ask.Write([]byte{0}); err != nil {
		return err
	}
	_, _, err := n.hear()
	if errors.Is(err, io.EOF) { // if it was killed, whoever waits for the guest sees that
		return nil
	}
	return fmt.Errorf("becoming the guest: %w", err)
}
