package session_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/proto"
	"berth/session"
	"berth/state/ledger"
	"berth/test/sessiontest"
)

func in(seconds int64) *int64 { return &seconds }

// leased creates a session with that lease.
func leased(t *testing.T, st *sessiontest.Stack, mode proto.LeaseMode, end proto.LeaseAction, seconds *int64,
) *session.Session {
	t.Helper()
	return st.Create(t, proto.CreateContainer{IdleTimeoutSeconds: 60,
		Lease: proto.LeaseRequest{Mode: mode, AtEnd: end, EndsInSeconds: seconds}})
}

// left returns how far the end of a session's lease is away, and what happens next.
func left(c *twoClocks, s *session.Session) (time.Duration, string) {
	info := s.Info()
	return info.ExpiresAt.Sub(c.wall.Now()), string(info.Next.Action)
}

// TestLeases checks each lease: what a use does to its end, what happens then, and what a use finds after it, with and
// without a sweep in between.
func TestLeases(t *testing.T) {
	for _, mode := range []proto.LeaseMode{proto.LeaseRolling, proto.LeaseAbsolute} {
		for _, end := range []proto.LeaseAction{proto.LeaseStop, proto.LeasePause, proto.LeaseRemove} {
			for _, swept := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%s/swept=%t", mode, end, swept), func(t *testing.T) {
					testLease(t, mode, end, swept)
				})
			}
		}
	}
}

func testLease(t *testing.T, mode proto.LeaseMode, end proto.LeaseAction, swept bool) {
	c := newTwoClocks()
	st := sessiontest.New(t, c.config(session.Config{}))
	s := leased(t, st, mode, end, nil) // an absolute one ends after the idle timeout
	c.pass(40 * time.Second)
	sessiontest.Bash(t, s, "echo kept >~/note; sleep 1000 >/dev/null 2>&1 & echo $! >/workspace/pid")
	unused(s)
	want := 60 * time.Second
	if mode == proto.LeaseAbsolute {
		want = 20 * time.Second
	}
	if d, next := left(c, s); d != want || next != string(end) {
		t.Fatalf("after a use %v are left to %s, want %v", d, next, want)
	}
	c.pass(want - time.Second)
	if done := sweep(t, st); done != (session.Swept{}) {
		t.Fatalf("a second early: %+v", done)
	}
	c.pass(time.Second)
	if swept {
		expected := map[proto.LeaseAction]session.Swept{proto.LeaseStop: {Stopped: 1}, proto.LeasePause: {Paused: 1},
			proto.LeaseRemove: {Expired: 1}}
		if done := sweep(t, st); done != expected[end] {
			t.Fatalf("the end did %+v", done)
		}
	}
	if mode == proto.LeaseRolling && !swept && end != proto.LeaseRemove {
		sessiontest.Bash(t, s, "kill -0 $(cat /workspace/pid)") // a use before the sweep moves the end
		return
	}
	res, err := s.Run(t.Context(), proto.Cmd{Command: "cat ~/note; kill -0 $(cat /workspace/pid) && echo alive"})
	if end == proto.LeaseRemove {
		wantCode(t, err, proto.Expired, "its files are gone")
		if sweep(t, st); len(sandboxes(t, st.Runtime)) != 0 {
			t.Error("something runs on")
		}
		return
	}
	out, generation := "kept\nalive\n", int64(1)
	if end == proto.LeaseStop {
		out, generation = "kept\n", 2
	}
	if err != nil || res.Result.Result == nil || res.Result.Result.Stdout != out || res.Exec.Generation != generation {
		t.Fatalf("after the end: %+v in generation %d, %v", res.Result.Result, res.Exec.Generation, err)
	}
	unused(s)
	if d, _ := left(c, s); d != time.Minute { // as long as it was
		t.Errorf("then %v are left", d)
	}
}

// TestAbsoluteLeaseEndsCommands checks that commands do not keep a session whose absolute lease ends, and that their
// answers say so; a pause leaves them as they are.
func TestAbsoluteLeaseEndsCommands(t *testing.T) {
	for end, reason := range map[proto.LeaseAction]proto.EndReason{proto.LeaseStop: proto.EndStopped,
		proto.LeaseRemove: proto.EndExpired, proto.LeasePause: proto.EndExit} {
		t.Run(string(end), func(t *testing.T) {
			c := newTwoClocks()
			st := sessiontest.New(t, c.config(session.Config{}))
			s := leased(t, st, proto.LeaseAbsolute, end, in(30))
			e := start(t, s, proto.Cmd{Command: "read -r x", OpenStdin: true})
			c.pass(30 * time.Second)
			sweep(t, st)
			if end == proto.LeasePause {
				if got := s.Info().State; got != proto.StatePaused {
					t.Fatalf("it is %s", got)
				}
				if err := e.Write(t.Context(), []byte("go\n")); err != nil { // which resumes it
					t.Fatal(err)
				}
			}
			if got := waited(t, e).Exec.End; got.Reason != reason || reason != proto.EndExit && !strings.Contains(
				got.Message, "lease ended") {
				t.Errorf("it ended as %+v", got)
			}
			unused(s)
			sweep(t, st)
			want := map[proto.LeaseAction]proto.State{proto.LeaseStop: proto.StateStopped,
				proto.LeaseRemove: proto.StateExpired, proto.LeasePause: proto.StatePaused}[end]
			if got := s.Info().State; got != want {
				t.Errorf("it is %s, not %s", got, want)
			}
		})
	}
}

// TestChangeOfALease checks that all of a lease changes together, to an earlier and a later end, that the next daemon
// has it, and that a refused request changes nothing.
func TestChangeOfALease(t *testing.T) {
	c := newTwoClocks()
	st := sessiontest.New(t, c.config(session.Config{}))
	s := st.Create(t, proto.CreateContainer{MaxLifetimeSeconds: 3600})
	change := func(req proto.LeaseRequest, idle int64, want string) {
		t.Helper()
		info, err := s.Change(t.Context(), proto.ChangeContainer{Lease: req, IdleTimeoutSeconds: idle})
		got := fmt.Sprintf("%s %s %v idle %d", info.Lease.Mode, info.Lease.AtEnd, info.ExpiresAt.Sub(c.wall.Now()),
			info.IdleTimeoutSeconds)
		if err != nil || got != want || info.Lease.EndsAt != info.ExpiresAt {
			t.Fatalf("it is %s (ends at %v), %v; want %s", got, info.Lease.EndsAt, err, want)
		}
	}
	change(proto.LeaseRequest{EndsInSeconds: in(20)}, 0, "rolling stop 20s idle 300")
	c.pass(time.Second)
	if info, err := s.Extend(0); err != nil || info.ExpiresAt.Sub(c.wall.Now()) != 5*time.Minute {
		t.Errorf("a use of a shortened lease: %v, %v", info.ExpiresAt.Sub(c.wall.Now()), err)
	}
	change(proto.LeaseRequest{Mode: proto.LeaseAbsolute}, 0, "absolute stop 5m0s idle 300")
	change(proto.LeaseRequest{AtEnd: proto.LeasePause}, 0, "absolute pause 5m0s idle 300")
	at := proto.At(c.wall.Now().Add(10 * time.Minute))
	change(proto.LeaseRequest{AtEnd: proto.LeaseRemove, EndsAt: &at}, 77, "absolute remove 10m0s idle 77")
	c.pass(time.Minute)
	if info, err := s.Extend(time.Minute); err != nil || info.ExpiresAt.Sub(c.wall.Now()) != 9*time.Minute {
		t.Errorf("extended by less than it has: %v, %v", info.ExpiresAt.Sub(c.wall.Now()), err)
	}
	for what, req := range map[string]proto.LeaseRequest{
		"lease.mode":             {Mode: "never", AtEnd: proto.LeaseStop},
		"lease.at_end":           {Mode: proto.LeaseRolling, AtEnd: "explode"},
		"lease.ends_in_seconds":  {Mode: proto.LeaseRolling, EndsInSeconds: in(-1)},
		"leave one of them out":  {Mode: proto.LeaseRolling, EndsInSeconds: in(5), EndsAt: &at},
		"max_lifetime_seconds":   {Mode: proto.LeaseRolling, EndsInSeconds: in(3600)},
		"is in the past":         {Mode: proto.LeaseRolling, EndsAt: &proto.Time{Time: c.wall.Now().Add(-time.Hour)}},
		"from 0 to 31536000":     {EndsInSeconds: in(1 << 40)},
		"neither rolling nor ab": {Mode: "Absolute"},
	} {
		_, err := s.Change(t.Context(), proto.ChangeContainer{Lease: req, Labels: map[string]string{"a": "b"}})
		wantCode(t, err, proto.InvalidArgument, what)
		req := proto.CreateContainer{Lease: req, MaxLifetimeSeconds: 600}
		_, err = st.Sessions.Create(t.Context(), sessiontest.Owner, req)
		wantCode(t, err, proto.InvalidArgument, strings.Replace(what, "from 0", "from 1", 1))
	}
	st.Reopen(t)
	s, err := st.Sessions.Get(sessiontest.Owner, s.ID())
	if err != nil || len(s.Info().Labels) != 0 {
		t.Fatalf("%+v, %v", s.Info().Labels, err)
	}
	change(proto.LeaseRequest{}, 50, "absolute remove 9m0s idle 50")
	change(proto.LeaseRequest{Mode: proto.LeaseRolling, AtEnd: proto.LeaseStop}, 60, "rolling stop 9m0s idle 60")
	info, err := s.Change(t.Context(), proto.ChangeContainer{Lease: proto.LeaseRequest{EndsInSeconds: in(0)}})
	if err != nil || info.State != proto.StateStopped {
		t.Errorf("ended now: %s, %v", info.State, err)
	}
	sessiontest.Bash(t, s, "true")
	unused(s)
	info, err = s.Change(t.Context(), proto.ChangeContainer{Lease: proto.LeaseRequest{Mode: proto.LeaseAbsolute,
		AtEnd: proto.LeaseRemove, EndsInSeconds: in(0)}})
	if err != nil || info.State != proto.StateExpired || info.Next != nil {
		t.Errorf("removed now: %+v, %v", info, err)
	}
	_, err = s.Change(t.Context(), proto.ChangeContainer{Lease: proto.LeaseRequest{EndsInSeconds: in(60)}})
	wantCode(t, err, proto.Expired, "its files are gone")
}

// TestPausedSessionsAreKept checks that a paused session stays paused past the end of its lease, also under the next
// daemon, until its retention is over; then a lease that removes removes it, and any other stops it.
func TestPausedSessionsAreKept(t *testing.T) {
	c := newTwoClocks()
	st := sessiontest.New(t, c.config(session.Config{PauseKeep: 10 * time.Hour}))
	asked := leased(t, st, proto.LeaseRolling, "", nil)
	removed := leased(t, st, proto.LeaseRolling, proto.LeaseRemove, nil)
	ended := leased(t, st, proto.LeaseAbsolute, proto.LeasePause, in(60))
	used := leased(t, st, proto.LeaseAbsolute, proto.LeasePause, in(60))
	all := []*session.Session{asked, removed, ended, used}
	for _, s := range all {
		sessiontest.Bash(t, s, "echo $$ >/workspace/pid; sleep 1000 >/dev/null 2>&1 &")
	}
	unused(all...)
	for _, s := range all[:2] {
		if err := s.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	sweep := c.sweeps(t, st)
	sweep(time.Minute, session.Swept{Paused: 2})
	st.Reopen(t)
	for i, s := range all {
		s, err := st.Sessions.Get(sessiontest.Owner, s.ID())
		if err != nil {
			t.Fatal(err)
		}
		if all[i] = s; s.Info().State != proto.StatePaused {
			t.Fatalf("%d is %s", i, s.Info().State)
		}
	}
	sweep(9*time.Hour, session.Swept{})
	sessiontest.Bash(t, all[3], "pgrep sleep")
	unused(all...)
	if d, next := left(c, all[3]); d != time.Minute || next != "pause" {
		t.Errorf("woken, it has %v until it is to %s", d, next)
	}
	if d, next := left(c, all[1]); d != 59*time.Minute || next != "remove" {
		t.Errorf("paused, it has %v until it is to %s", d, next)
	}
	sweep(time.Minute, session.Swept{Paused: 1})
	sweep(58*time.Minute, session.Swept{Expired: 1, Stopped: 1}) // the two that a request paused
	sweep(time.Minute, session.Swept{Stopped: 1})
	sessiontest.Bash(t, all[0], "test -s /workspace/pid")
	sessiontest.Bash(t, all[2], "test -s /workspace/pid")
	if _, err := st.Sessions.Get(sessiontest.Owner, all[1].ID()); proto.CodeOf(err) != proto.Expired {
		t.Errorf("removed: %v", err)
	}
}

// TestRunningSessionsOutliveTheDaemonsAbsence checks that the time without a daemon does not end a rolling lease of what
// runs, whatever happens at its end, and that the session keeps its name.
func TestRunningSessionsOutliveTheDaemonsAbsence(t *testing.T) {
	c := newTwoClocks()
	st := sessiontest.New(t, c.config(session.Config{}))
	s := st.Create(t, proto.CreateContainer{Name: "box", IdleTimeoutSeconds: 60,
		Lease: proto.LeaseRequest{AtEnd: proto.LeaseRemove}})
	e := start(t, s, proto.Cmd{Command: "while [ ! -e /workspace/go ]; do sleep 0.01; done", Detach: true})
	st.Close(t)
	c.pass(time.Hour)
	st.Open(t)
	s, err := st.Sessions.Get(sessiontest.Owner, "box")
	if err != nil {
		t.Fatal(err)
	}
	sweep(t, st)
	sessiontest.Bash(t, s, "touch /workspace/go")
	if e, err = s.FindExec(e.ID()); err != nil {
		t.Fatal(err)
	}
	if got := waited(t, e).Exec.End; got.Reason != proto.EndExit {
		t.Errorf("%+v", got)
	}
}

// TestLeasesOfOlderRecords checks that a record of a daemon that had rolling leases alone is read as before.
func TestLeasesOfOlderRecords(t *testing.T) {
	c := newTwoClocks()
	st := sessiontest.New(t, c.config(session.Config{}))
	plain, extended := st.Create(t, proto.CreateContainer{}), st.Create(t, proto.CreateContainer{})
	old := func(s *session.Session, extension any) {
		err := st.Ledger.Update(func(tx *ledger.Tx) error {
			rec := map[string]any{}
			if found, err := tx.Get("sessions", s.ID(), &rec); !found || err != nil {
				return fmt.Errorf("found %t, %w", found, err)
			}
			delete(rec, "lease")
			if rec["idle"] = int64(90 * time.Second); extension != nil {
				rec["lease"] = extension
			}
			return tx.Put("sessions", s.ID(), rec)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	st.Close(t)
	db, err := ledger.Open(st.Dir + "/ledger.db")
	if err != nil {
		t.Fatal(err)
	}
	st.Ledger = db
	old(plain, nil)
	old(extended, c.wall.Now().Add(20*time.Minute))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	st.Open(t)
	for s, want := range map[*session.Session]time.Duration{plain: 90 * time.Second, extended: 20 * time.Minute} {
		s, err := st.Sessions.Get(sessiontest.Owner, s.ID())
		if err != nil {
			t.Fatal(err)
		}
		info := s.Info()
		if got := info.ExpiresAt.Sub(c.wall.Now()); got != want || info.IdleTimeoutSeconds != 90 ||
			info.Lease.Mode != proto.LeaseRolling || info.Lease.AtEnd != proto.LeaseStop {
			t.Errorf("%v are left, want %v; %+v", got, want, info.Lease)
		}
	}
}

// TestUsesRaceTheEnd lets commands race the sweep at the end of each lease. Each command either ran wholly and was
// acknowledged, or its answer says that it did not; then it has not run at all, or it was ended with its reason.
func TestUsesRaceTheEnd(t *testing.T) {
	for _, mode := range []proto.LeaseMode{proto.LeaseRolling, proto.LeaseAbsolute} {
		for _, end := range []proto.LeaseAction{proto.LeaseStop, proto.LeasePause, proto.LeaseRemove} {
			t.Run(string(mode)+"/"+string(end), func(t *testing.T) { raceTheEnd(t, mode, end) })
		}
	}
}

func raceTheEnd(t *testing.T, mode proto.LeaseMode, end proto.LeaseAction) {
	c := newTwoClocks()
	st := sessiontest.New(t, c.config(session.Config{}))
	ctx := context.Background()
	for round := range 5 {
		s := leased(t, st, mode, end, nil)
		unused(s)
		var wg sync.WaitGroup
		const commands = 4
		results, errs := make([]proto.ExecResult, commands), make([]error, commands)
		for i := range commands {
			wg.Go(func() {
				if i == 1 {
					c.pass(61 * time.Second)
				}
				results[i], errs[i] = s.Run(ctx, proto.Cmd{Command: fmt.Sprintf("echo %d >>/workspace/ran", i)})
			})
		}
		wg.Go(func() {
			if _, err := st.Sessions.Sweep(ctx); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		ran := map[string]int{}
		if end != proto.LeaseRemove {
			for _, line := range strings.Fields(sessiontest.Bash(t, s, "cat /workspace/ran; true").Stdout) {
				ran[line]++
			}
		}
		for i, err := range errs {
			n, code := ran[fmt.Sprint(i)], proto.CodeOf(err)
			switch {
			case err != nil && code != proto.Unavailable && code != proto.Expired && code != proto.Conflict:
				t.Errorf("round %d: command %d: %v", round, i, err)
			case err != nil && n != 0:
				t.Errorf("round %d: command %d ran %d times and answers %v", round, i, n, err)
			case err == nil && results[i].Exec.End.Reason == proto.EndExit && n != 1 && end != proto.LeaseRemove, n > 1:
				t.Errorf("round %d: command %d exited and ran %d times", round, i, n)
			case err == nil && results[i].Exec.End.Reason != proto.EndExit && mode == proto.LeaseRolling:
				t.Errorf("round %d: command %d was ended: %+v", round, i, results[i].Exec.End)
			}
		}
		if err := st.Sessions.Delete(ctx, sessiontest.Owner, s.ID(), false); err != nil {
			t.Error(err)
		}
	}
}
