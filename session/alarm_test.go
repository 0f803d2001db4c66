package session_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"berth/proto"
	"berth/session"
	"berth/test/sessiontest"
)

// timers are timers that run by a test's clocks.
type timers struct {
	*twoClocks
	mu  sync.Mutex
	all map[*timer]bool
}

type timer struct {
	at time.Time // by the monotonic clock
	fn func()
}

func newTimers() *timers { return &timers{twoClocks: newTwoClocks(), all: map[*timer]bool{}} }

func (ts *timers) config(cfg session.Config) session.Config {
	cfg = ts.twoClocks.config(cfg)
	cfg.AfterFunc = func(d time.Duration, fn func()) func() bool {
		one := &timer{ts.since.Now().Add(d), fn}
		ts.mu.Lock()
		defer ts.mu.Unlock()
		ts.all[one] = true
		return func() bool {
			ts.mu.Lock()
			defer ts.mu.Unlock()
			there := ts.all[one]
			delete(ts.all, one)
			return there
		}
	}
	return cfg
}

// pass lets time pass in steps of a second, and runs what is due.
func (ts *timers) pass(d time.Duration) {
	for ; d > 0; d -= time.Second {
		ts.twoClocks.pass(time.Second)
		ts.run()
	}
}

// run runs what is due.
func (ts *timers) run() {
	var due []*timer
	ts.mu.Lock()
	for one := range ts.all {
		if !ts.since.Now().Before(one.at) {
			due = append(due, one)
			delete(ts.all, one)
		}
	}
	ts.mu.Unlock()
	for _, one := range due {
		one.fn()
	}
}

// becomes waits until the session has the state. Time stands, but timers that are due run.
func (ts *timers) becomes(t *testing.T, s *session.Session, want proto.State) {
	t.Helper()
	for end := time.Now().Add(time.Minute); s.Info().State != want; time.Sleep(time.Millisecond) {
		if ts.run(); time.Now().After(end) {
			t.Fatalf("it is %s, not %s", s.Info().State, want)
		}
	}
}

var endStates = map[proto.LeaseAction]proto.State{proto.LeaseStop: proto.StateStopped,
	proto.LeasePause: proto.StatePaused, proto.LeaseRemove: proto.StateExpired}

// TestAbsoluteLeasesEndOnTime checks that an absolute lease acts at its end without any sweep, with a command that
// runs and without: as it was made, shortened, extended, in a fork, under the next daemon, and after the wall clock was
// set.
func TestAbsoluteLeasesEndOnTime(t *testing.T) {
	for end, state := range endStates {
		for _, used := range []bool{true, false} {
			name := string(end)
			if used {
				name += "/used"
			}
			t.Run(name, func(t *testing.T) { testEndOnTime(t, end, state, used) })
		}
	}
}

func testEndOnTime(t *testing.T, end proto.LeaseAction, state proto.State, used bool) {
	ts := newTimers()
	st := sessiontest.New(t, ts.config(session.Config{}))
	plain := leased(t, st, proto.LeaseAbsolute, end, in(10))
	shortened := leased(t, st, proto.LeaseAbsolute, end, in(3000))
	extended := leased(t, st, proto.LeaseAbsolute, end, in(5))
	made := leased(t, st, proto.LeaseRolling, end, in(5))
	forks, err := plain.Fork(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	change := func(s *session.Session, req proto.LeaseRequest) {
		t.Helper()
		if _, err := s.Change(t.Context(), proto.ChangeContainer{Lease: req}); err != nil {
			t.Fatal(err)
		}
	}
	change(shortened, proto.LeaseRequest{EndsInSeconds: in(10)})
	change(made, proto.LeaseRequest{Mode: proto.LeaseAbsolute, EndsInSeconds: in(10)})
	if _, err := extended.Extend(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	all := []*session.Session{plain, shortened, extended, made, forks[0]}
	var commands []*session.Exec
	for _, s := range all {
		sessiontest.Bash(t, s, "true")
		if used {
			commands = append(commands, start(t, s, proto.Cmd{Command: "sleep 1000"}))
		}
	}
	if !used {
		unused(all...)
	}
	ts.set(5 * time.Hour)
	ts.pass(9 * time.Second)
	for i, s := range all {
		if got := s.Info().State; got != proto.StateRunning {
			t.Fatalf("a second early %d is %s", i, got)
		}
	}
	ts.set(-50 * time.Hour)
	ts.pass(time.Second)
	for _, s := range all {
		ts.becomes(t, s, state)
	}
	if done := sweep(t, st); done.Stopped+done.Paused+done.Expired != 0 {
		t.Errorf("a sweep did it again: %+v", done)
	}
	if end == proto.LeasePause {
		return // the commands are frozen
	}
	for _, e := range commands {
		if got := waited(t, e).Exec.End; !strings.Contains(got.Message, "lease ended") {
			t.Errorf("a command ended as %+v", got)
		}
	}
}

// TestAbsoluteLeaseEndsUnderTheNextDaemon checks that a daemon acts on a lease that an earlier one made: at its end, or
// at once if that is over.
func TestAbsoluteLeaseEndsUnderTheNextDaemon(t *testing.T) {
	for end, state := range endStates {
		t.Run(string(end), func(t *testing.T) {
			ts := newTimers()
			st := sessiontest.New(t, ts.config(session.Config{}))
			over, later := leased(t, st, proto.LeaseAbsolute, end, in(10)), leased(t, st, proto.LeaseAbsolute, end, in(30))
			st.Close(t)
			ts.pass(20 * time.Second)
			if len(ts.all) != 0 {
				t.Errorf("%d timers are left", len(ts.all))
			}
			st.Open(t)
			found := func(s *session.Session) *session.Session { return st.Sessions.Any(s.ID()) }
			ts.becomes(t, found(over), state)
			if got := found(later).Info().State; got != proto.StateRunning {
				t.Errorf("the other is %s early", got)
			}
			ts.pass(10 * time.Second)
			ts.becomes(t, found(later), state)
		})
	}
}

// TestWokenLeaseEndsOnTime checks that a lease that a use began anew ends on time again, and so does one of a session
// that was restored.
func TestWokenLeaseEndsOnTime(t *testing.T) {
	ts := newTimers()
	st := sessiontest.New(t, ts.config(session.Config{}))
	s := leased(t, st, proto.LeaseAbsolute, proto.LeaseStop, in(10))
	snap, err := s.Snapshot(t.Context(), proto.CreateSnapshot{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		ts.pass(10 * time.Second)
		ts.becomes(t, s, proto.StateStopped)
		sessiontest.Bash(t, s, "true")
		unused(s)
	}
	if err := s.Restore(t.Context(), snap.ID); err != nil {
		t.Fatal(err)
	}
	sessiontest.Bash(t, s, "true")
	unused(s)
	ts.pass(9 * time.Second)
	if got := s.Info().State; got != proto.StateRunning {
		t.Errorf("it is %s early", got)
	}
	ts.pass(time.Second)
	ts.becomes(t, s, proto.StateStopped)
}
