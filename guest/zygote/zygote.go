// Package zygote starts commands from zygotes: a bash or a Python that was started in advance.
//
// What a zygote does: more than half of the time of a small command is the start of bash, which is executed, finds
// its libraries, maps and binds them. A zygote has done all that and waits just before its main function. On request
// it forks prestarted processes. Each waits for one command: it is given arguments, environment, directory,
// descriptors, a session and limits, and continues from there. The kernel then shows the command as if it had been
// executed.
//
// What it buys: a small command takes a third less time, 2.1 ms instead of 3.1 ms with one client.
//
// What it costs: two or three more processes and some 0.5 MiB of memory (1.3 MiB for a Python) while a container is in
// use. Commands of one user share address layout and stack canary for at most Options.Rest after the last command.
//
// When it is used: for plain bash -c commands and for Python, on amd64, with the GNU C library, where the kernel has
// PR_SET_MM_MAP. gVisor has none. A zygote starts when two commands of a kind come within Rest, and ends after that
// time without a command. In every other case, and after any failure, Start reports false and proc.Table.Start forks
// and executes the program.
//
// How to switch it off: Options.Off, which berth-guest sets where the environment of the image has BERTH_ZYGOTES=off.
// guest/pid1 calls this package from one place, and no other code depends on it. See docs/decisions/0013.
package zygote

import (
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"berth/guest/gosched"
	"berth/guest/proc"
	"berth/guest/wire"
)

// The timeouts of a zygote.
const (
	// startTimeout is the timeout of a zygote's start.
	startTimeout = 5 * time.Second
	// answerTimeout is the timeout of a prestarted process's answer. An answer takes 50 microseconds on a machine
	// that is not busy. A process that exceeds the timeout was stopped by another process. The command starts without
	// it.
	answerTimeout = time.Second
)

// WaitingText is the script of a zygote, which it never runs. Process lists show it for a zygote and its prestarted
// processes.
const WaitingText = "# waits to be a command's"

// MaxFailures is how many starts of a kind of zygote in a row may fail before the guest stops trying. Zygotes do not
// work with a C library other than GNU's.
const MaxFailures = 3

// MaxPrestarted is how many prestarted processes a zygote keeps once a command has found none.
const MaxPrestarted = 2

// Bounds of what callers make grow by naming users.
const (
	maxZygotes = 12 // zygotes of a container
	maxAsked   = 64 // kinds that are remembered without a zygote
)

// Slots is how many variables a command may have. It is larger if the command that the zygote is started for
// has many variables. The variables of a command, and arguments beyond the zygote's, take the places of the zygote's
// variables.
const Slots = 128

// fixedArgs is the number of arguments of a zygote: its name, -c, and WaitingText.
const fixedArgs = 3

// A Kind names the commands that a zygote can run: the rights of one user and one program, which is bash or a name of
// Python. Zero is no kind.
type Kind struct{ rights, program string }

const bash = "bash"

// Options configure the zygotes of a guest.
type Options struct {
	Table *proc.Table // starts the zygotes, and has their processes
	Log   *slog.Logger
	Rest  time.Duration // how long a zygote lives without a command
	Off   bool          // start none
}

// Zygotes are the zygotes of a guest, at most one of each kind.
type Zygotes struct {
	opt   Options
	table *proc.Table

	making   sync.Mutex   // held while a zygote starts
	object   int          // the object file that they load, -1 before the first zygote; guarded by making
	failures map[Kind]int // failed starts in a row; guarded by making

	mu     sync.Mutex
	byKind map[Kind]*zygote
	asked  map[Kind]time.Time // when a command last found no zygote of its kind
	closed bool
}

// New makes the zygotes of a guest. It starts none.
func New(opt Options) *Zygotes {
	return &Zygotes{opt: opt, table: opt.Table, object: -1, failures: map[Kind]int{}, byKind: map[Kind]*zygote{},
		asked: map[Kind]time.Time{}}
}

// A zygote is a program that was started in advance. The fields that mu does not guard do not change.
type zygote struct {
	*waiter
	kind       Kind
	path       string
	name       string   // its argv[0], which the C library keeps
	sources    []string // other files that determine the program and its libraries
	key        proc.StatKey
	sourceKeys sourceKeys
	slots      int // places for variables
	mm         memoryMap
	at         uint64    // address of messages to it
	tid        uint64    // address of the thread ID in its C library
	environ    uint64    // address of its C library's environ
	robust     [2]uint64 // the robust list, whose locks the kernel releases at a thread's end, and its size
	touch      []call    // calls that map the memory of a prestarted process in advance

	mu         sync.Mutex
	prestarted []*waiter
	want       int // number of prestarted processes to keep
	used       time.Time
	ended      bool
	rest       *time.Timer
}

// sources returns the files that determine which libraries a program loads.
func (k Kind) sources(path string) []string {
	all := []string{"/etc/ld.so.cache", "/etc/ld.so.preload"}
	if k.program != bash {
		// the library directory of a Python that is not the system's
		all = append(all, filepath.Join(filepath.Dir(path), "../lib"))
	}
	return all
}

// sourceKeys are the stat keys of the sources, in order.
type sourceKeys [3]proc.StatKey

func sourceKeysOf(files []string) (keys sourceKeys) {
	for i, file := range files {
		var st unix.Stat_t
		if unix.Stat(file, &st) == nil {
			keys[i] = proc.StatKeyOf(&st)
		}
	}
	return keys
}

// Kind returns the kind of zygote that can run a program with these files. The program must be a plain bash or a
// Python, and its environment must contain no variable that takes effect before main. Otherwise, and where zygotes do
// not work or are off, Kind returns zero.
func (z *Zygotes) Kind(p *proc.Program, files proc.Files) Kind {
	program, ok := filepath.Base(p.Argv[0]), false
	switch program {
	case bash:
		ok = len(p.Argv) == 3 && p.Argv[0] == program && p.Argv[1] == "-c"
	case "python", "python3":
		ok = true
	}
	if !ok || !Works || z.opt.Off || files.TTY || len(files.FDs) != 3 {
		return Kind{}
	}
	for _, kv := range p.Env {
		if strings.HasPrefix(kv, "LD_") || strings.HasPrefix(kv, "GLIBC_TUNABLES=") ||
			strings.HasPrefix(kv, "MALLOC_") {
			return Kind{}
		}
	}
	return Kind{p.User.Rights(), program}
}

// of returns the zygote of a kind, or nil.
func (z *Zygotes) of(k Kind) *zygote {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.byKind[k]
}

// Start makes a prestarted process become the program, if there is a matching zygote, and sets the PID of the group.
// proc.Table.Start calls it.
func (z *Zygotes) Start(k Kind, group *proc.Group, p *proc.Program, files proc.Files) (deaths <-chan proc.ExitStatus,
	ok bool) {
	g := z.of(k)
	if g == nil {
		return nil, false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.path != p.Path || g.name != p.Argv[0] || g.key != p.StatKey || g.sourceKeys != sourceKeysOf(g.sources) {
		z.end(g)
	}
	if g.ended || len(p.Argv)+len(p.Env) > fixedArgs+g.slots {
		return nil, false
	}
	msg := g.command(p, group.Tag).bytes()
	if msg == nil {
		return nil, false
	}
	if len(g.prestarted) == 0 {
		if z.addPrestarted(g) != nil {
			return nil, false
		}
		g.want = MaxPrestarted // commands come faster than processes are prestarted
	}
	sp := g.prestarted[len(g.prestarted)-1]
	g.drop(sp)
	g.used = time.Now()
	if !z.table.Unwatch(sp.o.PID, sp.died) {
		return nil, false // it has just died, and its watcher cleans up
	}
	err := sp.become(msg, files.FDs)
	if err != nil {
		z.table.KillChild(sp.o.PID, sp.died, sp.o.PID)
	}
	z.forget(sp)
	group.PID = sp.o.PID
	return sp.died, err == nil
}

// Prepare prepares for the next command of a kind, after the end of one was sent. p is the program of that command,
// and newest what proc.Table.Newest returned before the end was sent.
func (z *Zygotes) Prepare(k Kind, p *proc.Program, newest int64) {
	if k == (Kind{}) {
		return
	}
	z.with(k, func(g *zygote) {
		if g.want > 1 && len(g.prestarted) == 0 { // its commands come without a pause
			_ = z.addPrestarted(g)
		}
	})
	gosched.Sleep(afterExitDelay)
	if z.table.Newest() == newest { // otherwise the next command has started already
		z.with(k, func(g *zygote) {
			for !g.ended && len(g.prestarted) < g.want && z.addPrestarted(g) == nil {
			}
		})
	}
	z.startIfFrequent(k, p)
}

// afterExitDelay is how long the guest stays idle after it has sent the end of a command. In this time the daemon
// answers its client, which takes about 0.3 ms. The guest cannot see when that is done. Preparing the next command
// immediately delayed this answer: it cost 10 to 20 % of the time of a small command on two processors. Preparation
// that is still due when the next command arrives would delay that command, so it waits for its end.
const afterExitDelay = 500 * time.Microsecond

// with locks the zygote of a kind, if there is one, and calls fn with it.
func (z *Zygotes) with(k Kind, fn func(g *zygote)) {
	if g := z.of(k); g != nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		if !g.ended {
			fn(g)
		}
	}
}

// startIfFrequent starts a zygote of this kind if there is none and its commands are frequent.
func (z *Zygotes) startIfFrequent(k Kind, p *proc.Program) {
	if z.of(k) != nil {
		return
	}
	z.making.Lock()
	defer z.making.Unlock()
	if z.failures[k] >= MaxFailures || !z.wanted(k) {
		return
	}
	if err := z.startZygote(k, p); err != nil {
		if len(z.failures) >= maxAsked {
			clear(z.failures)
		}
		z.failures[k]++
		z.opt.Log.Debug("starting a zygote", "program", k.program, "err", err)
		return
	}
	delete(z.failures, k)
}

// wanted reports whether to start a zygote of a kind that has none.
func (z *Zygotes) wanted(k Kind) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.closed || z.byKind[k] != nil {
		return false
	}
	last := z.asked[k]
	if len(z.asked) >= maxAsked { // callers may name any user
		clear(z.asked)
	}
	z.asked[k] = time.Now()
	return time.Since(last) < z.opt.Rest && len(z.byKind) < maxZygotes
}

// startZygote starts a zygote and its first prestarted process. Called with z.making held.
func (z *Zygotes) startZygote(k Kind, p *proc.Program) (err error) {
	if z.object < 0 {
		if !kernelFits() {
			return unix.ENOSYS
		}
		if z.object, err = newObject(); err != nil {
			return err
		}
	}
	null, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
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
		waiter: w, want: 1, kind: k, path: p.Path, name: p.Argv[0], sources: k.sources(p.Path),
		slots: max(Slots, 2*(len(p.Argv)+len(p.Env))), used: time.Now(),
	}
	g.key, g.sourceKeys = p.StatKey, sourceKeysOf(g.sources)
	asleep := &proc.Program{User: p.User, Path: p.Path, Dir: "/", Argv: []string{g.name, "-c", WaitingText},
		Env: make([]string, g.slots)}
	n := copy(asleep.Env, []string{"LD_PRELOAD=/proc/self/fd/" + strconv.Itoa(objectFD)})
	if k.program == bash { // a Python loads libraries later, and the variable would affect those too
		n += copy(asleep.Env[n:], []string{"LD_BIND_NOW=1"})
	}
	for _, kv := range p.Env {
		if strings.HasPrefix(kv, "LANG=") || strings.HasPrefix(kv, "LC_") {
			n += copy(asleep.Env[n:], []string{kv})
		}
	}
	files := proc.Files{FDs: []int{null, null, null, far, z.object}}
	if g.died, err = z.table.Start(asleep, g.o, files, nil); err != nil {
		_ = unix.Close(g.conn)
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	z.table.Watch(g.o.PID, g.died, func() { z.cleanUp(g) })
	if err = g.handshake(); err == nil {
		err = z.addPrestarted(g)
	}
	if err != nil {
		z.end(g)
		return err
	}
	g.rest = time.AfterFunc(z.opt.Rest, func() { z.endIfUnused(g) })
	z.mu.Lock()
	defer z.mu.Unlock()
	z.byKind[k] = g
	return nil
}

// addPrestarted makes a zygote fork a prestarted process. Called with g.mu held.
func (z *Zygotes) addPrestarted(g *zygote) error {
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
		sp.o.PID = int(pid)
		sp.died, err = z.table.AdoptChild(sp.o.PID)
	}
	if err != nil {
		_ = unix.Close(sp.conn)
		// otherwise the kernel refused the fork, and the zygote has reported that
		if err != wire.ErrFrame || g.done() == nil {
			z.end(g)
		}
		return err
	}
	z.table.Add(sp.o)
	g.prestarted = append(g.prestarted, sp)
	z.table.Watch(sp.o.PID, sp.died, func() {
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
func (z *Zygotes) forget(w *waiter) {
	_ = unix.Close(w.conn)
	z.table.Remove(w.o)
	close(w.gone)
}

// cleanUp cleans up after a zygote that has ended.
func (z *Zygotes) cleanUp(g *zygote) {
	g.mu.Lock()
	defer g.mu.Unlock()
	z.end(g)
	z.forget(g.waiter)
}

// end kills a zygote and its prestarted processes. Called with g.mu held.
func (z *Zygotes) end(g *zygote) {
	if g.ended {
		return
	}
	g.ended = true
	if g.rest != nil {
		g.rest.Stop()
	}
	z.mu.Lock()
	if z.byKind[g.kind] == g {
		delete(z.byKind, g.kind)
	}
	z.mu.Unlock()
	// also a prestarted process that was stopped before it reported its PID
	z.table.KillChild(g.o.PID, g.died, -g.o.PID)
	for _, sp := range g.prestarted {
		z.table.KillChild(sp.o.PID, sp.died, sp.o.PID)
	}
}

// endIfUnused ends a zygote that has run no command for Rest.
func (z *Zygotes) endIfUnused(g *zygote) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if left := z.opt.Rest - time.Since(g.used); left > 0 && !g.ended {
		g.rest.Reset(left)
		return
	}
	z.end(g)
}

// Close ends all zygotes, prevents new ones, and returns when they are gone.
func (z *Zygotes) Close() {
	z.making.Lock()
	defer z.making.Unlock()
	z.mu.Lock()
	z.closed = true
	all := slices.Collect(maps.Values(z.byKind))
	z.mu.Unlock()
	for _, g := range all {
		g.mu.Lock()
		waiting := slices.Clone(g.prestarted)
		z.end(g)
		g.mu.Unlock()
		<-g.gone
		for _, sp := range waiting {
			<-sp.gone
		}
	}
	if z.object >= 0 {
		_ = unix.Close(z.object)
		z.object = -1
	}
}

// Reopen allows new zygotes again.
func (z *Zygotes) Reopen() {
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
	m.call(unix.SYS_DUP3, givenFD, socketFD, 0)
	pid := m.putNumbers(0)
	m.callTo(pid, unix.SYS_GETPID)
	m.say(pid, 8)
	// a prestarted process without memory for these calls ends, and is found dead
	m.calls = append(m.calls, g.touch...)
	m.call(callNext)
	return m
}

// command returns the message that makes a prestarted process become the program. The command's descriptors
// are sent with it.
func (g *zygote) command(p *proc.Program, tag proc.Tag) *message {
	m := &message{at: g.at}
	for i := range uint64(3) {
		m.call(unix.SYS_DUP3, givenFD+i, i, 0)
	}
	m.call(unix.SYS_SETSID)
	m.call(unix.SYS_CHDIR, m.put([]byte(p.Dir+"\x00")))
	if tag != 0 {
		m.call(unix.SYS_PRLIMIT64, 0, proc.LimitOfTag, m.putNumbers(uint64(tag), uint64(tag)), 0)
	}
	mm := g.mm
	vector := make([]uint64, 0, 1+len(p.Argv)+1+len(p.Env)+1)
	vector = append(vector, uint64(len(p.Argv)))
	vector, mm.args = m.putStrings(vector, p.Argv)
	environ := g.mm.stack + 8*uint64(len(vector))
	vector, mm.env = m.putStrings(vector, p.Env)
	mm.set(m)
	m.call(callCopy, g.mm.stack, m.putNumbers(vector...), uint64(8*len(vector)))
	m.call(callCopy, g.environ, m.putNumbers(environ), 8)
	// bash has no such locks; the kernel has no list for a clone, and only the C library's fork would set one
	if g.kind.program != bash {
		m.call(unix.SYS_SET_ROBUST_LIST, g.robust[0], g.robust[1])
	}
	m.call(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1)
	m.say(m.putNumbers(1), 8)
	m.call(unix.SYS_CLOSE_RANGE, socketFD, math.MaxUint32, 0)
	return m
}
