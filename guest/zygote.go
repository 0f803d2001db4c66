package guest

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// More than half of what a small command takes is the start of bash: its program executed, its libraries found, mapped and bound. A zygote is a bash
// that has this behind it and waits just before its main function. A command is a child of it that is given arguments, environment, directory,
// descriptors, session and limits, and goes on from there. See docs/decisions/0045.

// A zygote's times.
const (
	// zygoteRest is how long one stays without a command, and how long after a command the next has to come for one to be worth its start.
	zygoteRest = 30 * time.Second
	// zygoteStart is how long one may take to begin.
	zygoteStart = 5 * time.Second
	// zygotePatience is how long a child may take to begin. A zygote that needs longer has been stopped by somebody, and the command starts without it.
	zygotePatience = 500 * time.Millisecond
)

// zygoteSlots is how many variables a command may have, unless the one had more that it is started for: they take the places of the zygote's own.
const zygoteSlots = 128

// zygotes are a guest's, one for each user.
type zygotes struct {
	s *Server

	mu     sync.Mutex
	object int // the file that they load; -1 before the first
	by     map[string]*zygote
	asked  map[string]time.Time // when a command last had none that fits
	never  bool                 // here they do not work
	closed bool
}

// A zygote is a bash that was started ahead.
type zygote struct {
	o     *owner
	user  string
	died  <-chan death
	path  string
	looks looks // of path and what else would be another bash
	conn  int   // our end of its socket
	slots int   // for variables
	mm    memoryMap
	at    uint64 // where messages to it are
	tid   uint64 // where its C library has the number of its thread
	used  time.Time
	rest  *time.Timer
	gone  chan struct{}
}

// looks tell whether files are the ones they were.
type looks [3]struct {
	dev, ino     uint64
	mtime, ctime unix.Timespec
}

// looksOf takes note of a program and of what says which libraries it gets.
func looksOf(path string) (l looks) {
	for i, file := range []string{path, "/etc/ld.so.cache", "/etc/ld.so.preload"} {
		var st unix.Stat_t
		if unix.Stat(file, &st) == nil {
			l[i].dev, l[i].ino, l[i].mtime, l[i].ctime = uint64(st.Dev), st.Ino, st.Mtim, st.Ctim
		}
	}
	return l
}

func newZygotes(s *Server) *zygotes {
	return &zygotes{s: s, object: -1, by: map[string]*zygote{}, asked: map[string]time.Time{}}
}

// fits reports whether a zygote could be the plan's bash: it is a plain one, and nothing in its environment is for the time before main.
func (p *plan) fits(pl childIO) bool {
	if len(p.argv) != 3 || p.argv[0] != "bash" || p.argv[1] != "-c" || p.text != nil || pl.tty || len(pl.files) != 3 {
		return false
	}
	for _, kv := range p.env {
		if strings.HasPrefix(kv, "LD_") || strings.HasPrefix(kv, "GLIBC_TUNABLES=") || strings.HasPrefix(kv, "MALLOC_") {
			return false
		}
	}
	return true
}

// fork starts the plan as a child of a zygote, if there is one that fits.
func (z *zygotes) fork(o *owner, p *plan, pl childIO) (deaths <-chan death, ok bool) {
	if !p.fits(pl) || !z.mu.TryLock() { // where it is locked, one is just being started
		return nil, false
	}
	defer z.mu.Unlock()
	g := z.by[p.id.name]
	if g == nil {
		return nil, false
	}
	if g.path != p.path || g.looks != looksOf(p.path) {
		z.end(g)
		return nil, false
	}
	msg := g.message(p, o.mark)
	if msg == nil {
		return nil, false
	}
	var err error
	o.pid, deaths, err = z.s.reaper.start(func() (int, error) { return g.begin(msg, pl.files) })
	if _, refused := err.(refusal); err != nil && !refused {
		z.end(g)
	}
	g.used = time.Now()
	return deaths, err == nil
}

// A refusal is what kept a child from being made or from beginning, which was the kernel's and not the zygote's doing.
type refusal struct{ error }

// begin sends a message and returns the child that it made.
func (g *zygote) begin(msg []byte, files []int) (pid int, err error) {
	if err := unix.Sendmsg(g.conn, msg, unix.UnixRights(files...), nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT); err != nil {
		return 0, err
	}
	n, err := g.number()
	if err == unix.EAGAIN {
		// A child begins only once it has said so. From here on it cannot.
		_ = unix.Shutdown(g.conn, unix.SHUT_RDWR)
		n, err = g.number()
	}
	if err != nil {
		return 0, err
	}
	if n <= 0 {
		return 0, refusal{unix.Errno(-n)}
	}
	var info unix.Siginfo
	return int(n), unix.Waitid(unix.P_PID, int(n), &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil) // fails if it is no child of ours
}

// number receives what is said in one number.
func (g *zygote) number() (int64, error) {
	var b [8]byte
	n, err := g.receive(b[:])
	if err == nil && n != len(b) {
		err = errFrame // 0 bytes: it has ended
	}
	return int64(binary.LittleEndian.Uint64(b[:])), err
}

// receive waits for what a zygote says.
func (g *zygote) receive(b []byte) (int, error) {
	for {
		n, err := unix.Read(g.conn, b)
		if err != unix.EINTR {
			return n, err
		}
	}
}

// message has a child made that is the plan; nil if it is too large.
func (g *zygote) message(p *plan, m mark) []byte {
	if len(p.env) > g.slots {
		return nil
	}
	const raise, child = 0x00200000 | 0x01000000, 0x00008000 // CLEARTID and SETTID, as the C library has it; PARENT, so that it is ours
	msg := &message{at: g.at, flags: raise | child | uint64(unix.SIGCHLD), tid: g.tid}
	pid := msg.putNumbers(0)
	msg.callTo(pid, unix.SYS_GETPID)
	for i := range 3 {
		msg.call(unix.SYS_DUP3, zygoteGiven+uint64(i), uint64(i), 0)
	}
	msg.call(unix.SYS_SETSID)
	msg.call(unix.SYS_CHDIR, msg.put([]byte(p.dir+"\x00")))
	if m != 0 {
		msg.call(unix.SYS_PRLIMIT64, 0, rlimitLocks, msg.putNumbers(uint64(m), uint64(m)), 0)
	}
	mm := g.mm
	vector, start, end := msg.putStrings(make([]uint64, 0, len(p.argv)+len(p.env)+2), p.argv)
	mm.args = extent{start, end}
	vector, start, end = msg.putStrings(vector, p.env)
	mm.env = extent{start, end}
	mm.set(msg)
	msg.call(callCopy, g.mm.vector(), msg.putNumbers(vector...), uint64(8*len(vector)))
	msg.call(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1)
	msg.say(pid, 8)
	msg.call(unix.SYS_CLOSE_RANGE, zygoteSocket, math.MaxUint32, 0)
	return msg.bytes()
}

// prepare starts a zygote for commands like this one, if there is none and they are frequent.
func (z *zygotes) prepare(p *plan) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.never || z.closed || z.by[p.id.name] != nil {
		return
	}
	last := z.asked[p.id.name]
	z.asked[p.id.name] = time.Now()
	if time.Since(last) > zygoteRest {
		return
	}
	g, err := z.start(p)
	if err != nil {
		z.s.log.Debug("no command is started ahead here", "err", err)
		z.never = true
		return
	}
	z.by[p.id.name] = g
}

// start starts a zygote and gets to know it. Called with z.mu held.
func (z *zygotes) start(p *plan) (_ *zygote, err error) {
	if z.object < 0 {
		if z.object, err = newZygoteObject(); err != nil {
			z.object = -1
			return nil, err
		}
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	null, err := openNull()
	if err != nil {
		closeAll(pair[:])
		return nil, err
	}
	slots := max(zygoteSlots, 2*len(p.env))
	asleep := &plan{
		id: p.id, path: p.path, dir: "/",
		argv: []string{"bash", "-c", "# waits to be a command's"},
		env:  append([]string{"LD_PRELOAD=/proc/self/fd/" + strconv.Itoa(zygoteObject)}, make([]string, slots-1)...),
	}
	g := &zygote{user: p.id.name, path: p.path, looks: looksOf(p.path), conn: pair[0], slots: slots, used: time.Now(), gone: make(chan struct{})}
	g.o = &owner{zygote: true}
	g.died, err = z.s.start(asleep, g.o, childIO{files: []int{null, null, null, pair[1], z.object}})
	closeAll([]int{null, pair[1]})
	if err != nil {
		_ = unix.Close(pair[0])
		return nil, err
	}
	z.s.burials.Add(1)
	go func() {
		defer z.s.burials.Done()
		<-g.died
		z.bury(g)
	}()
	if err := g.meet(); err != nil {
		z.end(g)
		return nil, err
	}
	g.rest = time.AfterFunc(zygoteRest, func() { z.retire(g) })
	return g, nil
}

// bury forgets a zygote that has ended.
func (z *zygotes) bury(g *zygote) {
	z.s.disown(g.o)
	close(g.gone)
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.by[g.user] == g {
		delete(z.by, g.user)
	}
	if g.rest != nil {
		g.rest.Stop()
	}
	_ = unix.Close(g.conn)
}

// end has a zygote end. Called with z.mu held.
func (z *zygotes) end(g *zygote) {
	if z.by[g.user] == g {
		delete(z.by, g.user)
	}
	_ = unix.Shutdown(g.conn, unix.SHUT_RDWR)
	z.s.reaper.kill(g.o.pid, g.died) // also if it is stopped
}

// retire ends one that nobody has used for long enough.
func (z *zygotes) retire(g *zygote) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.by[g.user] != g {
		return
	}
	if left := zygoteRest - time.Since(g.used); left > 0 {
		g.rest.Reset(left)
		return
	}
	z.end(g)
}

// endAll ends them all, keeps others from being started, and returns when they are gone.
func (z *zygotes) endAll() {
	z.mu.Lock()
	z.closed = true
	var all []*zygote
	for _, g := range z.by {
		all = append(all, g)
		z.end(g)
	}
	if z.object >= 0 {
		_ = unix.Close(z.object)
		z.object = -1
	}
	z.mu.Unlock()
	for _, g := range all {
		<-g.gone
	}
}

// open lets others be started again.
func (z *zygotes) open() {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.closed = false
}
