package session_test

import (
	"context"
	"testing"
	"time"

	"berth/proto"
	"berth/session"
	"berth/test/sessiontest"
)

// TestDozeIdle checks that a session dozes after enough idle time, not before and not while it runs a command, and
// that no client notices. The sweeper wakes no dozing session, but still detects one that has ended.
func TestDozeIdle(t *testing.T) {
	c := newTwoClocks()
	st := sessiontest.New(t, c.config(session.Config{DozeAfter: 10 * time.Second, IdleTimeout: time.Minute}))
	ctx := context.Background()
	idle, busy := st.Create(t, proto.CreateContainer{}), st.Create(t, proto.CreateContainer{})
	sessiontest.Bash(t, idle, "true")
	e, err := busy.Exec(ctx, proto.Cmd{Command: "sleep 1000"})
	if err != nil {
		t.Fatal(err)
	}
	sweep := c.sweeps(t, st)
	unused(idle)
	sweep(9*time.Second, session.Swept{})
	sweep(2*time.Second, session.Swept{Dozing: 1})
	sweep(time.Second, session.Swept{})
	if info := idle.Info(); info.State != proto.StateRunning || info.Generation != 1 {
		t.Fatalf("one that dozes is %s, generation %d", info.State, info.Generation)
	}
	sweep(time.Second, session.Swept{})
	if got := sessiontest.Bash(t, idle, "echo awake"); got.Stdout != "awake\n" {
		t.Fatalf("its next command: %+v", got)
	}
	unused(idle)
	sweep(time.Second, session.Swept{}) // it was just used
	sweep(10*time.Second, session.Swept{Dozing: 1})
	if info := idle.Info(); info.Generation != 1 {
		t.Fatalf("generation %d", info.Generation)
	}
	st.Runtime.(*sessiontest.Runtime).Kill(idle.ID())
	sweep(time.Second, session.Swept{Lost: 1})
	sessiontest.Bash(t, idle, "true")
	unused(idle)
	sweep(10*time.Second, session.Swept{Dozing: 1})
	e.Cancel(proto.EndKilled, "")
	if _, err := e.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	unused(busy)
	sweep(time.Minute, session.Swept{Stopped: 2}) // the lease runs on while a session dozes
}

// TestDozeOverRestart checks that a starting daemon wakes no guest. It does the handshake with a dozing guest at the
// next use, and still detects sandboxes that have ended meanwhile.
func TestDozeOverRestart(t *testing.T) {
	c := newTwoClocks()
	st := sessiontest.New(t, c.config(session.Config{DozeAfter: 10 * time.Second, IdleTimeout: time.Minute}))
	rt := st.Runtime.(*sessiontest.Runtime)
	var ids []string
	for range 3 {
		s := st.Create(t, proto.CreateContainer{})
		sessiontest.Bash(t, s, "echo kept >note")
		unused(s)
		ids = append(ids, s.ID())
	}
	used, left, killed := ids[0], ids[1], ids[2]
	c.sweeps(t, st)(11*time.Second, session.Swept{Dozing: 3})
	for _, id := range ids {
		for !rt.Dozes(id) { // the guest answers before it dozes
			time.Sleep(time.Millisecond)
		}
	}
	st.Reopen(t)
	sweep := c.sweeps(t, st)
	sweep(55*time.Second, session.Swept{}) // the time without a daemon does not count against the lease
	for _, id := range ids {
		if !rt.Dozes(id) {
			t.Errorf("the next daemon woke %s", id)
		}
	}
	get := func(id string) *session.Session {
		t.Helper()
		s, err := st.Sessions.Get(sessiontest.Owner, id)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := get(used)
	if got := sessiontest.Bash(t, s, "cat note"); got.Stdout != "kept\n" || s.Info().Generation != 1 {
		t.Errorf("%+v, generation %d", got, s.Info().Generation)
	}
	unused(s)
	rt.Kill(killed)
	sweep(time.Second, session.Swept{})
	if inv := sandboxes(t, rt); len(inv) != 2 {
		t.Errorf("after one was killed there are %v", inv)
	}
	if s := get(killed); s.Info().State != proto.StateStopped {
		t.Errorf("it is %s", s.Info().State)
	}
	if got := sessiontest.Bash(t, get(killed), "cat note"); got.Stdout != "kept\n" ||
		get(killed).Info().Generation != 2 {
		t.Errorf("%+v, generation %d", got, get(killed).Info().Generation)
	}
	unused(get(killed))
	if !rt.Dozes(left) {
		t.Errorf("somebody else's use woke %s", left)
	}
	sweep(2*time.Minute, session.Swept{Stopped: 3})
}

// TestDozeAndPause checks that neither this daemon nor the next pauses a dozing session, which would wake it first.
func TestDozeAndPause(t *testing.T) {
	c := newTwoClocks()
	st := sessiontest.New(t, c.config(session.Config{DozeAfter: 10 * time.Second, PauseAfter: 20 * time.Second,
		IdleTimeout: time.Minute}))
	rt := st.Runtime.(*sessiontest.Runtime)
	idle, left := st.Create(t, proto.CreateContainer{}), st.Create(t, proto.CreateContainer{})
	if _, err := left.Exec(context.Background(), proto.Cmd{Command: "sleep 1000", Resident: true}); err != nil {
		t.Fatal(err)
	}
	unused(idle, left)
	sweep := c.sweeps(t, st)
	sweep(11*time.Second, session.Swept{Dozing: 1})
	sweep(11*time.Second, session.Swept{Paused: 1})
	if a, b := idle.Info().State, left.Info().State; a != proto.StateRunning || b != proto.StatePaused {
		t.Errorf("the one that dozes is %s, the other one %s", a, b)
	}
	st.Reopen(t)
	c.sweeps(t, st)(25*time.Second, session.Swept{})
	if !rt.Dozes(idle.ID()) {
		t.Error("the next daemon woke it")
	}
}

// TestDozeAndRetry checks a session that a keyed request made under the previous daemon. The handshake with its guest
// comes before the session is returned again. So a command that starts then is not taken for an unknown process.
func TestDozeAndRetry(t *testing.T) {
	c := newTwoClocks()
	st := sessiontest.New(t, c.config(session.Config{DozeAfter: 10 * time.Second, IdleTimeout: time.Minute}))
	ctx := context.Background()
	asked := proto.CreateContainer{IdempotencyKey: "once"}
	s := st.Create(t, asked)
	unused(s)
	c.sweeps(t, st)(11*time.Second, session.Swept{Dozing: 1})
	for !st.Runtime.(*sessiontest.Runtime).Dozes(s.ID()) { // the guest answers before it dozes
		time.Sleep(time.Millisecond)
	}
	st.Reopen(t)
	again, replayed, err := st.Sessions.CreateOnce(ctx, sessiontest.Owner, asked)
	if err != nil || !replayed || again.ID() != s.ID() {
		t.Fatalf("%v %t", err, replayed)
	}
	e, err := again.Exec(ctx, proto.Cmd{Command: "read line; echo $line", OpenStdin: true, Detach: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Sessions.Get(sessiontest.Owner, s.ID()); err != nil {
		t.Fatal(err)
	}
	if err := e.Write(ctx, []byte("heard\n")); err != nil {
		t.Fatal(err)
	}
	if res, err := e.Wait(ctx); err != nil || res.Exec.End.Reason != proto.EndExit {
		t.Errorf("%+v %v", res.Exec.End, err)
	}
}
