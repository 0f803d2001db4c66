package containerd

import (
	"context"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/proto"
	"berth/session"
	"berth/test/sessiontest"
)

// TestPauseBetweenPrograms pauses a process of several threads that executes a program. The threads must end first,
// and v1 freezes them before they can. Such a container must be paused all the same.
func TestPauseBetweenPrograms(t *testing.T) {
	rt := openReal(t)
	st := sessiontest.Over(t, rt, rt.Images(), session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	t.Cleanup(func() { _ = st.Sessions.Delete(context.Background(), sessiontest.Owner, s.ID(), false) })
	e, err := s.Exec(t.Context(), proto.Cmd{Background: true, Command: `cat >again.py <<'END'
import os, sys, threading, time
for _ in range(40):
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
os.execv(sys.executable, [sys.executable, "-S", "-E", "again.py"])
END
exec python3 again.py`})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if err := s.Pause(t.Context()); err != nil {
			t.Fatalf("pause %d: %v", i, err)
		}
		if err := s.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := e.Info(); got.State != proto.ExecRunning {
		t.Errorf("%+v", got)
	}
}

// TestPauseUnderGVisor checks that busy processes, and processes that start and end all the time, survive pauses
// under gVisor, which traces its processes.
func TestPauseUnderGVisor(t *testing.T) {
	rt := openReal(t)
	st := sessiontest.Over(t, rt, rt.Images(), session.Config{})
	s := st.Create(t, proto.CreateContainer{RuntimeClass: proto.ClassGVisor})
	t.Cleanup(func() { _ = st.Sessions.Delete(context.Background(), sessiontest.Owner, s.ID(), false) })
	var busy []*session.Exec
	for _, command := range []string{
		`while :; do ls / >/dev/null || echo $? >>failed; done`,
		`python3 -c '
import threading
def count():
    n = 0
    while True: n += 1
for _ in range(3): threading.Thread(target=count).start()'`,
	} {
		e, err := s.Exec(t.Context(), proto.Cmd{Background: true, Command: command})
		if err != nil {
			t.Fatal(err)
		}
		busy = append(busy, e)
	}
	for i := range 12 {
		if err := s.Pause(t.Context()); err != nil {
			t.Fatalf("pause %d: %v", i, err)
		}
		time.Sleep(time.Duration(2*i) * time.Millisecond) // longer in each round
		if got := sessiontest.Bash(t, s, "bash -c 'ls / | wc -l'; test ! -e failed"); got.ReturnCode != 0 {
			t.Fatalf("after pause %d: %+v", i, got)
		}
	}
	for _, e := range busy {
		if got := e.Info(); got.State != proto.ExecRunning {
			t.Errorf("%+v", got)
		}
	}
}

// TestPauseOfWhatCannotBeAsked checks that NotFound is returned only for a sandbox that has ended. While its shim is
// stopped, the state is unknown. Once its shim is dead, the state is lost.
func TestPauseOfWhatCannotBeAsked(t *testing.T) {
	r := openTest(t)
	testImage(t, r)
	r.direct = false // as with a containerd that is not ours
	id, spec := startTest(t, r, proto.ClassGVisor)
	for _, ask := range []func(context.Context, string) error{r.Pause, r.Resume} {
		if err := ask(t.Context(), newID(proto.ContainerPrefix)); proto.CodeOf(err) != proto.NotFound {
			t.Errorf("of nothing: %v", err)
		}
		signalShim(t, id, unix.SIGSTOP)
		if err := ask(t.Context(), id); err == nil || proto.CodeOf(err) == proto.NotFound {
			t.Errorf("while its shim stands still: %v", err)
		}
		signalShim(t, id, unix.SIGCONT)
		if err := ask(t.Context(), id); err != nil {
			t.Errorf("once it goes on: %v", err)
		}
	}
	if got := ask(t, r, id, guestRequest{Op: "ping"}).Text; got != "pong" {
		t.Errorf("it answers %q", got)
	}
	if n := signalShim(t, id, unix.SIGKILL); n != 1 {
		t.Fatalf("%d shims of one sandbox", n)
	}
	err := r.Resume(t.Context(), id)
	for end := time.Now().Add(5 * time.Second); proto.CodeOf(err) != proto.NotFound &&
		time.Now().Before(end); err = r.Resume(t.Context(), id) {
		time.Sleep(50 * time.Millisecond) // containerd sees the end of the shim with a delay
	}
	if proto.CodeOf(err) != proto.NotFound {
		t.Errorf("once its shim is dead: %v", err)
	}
	if err := r.Stop(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if err := r.RemoveWorkspace(t.Context(), spec.Workspace); err != nil {
		t.Error(err)
	}
}
