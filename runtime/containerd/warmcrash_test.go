package containerd

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/proto"
)

func crashWarm(class proto.RuntimeClass) Warm {
	return Warm{Min: 2, Max: 4, Image: "test", Class: class, Limits: testLimits}
}

// useWarm is the daemon of TestWarmCrashes. It starts and stops sandboxes faster than its pool is filled. It reports
// each one once it is started, with its name in its workspace, and again before it is stopped.
func useWarm(ctx context.Context, r *Runtime, image string, class proto.RuntimeClass) error {
	r.KeepWarm()
	var say sync.Mutex
	tell := func(what string, s daemonSandbox) {
		say.Lock()
		defer say.Unlock()
		line, _ := json.Marshal(s)
		fmt.Println(what, string(line))
	}
	failed := make(chan error)
	for range 2 {
		go func() {
			for n := 0; ; n++ {
				s := newDaemonSandbox(image, class)
				if err := r.Start(ctx, s.ID, s.Spec); err != nil {
					failed <- err
					return
				}
				ans, err := tryAsk(ctx, r, s.ID, guestRequest{Op: "write", Path: "/workspace/" + s.ID, Size: 1})
				if err != nil || ans.Err != "" {
					failed <- fmt.Errorf("writing: %v %v", ans, err)
					return
				}
				tell("started", s)
				if n%2 == 0 {
					continue
				}
				tell("stopping", s)
				if err := r.Stop(ctx, s.ID); err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	return <-failed
}

// TestWarmCrashes kills a daemon at any point while its pool is filled and claimed. The next daemon must have every
// sandbox that was reported, each with its own workspace, and no other sandbox with a session. It takes over the
// ready sandboxes of the pool, and leaves nothing when it is told to end.
func TestWarmCrashes(t *testing.T) {
	for class, slow := range map[proto.RuntimeClass]int{proto.ClassRunc: 1, proto.ClassGVisor: 10} {
		t.Run(string(class), func(t *testing.T) { warmCrashes(t, class, slow) })
	}
}

// warmCrashes is TestWarmCrashes for a class whose starts take slow times as long as those of runc.
func warmCrashes(t *testing.T, class proto.RuntimeClass, slow int) {
	adopted := 0
	for range 5 {
		dir := t.TempDir()
		lines := killedDaemonLines(t, dir, 4+rand.IntN(4), time.Duration(rand.IntN(40*slow))*time.Millisecond,
			"BERTH_TEST_WARM="+string(class))
		live := map[string]daemonSandbox{}
		for _, line := range lines {
			what, text, _ := strings.Cut(line, " ")
			var s daemonSandbox
			if err := json.Unmarshal([]byte(text), &s); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			if live[s.ID] = s; what == "stopping" {
				delete(live, s.ID)
			}
		}
		cfg := testConfig(dir)
		cfg.Warm = crashWarm(class)
		r := openWith(t, cfg)
		left := r.warm.LeftBehind()
		inv, err := r.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r.KeepWarm()
		used := map[string]bool{}
		for id, s := range live {
			if got := ask(t, r, id, guestRequest{Op: "stat", Path: "/workspace/" + id}); got.Err != "" {
				t.Errorf("%s has not its workspace: %s", id, got.Err)
			}
			if used[r.claims.sandbox(id)] {
				t.Errorf("%s has the sandbox of another", id)
			}
			used[r.claims.sandbox(id)] = true
			if err := r.RemoveWorkspace(t.Context(), s.Spec.Workspace); proto.CodeOf(err) != proto.Conflict {
				t.Errorf("removing a workspace in use: %v", err)
			}
		}
		for _, id := range inv.Sandboxes { // the core does the same with unknown sandboxes
			if _, ok := live[id]; !ok {
				if err := r.Stop(t.Context(), id); err != nil {
					t.Error(err)
				}
			}
		}
		awaitWarm(t, r, 2)
		for _, m := range r.warm.Ready(testImage(t, r)) {
			if used[m.Name] {
				t.Errorf("%s is a session's and in the pool", m.Name)
			}
			if has, err := r.warm.HasWorkspace(m); has || err != nil {
				t.Errorf("%s was a session's and is in the pool: %v", m.Name, err)
			}
		}
		adopted += min(left, 2)
		if inv, err = r.List(t.Context()); err != nil || len(inv.Sandboxes) != len(live) {
			t.Errorf("%d sandboxes of %d sessions, %v", len(inv.Sandboxes), len(live), err)
		}
		stopAll(t, r)
		r.warm.Close()
		nothingOf(t, r, nil)
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d members were found", adopted)
}
