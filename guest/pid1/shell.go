package pid1

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"berth/guest/output"
	"berth/guest/proc"
	"berth/guest/user"
	"berth/guest/wire"
	"berth/proto"
)

// shellDriver is the program of a persistent shell's bash. It reads the names of calls from one descriptor, and
// writes the exit status of each to another. It reads the text of a call from a file. Each call has its own FIFOs for
// output, so that a background job of one call cannot write into the next.
//
// While the text runs, it cannot use either descriptor: bash keeps copies that programs do not inherit. The driver is
// one line, so that bash counts the lines of the text from 1 in its messages. The two loops with a single iteration
// catch a stray break. The driver redirects the streams permanently and not only for the eval: a trap that runs at
// exit writes after bash has undone the redirections of the eval. Tracing (set -x) is on for the text only. The text
// can break the driver on purpose; then the shell ends.
const shellDriver = `exec 250<&3 251>&4 3<&- 4>&-; __berth_trace=; ` +
	`while IFS= builtin read -r -u 250 __berth_call; do ` +
	`builtin . "$__berth_call.env" || builtin :; ` +
	`IFS= builtin read -r -d '' __berth_text <"$__berth_call.text" || builtin :; ` +
	`exec <"$__berth_call.in" >|"$__berth_call.out" 2>|"$__berth_call.err"; ` +
	`for __berth_once in 1; do for __berth_once in 1; do ` +
	`builtin eval "$__berth_trace$__berth_text" 250<&- 251>&-; ` +
	`done; done; ` +
	`{ __berth_code=$?; __berth_trace=; ` +
	`case $- in *x*) __berth_trace='builtin set -x; ';; esac; builtin set +x; } 2>/dev/null; ` +
	`exec </dev/null >/dev/null 2>&1; ` +
	`builtin printf '%s %s\n' "${__berth_call##*/}" "$__berth_code" >&251; ` +
	`done`

// maxShells limits the persistent shells of a container.
const maxShells = 100

// A shell is a persistent bash. It runs one call at a time.
type shell struct {
	s       *Server
	name    string
	id      user.User
	dir     string // holds the files of its calls; only root may change it
	started time.Time

	ctl     *os.File     // to bash: names of calls
	status  *output.Pump // from bash: exit statuses of calls
	answers chan answer

	o     *proc.Group
	turn  chan struct{}   // holds a token while a call runs
	gone  chan struct{}   // closed when its bash has ended
	death proc.ExitStatus // valid after gone

	sent map[string]string // variables that calls have set; the call whose turn it is may change it

	mu    sync.Mutex
	calls int
}

// An answer is a status line of a shell.
type answer struct{ call, code int }

// onShell runs a call on a persistent shell, from its turn to its end.
func (e *execution) onShell(cmd *wire.Command, p *plan) {
	sh, fresh, err := e.s.acquire(cmd, p, e.cancel)
	if err == nil {
		err = e.call(sh, cmd, fresh)
	}
	if err != nil {
		if e.feed != nil {
			e.feed.Stop()
		}
		e.removeOutputDir()
		e.ending.Store(true)
		_ = e.by.conn.SendJSON(wire.FrameError, proto.AsError(err))
		close(e.ended)
	}
}

// acquire waits for the caller's turn on the named shell. It starts the shell if there is none.
func (s *Server) acquire(cmd *wire.Command, p *plan, cancel <-chan struct{}) (*shell, bool, error) {
	for {
		sh, fresh, err := s.shellNamed(cmd.Shell, p.User)
		if err != nil {
			return nil, false, err
		}
		if fresh { // the caller holds the token already
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

// abandon ends a shell whose start has failed.
func (s *Server) abandon(sh *shell) {
	if sh.o != nil {
		_ = s.procs.KillTree(sh.o) // cleanUp runs at its end
	} else {
		s.forget(sh)
		close(sh.gone)
		_ = os.RemoveAll(sh.dir)
	}
	<-sh.turn
}

// shellNamed finds a shell, or creates one whose first turn is the caller's.
func (s *Server) shellNamed(name string, id user.User) (*shell, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sh := s.shells[name]; sh != nil {
		if !sh.id.Same(id) {
			return nil, false, proto.Errorf(proto.Conflict, "exec", name, "shell %q belongs to user %s; close it "+
				"first or use another name", name, sh.id.Name)
		}
		return sh, false, nil
	}
	if len(s.shells) >= maxShells {
		return nil, false, proto.Errorf(proto.TooMany, "exec", name, "%d persistent shells are open; close one first",
			maxShells)
	}
	sh := &shell{
		s: s, name: name, id: id, started: time.Now(),
		turn: make(chan struct{}, 1), gone: make(chan struct{}), answers: make(chan answer, 8),
		sent: map[string]string{},
	}
	sh.turn <- struct{}{}
	s.shells[name] = sh
	return sh, true, nil
}

// forget removes a shell from the list.
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
		return wire.FileError("shell", "the shell's files", err)
	}
	if err := os.Chmod(sh.dir, 0o711); err != nil {
		return wire.FileError("shell", "the shell's files", err)
	}
	ctlR, ctlW, err := wire.Pipe()
	if err != nil {
		return wire.FileError("shell", "the shell", err)
	}
	statusR, statusW, err := wire.Pipe()
	if err != nil {
		wire.CloseAll([]int{ctlR, ctlW})
		return wire.FileError("shell", "the shell", err)
	}
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		wire.CloseAll([]int{ctlR, ctlW, statusR, statusW})
		return wire.FileError("shell", os.DevNull, err)
	}
	files := proc.Files{FDs: []int{null, null, null, ctlR, statusW}}
	o := &proc.Group{Shell: true}
	deaths, err := sh.s.procs.Start(&p.Program, o, files, nil)
	wire.CloseAll([]int{null, ctlR, statusW})
	if err != nil {
		wire.CloseAll([]int{ctlW, statusR})
		return notStarted(&p.Program, err)
	}
	sh.o = o
	return sh.listen(ctlW, statusR, deaths)
}

// listen connects to the bash that was started.
func (sh *shell) listen(ctlW, statusR int, deaths <-chan proc.ExitStatus) error {
	ctl, err := wire.Pollable(ctlW, "calls")
	if err == nil {
		sh.ctl = ctl
		var status *os.File
		if status, err = wire.Pollable(statusR, "status"); err == nil {
			sh.status, err = output.StartPump(status, false, sh.parser(), nil)
		}
	}
	sh.s.shellCleanups.Add(1)
	go func() {
		defer sh.s.shellCleanups.Done()
		sh.cleanUp(<-deaths)
	}()
	return wire.FileError("shell", "the shell", err)
}

// cleanUp cleans up after the shell's bash.
func (sh *shell) cleanUp(d proc.ExitStatus) {
	sh.death = d
	if sh.status != nil {
		sh.status.Finish() // output from before its death counts
		_ = sh.status.File.Close()
	}
	if sh.ctl != nil {
		_ = sh.ctl.Close()
	}
	sh.s.forget(sh)
	sh.s.procs.Remove(sh.o)
	close(sh.gone)
	sh.turn <- struct{}{} // the last call needs the files until it ends
	_ = os.RemoveAll(sh.dir)
	<-sh.turn
}

// parser parses the status lines. They are hostile input: it ignores invalid lines, and lines that no call waits for.
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

// shellList describes all shells, sorted by name.
func (s *Server) shellList() []wire.ShellInfo {
	s.mu.Lock()
	all := make([]*shell, 0, len(s.shells))
	for _, sh := range s.shells {
		all = append(all, sh)
	}
	s.mu.Unlock()
	list := make([]wire.ShellInfo, 0, len(all))
	for _, sh := range all {
		if info, ok := sh.info(); ok {
			list = append(list, info)
		}
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	return list
}

// info describes a shell that has started.
func (sh *shell) info() (wire.ShellInfo, bool) {
	sh.mu.Lock()
	calls := sh.calls
	sh.mu.Unlock()
	if calls == 0 {
		return wire.ShellInfo{}, false
	}
	dir, _ := workingDirOf(sh.id, sh.o.PID)
	return wire.ShellInfo{
		Name: sh.name, PID: sh.o.PID, User: sh.id.Name, Dir: dir, Busy: len(sh.turn) > 0,
		Calls: calls, StartedAt: proto.At(sh.started),
	}, true
}

// shellIsIn reports whether a running shell has its working directory in dir. It also reports true if that is
// unknown.
func (e *execution) shellIsIn(dir string) bool {
	if e.group == nil || !e.group.Shell {
		return false
	}
	at, err := workingDirOf(e.plan.User, e.group.PID)
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	return at == dir || strings.HasPrefix(at, dir+"/")
}

// workingDirOf returns the working directory of a user's process. It acts as the user, since root without
// CAP_SYS_PTRACE may not read it.
func workingDirOf(id user.User, pid int) (dir string, err error) {
	err = id.Do(func() error {
		dir, err = os.Readlink("/proc/" + strconv.Itoa(pid) + "/cwd")
		return err
	})
	return dir, err
}

// closeShell ends a shell and waits until it is gone.
func (s *Server) closeShell(name string) error {
	s.mu.Lock()
	sh := s.shells[name]
	s.mu.Unlock()
	if sh == nil {
		return proto.Errorf(proto.NotFound, "shell", name, "there is no shell %q", wire.CleanText(name, 256))
	}
	if _, started := sh.info(); !started {
		return proto.Errorf(proto.Conflict, "shell", name, "shell %q is just being started", wire.CleanText(name, 256))
	}
	err := s.procs.KillTree(sh.o)
	if err == nil {
		<-sh.gone
	}
	return err
}

// closeShells ends all shells.
func (s *Server) closeShells() {
	for _, info := range s.shellList() {
		if err := s.closeShell(info.Name); err != nil {
			s.log.Warn("closing a shell", "shell", info.Name, "err", err)
		}
	}
}
