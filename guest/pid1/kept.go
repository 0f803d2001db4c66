package pid1

import (
	"context"
	"encoding/binary"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"berth/guest/output"
	"berth/guest/wire"
	"berth/proto"
)

// maxKept limits the commands that a guest keeps, including ended ones that were not forgotten yet.
const maxKept = 256

// maxBarred limits the IDs that may not be used any more.
const maxBarred = 4096

// A keptCommand is a command that outlives the connection that started it. The guest stores its output and its end
// until the daemon has read and forgotten them.
type keptCommand struct {
	s     *Server
	id    string
	out   *output.Output
	wait  bool          // while no caller is connected, the command waits rather than lose output
	begun chan struct{} // closed when e is set or the start has failed
	ended chan struct{} // closed when exit is set

	e    *execution // nil if the start failed; valid after begun
	exit wire.Exit  // valid after ended
	at   time.Time  // when it ended
	from time.Time  // when it started; valid after begun

	linking sync.Mutex           // held while a link is made
	link    atomic.Pointer[link] // to the connected caller; nil if there is none
}

// A link sends the output and end of a kept command over one connection.
type link struct {
	k      *keptCommand
	conn   *wire.Conn
	epoch  int           // of the command's standard input
	at     output.Cursor // what the other side has received
	cancel context.CancelFunc
	done   chan struct{}
	told   atomic.Bool // the end is about to be sent, so the connection is free for the next request
}

// keptCommands are the kept commands of a guest.
type keptCommands struct {
	mu     sync.Mutex
	all    map[string]*keptCommand
	barred map[string]struct{} // IDs that the daemon has given up; they never start
	budget *output.Budget      // made for the first kept command, since the memory limit is set after the guest's start
	closed bool
}

// memoryShare is the part of the container's memory that kept output may take. mostKept is the maximum.
const (
	memoryShare = 16
	mostKept    = 64 << 20
)

func newKeptCommands() *keptCommands {
	return &keptCommands{all: map[string]*keptCommand{}, barred: map[string]struct{}{}}
}

// memory returns how many bytes the container may use, as far as the guest can see.
func memory() int64 {
	most := int64(1) << 40
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		most = int64(info.Totalram) * int64(info.Unit)
	}
	for _, name := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		b, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil && n > 0 {
			most = min(most, n)
		}
	}
	return most
}

// add reserves a place for a command that is about to start.
func (ks *keptCommands) add(s *Server, cmd *wire.Command) (*keptCommand, error) {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	_, barred := ks.barred[cmd.ID]
	switch {
	case cmd.ID == "":
		return nil, proto.Errorf(proto.InvalidArgument, "exec", "", "a command that is kept needs an ID")
	case barred || ks.closed:
		return nil, proto.Errorf(proto.Canceled, "exec", cmd.ID, "the caller went away")
	case ks.all[cmd.ID] != nil:
		return nil, proto.Errorf(proto.AlreadyExists, "exec", cmd.ID, "command %s exists already",
			wire.CleanText(cmd.ID, 128))
	case len(ks.all) >= maxKept:
		return nil, proto.Errorf(proto.TooMany, "exec", cmd.ID, "the container keeps %d commands, which is its "+
			"limit; wait for one to end", len(ks.all))
	}
	if ks.budget == nil {
		ks.budget = output.NewBudget(min(memory()/memoryShare, mostKept))
	}
	k := &keptCommand{s: s, id: cmd.ID, out: output.New(cmd.Keep, ks.budget), begun: make(chan struct{}),
		ended: make(chan struct{})}
	if k.wait = cmd.Wait; k.wait {
		k.out.HoldForReturn()
	}
	ks.all[cmd.ID] = k
	return k, nil
}

// started records that e runs, or with nil that the start failed.
func (k *keptCommand) started(e *execution) {
	if k == nil {
		return
	}
	k.e, k.from = e, time.Now()
	close(k.begun)
	if e == nil {
		k.s.keeps.drop(k)
	}
}

// drop frees the place of a command and its memory.
func (ks *keptCommands) drop(k *keptCommand) {
	ks.mu.Lock()
	if ks.all[k.id] == k {
		delete(ks.all, k.id)
	}
	ks.mu.Unlock()
	k.out.Drop()
}

func (ks *keptCommands) find(id string) *keptCommand {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	return ks.all[id]
}

// finish records the end.
func (k *keptCommand) finish(x wire.Exit) {
	k.exit, k.at = x, time.Now()
	close(k.ended)
	k.out.Finish()
}

// credit grants the sender n bytes of standard input, if it is still connected.
func (k *keptCommand) credit(n uint32, epoch int) {
	if l := k.link.Load(); l != nil && l.epoch == epoch {
		_ = l.conn.Send(wire.FrameCredit, wire.EncodeNumbers(n))
	}
}

// connect starts to send the command's output and end to c, from the offsets that the other side has. It closes an
// existing link, which belongs to an earlier daemon. first writes the answer that precedes the output.
func (k *keptCommand) connect(c *wire.Conn, have [2]int64, first func() error) *link {
	k.linking.Lock()
	defer k.linking.Unlock()
	if old := k.link.Load(); old != nil {
		_ = old.conn.Close()
		old.stop()
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &link{
		k: k, conn: c, epoch: k.e.feed.Renew(), cancel: cancel, done: make(chan struct{}),
		at: output.Cursor{Stdout: have[0], Stderr: have[1]},
	}
	_ = first() // the reader of the connection sees an error too
	k.link.Store(l)
	// here and not in the goroutine: that may start after the command has written more than the guest keeps
	k.out.Attach(&l.at)
	if !k.wait {
		k.out.Hold()
	}
	go l.run(ctx)
	return l
}

// run sends the output, and then the end. While a caller is connected, the command blocks rather than lose output.
// Without a caller it continues, and the middle of its output is lost, unless it waits for the next one.
func (l *link) run(ctx context.Context) {
	defer close(l.done)
	ended := l.send(ctx)
	l.k.out.Detach(&l.at)
	if ended || !l.k.wait {
		l.k.out.Release()
	}
	if !ended {
		return
	}
	<-l.k.ended
	x := l.k.exit
	x.Ago = time.Since(l.k.at)
	l.k.link.CompareAndSwap(l, nil)
	l.told.Store(true) // before the other side can see the end and ask for the next command
	_ = l.conn.SendJSON(wire.FrameDone, wire.Done{Exit: x})
}

// send sends the output and reports whether all was sent.
func (l *link) send(ctx context.Context) bool {
	for {
		p, ok, err := l.k.out.Next(ctx, &l.at)
		if err != nil || !ok {
			return err == nil
		}
		if p.Until > 0 {
			continue // the offset of the next frame shows the gap
		}
		b := binary.BigEndian.AppendUint64(append(make([]byte, 0, len(p.Data)+wire.KeptHeaderBytes), byte(p.Stream)),
			uint64(p.Offset))
		if err := l.conn.Send(wire.FrameKept, append(b, p.Data...)); err != nil {
			_ = l.conn.Close()
			return false
		}
	}
}

// stop ends a link and waits for it.
func (l *link) stop() {
	l.cancel()
	<-l.done
	l.k.link.CompareAndSwap(l, nil)
}

// attach connects the caller to a kept command.
func (k *caller) attach(req *wire.Request) error {
	kp := k.s.keeps.find(req.ID)
	if kp != nil {
		<-kp.begun
	}
	if kp == nil || kp.e == nil || req.Have[0] < 0 || req.Have[1] < 0 {
		return k.reply(nil, proto.Errorf(proto.NotFound, "attach", wire.CleanText(req.ID, 128),
			"command %s is not kept here",
			wire.CleanText(req.ID, 128)))
	}
	k.exec = kp.e
	k.link.Store(kp.connect(k.conn, req.Have, func() error {
		first := wire.Started{PID: kp.e.group.PID, Ran: time.Since(kp.from), NoInput: kp.e.feed.Deaf()}
		first.Out[0], first.Out[1] = kp.out.Totals()
		select {
		case <-kp.ended:
			first.Ended = true
		default:
		}
		return k.conn.SendJSON(wire.FrameStarted, first)
	}))
	return nil
}

// giveUp ends a kept command if the caller asked for that before it disconnected.
func (k *caller) giveUp(kp *keptCommand) {
	if !k.quit {
		return
	}
	if err := k.s.forgetKept([]string{kp.id}); err != nil {
		k.s.log.Warn("ending a command that was given up", "err", err)
	}
}

// keptAs returns the kept command of e, or nil if e ends with its caller's connection.
func (e *execution) keptAs() *keptCommand {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.kept
}

// claim is called by a daemon that has restarted, with the IDs of the commands that it knows. It returns those that
// are kept. The others of these never start any more. Kept commands that the daemon does not know end.
func (s *Server) claim(ids []string) []string {
	known := make(map[string]bool, len(ids))
	have := []string{}
	ks := s.keeps
	ks.mu.Lock()
	for _, id := range ids {
		known[id] = true
		if ks.all[id] != nil {
			have = append(have, id)
		} else if len(ks.barred) < maxBarred {
			ks.barred[id] = struct{}{}
		}
	}
	var orphans []string
	for id := range ks.all {
		if !known[id] {
			orphans = append(orphans, id)
		}
	}
	ks.mu.Unlock()
	if err := s.forgetKept(orphans); err != nil {
		s.log.Warn("ending commands that the daemon does not know", "err", err)
	}
	return have
}

// forgetKept drops these kept commands, and ends those that run.
func (s *Server) forgetKept(ids []string) error {
	var failed error
	for _, id := range ids {
		k := s.keeps.find(id)
		if k == nil {
			continue
		}
		if err := k.end(); err != nil {
			failed = err
			continue
		}
		s.keeps.drop(k)
	}
	return failed
}

// end ends the command, if it runs.
func (k *keptCommand) end() error {
	<-k.begun
	if k.e == nil || k.e.ending.Load() {
		return nil
	}
	k.out.Release()
	if err := k.e.killAll(); err != nil {
		return err
	}
	<-k.ended
	return nil
}

// closeKept ends all kept commands, and keeps no more.
func (s *Server) closeKept() {
	s.keeps.mu.Lock()
	s.keeps.closed = true
	var all []string
	for id := range s.keeps.all {
		all = append(all, id)
	}
	s.keeps.mu.Unlock()
	if err := s.forgetKept(all); err != nil {
		s.log.Warn("ending kept commands", "err", err)
	}
}
