package session_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"berth/proto"
	"berth/session"
	"berth/state/ledger"
	"berth/test/sessiontest"

	"pgregory.net/rapid"
)

// This file has the faults of the model test and the steps about time.

type wait = sync.WaitGroup

// faultRuntime wraps the real runtime. It can make a call fail, or cut off its user as the end of a process does.
type faultRuntime struct {
	*sessiontest.Runtime

	mu    sync.Mutex
	dead  bool
	armed string // the call that fails next; with "after" the call is executed nevertheless
	last  string // the call that failed last
	conns []net.Conn
}

var errFault = errors.New("a fault that the test made")

// fails consumes the fault, if it is for this call.
func (f *faultRuntime) fails(call string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead {
		return true
	}
	if f.armed != call {
		return false
	}
	f.armed, f.last = "", call
	return true
}

// hit reports whether a fault has happened since the last call of hit.
func (f *faultRuntime) hit() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.last != ""
	f.last = ""
	return was
}

func (f *faultRuntime) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed, f.last = "", ""
}

func (f *faultRuntime) Start(ctx context.Context, id string, spec session.Spec) error {
	if f.fails("start") {
		return errFault
	}
	return f.Runtime.Start(ctx, id, spec)
}

func (f *faultRuntime) Stop(ctx context.Context, id string) error {
	if f.fails("stop") {
		return errFault
	}
	err := f.Runtime.Stop(ctx, id)
	if f.fails("stop after") {
		return errFault
	}
	return err
}

func (f *faultRuntime) RemoveWorkspace(ctx context.Context, id string) error {
	if f.fails("remove") {
		return errFault
	}
	err := f.Runtime.RemoveWorkspace(ctx, id)
	if f.fails("remove after") {
		return errFault
	}
	return err
}

func (f *faultRuntime) List(ctx context.Context) (session.Inventory, error) {
	if f.fails("list") {
		return session.Inventory{}, errFault
	}
	return f.Runtime.List(ctx)
}

func (f *faultRuntime) Pause(ctx context.Context, id string) error {
	if f.fails("pause") {
		return errFault
	}
	return f.Runtime.Pause(ctx, id)
}

func (f *faultRuntime) Resume(ctx context.Context, id string) error {
	if f.fails("resume") {
		return errFault
	}
	return f.Runtime.Resume(ctx, id)
}

func (f *faultRuntime) Dial(ctx context.Context, id string) (net.Conn, error) {
	c, err := f.Runtime.Dial(ctx, id)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead {
		if err == nil {
			c.Close()
		}
		return nil, errFault
	}
	if err == nil {
		f.conns = append(f.conns, c)
	}
	return c, err
}

// kill cuts off the user of this runtime.
func (f *faultRuntime) kill() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dead = true
	for _, c := range f.conns {
		c.Close()
	}
}

func (f *faultRuntime) sandboxes() []string {
	inv, _ := f.Runtime.List(context.Background())
	return inv.Sandboxes
}

// capGrace is how long past its cap a session is left to its running command, as in sweep.go.
const capGrace = 5 * time.Minute

// fault makes one of the next calls fail.
func (m *model) fault(r *rapid.T) {
	m.rt.clear()
	armed := rapid.SampledFrom([]string{"start", "stop", "stop after", "remove", "remove after"}).Draw(r, "call")
	m.rt.mu.Lock()
	defer m.rt.mu.Unlock()
	m.rt.armed = armed
}

// die ends a sandbox without the core's knowledge.
func (m *model) die(r *rapid.T) {
	s := m.pick(r)
	if !s.running || s.dead || s.gone || s.deleting {
		r.Skip("does not run")
	}
	m.rt.Kill(s.id)
	s.dead = true
	busy := s.bg != nil
	if m.ended(r, s, proto.EndLost); busy {
		s.used = m.now()
		m.adopt(r, s) // the core may have noticed the end, or not
	}
}

func (m *model) pass(r *rapid.T) {
	m.c.pass(time.Duration(rapid.IntRange(1, 50).Draw(r, "seconds")) * time.Second)
}

// passToEnd lets time pass until about a second before or after the end of a session's lease or cap, and sweeps.
func (m *model) passToEnd(r *rapid.T) {
	s := m.pick(r)
	if i := slices.IndexFunc(m.all, func(s *modelSession) bool { return s.bg != nil }); i >= 0 &&
		rapid.Bool().Draw(r, "busy") {
		s = m.all[i]
	}
	end := s.expires()
	if rapid.Bool().Draw(r, "cap") {
		end = s.cap()
	}
	m.passTo(r, end)
}

func (m *model) passTo(r *rapid.T, end time.Duration) {
	if left := end - m.now() + time.Duration(rapid.IntRange(-1, 1).Draw(r, "off"))*time.Second; left > 0 {
		m.c.pass(left)
	}
	m.sweep(r)
}

// overstay runs a command past the end of its session's lease or cap, which seldom happens by chance.
func (m *model) overstay(r *rapid.T) {
	s := m.pick(r)
	if s.bg == nil {
		m.beginIn(r, s)
	}
	if s.bg == nil { // because of a fault
		return
	}
	m.passTo(r, s.expires())
	m.check(r)
	if rapid.Bool().Draw(r, "cap") {
		m.passTo(r, s.cap()+time.Second)
	}
}

// setClock sets the wall clock. The sweep that follows within seconds records that.
func (m *model) setClock(r *rapid.T) {
	by := rapid.IntRange(-100_000, 100_000).Draw(r, "seconds")
	if by*by < 4 {
		r.Skip("as much as slewing does, which is followed")
	}
	m.c.set(time.Duration(by) * time.Second)
	m.sweep(r)
}

// sweep compares the result of one sweep with the model.
func (m *model) sweep(r *rapid.T) {
	for _, s := range m.all {
		if s.bg == nil {
			m.settled(r, s) // a command is answered a moment before it releases its session
		}
	}
	done, err := m.st.Sessions.Sweep(context.Background())
	failed := m.rt.hit()
	if err != nil && !failed {
		r.Fatalf("sweeping: %v", err)
	}
	var want session.Swept
	for _, s := range m.all {
		m.sweepOne(s, &want, failed)
		if s.expired && s.bg != nil {
			m.ended(r, s, proto.EndLost, proto.EndStopped, proto.EndExpired)
		}
	}
	if !failed && (done.Stopped != want.Stopped || done.Expired != want.Expired || done.Forgotten != want.Forgotten ||
		done.Lost != want.Lost || done.Strays != 0) {
		r.Fatalf("the sweep did %+v, want %+v", done, want)
	}
}

func (m *model) sweepOne(s *modelSession, want *session.Swept, failed bool) {
	switch {
	case s.gone:
	case s.deleting:
		if !failed {
			m.letGo(s, s.keep)
			s.gone = true
		}
	case s.expired && failed: // it may still hold its workspace
	case s.expired:
		m.letGo(s, false)
		if m.now() > s.finished+time.Hour {
			s.gone = true
			want.Forgotten++
		}
	case m.now() >= s.cap():
		if s.bg == nil || m.now() >= s.cap()+capGrace {
			s.finished, s.expired, s.running, s.paused, s.dead = m.now(), true, false, false, false
			want.Expired++
			if !failed { // else the next sweep or the next daemon releases the workspace
				m.letGo(s, false)
			}
		}
	case s.running && m.now() >= s.expires() && s.bg == nil:
		s.running, s.paused, s.dead = false, false, false
		want.Stopped++
	case s.dead:
		s.running, s.paused, s.dead = false, false, false
		want.Lost++
	case s.running && !s.paused && m.now() >= s.used+modelStopAfter && s.bg == nil:
		real, _ := m.st.Sessions.Get(sessiontest.Owner, s.id)
		if s.running = failed && real != nil && real.Info().State == proto.StateRunning; !s.running {
			want.Stopped++
		}
	case !failed:
		s.written = s.used
	}
}

// restart closes the daemon in order and starts another.
func (m *model) restart(r *rapid.T) {
	m.rt.clear()
	m.st.Reopen(m.t)
	m.reopened(r)
}

// crash kills the daemon: its memory is gone, the kernel releases what it held, and the next daemon finds the disk as
// it was at that moment.
func (m *model) crash(r *rapid.T) {
	m.rt.clear()
	old, dir := *m.st, killed(m.t, m.st)
	m.rt.kill()
	m.tail.Go(func() { abandon(&old) })
	for _, s := range m.all {
		s.bg = nil
	}
	m.rt = &faultRuntime{Runtime: m.rt.Runtime}
	m.st.Dir, m.st.Runtime = dir, m.rt
	m.st.Open(m.t)
	m.reopened(r)
}

// abandon ends a core whose runtime was cut off. It writes to a ledger that is not read any more.
func abandon(st *sessiontest.Stack) {
	for _, c := range []io.Closer{st.Sessions, st.Files, st.Ledger} {
		_ = c.Close()
	}
	_ = os.Remove(filepath.Join(st.Dir, "ledger.db"))
}

// reopened applies the start of a new daemon to the model.
func (m *model) reopened(r *rapid.T) {
	for _, s := range m.all {
		if s.bg != nil {
			m.ended(r, s, proto.EndStopped, proto.EndLost, proto.EndKilled)
		}
		switch {
		case s.gone:
			continue
		case s.deleting: // finished at the start
			m.letGo(s, s.keep)
			s.gone = true
			continue
		case s.expired: // the start removes what a sweep could not remove
			m.letGo(s, false)
			continue
		case s.dead:
			s.running, s.paused, s.dead = false, false, false
		}
		real, _ := m.st.Sessions.Get(sessiontest.Owner, s.id)
		if real == nil {
			r.Fatalf("%s is lost by a restart", s.id)
		}
		used := real.Info().LastUsedAt.Sub(m.c.wall.Now()) + m.now()
		if s.running && used != m.now() {
			r.Fatalf("%s still runs, and the time without a daemon ate its lease: last used at %v, now %v", s.id, used,
				m.now())
		}
		if used < s.written {
			r.Fatalf("%s was used at %v, and swept since, and a restart has it at %v", s.id, s.written, used)
		}
		s.used = used // for a stopped session, as last written
	}
}

// ledgerDies makes the ledger refuse every write: the core may promise nothing then. Afterwards the daemon starts
// again.
func (m *model) ledgerDies(r *rapid.T) {
	s := m.pick(r)
	real := m.usable(r, s)
	if s.dead {
		r.Skip("dead")
	}
	m.rt.clear()
	if err := m.st.Ledger.Close(); err != nil {
		r.Fatal(err)
	}
	ctx := context.Background()
	if _, err := m.st.Sessions.Create(ctx, sessiontest.Owner, proto.CreateContainer{}); err == nil {
		r.Fatal("created, and written nowhere")
	}
	if _, err := real.Extend(time.Minute); err == nil {
		r.Fatal("extended, and written nowhere")
	}
	if err := real.Stop(ctx); err == nil && s.running {
		r.Fatal("stopped, and written nowhere")
	}
	if err := m.st.Sessions.Delete(ctx, sessiontest.Owner, s.id, false); err == nil {
		r.Fatal("deleted, and written nowhere")
	}
	if s.running && !slices.Contains(m.rt.sandboxes(), s.id) {
		r.Fatal("taken down, and written nowhere")
	}
	_ = m.st.Sessions.Close() // fails, since it cannot write
	for _, s := range m.all {
		m.ended(r, s, proto.EndStopped)
	}
	_ = m.st.Files.Close()
	m.st.Sessions = nil
	m.st.Open(m.t)
	m.reopened(r)
}

// check compares everything that is visible.
func (m *model) check(r *rapid.T) {
	for _, s := range m.all {
		real := m.get(r, s)
		if real == nil || s.deleting {
			continue
		}
		m.checkInfo(r, s, real.Info())
	}
	m.checkLists(r)
}

func (m *model) checkInfo(r *rapid.T, s *modelSession, info proto.Container) {
	state := proto.StateStopped
	switch {
	case s.expired:
		state = proto.StateExpired
	case s.paused:
		state = proto.StatePaused
	case s.running:
		state = proto.StateRunning
	}
	if info.State != state || info.Generation != s.generation {
		r.Fatalf("%s is %s, generation %d; want %s, %d", s.id, info.State, info.Generation, state, s.generation)
	}
	if s.expired {
		return
	}
	wall, now := m.c.wall.Now(), m.now()
	if left := info.ExpiresAt.Sub(wall); left != s.expires()-now {
		r.Fatalf("%s has %v left, want %v", s.id, left, s.expires()-now)
	}
	if left := info.MaxExpiresAt.Sub(wall); left != s.cap()-now {
		r.Fatalf("%s is %v from its cap, want %v", s.id, left, s.cap()-now)
	}
	if busy := info.RunningExecs == 1; busy != (s.bg != nil) {
		r.Fatalf("%s runs %d commands, want one: %v", s.id, info.RunningExecs, s.bg != nil)
	}
}

func (m *model) checkLists(r *rapid.T) {
	want := 0
	for _, s := range m.all {
		if !s.gone && !s.deleting && !s.expired {
			want++
		}
	}
	page, _, err := m.st.Sessions.List(sessiontest.Owner, session.Filter{Limit: 1000})
	if err != nil {
		r.Fatal(err)
	}
	have := 0
	for _, c := range page {
		if i := slices.IndexFunc(m.all, func(s *modelSession) bool { return s.id == c.ID }); i >= 0 &&
			!m.all[i].deleting {
			have++
		}
	}
	if have != want {
		r.Fatalf("%d sessions are listed, want %d", have, want)
	}
}

// finally lets all sessions end, and checks that nothing is left.
func (m *model) finally(r *rapid.T) {
	m.rt.clear()
	m.sweep(r)
	m.check(r)
	for _, s := range m.all {
		if s.bg != nil {
			m.t.Logf("ending %s", s.bg.ID())
			s.bg.Cancel(proto.EndCanceled, "the test is over")
			m.ended(r, s, proto.EndCanceled)
			s.used, s.paused = m.now(), false
		}
		if m.code(s) == "" && !s.dead {
			m.content(r, s)
		}
	}
	m.c.pass(10 * time.Minute) // past all caps
	m.sweep(r)
	m.sweep(r)
	m.c.pass(2 * time.Hour) // past all tombstones
	m.sweep(r)
	m.checkNothingLeft(r)
}

// content checks the files of a session that still exists.
func (m *model) content(r *rapid.T, s *modelSession) {
	real := m.get(r, s)
	res, err := real.Run(context.Background(), proto.Cmd{Command: "cat /workspace/tokens 2>/dev/null"})
	if err != nil {
		r.Fatalf("looking into %s: %v", s.id, err)
	}
	m.settled(r, s)
	m.use(s)
	m.compare(r, s.id, s.tokens, res.Partial, res.Result.Result)
}

func (m *model) checkNothingLeft(r *rapid.T) {
	inv, err := m.rt.Runtime.List(context.Background())
	if err != nil || len(inv.Sandboxes) > 0 {
		r.Fatalf("sandboxes are left: %v %v", inv.Sandboxes, err)
	}
	var kept []string
	for id := range m.kept {
		kept = append(kept, id)
	}
	slices.Sort(kept)
	slices.Sort(inv.Workspaces)
	if !slices.Equal(kept, inv.Workspaces) {
		r.Fatalf("workspaces on disk: %v, want %v", inv.Workspaces, kept)
	}
	_ = m.st.Ledger.View(func(tx *ledger.Tx) error {
		for _, bucket := range []string{"sessions", "execs", "strays"} {
			_ = tx.Scan(bucket, "", func(key string, _ []byte) (bool, error) {
				r.Fatalf("left in the ledger: %s/%s", bucket, key)
				return false, nil
			})
		}
		return nil
	})
}
