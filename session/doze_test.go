package session_test

import (
	"context"
	"testing"
	"time"

	"berth/proto"
	"berth/session"
	"berth/session/sessiontest"
)

// A session that nobody has used for long enough dozes, not before and not with a command in it, and nobody sees it. The sweeper wakes none that dozes, and
// finds out all the same if one has ended.
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
	sweep(time.Second, session.Swept{}) // it has just been used
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
	sweep(time.Minute, session.Swept{Stopped: 2}) // a lease runs on while it dozes
}
