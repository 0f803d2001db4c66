package sessiontest

import (
	"context"
	"testing"
	"time"

	"berth/proto"
	"berth/session"
)

// pauses tests the runtime's pause directly, with sandboxes that exist and that do not, and calls each method twice.
func (c conformance) pauses(t *testing.T) {
	ctx := context.Background()
	p, none := c.rt, proto.NewID(proto.ContainerPrefix)
	if !c.canPause() {
		t.Skip("this runtime cannot pause")
	}
	if err := p.Pause(ctx, none); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("pausing what is not there: %v", err)
	}
	if err := p.Resume(ctx, none); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("resuming what is not there: %v", err)
	}
	id := c.start(t, c.spec(t))
	g := c.client(t, id)
	for range 2 {
		if err := p.Pause(ctx, id); err != nil || !p.Paused(id) || p.Paused(none) {
			t.Fatalf("paused: %v %v", p.Paused(id), err)
		}
	}
	// The kernel accepts the connection to a frozen guest; only the answer does not come.
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if hello, err := g.Hello(short); err == nil {
		t.Fatalf("it answers while it is paused: %+v", hello)
	}
	for range 2 {
		if err := p.Resume(ctx, id); err != nil || p.Paused(id) {
			t.Fatalf("resumed: %v", err)
		}
	}
	if _, err := g.Hello(ctx); err != nil {
		t.Fatalf("after it was resumed: %v", err)
	}
	if err := p.Pause(ctx, id); err != nil {
		t.Fatal(err)
	}
	if err := c.rt.Stop(ctx, id); err != nil || p.Paused(id) {
		t.Fatalf("stopping what is paused: %v", err)
	}
	if err := p.Resume(ctx, id); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("resuming what was stopped: %v", err)
	}
}

// canPause reports whether the runtime pauses sandboxes on this machine.
func (c conformance) canPause() bool {
	err := c.rt.Pause(context.Background(), proto.NewID(proto.ContainerPrefix))
	return proto.CodeOf(err) != proto.Unsupported
}

// paused tests the same through the core. A command freezes with its container, even over a restart of the daemon.
// The next use makes both continue.
func (c conformance) paused(t *testing.T) {
	ctx := context.Background()
	st, s := c.session(t)
	if !c.canPause() {
		t.Skip("this runtime cannot pause")
	}
	Bash(t, s, "touch /tmp/first")
	e, err := s.Exec(ctx, proto.Cmd{Command: `until test -e /workspace/stop; do echo x; done; exit 7`,
		Background: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Pause(ctx); err != nil || s.Info().State != proto.StatePaused {
		t.Fatalf("%s: %v", s.Info().State, err)
	}
	time.Sleep(100 * time.Millisecond) // for output that was on its way
	before := e.Info().StdoutBytes
	time.Sleep(300 * time.Millisecond) // for output that must not come
	if after := e.Info().StdoutBytes; after != before {
		t.Fatalf("it wrote %d bytes while it was paused", after-before)
	}
	st.Reopen(t)
	if s, err = st.Sessions.Get(Owner, s.ID()); err != nil || s.Info().State != proto.StatePaused {
		t.Fatalf("after a restart of the daemon: %v %v", s.Info().State, err)
	}
	if e, err = s.FindExec(e.ID()); err != nil || e.Info().State != proto.ExecRunning {
		t.Fatalf("the command after it: %v", err)
	}
	Bash(t, s, "test -e /tmp/first && touch /workspace/stop")
	if res, err := e.Wait(ctx); err != nil || res.Exec.End.ReturnCode != 7 {
		t.Fatalf("the command's end: %+v %v", res.Exec.End, err)
	}
	if info := s.Info(); info.State != proto.StateRunning || info.Generation != 1 {
		t.Fatalf("after its use: %s, generation %d", info.State, info.Generation)
	}
	c.pausedEnds(t, s)
	if err := s.Pause(ctx); err != nil {
		t.Fatal(err)
	}
	if err := st.Sessions.Delete(ctx, Owner, s.ID(), false); err != nil {
		t.Errorf("deleting what is paused: %v", err)
	}
}

// pausedEnds kills a command of a paused session, and stops one with a command.
func (c conformance) pausedEnds(t *testing.T, s *session.Session) {
	t.Helper()
	ctx := context.Background()
	run := func() *session.Exec {
		e, err := s.Exec(ctx, proto.Cmd{Command: "sleep 1000"})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Pause(ctx); err != nil {
			t.Fatal(err)
		}
		return e
	}
	e := run()
	e.Cancel(proto.EndKilled, "the test says so")
	if res, err := e.Wait(ctx); err != nil || res.Exec.End.Reason != proto.EndKilled {
		t.Errorf("killed while paused: %+v %v", res.Exec.End, err)
	}
	e = run()
	if err := s.Stop(ctx); err != nil || s.Info().State != proto.StateStopped {
		t.Errorf("stopped while paused: %s, %v", s.Info().State, err)
	}
	if res, err := e.Wait(ctx); err != nil || res.Exec.End.Reason != proto.EndStopped {
		t.Errorf("the command in it: %+v %v", res.Exec.End, err)
	}
	if err := s.Pause(ctx); proto.CodeOf(err) != proto.Conflict {
		t.Errorf("pausing what is stopped: %v", err)
	}
	if err := s.Resume(ctx); proto.CodeOf(err) != proto.Conflict {
		t.Errorf("resuming what is stopped: %v", err)
	}
	Bash(t, s, "true") // which starts the session again
}
