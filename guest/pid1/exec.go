package pid1

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"berth/guest/output"
	"berth/guest/user"
	"berth/guest/wire"
	"berth/proto"
)

// An execution is a command that runs for a caller.
type execution struct {
	s           *Server
	by          *caller // the caller that started it
	group       *group  // nil while the command waits for its turn on a shell
	tty         *os.File
	outs        []*os.File     // read ends of stdout and stderr
	given       []int          // read ends that the caller reads; kept to go on reading for processes left behind
	pumps       []*output.Pump // for outputs that the guest reads itself
	feed        *feeder        // stdin that comes as frames; nil for other stdin
	keep        []int          // write ends that the guest holds until the command has ended
	before      counters       // counters at the start
	id          user.User      // the user of the command
	output      string         // its output directory; "" for none
	job         string         // the job directory to check after the end
	plan        *plan          // nil for a call on a shell
	kind        kind           // of the zygote for such commands; zero if there can be none
	noOutputDir bool           // its output directory could not be made because the disk is full

	cancel chan struct{} // closed when the caller has disconnected
	ended  chan struct{} // closed after the end was sent to the caller, or sending it failed
	ending atomic.Bool   // set just before the end is sent

	mu     sync.Mutex
	kept   *kept           // nil if the command ends with its caller's connection
	killed bool            // killed by the guest on request
	acts   []chan struct{} // kills, signals and resizes; each channel is closed after the acknowledgement
	held   []*os.File      // outs that a process still has open, until the caller has read its output
}

// over reports whether the command has ended and the caller may start another.
func (e *execution) over() bool { return e.ending.Load() }

// startCommand starts a command for the caller.
func (k *caller) startCommand(ctx context.Context, req *wire.Request, fds []int) error {
	if req.Command == nil || req.Pipes != len(fds) || req.Command.Keep > 0 && len(fds) > 0 {
		wire.CloseAll(fds)
		return wire.ErrFrame
	}
	e := &execution{s: k.s, by: k, cancel: make(chan struct{}), ended: make(chan struct{})}
	p, err := k.s.plan(req.Command)
	if err != nil {
		wire.CloseAll(fds)
		return k.reply(nil, err)
	}
	k.exec = e
	e.id, e.output, e.noOutputDir = p.id, p.output, p.noOutputDir
	if req.Command.Job != "" {
		e.job = k.s.fs.Absolute(req.Command.Job)
	}
	if req.Command.Shell != "" {
		wire.CloseAll(fds)
		e.startFeed(req.Command)
		k.s.wg.Add(1)
		go func() {
			defer k.s.wg.Done()
			defer k.s.survive(k.conn)
			e.onShell(req.Command, p)
		}()
		return nil
	}
	deaths, err := e.startKept(req.Command, p, fds)
	if err != nil {
		k.exec = nil
		e.removeOutputDir()
		return k.reply(nil, err)
	}
	e.announce(wire.Started{PID: e.group.pid, Pipes: len(fds) > 0})
	e.pump(req.Command.TTY != nil, len(fds) > 0)
	k.s.wg.Add(1)
	go func() {
		defer k.s.wg.Done()
		defer k.s.survive(k.conn)
		d := <-deaths
		e.finish(d)
	}()
	return nil
}

// startKept starts the process. It first reserves a place among the kept commands if the command is to be kept.
func (e *execution) startKept(cmd *wire.Command, p *plan, fds []int) (deaths <-chan exitStatus, err error) {
	if cmd.Keep > 0 {
		if e.kept, err = e.s.keeps.add(e.s, cmd); err != nil {
			wire.CloseAll(fds)
			return nil, err
		}
	}
	if deaths, err = e.startProcess(cmd, p, fds); err != nil {
		e.kept.started(nil)
	}
	return deaths, err
}

// startProcess connects the descriptors and starts the process.
func (e *execution) startProcess(cmd *wire.Command, p *plan, fds []int) (<-chan exitStatus, error) {
	pl, err := e.plumb(cmd, p, fds)
	if err != nil {
		return nil, err
	}
	defer wire.CloseAll(pl.child)
	pl.kind = p.kind(pl)
	e.before = e.s.countersBefore()
	o := &group{id: cmd.ID}
	deaths, err := e.s.startProcess(p, o, pl)
	if err != nil {
		e.unplumb()
		return nil, notStarted(p, err)
	}
	e.group, e.plan, e.kind = o, p, pl.kind
	return deaths, nil
}

// A childIO is the set of descriptors for a child. The field child holds those that the guest must close.
type childIO struct {
	files []int // 0, 1, 2 and the following ones
	child []int
	tty   bool
	kind  kind // of the zygote whose prestarted process may get them; zero for none
}

// plumb makes the child's descriptors from those of the request, from new pipes, or from a terminal.
func (e *execution) plumb(cmd *wire.Command, p *plan, fds []int) (pl childIO, err error) {
	switch {
	case cmd.TTY != nil:
		wire.CloseAll(fds)
		pl, err = e.plumbTTY(cmd, p)
	case len(fds) == 4 || len(fds) == 5:
		pl, err = e.plumbGiven(cmd, fds)
	default:
		wire.CloseAll(fds)
		pl, err = e.plumbOwn(cmd, p)
	}
	if err == nil && p.text != nil {
		err = pl.addText(p)
	}
	if err != nil {
		wire.CloseAll(pl.child)
		e.unplumb()
		return childIO{}, proto.Errorf(proto.TooMany, "exec", "", "the container has no file descriptors or "+
			"terminals left for another command")
	}
	return pl, nil
}

// plumbGiven uses the descriptors of the request.
func (e *execution) plumbGiven(cmd *wire.Command, fds []int) (childIO, error) {
	pl := childIO{child: []int{fds[0], fds[2]}, files: []int{-1, fds[0], fds[2]}}
	if len(fds) == 5 {
		pl.child = append(pl.child, fds[4])
		pl.files[0] = fds[4]
	}
	e.given = []int{fds[1], fds[3]}
	return pl, e.s.nullInput(&pl)
}

// nullInput gives the child /dev/null as stdin if it has none.
func (s *Server) nullInput(pl *childIO) (err error) {
	if pl.files[0] >= 0 {
		return nil
	}
	var fd int
	select {
	case fd = <-s.nulls:
	default:
		if fd, err = openNull(); err != nil {
			return err
		}
	}
	pl.files[0], pl.child = fd, append(pl.child, fd)
	return nil
}

func openNull() (int, error) { return unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0) }

// openSpareNull opens the next /dev/null for nullInput.
func (s *Server) openSpareNull() {
	if len(s.nulls) > 0 {
		return
	}
	fd, err := openNull()
	if err != nil {
		return // the next nullInput reports the error
	}
	select {
	case s.nulls <- fd:
	default:
		_ = unix.Close(fd)
	}
}

// addText gives the child a script as descriptor 3.
func (pl *childIO) addText(p *plan) error {
	fd, err := unix.MemfdCreate("script", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	pl.files, pl.child = append(pl.files, fd), append(pl.child, fd)
	for b := p.text; len(b) > 0; {
		n, err := unix.Write(fd, b)
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// plumbOwn makes pipes, and sends their data as frames.
func (e *execution) plumbOwn(cmd *wire.Command, p *plan) (pl childIO, err error) {
	pl.files = []int{-1, -1, -1}
	for i := range 2 {
		r, w, err := wire.Pipe()
		if err != nil {
			return pl, err
		}
		pl.files[1+i], pl.child = w, append(pl.child, w)
		f, err := wire.Pollable(r, "output")
		if err != nil {
			return pl, err
		}
		e.outs = append(e.outs, f)
	}
	if cmd.HasInput() {
		r, w, err := wire.Pipe()
		if err != nil {
			return pl, err
		}
		pl.files[0], pl.child = r, append(pl.child, r)
		f, err := wire.Pollable(w, "stdin")
		if err != nil {
			return pl, err
		}
		e.startFeed(cmd)
		e.feed.open(f, f.Close)
	}
	return pl, e.s.nullInput(&pl)
}

// pump starts to send the output as frames, unless the caller reads it directly. It continues after the caller has
// disconnected: the command is being killed then.
func (e *execution) pump(tty, direct bool) {
	if direct {
		return
	}
	for i, f := range e.outs {
		kind := [...]wire.FrameKind{wire.FrameStdout, wire.FrameStderr}[i]
		deliver := func(b []byte) error { _ = e.by.conn.Send(kind, b); return nil }
		if e.kept != nil {
			deliver = func(b []byte) error { e.kept.out.Write(proto.Stdout+proto.Stream(i), b); return nil }
		}
		p, err := output.StartPump(f, tty, deliver, nil)
		if err != nil {
			e.s.log.Error("reading a command's output", "err", err)
			continue
		}
		e.pumps = append(e.pumps, p)
	}
}

// startFeed prepares for stdin that comes as frames.
func (e *execution) startFeed(cmd *wire.Command) {
	if !cmd.HasInput() {
		return
	}
	e.feed = newFeeder(func(n uint32, epoch int) {
		if kp := e.keptAs(); kp != nil {
			kp.credit(n, epoch)
		} else {
			_ = e.by.conn.Send(wire.FrameCredit, wire.EncodeNumbers(n))
		}
	})
	if cmd.Input != nil {
		e.feed.fill(cmd.Input)
	}
}

// unplumb closes the guest's ends.
func (e *execution) unplumb() {
	if e.feed != nil {
		e.feed.stop()
	}
	for _, f := range e.outs {
		_ = f.Close()
	}
	wire.CloseAll(e.keep)
	wire.CloseAll(e.given)
	e.outs, e.keep, e.given = nil, nil, nil
}

// startProcess starts the planned program and registers its process group.
func (s *Server) startProcess(p *plan, o *group, pl childIO) (<-chan exitStatus, error) {
	s.spawn.Lock()
	defer s.spawn.Unlock()
	o.start = bootTicks() - 1 // the clock of /proc is coarse: a start time one tick early is never too late
	o.mark = nextTag()
	s.reaper.openAccount(o)
	deaths, ok := s.zygotes.startCommand(o, p, pl)
	if !ok {
		var err error
		if o.pid, deaths, err = s.forkExec(p, pl, o.mark); err != nil {
			s.reaper.closeAccount(o)
			return nil, err
		}
		s.lastPID.started(o.pid)
	}
	s.newest.Store(int64(o.pid))
	s.addGroup(o)
	s.counterCache.invalidate() // another goroutine may have found nothing running before the group was registered
	return deaths, nil
}

// forkExec forks a child of the guest that executes the planned program.
func (s *Server) forkExec(p *plan, pl childIO, m tag) (pid int, deaths <-chan exitStatus, err error) {
	attr := &syscall.ProcAttr{
		Dir: p.dir, Env: p.env, Files: make([]uintptr, len(pl.files)),
		Sys: &syscall.SysProcAttr{Setsid: true, Credential: p.id.Credential(), Setctty: pl.tty},
	}
	for i, fd := range pl.files {
		attr.Files[i] = uintptr(fd)
	}
	m.stamp()
	s.shield.with(func() {
		pid, deaths, err = s.reaper.startChild(func() (int, error) { return syscall.ForkExec(p.path, p.argv, attr) })
	})
	return pid, deaths, err
}

// finish sends the exit status of the process to the caller, after all of its output.
func (e *execution) finish(d exitStatus) {
	e.awaitActs()
	x := exitOf(d)
	e.explain(&x)
	since, alone := e.s.counterCache.version(), false
	x.Leftover, alone = e.s.leftover(e.group)
	e.s.removeGroup(e.group)
	e.checkJobDir(&x)
	newest := e.s.newest.Load()
	e.report(x)
	e.s.zygotes.refillIfEmpty(e.kind)
	time.Sleep(afterExitDelay)
	if e.s.newest.Load() == newest { // otherwise the next command has started already
		e.s.openSpareNull()
		e.s.zygotes.refillAll(e.kind)
	}
	if alone {
		e.s.counterCache.store(since, e.s.readCounters)
	}
	e.s.zygotes.startIfFrequent(e.kind, e.plan)
}

// afterExitDelay is how long the guest stays idle after it has sent the end of a command. In this time the daemon
// answers its client, which takes about 0.3 ms. The guest cannot see when that is done. Preparing the next command
// immediately delayed this answer: it cost 10 to 20 % of the time of a small command on two processors. Preparation
// that is still due when the next command arrives would delay that command, so it waits for its end.
const afterExitDelay = 500 * time.Microsecond

// report sends the end and closes descriptors that are no longer needed.
func (e *execution) report(x wire.Exit) {
	for _, p := range e.pumps {
		p.Finish()
	}
	if e.feed != nil {
		e.feed.stop()
	}
	wire.CloseAll(e.keep)
	open, shut := e.stillOpen()
	e.mu.Lock()
	e.held = open
	e.mu.Unlock()
	e.ending.Store(true) // before the caller can see the end and ask for the next command
	if e.kept != nil {
		e.kept.finish(x)
	} else {
		_ = e.by.conn.SendJSON(wire.FrameDone, wire.Done{Exit: x, Open: len(open) > 0 && len(e.pumps) == 0})
	}
	wire.CloseAll(shut)
	if len(e.pumps) > 0 {
		e.letGo() // the guest has read all output that the caller will get
	}
	close(e.ended)
}

// stillOpen returns the outputs that a process may still write to, and closes the guest's other outputs. It also
// returns the descriptors of the request that must be closed.
func (e *execution) stillOpen() (open []*os.File, shut []int) {
	for _, f := range e.outs {
		if f != e.tty && fileHasWriter(f) {
			open = append(open, f)
		} else {
			_ = f.Close()
		}
	}
	for i, written := range haveWriters(e.given) {
		if fd := e.given[i]; !written {
			shut = append(shut, fd)
		} else if f, err := wire.Pollable(fd, "output"); err == nil {
			open = append(open, f)
		}
	}
	e.outs, e.given = nil, nil
	return open, shut
}

// fileHasWriter is haveWriters for one file.
func fileHasWriter(f *os.File) (writer bool) {
	raw, err := f.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) { writer = haveWriters([]int{int(fd)})[0] })
	}
	return writer
}

// haveWriters reports for each pipe whether its write end is open.
func haveWriters(fds []int) []bool {
	all, p := make([]bool, len(fds)), make([]unix.PollFd, len(fds))
	for i, fd := range fds {
		p[i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	}
	if _, err := unix.Poll(p, 0); err != nil {
		return all
	}
	for i := range p {
		all[i] = p[i].Revents&unix.POLLHUP == 0
	}
	return all
}

// letGo goes on reading for the processes left behind once the caller has stopped reading.
func (e *execution) letGo() {
	e.mu.Lock()
	held := e.held
	e.held = nil
	e.mu.Unlock()
	for _, f := range held {
		go output.Discard(f) // ends when the last of those processes ends
	}
}

// exitOf translates a kernel exit status.
func exitOf(d exitStatus) wire.Exit {
	x := wire.Exit{
		CPU:       time.Duration(d.usage.Utime.Nano() + d.usage.Stime.Nano()),
		PeakBytes: d.usage.Maxrss << 10,
	}
	if d.status.Signaled() {
		x.Signal = d.status.Signal()
		x.Code = 128 + int(x.Signal)
		return x
	}
	x.Code = d.status.ExitStatus()
	return x
}

// kill ends all processes of the command and returns when they are gone.
func (e *execution) kill() error {
	e.mu.Lock()
	e.killed = true
	o := e.group
	e.mu.Unlock()
	if o == nil {
		return nil
	}
	return e.s.killTree(o)
}

// act registers an action on the command. The end is sent only after the returned function was called, so that
// acknowledgements come first.
func (e *execution) act() (through func()) {
	c := make(chan struct{})
	e.mu.Lock()
	defer e.mu.Unlock()
	e.acts = append(e.acts, c)
	return func() { close(c) }
}

// awaitActs waits for the actions that have started until now.
func (e *execution) awaitActs() {
	e.mu.Lock()
	acts := e.acts
	e.acts = nil
	e.mu.Unlock()
	for _, c := range acts {
		<-c
	}
}
