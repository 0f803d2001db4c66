package guest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"berth/proto"
)

// shellDriver is what a persistent shell's bash runs: it reads the names of calls from one
// descriptor, and says on another how each ended. The text of a call comes from a file, its output
// goes to FIFOs of its own, so that a job left behind by one call cannot write into the next.
//
// While the text runs, both descriptors are closed to it: bash keeps copies that programs do not inherit.
// Everything stands in one line, so that bash counts the lines of the text from 1 in what it reports. The
// two loops that turn once catch a stray break. The streams are moved for good rather than for the eval
// alone, since a trap that runs at exit writes when those of the eval are undone already. Tracing (set -x)
// is on for the text only. The text can take all this apart if it wants to; then the shell ends.
const shellDriver = `exec 250<&3 251>&4 3<&- 4>&-; __berth_trace=; ` +
	`while IFS= builtin read -r -u 250 __berth_call; do ` +
	`builtin . "$__berth_call.env" || builtin :; ` +
	`IFS= builtin read -r -d '' __berth_text <"$__berth_call.text" || builtin :; ` +
	`exec <"$__berth_call.in" >|"$__berth_call.out" 2>|"$__berth_call.err"; ` +
	`for __berth_once in 1; do for __berth_once in 1; do ` +
	`builtin eval "$__berth_trace$__berth_text" 250<&- 251>&-; ` +
	`done; done; ` +
	`{ __berth_code=$?; __berth_trace=; case $- in *x*) __berth_trace='builtin set -x; ';; esac; builtin set +x; } 2>/dev/null; ` +
	`exec </dev/null >/dev/null 2>&1; ` +
	`builtin printf '%s %s\n' "${__berth_call##*/}" "$__berth_code" >&251; ` +
	`done`

// maxShells bounds the persistent shells of a container.
const maxShells = 100

// A shell is a persistent bash. Its calls take turns.
type shell struct {
	s       *Server
	name    string
	id      identity
	dir     string // of its calls' files; only root may change it
	started time.Time

	ctl     *os.File // to bash: names of calls
	status  *pump    // from bash: how they ended
	answers chan answer

	o     *owner
	turn  chan struct{} // holds a token while a call runs
	ready chan struct{} // closed when o is set, or gone is closed
	gone  chan struct{} // closed when its bash has ended
	death death         // valid after gone

	sent map[string]string // variables that calls were given, by the call whose turn it is

	mu    sync.Mutex
	calls int
}

// An answer is a line of a shell's status.
type answer struct{ call, code int }

// onShell runs a call on a persistent shell from its turn to its end.
func (e *execution) onShell(cmd *Command, p *plan) {
	sh, fresh, err := e.s.acquire(cmd, p, e.cancel)
	if err == nil {
		err = e.call(sh, cmd, fresh)
	}
	if err != nil {
		if e.feed != nil {
			e.feed.stop()
		}
		e.ending.Store(true)
		_ = e.conn.sendJSON(frameError, proto.AsError(err))
		close(e.ended)
	}
}

// acquire gives the caller its turn on the shell it named, and starts that if there is none.
func (s *Server) acquire(cmd *Command, p *plan, cancel <-chan struct{}) (*shell, bool, error) {
	for {
		sh, fresh, err := s.shellNamed(cmd.Shell, p.id)
		if err != nil {
			return nil, false, err
		}
		if fresh { // with the token already ours
			if err := sh.start(p); err != nil {
				s.abandon(sh)
				return nil, false, err
			}
			return sh, true, nil
		}
		select {
		case sh.turn <- struct{}{}:
		case <-sh.gone:
			continue
		case <-cancel:
			return nil, false, proto.Errorf(proto.Canceled, "exec", cmd.Shell, "the caller went away")
		}
		select {
		case <-sh.gone:
			<-sh.turn
		default:
			return sh, false, nil
		}
	}
}

// abandon gives up a shell that did not start as it should.
func (s *Server) abandon(sh *shell) {
	if sh.o != nil {
		_ = s.killTree(sh.o) // its end cleans up
	} else {
		s.forget(sh)
		close(sh.gone)
		_ = os.RemoveAll(sh.dir)
	}
	<-sh.turn
}

// shellNamed finds a shell, or makes one whose first turn is the caller's.
func (s *Server) shellNamed(name string, id identity) (*shell, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sh := s.shells[name]; sh != nil {
		if sh.id.name != id.name {
			return nil, false, proto.Errorf(proto.Conflict, "exec", name, "shell %q belongs to user %s; close it first or use another name", name, sh.id.name)
		}
		return sh, false, nil
	}
	if len(s.shells) >= maxShells {
		return nil, false, proto.Errorf(proto.TooMany, "exec", name, "%d persistent shells are open; close one first", maxShells)
	}
	sh := &shell{
		s: s, name: name, id: id, started: time.Now(),
		turn: make(chan struct{}, 1), gone: make(chan struct{}), answers: make(chan answer, 8), sent: map[string]string{},
	}
	sh.turn <- struct{}{}
	s.shells[name] = sh
	return sh, true, nil
}

// forget takes a shell off the list.
func (s *Server) forget(sh *shell) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shells[sh.name] == sh {
		delete(s.shells, sh.name)
	}
}

// start starts the shell's bash.
func (sh *shell) start(p *plan) error {
	base, err := sh.s.scratch.path()
	if err != nil {
		return err
	}
	if sh.dir, err = os.MkdirTemp(base, "shell-"); err != nil {
		return fileError("shell", "the shell's files", err)
	}
	if err := os.Chmod(sh.dir, 0o711); err != nil {
		return fileError("shell", "the shell's files", err)
	}
	ctlR, ctlW, err := pipe()
	if err != nil {
		return fileError("shell", "the shell", err)
	}
	statusR, statusW, err := pipe()
	if err != nil {
		closeAll([]int{ctlR, ctlW})
		return fileError("shell", "the shell", err)
	}
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		closeAll([]int{ctlR, ctlW, statusR, statusW})
		return fileError("shell", os.DevNull, err)
	}
	pl := childIO{files: []int{null, null, null, ctlR, statusW}}
	var deaths <-chan death
	sh.o, deaths, err = sh.s.start(p, "", pl)
	closeAll([]int{null, ctlR, statusW})
	if err != nil {
		closeAll([]int{ctlW, statusR})
		return notStarted(p, err)
	}
	sh.o.shell = true
	return sh.listen(ctlW, statusR, deaths)
}

// listen connects to the bash that was started.
func (sh *shell) listen(ctlW, statusR int, deaths <-chan death) error {
	ctl, err := pollable(ctlW, "calls")
	if err == nil {
		sh.ctl = ctl
		var status *os.File
		if status, err = pollable(statusR, "status"); err == nil {
			sh.status, err = newPump(status, false, sh.parser())
		}
	}
	sh.s.burials.Add(1)
	go func() {
		defer sh.s.burials.Done()
		sh.bury(<-deaths)
	}()
	return fileError("shell", "the shell", err)
}

// bury cleans up after the shell's bash.
func (sh *shell) bury(d death) {
	sh.death = d
	if sh.status != nil {
		sh.status.finish() // what it said before it died counts
		_ = sh.status.f.Close()
	}
	if sh.ctl != nil {
		_ = sh.ctl.Close()
	}
	sh.s.forget(sh)
	sh.s.disown(sh.o)
	close(sh.gone)
	sh.turn <- struct{}{} // the last call needs the files until its end
	_ = os.RemoveAll(sh.dir)
	<-sh.turn
}

// parser reads the status lines. They are hostile input: what does not look like one is ignored,
// and so is one that nobody waits for.
func (sh *shell) parser() func([]byte) error {
	var line []byte
	return func(b []byte) error {
		for len(b) > 0 {
			part, rest, whole := bytes.Cut(b, []byte{'\n'})
			if len(line)+len(part) <= 64 {
				line = append(line, part...)
			}
			b = rest
			if !whole {
				return nil
			}
			var a answer
			if n, _ := fmt.Sscanf(string(line), "%d %d", &a.call, &a.code); n == 2 && a.code >= 0 && a.code <= 255 {
				select {
				case sh.answers <- a:
				default:
				}
			}
			line = line[:0]
		}
		return nil
	}
}

// A shellCall is one call while it runs.
type shellCall struct {
	n    int
	base string // of its files
	cpu  uint64 // ticks used by the shell before it
}

// call runs one text. An error means that it was not started.
func (e *execution) call(sh *shell, cmd *Command, fresh bool) error {
	c, err := sh.prepare(cmd)
	if err != nil {
		<-sh.turn
		return err
	}
	if err := e.listenTo(c); err != nil {
		e.unplumb()
		c.remove()
		<-sh.turn
		return fileError("shell", "the shell's files", err)
	}
	e.ooms = e.s.oom.kills()
	if table, ok := readProc(sh.o.pid); ok {
		c.cpu = table.cpu
	}
	if !e.adopt(sh.o) {
		e.unplumb()
		c.remove()
		<-sh.turn
		return proto.Errorf(proto.Canceled, "exec", cmd.Shell, "the caller went away")
	}
	// If bash is gone already, the wait below sees it.
	_, _ = sh.ctl.WriteString(c.base + "\n")
	_ = e.conn.sendJSON(frameStarted, started{PID: sh.o.pid, Fresh: fresh})
	e.pump(false, false)
	opened := e.openInput(c)
	code, alive := sh.await(c.n)
	e.awaitActs()
	if alive {
		select {
		case <-sh.gone: // by the kill, or right after the call
			alive = false
		default:
		}
	}
	x := sh.exit(c, code, alive)
	x.OutOfMemory = e.outOfMemory(x)
	if cmd.Stdin {
		c.unblock(opened)
	}
	x.Leftover = e.s.leftover(sh.o)
	c.remove()
	e.report(x)
	<-sh.turn
	return nil
}

// adopt makes o what a kill is for. False means that the caller is gone; if it goes after this, its
// kill finds o.
func (e *execution) adopt(o *owner) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case <-e.cancel:
		return false
	default:
		e.o = o
		return true
	}
}

// prepare writes the files of a call. Nobody but root can put anything in their place.
func (sh *shell) prepare(cmd *Command) (*shellCall, error) {
	sh.mu.Lock()
	sh.calls++
	c := &shellCall{n: sh.calls}
	sh.mu.Unlock()
	c.base = filepath.Join(sh.dir, strconv.Itoa(c.n))
	err := errors.Join(
		writeOpen(c.base+".text", cmd.Text, 0o644),
		writeOpen(c.base+".env", sh.exports(cmd), 0o644),
		fifo(c.base+".out"), fifo(c.base+".err"),
	)
	if cmd.Stdin {
		err = errors.Join(err, fifo(c.base+".in"))
	} else {
		err = errors.Join(err, os.Symlink(os.DevNull, c.base+".in"))
	}
	if err != nil {
		c.remove()
		return nil, fileError("shell", "the shell's files", errors.Unwrap(err))
	}
	return c, nil
}

// exports is what is new in the caller's environment as bash commands. What an earlier call was given
// already is left alone: the shell may have changed it since.
func (sh *shell) exports(cmd *Command) string {
	var b strings.Builder
	env := cmd.Env
	if cmd.ID != "" {
		env = append(env[:len(env):len(env)], execIDVariable+"="+cmd.ID)
	}
	for _, kv := range env {
		k, v, _ := strings.Cut(kv, "=")
		if old, ok := sh.sent[k]; ok && old == v || !isName(k) {
			continue
		}
		sh.sent[k] = v
		fmt.Fprintf(&b, "builtin export %s='%s'\n", k, strings.ReplaceAll(v, "'", `'\''`))
	}
	return b.String()
}

// isName reports whether bash can have a variable of that name.
func isName(s string) bool {
	for i, c := range []byte(s) {
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// writeOpen writes a file with exactly that mode.
func writeOpen(name, text string, mode os.FileMode) error {
	if err := os.WriteFile(name, []byte(text), mode); err != nil {
		return err
	}
	return os.Chmod(name, mode)
}

// fifo makes a FIFO that any user of the container may open who knows its name.
func fifo(name string) error {
	if err := unix.Mkfifo(name, 0o666); err != nil {
		return err
	}
	return unix.Chmod(name, 0o666)
}

// remove removes the files of a call.
func (c *shellCall) remove() {
	for _, end := range []string{".text", ".env", ".in", ".out", ".err"} {
		_ = os.Remove(c.base + end)
	}
}

// listenTo opens our ends of a call's output.
func (e *execution) listenTo(c *shellCall) error {
	for _, end := range []string{".out", ".err"} {
		fd, err := unix.Open(c.base+end, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		f := os.NewFile(uintptr(fd), "output")
		e.outs = append(e.outs, f)
		// Without a writer of our own it would be at its end before bash has opened it.
		w, err := unix.Open(c.base+end, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		e.keep = append(e.keep, w)
	}
	return nil
}

// openInput opens our end of a call's stdin, which waits until bash has opened its own.
func (e *execution) openInput(c *shellCall) <-chan struct{} {
	opened := make(chan struct{})
	if e.feed == nil {
		close(opened)
		return opened
	}
	go func() {
		defer close(opened)
		fd, err := unix.Open(c.base+".in", unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return
		}
		if f, err := pollable(fd, "stdin"); err == nil {
			e.feed.open(f, f.Close)
		}
	}()
	return opened
}

// unblock ends openInput where bash never opened its end.
func (c *shellCall) unblock(opened <-chan struct{}) {
	fd, err := unix.Open(c.base+".in", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	<-opened
	if err == nil {
		_ = unix.Close(fd)
	}
}

// await waits until call n has ended: with a code and the shell alive, or with the shell.
func (sh *shell) await(n int) (code int, alive bool) {
	for {
		select {
		case a := <-sh.answers:
			if a.call == n {
				return a.code, true
			}
		case <-sh.gone:
			for {
				select {
				case a := <-sh.answers:
					if a.call == n {
						return a.code, false
					}
					continue
				default:
				}
				return -1, false
			}
		}
	}
}

// exit describes how a call ended. A code of -1 means that the shell's own end tells it.
func (sh *shell) exit(c *shellCall, code int, alive bool) Exit {
	if alive {
		x := Exit{Code: code}
		if now, ok := readProc(sh.o.pid); ok && now.cpu > c.cpu {
			x.CPU = time.Duration(now.cpu-c.cpu) * (time.Second / 100)
		}
		return x
	}
	x := exitOf(sh.death)
	x.CPU = max(0, x.CPU-time.Duration(c.cpu)*(time.Second/100))
	x.ShellEnded = true
	if code >= 0 {
		x.Code, x.Signal = code, 0
	}
	return x
}

// shellList describes all shells, by name.
func (s *Server) shellList() []ShellInfo {
	s.mu.Lock()
	all := make([]*shell, 0, len(s.shells))
	for _, sh := range s.shells {
		all = append(all, sh)
	}
	s.mu.Unlock()
	list := make([]ShellInfo, 0, len(all))
	for _, sh := range all {
		if info, ok := sh.info(); ok {
			list = append(list, info)
		}
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	return list
}

// info describes a shell that has been started.
func (sh *shell) info() (ShellInfo, bool) {
	sh.mu.Lock()
	calls := sh.calls
	sh.mu.Unlock()
	if calls == 0 {
		return ShellInfo{}, false
	}
	dir := ""
	_ = sh.id.do(func() (err error) {
		dir, err = os.Readlink(fmt.Sprintf("/proc/%d/cwd", sh.o.pid))
		return err
	})
	return ShellInfo{
		Name: sh.name, PID: sh.o.pid, User: sh.id.name, Dir: dir, Busy: len(sh.turn) > 0,
		Calls: calls, StartedAt: proto.At(sh.started),
	}, true
}

// closeShell ends a shell and waits until it is gone.
func (s *Server) closeShell(name string) error {
	s.mu.Lock()
	sh := s.shells[name]
	s.mu.Unlock()
	if sh == nil {
		return proto.Errorf(proto.NotFound, "shell", name, "there is no shell %q", clean(name, 256))
	}
	if _, started := sh.info(); !started {
		return proto.Errorf(proto.Conflict, "shell", name, "shell %q is just being started", clean(name, 256))
	}
	err := s.killTree(sh.o)
	if err == nil {
		<-sh.gone
	}
	return err
}

// closeShells ends all of them.
func (s *Server) closeShells() {
	for _, info := range s.shellList() {
		if err := s.closeShell(info.Name); err != nil {
			s.log.Warn("closing a shell", "shell", info.Name, "err", err)
		}
	}
}
