package containerd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// scriptName is what the guest's program is called as, instead of being a guest, to run a script.
const scriptName = "script"

// scripted is what a Runtime knows of whether sandboxes can be set up by scripts. The filter of system calls is runc's work, which knows how to make one of a
// list of names: the first sandbox of a daemon is made by runc, and has the filter that all others get.
type scripted struct {
	filter   atomic.Pointer[[]unix.SockFilter] // nil: not known
	failures atomic.Int32                      // one after the other
	why      atomic.Pointer[error]             // the last of them
}

// manyFailures in a row are no accident.
const manyFailures = 3

// hopeless reports whether there is no use in scripts.
func (s *scripted) hopeless() bool { return s.failures.Load() >= manyFailures }

// known is the filter, if scripts are of use.
func (s *scripted) known() []unix.SockFilter {
	if f := s.filter.Load(); f != nil && !s.hopeless() {
		return *f
	}
	return nil
}

// learn reads the filter of sandbox id, which runc has set up and which does nothing yet.
func (r *Runtime) learnFilter(id string, pid int) {
	s := &r.scripted
	if !scripts || s.hopeless() || s.filter.Load() != nil {
		return
	}
	filter, err := filterOf(pid, func() error { return isIn(id, pid) })
	if err != nil {
		s.failed(r.log, err)
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

// launchByScript sets the sandbox up by a script.
func (r *Runtime) launchByScript(ctx context.Context, b blueprint, root rootLayers, filter []unix.SockFilter) error {
	dir := r.directPath(b.id)
	if err := makeBundle(dir, b); err != nil {
		return fmt.Errorf("making the bundle: %w", err)
	}
	var n *nascent
	defer func() { n.close() }()
	create := func(ctx context.Context) (_ int, err error) {
		if n, err = r.createByScript(ctx, dir, b, root, filter); err != nil {
			return 0, err
		}
		return n.pid, nil
	}
	return r.launch(ctx, b, create, func(ctx context.Context) error {
		if err := n.letGo(ctx); err != nil {
			killCgroups(b.id)
			return scriptError{err}
		}
		r.scripted.worked()
		return nil
	})
}

// A nascent is a sandbox's first process before it is the guest.
type nascent struct {
	script *script
	ask    *os.File // bytes that the script waits for
	answer *os.File // what it says; ends when it has become the guest
	pid    int      // on the host, once it waits for limits
}

func (n *nascent) close() {
	if n != nil {
		n.ask.Close()
		n.answer.Close()
	}
}

// createByScript sets up the sandbox of bundle dir up to the point where its first process waits to become the guest.
func (r *Runtime) createByScript(ctx context.Context, dir string, b blueprint, root rootLayers, filter []unix.SockFilter) (_ *nascent, err error) {
	spec := newSpec(b)
	groups, err := makeCgroups(spec)
	if err != nil {
		return nil, scriptError{err}
	}
	s, err := setup(spec, filepath.Join(dir, bundleRoot), groups.v1, filter)
	if err != nil {
		return nil, scriptError{err}
	}
	var n *nascent
	var process *os.Process
	err = inOwnMounts(func() (err error) {
		if err := root.mount(dir, b); err != nil {
			return fmt.Errorf("mounting its root: %w", err)
		}
		if n, process, err = s.start(b, groups.v2); err != nil {
			return scriptError{err}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err == nil {
			go func() { _, _ = process.Wait() }() // it ends, and takes down the mounts that it was started with, which can take milliseconds
			return
		}
		_ = process.Kill() // it may have ended
		_, _ = process.Wait()
		n.close()
		killCgroups(b.id)
	}()
	// Not before: while a process is started in a cgroup of v2, no other is, and its limits would count for that too.
	if err := groups.limit(); err != nil {
		return nil, scriptError{err}
	}
	if err := n.setUp(ctx); err != nil {
		return nil, scriptError{err}
	}
	return n, replaceFile(filepath.Join(dir, bundlePID), []byte(strconv.Itoa(n.pid)), 0o600)
}

// start starts the script for b in a cgroup of v2, if there is one. The process ends when it has made the sandbox's first.
func (s *script) start(b blueprint, group string) (_ *nascent, _ *os.Process, err error) {
	n := &nascent{script: s}
	var text, user, asks, answers, into *os.File
	defer func() {
		for _, f := range []*os.File{text, user, asks, answers, into} {
			f.Close()
		}
		if err != nil {
			n.close()
		}
	}()
	if text, err = s.file(); err != nil {
		return nil, nil, err
	}
	if user, err = os.Open(b.userNamespace); err != nil {
		return nil, nil, err
	}
	if asks, n.ask, err = os.Pipe(); err != nil {
		return nil, nil, err
	}
	if n.answer, answers, err = os.Pipe(); err != nil {
		return nil, nil, err
	}
	attr := &os.ProcAttr{
		Dir: "/", Env: []string{}, Files: []*os.File{nil, nil, nil, text, answers, asks, user},
		Sys: &syscall.SysProcAttr{Setsid: true}, // an interrupt at the daemon's terminal is not for it
	}
	if group != "" {
		if into, err = os.Open(group); err != nil {
			return nil, nil, err
		}
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, int(into.Fd())
	}
	process, err := os.StartProcess(b.maker, []string{scriptName, notAGuest}, attr)
	return n, process, err
}

// setUp returns when its child waits for limits.
func (n *nascent) setUp(ctx context.Context) error {
	if err := n.bound(ctx); err != nil {
		return err
	}
	for waits := false; !waits || n.pid == 0; { // two processes say these, and nobody knows which is the first
		word, value, err := n.hear()
		switch {
		case err != nil:
			return fmt.Errorf("setting up: %w", err)
		case word == scriptChild:
			n.pid = int(value)
		case word == scriptWaits:
			waits = true
		}
	}
	return nil
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

// letGo makes the waiting process the guest.
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
