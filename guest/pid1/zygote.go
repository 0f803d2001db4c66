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

// A zygote's times.
const (
	// zygoteStart is how long one may take to begin.
	zygoteStart = 5 * time.Second
	// answerTimeout is how long a spare may take to answer, which on a machine that is not busy takes 50
	// microseconds. One that takes longer has been stopped by somebody, and the command starts without it.
	answerTimeout = time.Second
)

// waitingText is what a zygote would run, and what lists of processes show of it and of its spares.
const waitingText = "# waits to be a command's"

// maxFailures is how often in a row a zygote of a kind may fail to start: here they do not work then, as with a C
// library that is not GNU's.
const maxFailures = 3

// maxPrestarted is how many spares a zygote has from when a command has found none.
const maxPrestarted = 2

// zygoteSlots is how many variables a command may have, unless the one had more that it is started for: they take the
// places of the zygote's own, and so do arguments beyond the zygote's.
const zygoteSlots = 128

// zygoteArgs is how many arguments a zygote itself has: its name, -c, and waitingText.
const zygoteArgs = 3

// A kind is which commands a zygote is for: one user's, of one program, which is bashProgram or a name of Python.
type kind struct{ user, program string }

const bashProgram = "bash"

// zygotes are a guest's, one of each kind.
type zygotes struct {
	s *Server

	making   sync.Mutex   // one is started at a time
	object   int          // the file that they load, -1 before the first; guarded by making
	failures map[kind]int // in a row, to start one; guarded by making

	mu     sync.Mutex
	by     map[kind]*zygote
	asked  map[kind]time.Time // when a command last had none that fits
	closed bool
}

// A zygote is a program that was started ahead. What is not guarded does not change.
type zygote struct {
	*waiter
	kind    kind
	path    string
	name    string   // its argv[0], which the C library keeps
	sources []string // what else than path would make it another program
	look    statKey  // of path
	looks   statKeys // of the sources
	slots   int      // for variables
	mm      memoryMap
	at      uint64    // where messages to it are
	tid     uint64    // where its C library has the number of its thread
	environ uint64    // and where the address of its variables
	robust  [2]uint64 // the list of locks that the kernel opens when a thread ends, and its size
	touch   []call    // have a spare's memory mapped ahead

	mu         sync.Mutex
	prestarted []*waiter
	want       int // how many of them there are to be
	used       time.Time
	ended      bool
	rest       *time.Timer
}

// sources say which libraries a program gets.
func (k kind) sources(path string) []string {
	all := []string{"/etc/ld.so.cache", "/etc/ld.so.preload"}
	if k.program != bashProgram {
		// where a Python that is not the system's has its libraries
		all = append(all, filepath.Join(filepath.Dir(path), "../lib"))
	}
	return all
}

func newZygotes(s *Server) *zygotes {
	return &zygotes{s: s, object: -1, failures: map[kind]int{}, by: map[kind]*zygote{}, asked: map[kind]time.Time{}}
}

// kind is that of the zygote whose spare could be the plan's program: it is a plain bash or a Python, and nothing in
// its environment is for the time before main. It is zero where there can be none.
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

// of is the zygote of a kind, or nil.
func (z *zygotes) of(k kind) *zygote {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.by[k]
}

// startCommand has a spare become the plan's command, if there is a zygote that fits. The caller holds s.spawn.
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
		g.want = maxPrestarted // commands come faster than they are prepared for
	}
	sp := g.prestarted[len(g.prestarted)-1]
	g.drop(sp)
	g.used = time.Now()
	if !z.s.reaper.unwatch(sp.o.pid, sp.died) {
		return nil, false // it has died just now, and who watched cleans up
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

// refillIfEmpty has a spare made at once if the zygote of a kind has none left and its commands come without a pause.
func (z *zygotes) refillIfEmpty(k kind) {
	z.with(k, func(g *zygote) {
		if g.want > 1 && len(g.prestarted) == 0 {
			_ = z.addPrestarted(g)
		}
	})
}

// refillAll has as many spares made as the zygote of a kind is to have.
func (z *zygotes) refillAll(k kind) {
	z.with(k, func(g *zygote) {
		for !g.ended && len(g.prestarted) < g.want && z.addPrestarted(g) == nil {
		}
	})
}

// with runs fn with the zygote of a kind, if there is one, and its lock.
func (z *zygotes) with(k kind, fn func(g *zygote)) {
	if g := z.of(k); g != nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		if !g.ended {
			fn(g)
		}
	}
}

// wanted reports whether there should be a zygote of a kind that has none.
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

// startZygote starts a zygote and its first spare. Called with z.making held.
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
	if k.program == bashProgram { // a Python loads libraries later, which it would be for, too
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

// addPrestarted has a zygote make a spare. Called with g.mu held.
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
		z.s.counterCache.invalidate()                // the kernel may have counted a process that was refused
		if err != wire.ErrFrame || g.done() == nil { // else the kernel did not let it, and it has said so
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

// drop takes one from the spares, if it is among them. Called with g.mu held.
func (g *zygote) drop(sp *waiter) {
	g.prestarted = slices.DeleteFunc(g.prestarted, func(other *waiter) bool { return other == sp })
}

// forget forgets a waiter that has ended, or is something else now.
func (z *zygotes) forget(w *waiter) {
	_ = unix.Close(w.conn)
	z.s.removeGroup(w.o)
	close(w.gone)
}

// cleanUp is for a zygote that has ended.
func (z *zygotes) cleanUp(g *zygote) {
	g.mu.Lock()
	defer g.mu.Unlock()
	z.end(g)
	z.forget(g.waiter)
}

// end has a zygote end, and its spare. Called with g.mu held.
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
	z.s.reaper.kill(g.o.pid, g.died, -g.o.pid) // also a spare that was stopped before it could say a word
	for _, sp := range g.prestarted {
		z.s.reaper.kill(sp.o.pid, sp.died, sp.o.pid)
	}
}

// endIfUnused ends one that nobody has used for long enough.
func (z *zygotes) endIfUnused(g *zygote) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if left := z.s.opt.ZygoteRest - time.Since(g.used); left > 0 && !g.ended {
		g.rest.Reset(left)
		return
	}
	z.end(g)
}

// endAll ends them all, keeps others from being started, and returns when they are gone.
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

// open lets others be started again.
func (z *zygotes) open() {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.closed = false
}

// Flags of clone: the C library's for a process of its own, and that it is the child of the zygote's parent, which is
// the guest.
const cloneFlags = unix.CLONE_CHILD_CLEARTID | unix.CLONE_CHILD_SETTID | unix.CLONE_PARENT | uint64(unix.SIGCHLD)

// child has a zygote make a spare, whose socket comes along.
func (g *zygote) child() *message {
	m := &message{at: g.at, flags: cloneFlags, tid: g.tid}
	m.call(unix.SYS_DUP3, zygoteGiven, zygoteSocket, 0)
	pid := m.putNumbers(0)
	m.callTo(pid, unix.SYS_GETPID)
	m.say(pid, 8)
	m.calls = append(m.calls, g.touch...) // a spare that gets no memory for it ends, and is found dead
	m.call(callNext)
	return m
}

// command has a spare become the plan's command, whose descriptors come along.
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
	// bash has no such locks; of a clone the kernel has no list, and nobody but the C library's fork would tell it
	if g.kind.program != bashProgram {
		m.call(unix.SYS_SET_ROBUST_LIST, g.robust[0], g.robust[1])
	}
	m.call(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1)
	m.say(m.putNumbers(1), 8)
	m.call(unix.SYS_CLOSE_RANGE, zygoteSocket, math.MaxUint32, 0)
	return m
}
