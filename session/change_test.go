package session_test

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"berth/proto"
	"berth/session"
	"berth/test/sessiontest"
)

// A limiter is a runtime that takes limits, or not.
type limiter struct {
	*sessiontest.Runtime
	fail error
	got  proto.Limits
}

func (l *limiter) SetLimits(_ context.Context, _ string, _ session.Spec, want proto.Limits) error {
	if l.fail != nil {
		return l.fail
	}
	l.got = want
	return nil
}

// Labels, limits and the idle time of a live container change together, and a restart keeps them. What is refused
// changes nothing.
func TestChangeOfALiveContainer(t *testing.T) {
	rt := &limiter{Runtime: sessiontest.NewRuntime(t)}
	st := sessiontest.Over(t, rt, sessiontest.Images{}, session.Config{})
	s, err := st.Sessions.Create(t.Context(), sessiontest.Owner, proto.CreateContainer{
		Labels: map[string]string{"a": "1", "b": "2"}})
	if err != nil {
		t.Fatal(err)
	}
	before := s.Info()
	want := proto.ChangeContainer{Labels: map[string]string{"a": "3"}, Limits: proto.Limits{CPUs: 0.5, PIDs: 100},
		IdleTimeoutSeconds: 600}
	now, err := s.Change(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	check := func(now proto.Container) {
		t.Helper()
		if !maps.Equal(now.Labels, want.Labels) || now.Limits.CPUs != 0.5 || now.Limits.PIDs != 100 ||
			now.Limits.MemoryBytes != before.Limits.MemoryBytes || now.IdleTimeoutSeconds != 600 ||
			now.State != proto.StateRunning {
			t.Errorf("%+v", now)
		}
	}
	check(now)
	if rt.got != now.Limits {
		t.Errorf("the runtime has %+v", rt.got)
	}
	if left := time.Until(now.ExpiresAt.Time); left < 500*time.Second || left > 600*time.Second {
		t.Errorf("expires in %v", left)
	}
	for name, req := range map[string]proto.ChangeContainer{
		"nothing":       {},
		"too much":      {Labels: map[string]string{}, Limits: proto.Limits{CPUs: 9999}},
		"too little":    {Labels: map[string]string{}, Limits: proto.Limits{PIDs: 1}},
		"idle too long": {Labels: map[string]string{}, IdleTimeoutSeconds: 1 << 60},
		"bad label":     {Labels: map[string]string{"": "x"}},
	} {
		if _, err := s.Change(t.Context(), req); proto.CodeOf(err) != proto.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	rt.fail = errors.New("no")
	if _, err := s.Change(t.Context(), proto.ChangeContainer{Labels: map[string]string{},
		Limits: proto.Limits{CPUs: 0.1}}); !errors.Is(err, rt.fail) {
		t.Errorf("refused by the runtime: %v", err)
	}
	check(s.Info())
	st.Reopen(t)
	again, err := st.Sessions.Get(sessiontest.Owner, s.ID())
	if err != nil {
		t.Fatal(err)
	}
	check(again.Info())
}
