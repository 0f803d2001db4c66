package containerd

import (
	"context"
	"testing"

	"berth/proto"
	"berth/session"
	"berth/session/sessiontest"
)

// A process of several threads that executes a program needs them to end, and v1 has them stand still before they can: such a container is paused all the same.
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
