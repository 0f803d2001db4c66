package session_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"berth/proto"
	"berth/session"
	"berth/test/sessiontest"
)

// TestStopUnused checks that a session without processes is stopped after enough unused time, not before and not while
// a command runs or something is kept in memory. What it has written stays, inside and outside of its workspace.
func TestStopUnused(t *testing.T) {
	c := newTwoClocks()
	st := sessiontest.New(t, c.config(session.Config{StopAfter: 10 * time.Second, IdleTimeout: time.Minute}))
	ctx := context.Background()
	idle, busy := st.Create(t, proto.CreateContainer{}), st.Create(t, proto.CreateContainer{})
	sessiontest.Bash(t, idle, "echo kept | tee note >~/.dotfile")
	e, err := busy.Exec(ctx, proto.Cmd{Command: "sleep 1000"})
	if err != nil {
		t.Fatal(err)
	}
	sweep := c.sweeps(t, st)
	unused(idle)
	sweep(9*time.Second, session.Swept{})
	sweep(2*time.Second, session.Swept{Stopped: 1})
	sweep(time.Second, session.Swept{})
	if info := idle.Info(); info.State != proto.StateStopped || info.Generation != 1 {
		t.Fatalf("it is %s, generation %d", info.State, info.Generation)
	}
	if got := sessiontest.Bash(t, idle, "cat note ~/.dotfile; touch /dev/shm/x"); got.Stdout != "kept\nkept\n" {
		t.Fatalf("its next command: %+v", got)
	}
	unused(idle)
	sweep(11*time.Second, session.Swept{}) // a file that only memory has
	sessiontest.Bash(t, idle, "rm /dev/shm/x; sleep 1000 >/dev/null 2>&1 &")
	unused(idle)
	sweep(11*time.Second, session.Swept{}) // a process in the background
	sessiontest.Bash(t, idle, "pkill -9 sleep; while pgrep sleep; do :; done")
	unused(idle)
	sweep(11*time.Second, session.Swept{Stopped: 1})
	e.Cancel(proto.EndKilled, "")
	if _, err := e.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	unused(busy)
	sweep(11*time.Second, session.Swept{Stopped: 1})
}

// TestStopUnusedWaits checks that a use that comes while an unused session is being stopped starts it again.
func TestStopUnusedWaits(t *testing.T) {
	c := newTwoClocks()
	st := sessiontest.New(t, c.config(session.Config{StopAfter: time.Second, IdleTimeout: time.Minute}))
	s := st.Create(t, proto.CreateContainer{})
	for range 20 {
		unused(s)
		c.pass(2 * time.Second)
		swept := make(chan session.Swept)
		go func() {
			done, err := st.Sessions.Sweep(context.Background())
			if err != nil {
				t.Error(err)
			}
			swept <- done
		}()
		if got := sessiontest.Bash(t, s, "echo here"); got.Stdout != "here\n" {
			t.Errorf("%+v", got)
		}
		if done := <-swept; done.Lost > 0 {
			t.Errorf("swept %+v", done)
		}
	}
}

// TestReset checks that a reset container has the image's files and its workspace, and that nothing of its layer is
// left, not even if the layer could not be removed at first.
func TestReset(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	rt := st.Runtime.(*sessiontest.Runtime)
	ctx := context.Background()
	s := st.Create(t, proto.CreateContainer{})
	for _, running := range []bool{true, false} {
		sessiontest.Bash(t, s, "echo kept >/workspace/note; echo gone >~/.dotfile")
		if !running {
			if err := s.Stop(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Reset(ctx); err != nil {
			t.Fatal(err)
		}
		if inv, err := rt.List(ctx); err != nil || len(inv.Layers) != 0 {
			t.Errorf("left %v, %v", inv.Layers, err)
		}
		if got := sessiontest.Bash(t, s, "cat /workspace/note; test ! -e ~/.dotfile && echo fresh"); got.Stdout !=
			"kept\nfresh\n" {
			t.Errorf("after the reset: %+v", got)
		}
	}
	if err := st.Sessions.Delete(ctx, sessiontest.Owner, s.ID(), false); err != nil {
		t.Fatal(err)
	}
	if err := s.Reset(ctx); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("a deleted one: %v", err)
	}
	if inv, err := rt.List(ctx); err != nil || len(inv.Layers) != 0 {
		t.Errorf("after its end there are %v, %v", inv.Layers, err)
	}
}

// TestNeverUsed checks that a session that nobody uses after its creation expires early, and one that was used,
// extended or changed does not, also under the next daemon.
func TestNeverUsed(t *testing.T) {
	c := newTwoClocks()
	st := sessiontest.New(t, c.config(session.Config{UnusedLifetime: 15 * time.Minute, IdleTimeout: time.Hour}))
	ctx := context.Background()
	create := func() *session.Session { return st.Create(t, proto.CreateContainer{}) }
	never, used, extended, changed := create(), create(), create(), create()
	sessiontest.Bash(t, used, "true")
	_, err := extended.Extend(0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = changed.Change(ctx, proto.ChangeContainer{Labels: map[string]string{"a": "b"}}); err != nil {
		t.Fatal(err)
	}
	unused(never, used, extended, changed)
	st.Reopen(t)
	for _, s := range []*session.Session{never, used, extended, changed} {
		if _, err := st.Sessions.Get(sessiontest.Owner, s.ID()); err != nil { // a look is no use
			t.Fatal(err)
		}
	}
	sweep := c.sweeps(t, st)
	sweep(14*time.Minute, session.Swept{})
	sweep(2*time.Minute, session.Swept{Expired: 1})
	if _, err := st.Sessions.Get(sessiontest.Owner, never.ID()); proto.CodeOf(err) != proto.Expired ||
		!strings.Contains(err.Error(), "was never used") {
		t.Errorf("never used: %v", err)
	}
	for _, s := range []*session.Session{used, extended, changed} {
		s, err := st.Sessions.Get(sessiontest.Owner, s.ID())
		if err != nil {
			t.Fatal(err)
		}
		sessiontest.Bash(t, s, "true")
	}
}
