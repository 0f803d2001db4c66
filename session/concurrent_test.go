package session_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"berth/proto"
	"berth/session"
	"berth/test/sessiontest"
)

// soloRuntime checks that no session ever has two sandboxes: it counts a start while a sandbox exists.
type soloRuntime struct {
	*sessiontest.Runtime
	up     sync.Map // by session
	double atomic.Int64
}

func (r *soloRuntime) Start(ctx context.Context, id string, spec session.Spec) error {
	if _, there := r.up.LoadOrStore(id, true); there {
		r.double.Add(1)
	}
	err := r.Runtime.Start(ctx, id, spec)
	if err != nil {
		r.up.Delete(id)
	}
	return err
}

func (r *soloRuntime) Stop(ctx context.Context, id string) error {
	err := r.Runtime.Stop(ctx, id)
	r.up.Delete(id)
	return err
}

// TestEverythingAtOnce runs all operations on the same few sessions in parallel, with sweeps and the passing of time
// in between. Whatever the order, each session has one sandbox. Each acknowledged command runs once, and a refused
// one never. Nothing runs in an expired session, and nothing is left.
func TestEverythingAtOnce(t *testing.T) {
	ctx := context.Background()
	c := newTwoClocks()
	rt := &soloRuntime{Runtime: sessiontest.NewRuntime(t)}
	st := sessiontest.Over(t, rt, sessiontest.Images{}, c.config(session.Config{Tombstone: time.Hour}))
	const idle, life, steps = 10, 10_000, 12
	var shared []*session.Session
	for range 3 {
		shared = append(shared, st.Create(t, proto.CreateContainer{IdleTimeoutSeconds: idle, MaxLifetimeSeconds: life}))
	}
	var mu sync.Mutex
	ran := map[string]map[string]bool{} // by session: whether a mark must exist
	for _, s := range shared {
		ran[s.ID()] = map[string]bool{}
	}
	var wg sync.WaitGroup
	for w := range 6 {
		wg.Go(func() {
			for i := range steps {
				s := shared[(w+i)%len(shared)]
				token := fmt.Sprintf("t%d.%d", w, i)
				res, err := s.Run(ctx, proto.Cmd{Command: "echo " + token + " >>/workspace/tokens"})
				mu.Lock()
				ran[s.ID()][token] = err == nil && res.Exec.End.Reason == proto.EndExit
				mu.Unlock()
				switch (w + i) % 4 {
				case 0:
					_ = s.Stop(ctx)
				case 1:
					c.pass(idle * time.Second / 2)
				case 2:
					if _, err := st.Sessions.Sweep(ctx); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if n := rt.double.Load(); n > 0 {
		t.Errorf("%d sandboxes were started beside another of their session", n)
	}
	for _, s := range shared {
		found := map[string]int{}
		for _, token := range strings.Fields(sessiontest.Bash(t, s, "cat /workspace/tokens").Stdout) {
			if found[token]++; found[token] > 1 {
				t.Errorf("%s ran %d times", token, found[token])
			}
		}
		for token, must := range ran[s.ID()] {
			if must && found[token] == 0 {
				t.Errorf("%s was acknowledged by %s and did not run", token, s.ID())
			}
			delete(found, token)
		}
		if len(found) > 0 {
			t.Errorf("%s holds marks of nobody: %v", s.ID(), found)
		}
	}
	c.pass(life * time.Second)
	for _, s := range shared {
		wg.Go(func() {
			if _, err := s.Run(ctx, proto.Cmd{Command: "echo late >>/workspace/tokens"}); proto.CodeOf(
				err) != proto.Expired {
				t.Errorf("past the cap: %v", err)
			}
		})
		wg.Go(func() { sweep(t, st) })
	}
	wg.Wait()
	sweep(t, st)
	if inv, err := rt.List(ctx); err != nil || len(inv.Sandboxes)+len(inv.Workspaces) > 0 {
		t.Errorf("left: %+v %v", inv, err)
	}
}
