package pid1

import (
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"berth/guest/wire"
)

// Zygotes.
//
// What they do: more than half of the time of a small command is the start of bash, which is executed, finds its
// libraries, maps and binds them. A zygote is a bash or a Python that has done all that and waits just before its
// main function. On request it forks prestarted processes. Each waits for one command: it is given arguments,
// environment, directory, descriptors, a session and limits, and continues from there. The kernel then shows the
// command as if it had been executed.
//
// What they buy: a small command takes a third less time, 2.1 ms instead of 3.1 ms with one client.
//
// What they cost: two or three more processes and some 0.5 MiB of memory (1.3 MiB for a Python) while a container is
// in use. Commands of one user share address layout and stack canary for at most ZygoteRest after the last command.
//
// When they are used: for plain bash -c commands and for Python, on amd64, with the GNU C library, where the kernel
// has PR_SET_MM_MAP. gVisor has none. A zygote starts when two commands of a kind come within ZygoteRest, and ends
// after that time without a command. In every other case, and after any failure, startCommand reports false and the
// command is forked and executed (Server.forkExec).
//
// How to switch them off: ServerOptions.NoZygotes, which berth-guest sets where the environment of the image has
// BERTH_ZYGOTES=off. No other code depends on them. See docs/decisions/0013.

// The timeouts of a zygote.
const (
	// zygoteStart is the timeout of a zygote's start.
	zygoteStart = 5 * time.Second
	// answerTimeout is the timeout of a prestarted process's answer. An answer takes 50 microseconds on a machine
	// that is not busy. A process that exceeds the timeout was stopped by another process. The command starts without
	// it.
	answerTimeout = time.Second
)

// waitingText is the script of a zygote, which it never runs. Process lists show it for a zygote and its prestarted
// processes.
const waitingText = "# waits to be a command's"

// maxFailures is how many starts of a kind of zygote in a row may fail before the guest stops trying. Zygotes do not
// work with a C library other than GNU's.
const maxFailures = 3

// maxPrestarted is how many prestarted processes a zygote keeps once a command has found none.
const maxPrestarted = 2

// zygoteSlots is how many variables a command may have. It is larger if the command that the zygote is started for
// has many variables. The variables of a command, and arguments beyond the zygote's, take the places of the zygote's
// variables.
const zygoteSlots = 128

// zygoteArgs is the number of arguments of a zygote: its name, -c, and waitingText.
const zygoteArgs = 3

// A kind names the commands that a zygote can run: one user and one program. The program is bashProgram or a name of
// Python.
type kind struct{ user, program string }

const bashProgram = "bash"

// zygotes are the zygotes of a guest, at most one of each kind.
type zygotes struct {
	s *Server

	making   sync.Mutex   // held while a zygote starts
	object   int          // the object file that they load, -1 before the first zygote; guarded by making
	failures map[kind]int // failed starts in a row; guarded by making

	mu     sync.Mutex
	by     map[kind]*zygote
	asked  map[kind]time.Time // when a command last found no zygote of its kind
	closed bool
}

// A zygote is a program that was started in advance. The fields that mu does not guard do not change.
type zygote struct {
	*waiter
	kind    kind
	path    string
	name    string   // its argv[0], which the C library keeps
	sources []string // other files that determine the program and its libraries
	look    statKey  // of path
	looks   statKeys // of the sources
	slots   int      // places for variables
	mm      memoryMap
	at      uint64    // address of messages to it
	tid     uint64    // address of the thread ID in its C library
	environ uint64    // address of its C library's environ
	robust  [2]uint64 // the robust list, whose locks the kernel releases at a thread's end, and its size
	touch   []call    // calls that map the memory of a prestarted process in advance

	mu         sync.Mutex
	prestarted []*waiter
	want       int // number of prestarted processes to keep
	used       time.Time
	ended      bool
	rest       *time.Timer
}

// sources returns the files that determine which libraries a program loads.
func (k kind) sources(path string) []string {
	all := []string{"/etc/ld.so.cache", "/etc/ld.so.preload"}
	if k.program != bashProgram {
		// the library directory of a Python that is not the system's
		all = append(all, filepath.Join(filepath.Dir(path), "../lib"))
	}
	return all
}

func newZygotes(s *Server) *zygotes {
	return &zygotes{s: s, object: -1, failures: map[kind]int{}, by: map[kind]*zygote{}, asked: map[kind]time.Time{}}
}

// kind returns the kind of zygote that can run the plan. The plan's program must be a plain bash or a Python, and its
// environment must contain no variable that takes effect before main. Otherwise kind returns zero.
func (p *plan) kind(pl childIO) kind {
	program, ok := filepath.Base(p.argv[0]), false
	switch program {
	case bashProgram:
		ok = len(p.argv) == 3 && p.argv[0] == program && p.argv[1] == "-c" && p.text == nil
	case "python", "python3":
		ok = true
	}
	if !ok || pl.tty || len(pl.files) != 3 {
		return kind{}
	}
	for _, kv := range p.env {
		if strings.HasPrefix(kv, "LD_") || strings.HasPrefix(kv, "GLIBC_TUNABLES=") ||
			strings.HasPrefix(kv, "MALLOC_") {
			return kind{}
		}
	}
	return kind{p.id.Name, program}
}

// of returns the zygote of a kind, or nil.
func (z *zygotes) of(k kind) *zygote {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.by[k]
}

// startCommand makes a prestarted process become the plan's command, if there is a matching zygote. The caller holds
// s.spawn.
func (z *zygotes) startCommand(o *group, p *plan, pl childIO) (deaths <-chan exitStatus, ok bool) {
	g := z.of(pl.kind)
	if g == nil {
		return nil, false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.path != p.path || g.name != p.argv[0] || g.look != p.statKey || g.looks != statKeysOf(g.sources) {
		z.end(g)
	}
	if g.ended || len(p.argv)+len(p.env) > zygoteArgs+g.slots {
		return nil, false
	}
	msg := g.command(p, o.mark).bytes()
	if msg == nil {
		return nil, false
	}
	if len(g.prestarted) == 0 {
		if z.addPrestarted(g) != nil {
			return nil, false
		}
		g.want = maxPrestarted // commands come faster than processes are prestarted
	}
	sp := g.prestarted[len(g.prestarted)-1]
	g.drop(sp)
	g.used = time.Now()
	if !z.s.reaper.unwatch(sp.o.pid, sp.died) {
		return nil, false // it has just died, and its watcher cleans up
	}
	err := sp.startCommand(msg, pl.files)
	if err != nil {
		z.s.reaper.kill(sp.o.pid, sp.died, sp.o.pid)
	}
	z.forget(sp)
	o.pid = sp.o.pid
	return sp.died, err == nil
}

// startIfFrequent starts a zygote of this kind if there is none and its commands are frequent.
func (z *zygotes) startIfFrequent(k kind, p *plan) {
	if k == (kind{}) || z.of(k) != nil {
		return
	}
	z.making.Lock()
	defer z.making.Unlock()
	if z.failures[k] >= maxFailures || !z.wanted(k) {
		return
	}
	if err := z.startZygote(k, p); err != nil {
		z.failures[k]++
		z.s.log.Debug("starting a program ahead", "program", k.program, "err", err)
		return
	}
	delete(z.failures, k)
}

// refillIfEmpty prestarts one process at once if the zygote of a kind has none left and its commands come without a
// pause.
func (z *zygotes) refillIfEmpty(k kind) {
	z.with(k, func(g *zygote) {
		if g.want > 1 && len(g.prestarted) == 0 {
			_ = z.addPrestarted(g)
		}
	})
}

// refillAll prestarts processes until the zygote of a kind has as many as it wants.
func (z *zygotes) refillAll(k kind) {
	z.with(k, func(g *zygote) {
		for !g.ended && len(g.prestarted) < g.want && z.addPrestarted(g) == nil {
		}
	})
}

// with locks the zygote of a kind, if there is one, and calls fn with it.
func (z *zygotes) with(k kind, fn func(g *zygote)) {
	if g := z.of(k); g != nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		if !g.ended {
			fn(g)
		}
	}
}

// wanted reports whether to start a zygote of a kind that has none.
func (z *zygotes) wanted(k kind) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	if !zygotesWork || z.s.opt.NoZygotes || !z.s.init || z.closed || z.by[k] != nil {
		return false
	}
	last := z.asked[k]
	z.asked[k] = time.Now()
	return time.Since(last) < z.s.opt.ZygoteRest
}

// startZygote starts a zygote and its first prestarted process. Called with z.making held.
func (z *zygotes) startZygote(k kind, p *plan) (err error) {
	if z.object < 0 {
		if !kernelFits() {
			return unix.ENOSYS
		}
		if z.object, err = newZygoteObject(); err != nil {
			return err
		}
	}
	null, err := openNull()
	if err != nil {
		return err
	}
	defer unix.Close(null)
	w, far, err := newWaiter()
	if err != nil {
		return err
	}
	defer unix.Close(far)
	g := &zygote{
		waiter: w, want: 1, kind: k, path: p.path, name: p.argv[0], sources: k.sources(p.path),
		slots: max(zygoteSlots, 2*(len(p.argv)+len(p.env))), used: time.Now(),
	}
	g.look, g.looks = p.statKey, statKeysOf(g.sources)
	asleep := &plan{id: p.id, path: p.path, dir: "/", argv: []string{g.name, "-c", waitingText},
		env: make([]string, g.slots)}
	n := copy(asleep.env, []string{"LD_PRELOAD=/proc/self/fd/" + strconv.Itoa(zygoteObject)})
	if k.program == bashProgram { // a Python loads libraries later, and the variable would affect those too
		n += copy(asleep.env[n:], []string{"LD_BIND_NOW=1"})
	}
	for _, kv := range p.env {
		if strings.HasPrefix(kv, "LANG=") || strings.HasPrefix(kv, "LC_") {
			n += copy(asleep.env[n:], []string{kv})
		}
	}
	if g.died, err = z.s.startProcess(asleep, g.o, childIO{files: []int{null, null, null, far, z.object}}); err != nil {
		_ = unix.Close(g.conn)
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	z.s.reaper.watch(g.o.pid, g.died, func() { z.cleanUp(g) })
	if err = g.handshake(); err == nil {
		err = z.addPrestarted(g)
	}
	if err != nil {
		z.end(g)
		return err
	}
	g.rest = time.AfterFunc(z.s.opt.ZygoteRest, func() { z.endIfUnused(g) })
	z.mu.Lock()
	defer z.mu.Unlock()
	z.by[k] = g
	return nil
}

// addPrestarted makes a zygote fork a prestarted process. Called with g.mu held.
func (z *zygotes) addPrestarted(g *zygote) error {
	sp, far, err := newWaiter()
	if err != nil {
		return err
	}
	err = g.send(g.child().bytes(), far)
	_ = unix.Close(far)
	var pid int64
	if err == nil {
		pid, err = sp.number()
	}
	if err == nil {
		sp.o.pid = int(pid)
		sp.died, err = z.s.reaper.adoptChild(sp.o.pid)
	}
	if err != nil {
		_ = unix.Close(sp.conn)
		z.s.counterCache.invalidate() // the kernel may have counted a refused process
		// otherwise the kernel refused the fork, and the zygote has reported that
		if err != wire.ErrFrame || g.done() == nil {
			z.end(g)
		}
		return err
	}
	z.s.lastPID.started(sp.o.pid)
	z.s.addGroup(sp.o)
	g.prestarted = append(g.prestarted, sp)
	z.s.reaper.watch(sp.o.pid, sp.died, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.drop(sp)
		z.forget(sp)
	})
	return nil
}

// drop removes sp from the prestarted processes of g. Called with g.mu held.
func (g *zygote) drop(sp *waiter) {
	g.prestarted = slices.DeleteFunc(g.prestarted, func(other *waiter) bool { return other == sp })
}

// forget removes a waiter that has ended or has become a command.
func (z *zygotes) forget(w *waiter) {
	_ = unix.Close(w.conn)
	z.s.removeGroup(w.o)
	close(w.gone)
}

// cleanUp cleans up after a zygote that has ended.
func (z *zygotes) cleanUp(g *zygote) {
	g.mu.Lock()
	defer g.mu.Unlock()
	z.end(g)
	z.forget(g.waiter)
}

// end kills a zygote and its prestarted processes. Called with g.mu held.
func (z *zygotes) end(g *zygote) {
	if g.ended {
		return
	}
	g.ended = true
	if g.rest != nil {
		g.rest.Stop()
	}
	z.mu.Lock()
	if z.by[g.kind] == g {
		delete(z.by, g.kind)
	}
	z.mu.Unlock()
	// also a prestarted process that was stopped before it reported its PID
	z.s.reaper.kill(g.o.pid, g.died, -g.o.pid)
	for _, sp := range g.prestarted {
		z.s.reaper.kill(sp.o.pid, sp.died, sp.o.pid)
	}
}

// endIfUnused ends a zygote that has run no command for ZygoteRest.
func (z *zygotes) endIfUnused(g *zygote) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if left := z.s.opt.ZygoteRest - time.Since(g.used); left > 0 && !g.ended {
		g.rest.Reset(left)
		return
	}
	z.end(g)
}

// endAll ends all zygotes, prevents new ones, and returns when they are gone.
func (z *zygotes) endAll() {
	z.making.Lock()
	defer z.making.Unlock()
	z.mu.Lock()
	z.closed = true
	all := slices.Collect(maps.Values(z.by))
	z.mu.Unlock()
	for _, g := range all {
		g.mu.Lock()
		spares := slices.Clone(g.prestarted)
		z.end(g)
		g.mu.Unlock()
		<-g.gone
		for _, sp := range spares {
			<-sp.gone
		}
	}
	if z.object >= 0 {
		_ = unix.Close(z.object)
		z.object = -1
	}
}

// open allows new zygotes again.
func (z *zygotes) open() {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.closed = false
}

// Flags of clone: those of the C library's fork, and CLONE_PARENT, which makes the new process a child of the guest.
const cloneFlags = unix.CLONE_CHILD_CLEARTID | unix.CLONE_CHILD_SETTID | unix.CLONE_PARENT | uint64(unix.SIGCHLD)

// child returns the message that makes a zygote fork a prestarted process. The socket of that process is sent with
// it.
func (g *zygote) child() *message {
	m := &message{at: g.at, flags: cloneFlags, tid: g.tid}
	m.call(unix.SYS_DUP3, zygoteGiven, zygoteSocket, 0)
	pid := m.putNumbers(0)
	m.callTo(pid, unix.SYS_GETPID)
	m.say(pid, 8)
	// a prestarted process without memory for these calls ends, and is found dead
	m.calls = append(m.calls, g.touch...)
	m.call(callNext)
	return m
}

// command returns the message that makes a prestarted process become the plan's command. The command's descriptors
// are sent with it.
func (g *zygote) command(p *plan, k tag) *message {
	m := &message{at: g.at}
	for i := range uint64(3) {
		m.call(unix.SYS_DUP3, zygoteGiven+i, i, 0)
	}
	m.call(unix.SYS_SETSID)
	m.call(unix.SYS_CHDIR, m.put([]byte(p.dir+"\x00")))
	if k != 0 {
		m.call(unix.SYS_PRLIMIT64, 0, rlimitLocks, m.putNumbers(uint64(k), uint64(k)), 0)
	}
	mm := g.mm
	vector := make([]uint64, 0, 1+len(p.argv)+1+len(p.env)+1)
	vector = append(vector, uint64(len(p.argv)))
	vector, mm.args = m.putStrings(vector, p.argv)
	environ := g.mm.stack + 8*uint64(len(vector))
	vector, mm.env = m.putStrings(vector, p.env)
	mm.set(m)
	m.call(callCopy, g.mm.stack, m.putNumbers(vector...), uint64(8*len(vector)))
	m.call(callCopy, g.environ, m.putNumbers(environ), 8)
	// bash has no such locks; the kernel has no list for a clone, and only the C library's fork would set one
	if g.kind.program != bashProgram {
		m.call(unix.SYS_SET_ROBUST_LIST, g.robust[0], g.robust[1])
	}
	m.call(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1)
	m.say(m.putNumbers(1), 8)
	m.call(unix.SYS_CLOSE_RANGE, zygoteSocket, math.MaxUint32, 0)
	return m
}
