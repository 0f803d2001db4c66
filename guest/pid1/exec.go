package pid1

import (
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"berth/guest/fs"
	"berth/guest/input"
	"berth/guest/output"
	"berth/guest/proc"
	"berth/guest/wire"
	"berth/guest/zygote"
	"berth/proto"
)

// An execution is a command that runs for a caller.
type execution struct {
	s      *Server
	by     *caller     // the caller that started it
	group  *proc.Group // nil while the command waits for its turn on a shell
	tty    *os.File
	outs   []*os.File     // read ends of stdout and stderr
	given  []int          // read ends that the caller reads; kept to go on reading for processes left behind
	pumps  []*output.Pump // for outputs that the guest reads itself
	feed   *input.Feeder  // stdin that comes as frames; nil for other stdin
	keep   []int          // write ends that the guest holds until the command has ended
	before proc.Counters  // counters at the start
	plan   *plan
	job    string      // the job directory to check after the end
	kind   zygote.Kind // of the zygote for such commands; zero if there can be none

	cancel chan struct{} // closed when the caller has disconnected
	ended  chan struct{} // closed after the end was sent to the caller, or sending it failed
	ending atomic.Bool   // set just before the end is sent; the caller may then start another command

	mu     sync.Mutex
	kept   *keptCommand    // nil if the command ends with its caller's connection
	killed bool            // killed by the guest on request
	acts   []chan struct{} // kills, signals and resizes; each channel is closed after the acknowledgement
	held   []*os.File      // outs that a process still has open, until the caller has read its output
}

// start starts the process and follows it to its end. It first reserves a place among the kept commands if the command
// is to be kept.
func (e *execution) start(cmd *wire.Command, fds []int) (err error) {
	if cmd.Keep > 0 {
		if e.kept, err = e.s.keeps.add(e.s, cmd); err != nil {
			wire.CloseAll(fds)
			return err
		}
	}
	deaths, err := e.startProcess(cmd, fds)
	if err != nil {
		e.kept.started(nil)
		return err
	}
	e.announce(wire.Started{PID: e.group.PID, Pipes: len(fds) > 0})
	e.pump(cmd.TTY != nil, len(fds) > 0)
	e.s.wg.Go(func() {
		defer e.s.survive(e.by.conn)
		e.finish(<-deaths)
	})
	return nil
}

// startProcess connects the descriptors and starts the process: in a prestarted process of a zygote if there is one,
// and otherwise by fork and exec.
func (e *execution) startProcess(cmd *wire.Command, fds []int) (<-chan proc.ExitStatus, error) {
	p := e.plan
	pl, err := e.plumb(cmd, p, fds)
	if err != nil {
		return nil, err
	}
	defer wire.CloseAll(pl.child)
	z, g := e.s.zygotes, &proc.Group{ID: cmd.ID}
	e.kind = z.Kind(&p.Program, pl.Files)
	e.before = e.s.procs.Counters(nil)
	deaths, err := e.s.procs.Start(&p.Program, g, pl.Files, func() (<-chan proc.ExitStatus, bool) {
		return z.Start(e.kind, g, &p.Program, pl.Files)
	})
	if err != nil {
		e.unplumb()
		return nil, notStarted(&p.Program, err)
	}
	e.group = g
	return deaths, nil
}

// A childIO is the set of descriptors for a child. The field child holds those that the guest must close.
type childIO struct {
	proc.Files
	child []int
}

// plumb makes the child's descriptors from those of the request, from new pipes, or from a terminal.
func (e *execution) plumb(cmd *wire.Command, p *plan, fds []int) (pl childIO, err error) {
	switch {
	case cmd.TTY != nil:
		wire.CloseAll(fds)
		pl, err = e.plumbTTY(cmd, p)
	case len(fds) == 4 || len(fds) == 5:
		pl = e.plumbGiven(fds)
	default:
		wire.CloseAll(fds)
		pl, err = e.plumbOwn(cmd)
	}
	if err == nil && pl.FDs[0] < 0 {
		// opened anew: commands that share an open file would share its locks
		pl.FDs[0], err = unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		pl.child = append(pl.child, pl.FDs[0])
	}
	if err == nil && p.text != nil {
		err = pl.addText(p.text)
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
func (e *execution) plumbGiven(fds []int) (pl childIO) {
	pl.child, pl.FDs = []int{fds[0], fds[2]}, []int{-1, fds[0], fds[2]}
	if len(fds) == 5 {
		pl.child = append(pl.child, fds[4])
		pl.FDs[0] = fds[4]
	}
	e.given = []int{fds[1], fds[3]}
	return pl
}

// plumbOwn makes pipes, and sends their data as frames.
func (e *execution) plumbOwn(cmd *wire.Command) (pl childIO, err error) {
	pl.FDs = []int{-1, -1, -1}
	for i := range 2 {
		r, w, err := wire.Pipe()
		if err != nil {
			return pl, err
		}
		pl.FDs[1+i], pl.child = w, append(pl.child, w)
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
		pl.FDs[0], pl.child = r, append(pl.child, r)
		f, err := wire.Pollable(w, "stdin")
		if err != nil {
			return pl, err
		}
		e.startFeed(cmd)
		e.feed.Open(f, f.Close)
	}
	return pl, nil
}

// addText gives the child a script as descriptor 3.
func (pl *childIO) addText(text []byte) error {
	fd, err := unix.MemfdCreate("script", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	pl.FDs, pl.child = append(pl.FDs, fd), append(pl.child, fd)
	for len(text) > 0 {
		n, err := unix.Write(fd, text)
		if err != nil {
			return err
		}
		text = text[n:]
	}
	return nil
}

// startFeed prepares for stdin that comes as frames.
func (e *execution) startFeed(cmd *wire.Command) {
	if !cmd.HasInput() {
		return
	}
	e.feed = input.New(func(n uint32, epoch int) {
		if kp := e.keptAs(); kp != nil {
			kp.credit(n, epoch)
		} else {
			_ = e.by.conn.Send(wire.FrameCredit, wire.EncodeNumbers(n))
		}
	})
	if cmd.Input != nil {
		e.feed.Fill(cmd.Input)
	}
}

// unplumb closes the guest's ends.
func (e *execution) unplumb() {
	if e.feed != nil {
		e.feed.Stop()
	}
	for _, f := range e.outs {
		_ = f.Close()
	}
	wire.CloseAll(e.keep)
	wire.CloseAll(e.given)
	e.outs, e.keep, e.given = nil, nil, nil
}

// announce tells the caller that its command runs. It connects the caller to a kept command.
func (e *execution) announce(first wire.Started) {
	say := func() error { return e.by.conn.SendJSON(wire.FrameStarted, first) }
	if e.kept == nil {
		_ = say() // the reader of the connection sees an error too, and kills the command
		return
	}
	e.kept.started(e)
	e.by.link.Store(e.kept.connect(e.by.conn, [2]int64{}, say))
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

// finish sends the exit status of the process to the caller, after all of its output.
func (e *execution) finish(d proc.ExitStatus) {
	e.awaitActs()
	x := e.s.procs.Ended(e.group, d, e.before, e.wasKilled)
	e.checkJobDir(&x)
	newest := e.s.procs.Newest()
	e.report(x)
	e.s.zygotes.Prepare(e.kind, &e.plan.Program, newest)
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

func (e *execution) wasKilled() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.killed
}

// checkJobDir reads the fingerprint of the command's job and removes the command's output directory if that is empty.
// Commands of a job would become slower and slower if each left a directory behind. The directory stays while a
// process of the command runs, since that may still write there.
func (e *execution) checkJobDir(x *wire.Exit) {
	x.NoOutputDir = e.plan.noOutputDir
	empty := ""
	if x.Leftover == 0 && !e.shellIsIn(e.plan.output) {
		empty = e.plan.output
	}
	if e.job != "" && e.kept == nil { // the end of a kept command may be read later, when the job has changed
		st := e.s.fs.Fingerprint(e.job, empty)
		x.Seen, x.NoOutput, empty = st.Fingerprint, st.Pruned, st.Left
	}
	if empty != "" {
		x.NoOutput = e.removeOutputDir()
	}
}

// mappings asks for what other processes may change unseen.
func (s *Server) mappings() fs.Mappings {
	live, shared := s.procs.Mappings()
	return fs.Mappings{Live: live, Shared: shared}
}

// removeOutputDir removes the command's output directory if it is empty, under the same rules as FreshDir. It reports
// whether it did.
func (e *execution) removeOutputDir() bool {
	return e.plan.output != "" && e.s.fs.RemoveEmptyDir(e.plan.User, e.plan.output)
}

// report sends the end and closes descriptors that are no longer needed.
func (e *execution) report(x wire.Exit) {
	for _, p := range e.pumps {
		p.Finish()
	}
	if e.feed != nil {
		e.feed.Stop()
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
	for _, fd := range e.given {
		if !hasWriter(fd) {
			shut = append(shut, fd)
		} else if f, err := wire.Pollable(fd, "output"); err == nil {
			open = append(open, f)
		}
	}
	e.outs, e.given = nil, nil
	return open, shut
}

// fileHasWriter is hasWriter for a file.
func fileHasWriter(f *os.File) (writer bool) {
	raw, err := f.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) { writer = hasWriter(int(fd)) })
	}
	return writer
}

// hasWriter reports whether the write end of a pipe is open.
func hasWriter(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	_, err := unix.Poll(p, 0)
	return err == nil && p[0].Revents&unix.POLLHUP == 0
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
