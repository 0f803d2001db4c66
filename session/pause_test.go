package session_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"berth/proto"
	"berth/session"
	"berth/test/sessiontest"
)

// TestPauseIdle checks that the policy pauses a session after enough idle time, not before and not while it runs a
// command. It is still stopped at the end of its lease.
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

// paused pauses a session, and with restart also restarts the daemon.
func paused(t *testing.T, st *sessiontest.Stack, s *session.Session, restart bool) *session.Session {
	t.Helper()
	err := s.Pause(t.Context())
	if err == nil && restart {
		st.Reopen(t)
		s, err = st.Sessions.Get(sessiontest.Owner, s.ID())
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSweepNoticesAPausedSandboxThatDied checks that a sweep finds a paused container lost once its sandbox has
// ended, without a use. That holds for the sweep of a daemon that has not done the handshake, too. A command in the
// container is reported lost.
func TestSweepNoticesAPausedSandboxThatDied(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart=%t", restart), func(t *testing.T) {
			st := sessiontest.New(t, session.Config{})
			s := st.Create(t, proto.CreateContainer{})
			e := start(t, s, proto.Cmd{Command: "sleep 1000", Detach: true})
			if s = paused(t, st, s, restart); restart {
				var err error
				if e, err = s.FindExec(e.ID()); err != nil {
					t.Fatal(err)
				}
			}
			if done := sweep(t, st); done.Lost != 0 || s.Info().State != proto.StatePaused {
				t.Fatalf("after %+v it is %s", done, s.Info().State)
			}
			st.Runtime.(*sessiontest.Runtime).Kill(s.ID())
			if done := sweep(t, st); done.Lost != 1 || s.Info().State != proto.StateStopped {
				t.Fatalf("after %+v it is %s", done, s.Info().State)
			}
			if inv := sandboxes(t, st.Runtime); len(inv) != 0 {
				t.Errorf("left: %v", inv)
			}
			if end := waited(t, e).Exec.End; end.Reason != proto.EndLost {
				t.Errorf("the command ended as %+v", end)
			}
			sessiontest.Bash(t, s, "true")
			if got := s.Info().Generation; got != 2 {
				t.Errorf("it runs on in generation %d", got)
			}
		})
	}
}

// TestAPausedSandboxThatDiedIsStartedNotResumed checks a container whose sandbox ended while it was paused. Start
// starts it again, and Resume does not resume it, even before the handshake. Neither reports that it runs when it
// does not.
func TestAPausedSandboxThatDiedIsStartedNotResumed(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart=%t", restart), func(t *testing.T) {
			ctx := t.Context()
			st := sessiontest.New(t, session.Config{})
			died := func() *session.Session {
				t.Helper()
				s := paused(t, st, st.Create(t, proto.CreateContainer{}), restart)
				st.Runtime.(*sessiontest.Runtime).Kill(s.ID())
				return s
			}
			is := func(s *session.Session, state proto.State, generation int64) {
				t.Helper()
				running := slices.Contains(sandboxes(t, st.Runtime), s.ID())
				if info := s.Info(); info.State != state || info.Generation != generation ||
					running != (state == proto.StateRunning) {
					t.Errorf("it is %s in generation %d, its sandbox there: %t", info.State, info.Generation, running)
				}
			}
			s := died()
			if err := s.Start(ctx); err != nil {
				t.Error(err)
			}
			is(s, proto.StateRunning, 2)
			s = died()
			if err := s.InGeneration(1).Mkdir(ctx, "", "/workspace/d"); proto.CodeOf(err) != proto.Conflict {
				t.Errorf("using the files of a generation that is over: %v", err)
			}
			is(s, proto.StateStopped, 1)
			s = died()
			if err := s.Resume(ctx); proto.CodeOf(err) != proto.Conflict {
				t.Errorf("resuming what is over: %v", err)
			}
			is(s, proto.StateStopped, 1)
		})
	}
}

// A fickleRuntime cancels the client's context while it pauses or resumes a sandbox, or cannot be dialled for a
// moment.
type fickleRuntime struct {
	*sessiontest.Runtime
	leave context.CancelFunc // cancels the client's context; nil: the client stays
	deaf  atomic.Bool
}

func (rt *fickleRuntime) Pause(ctx context.Context, id string) error {
	if rt.leave == nil {
		return rt.Runtime.Pause(ctx, id)
	}
	rt.leave()
	<-ctx.Done() // a sandbox that is not frozen by then continues
	return ctx.Err()
}

func (rt *fickleRuntime) Resume(ctx context.Context, id string) error {
	err := rt.Runtime.Resume(ctx, id)
	if rt.leave != nil {
		rt.leave()
	}
	return err
}

func (rt *fickleRuntime) Dial(ctx context.Context, id string) (net.Conn, error) {
	if rt.deaf.Load() {
		return nil, errFault
	}
	return rt.Runtime.Dial(ctx, id)
}

// withTools makes a session over that runtime whose code may call tools.
func withTools(t *testing.T) (*fickleRuntime, *sessiontest.Stack, *session.Session) {
	t.Helper()
	rt := &fickleRuntime{Runtime: sessiontest.NewRuntime(t)}
	st := sessiontest.Over(t, rt, sessiontest.Images{}, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	if err := s.OpenTools(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantTools(t, s)
	return rt, st, s
}

// wantTools checks that code in the session reaches its tools.
func wantTools(t *testing.T, s *session.Session) {
	t.Helper()
	got := sessiontest.Bash(t, s, `exec 3<>/dev/tcp/127.0.0.1/3129
printf 'GET /v1/tools HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nConnection: close\r\n\r\n' "$BERTH_TOOLS_TOKEN" >&3; timeout 10 head -1 <&3`)
	if !strings.HasPrefix(got.Stdout, "HTTP/1.1 200 ") || s.Info().Generation != 1 {
		t.Errorf("asked for tools in generation %d, it is told %q", s.Info().Generation, got.Stdout)
	}
}

// TestClientThatLeavesTakesNoTools checks that code still reaches its tools, and so its network, after an aborted
// pause, and after a resume whose client went away.
func TestClientThatLeavesTakesNoTools(t *testing.T) {
	for how, under := range map[string]func(ctx context.Context, s *session.Session) error{
		"pause": func(ctx context.Context, s *session.Session) error { return s.Pause(ctx) },
		"wake": func(ctx context.Context, s *session.Session) error {
			_, err := s.Run(ctx, proto.Cmd{Command: "true"})
			return err
		},
	} {
		t.Run(how, func(t *testing.T) {
			rt, _, s := withTools(t)
			if how == "wake" {
				if err := s.Pause(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			rt.leave = cancel
			if err := under(ctx, s); !errors.Is(err, context.Canceled) {
				t.Errorf("for a client that has gone: %v", err)
			}
			rt.leave = nil
			wantTools(t, s)
		})
	}
}

// TestSweepGivesToolsBack checks that the next sweep restores ports that a resume could not restore.
func TestSweepGivesToolsBack(t *testing.T) {
	rt, st, s := withTools(t)
	if err := s.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	rt.deaf.Store(true)
	if err := s.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	rt.deaf.Store(false)
	if done := sweep(t, st); done != (session.Swept{}) {
		t.Errorf("the sweep did %+v", done)
	}
	wantTools(t, s)
}

// TestNoPauseUnderATransferWhenACommandEnds checks that the end of a command does not allow a pause while a file is
// being read.
func TestNoPauseUnderATransferWhenACommandEnds(t *testing.T) {
	ctx := t.Context()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	sessiontest.Bash(t, s, "echo body >f")
	f, _, err := s.ReadFile(ctx, proto.UserDefault, proto.JobDir(s.DefaultJob())+"/f", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	var paused error
	if err := s.RunThen(ctx, proto.Cmd{Command: "true"}, func() { paused = s.Pause(ctx) }); err != nil {
		t.Fatal(err)
	}
	if proto.CodeOf(paused) != proto.Conflict {
		t.Errorf("pausing a container under an open file: %v", paused)
	}
	f.Close()
	if err := s.Pause(ctx); err != nil {
		t.Errorf("pausing it afterwards: %v", err)
	}
}
