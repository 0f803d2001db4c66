package session_test

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"berth/proto"
	"berth/session"
	"berth/session/sessiontest"
)

// A reader that is never closed does not keep a container past its cap.
func TestOpenReaderDoesNotOutliveTheCap(t *testing.T) {
	ctx := context.Background()
	clock := newClock()
	st := sessiontest.New(t, session.Config{Now: clock.Now})
	s := st.Create(t, proto.CreateContainer{MaxLifetimeSeconds: 3600})
	if _, err := s.WriteFile(ctx, proto.UserDefault, "/workspace/f", session.WriteOptions{Mode: 0o644},
		strings.NewReader(strings.Repeat("x", 8<<20))); err != nil {
		t.Fatal(err)
	}
	r, _, err := s.ReadFile(ctx, proto.UserDefault, "/workspace/f", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	clock.Add(time.Hour + time.Minute)
	if done := sweep(t, st); done.Expired != 0 {
		t.Errorf("it was taken from its reader at once: %+v", done)
	}
	clock.Add(10 * time.Minute)
	if done := sweep(t, st); done.Expired != 1 || len(sandboxes(t, st.Runtime)) != 0 {
		t.Errorf("%+v, %v run", done, sandboxes(t, st.Runtime))
	}
	if _, err := io.Copy(io.Discard, r); err == nil {
		t.Error("the reader got all of a file that is gone")
	}
}
