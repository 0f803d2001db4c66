package session_test

import (
	"context"
	"testing"
	"time"

	"berth/proto"
	"berth/session"
	"berth/session/sessiontest"
)

// By policy a session stands still once nobody has used it for long enough, not before and not with a command in it; it is
// stopped all the same when its lease is over.
func TestPauseIdle(t *testing.T) {
	c := newTwoClocks()
	st := sessiontest.New(t, c.config(session.Config{PauseAfter: 10 * time.Second, IdleTimeout: time.Minute}))
	ctx := context.Background()
	idle, busy := st.Create(t, proto.CreateContainer{}), st.Create(t, proto.CreateContainer{})
	e, err := busy.Exec(ctx, proto.Cmd{Command: "sleep 1000"})
	if err != nil {
		t.Fatal(err)
	}
	sweep := c.sweeps(t, st)
	sweep(9*time.Second, session.Swept{})
	sweep(2*time.Second, session.Swept{Paused: 1})
	if a, b := idle.Info().State, busy.Info().State; a != proto.StatePaused || b != proto.StateRunning {
		t.Fatalf("the idle one is %s, the busy one %s", a, b)
	}
	sweep(time.Second, session.Swept{})
	sessiontest.Bash(t, idle, "true")
	if got := idle.Info().State; got != proto.StateRunning {
		t.Fatalf("after its use it is %s", got)
	}
	e.Cancel(proto.EndKilled, "")
	if _, err := e.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	unused(busy, idle)
	sweep(11*time.Second, session.Swept{Paused: 2})
	sweep(time.Minute, session.Swept{Stopped: 2})
}
