package session_test

import (
	"math"
	"sync"
	"testing"

	"berth/proto"
	"berth/session"
	"berth/test/sessiontest"
)

// bills collects what keys are charged.
type bills struct {
	mu sync.Mutex
	of map[string]float64
}

func (b *bills) MayRun(string) error      { return nil }
func (b *bills) MaxSessions(string) int64 { return 0 }
func (b *bills) Ran(key string, seconds float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.of[key] += seconds
}

func (b *bills) expect(t *testing.T, when, key string, want float64) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if math.Abs(b.of[key]-want) > 0.001 {
		t.Errorf("%s: %s is charged %v s, not %v", when, key, b.of[key], want)
	}
}

// TestCPUTimeOfLeftovers checks that processes that no command waits for are charged: at the end of a command, by a
// sweep, across a restart of the daemon, and at the end of the container.
func TestCPUTimeOfLeftovers(t *testing.T) {
	rt, b := sessiontest.NewRuntime(t), &bills{of: map[string]float64{}}
	st := sessiontest.OverWith(t, rt, sessiontest.Images{}, session.Config{}, func(_ *sessiontest.Stack,
		cfg *session.Config) {
		cfg.Quotas = b
	})
	ctx := proto.WithCaller(t.Context(), proto.Caller{Owner: sessiontest.Owner, KeyID: "key_a"})
	s, err := st.Sessions.Create(ctx, sessiontest.Owner, proto.CreateContainer{})
	if err != nil {
		t.Fatal(err)
	}
	rt.SetCPUSeconds(s.ID(), 3)
	if _, err := s.Run(ctx, proto.Cmd{Command: "true"}); err != nil {
		t.Fatal(err)
	}
	b.expect(t, "after a command", "key_a", 3)
	rt.SetCPUSeconds(s.ID(), 10)
	sweep(t, st)
	b.expect(t, "after a sweep", "key_a", 10)
	sweep(t, st)
	st.Reopen(t)
	rt.SetCPUSeconds(s.ID(), 11)
	sweep(t, st)
	b.expect(t, "by the next daemon", "key_a", 11)
	rt.SetCPUSeconds(s.ID(), 20)
	if err := st.Sessions.Delete(ctx, sessiontest.Owner, s.ID(), false); err != nil {
		t.Fatal(err)
	}
	b.expect(t, "at the container's end", "key_a", 20)
}
