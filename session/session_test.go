package session_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/proto"
	"berth/session"
	"berth/test/sessiontest"
)

// A clock is moved by the test.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func newClock() *clock { return &clock{t: time.Now()} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

func wantCode(t *testing.T, err error, code proto.Code, item string) {
	t.Helper()
	if proto.CodeOf(err) != code {
		t.Fatalf("error %v has code %q, want %q", err, proto.CodeOf(err), code)
	}
	var pe *proto.Error
	if !errors.As(err, &pe) || !strings.Contains(pe.Item+pe.Message, item) {
		t.Fatalf("error %q does not name %q", err, item)
	}
}

func sweep(t *testing.T, st *sessiontest.Stack) session.Swept {
	t.Helper()
	done, err := st.Sessions.Sweep(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return done
}

func TestIdleSessionStopsAndComesBack(t *testing.T) {
	now := newClock()
	st := sessiontest.New(t, session.Config{Now: now.Now})
	s := st.Create(t, proto.CreateContainer{IdleTimeoutSeconds: 60})
	sessiontest.Bash(t, s, "echo kept >note; cd /; export X=1")
	now.Add(59 * time.Second)
	if done := sweep(t, st); done.Stopped != 0 {
		t.Fatalf("stopped before its time: %+v", done)
	}
	now.Add(2 * time.Second)
	if done := sweep(t, st); done.Stopped != 1 {
		t.Fatalf("not stopped at its time: %+v", done)
	}
	if got := s.Info().State; got != proto.StateStopped {
		t.Fatalf("state %s, want stopped", got)
	}
	if inv, _ := st.Runtime.List(context.Background()); len(inv.Sandboxes) != 0 || len(inv.Workspaces) != 1 {
		t.Fatalf("left after stop: %+v", inv)
	}
	if got := sessiontest.Bash(t, s, "cat note").Stdout; got != "kept\n" {
		t.Fatalf("after resume the file holds %q", got)
	}
	if g := s.Info().Generation; g != 2 {
		t.Fatalf("generation %d, want 2", g)
	}
}

func TestUseRenewsTheLeaseUpToTheCap(t *testing.T) {
	now := newClock()
	st := sessiontest.New(t, session.Config{Now: now.Now})
	s := st.Create(t, proto.CreateContainer{IdleTimeoutSeconds: 60, MaxLifetimeSeconds: 100})
	first := s.Info()
	now.Add(30 * time.Second)
	sessiontest.Bash(t, s, "true")
	second := s.Info()
	if !second.ExpiresAt.After(first.ExpiresAt.Time) {
		t.Fatalf("expires_at %v did not move with use from %v", second.ExpiresAt, first.ExpiresAt)
	}
	now.Add(30 * time.Second)
	if info, err := s.Extend(time.Hour); err != nil || !info.ExpiresAt.Equal(first.MaxExpiresAt.Time) {
		t.Fatalf("extended to %v (%v), want the cap %v", info.ExpiresAt, err, first.MaxExpiresAt)
	}
	now.Add(41 * time.Second)
	_, err := st.Sessions.Get(sessiontest.Owner, s.ID())
	wantCode(t, err, proto.Expired, s.ID())
	if done := sweep(t, st); done.Expired != 1 {
		t.Fatalf("swept %+v, want one expired", done)
	}
	if inv, _ := st.Runtime.List(context.Background()); len(inv.Sandboxes)+len(inv.Workspaces) != 0 {
		t.Fatalf("left after the cap: %+v", inv)
	}
	_, err = st.Sessions.Get(sessiontest.Owner, s.ID())
	wantCode(t, err, proto.Expired, s.ID())
	now.Add(8 * 24 * time.Hour)
	if done := sweep(t, st); done.Forgotten != 1 {
		t.Fatalf("swept %+v, want one forgotten", done)
	}
	_, err = st.Sessions.Get(sessiontest.Owner, s.ID())
	wantCode(t, err, proto.NotFound, s.ID())
}

func TestSweepLeavesRunningExecsAlone(t *testing.T) {
	now := newClock()
	st := sessiontest.New(t, session.Config{Now: now.Now})
	s := st.Create(t, proto.CreateContainer{IdleTimeoutSeconds: 1})
	e, err := s.Exec(context.Background(), proto.Cmd{Command: "read -r line; echo got $line", OpenStdin: true})
	if err != nil {
		t.Fatal(err)
	}
	now.Add(time.Hour)
	if done := sweep(t, st); done.Stopped+done.Expired != 0 {
		t.Fatalf("swept %+v under a running exec", done)
	}
	if err := e.Write(context.Background(), []byte("hello\n")); err != nil {
		t.Fatal(err)
	}
	res, err := e.Wait(context.Background())
	if err != nil || res.Result.Result == nil || res.Result.Result.Stdout != "got hello\n" {
		t.Fatalf("%+v %v", res, err)
	}
}

func TestOtherOwnersSessionDoesNotExist(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	_, err := st.Sessions.Get("somebody-else", s.ID())
	wantCode(t, err, proto.NotFound, s.ID())
	wantCode(t, st.Sessions.Delete(context.Background(), "somebody-else", s.ID(), false), proto.NotFound, s.ID())
	if list, _, _ := st.Sessions.List("somebody-else", session.Filter{}); len(list) != 0 {
		t.Fatalf("another owner lists %v", list)
	}
	if list := st.Sessions.Workspaces("somebody-else"); len(list) != 0 {
		t.Fatalf("another owner lists %v", list)
	}
	_, err = st.Sessions.Create(context.Background(), "somebody-else", proto.CreateContainer{
		WorkspaceID: s.WorkspaceID()})
	wantCode(t, err, proto.NotFound, s.WorkspaceID())
}

// TestNameBelongsToOneContainer checks that many requests for one name at once make one container, that the name stays
// taken after a restart, and that deletion and expiry free it. Other owners have names of their own.
func TestNameBelongsToOneContainer(t *testing.T) {
	ctx, clock := context.Background(), newClock()
	st := sessiontest.New(t, session.Config{Now: clock.Now})
	named := func(owner string) (*session.Session, error) {
		return st.Sessions.Create(ctx, owner, proto.CreateContainer{Name: "box", MaxLifetimeSeconds: 60})
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var made []*session.Session
	for range 16 {
		wg.Go(func() {
			s, err := named(sessiontest.Owner)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				made = append(made, s)
			} else {
				wantCode(t, err, proto.AlreadyExists, "box")
			}
		})
	}
	wg.Wait()
	if len(made) != 1 || made[0].Info().Name != "box" {
		t.Fatalf("%d requests got the name", len(made))
	}
	if _, err := named("somebody-else"); err != nil {
		t.Fatal(err)
	}

	st.Reopen(t)
	_, err := named(sessiontest.Owner)
	wantCode(t, err, proto.AlreadyExists, "box")
	if err := st.Sessions.Delete(ctx, sessiontest.Owner, made[0].ID(), false); err != nil {
		t.Fatal(err)
	}
	if _, err := named(sessiontest.Owner); err != nil {
		t.Fatal(err)
	}
	clock.Add(2 * time.Minute)
	sweep(t, st)
	if _, err := named(sessiontest.Owner); err != nil {
		t.Fatal(err)
	}
}

func TestListPagesAndFilters(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	var ids []string
	for i := range 5 {
		ids = append(ids, st.Create(t, proto.CreateContainer{Labels: map[string]string{
			"even": fmt.Sprint(i%2 == 0)}}).ID())
	}
	slices.Reverse(ids)
	var got []string
	for after, more := "", true; more; {
		var page []proto.Container
		var err error
		page, more, err = st.Sessions.List(sessiontest.Owner, session.Filter{Limit: 2, After: after})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range page {
			got, after = append(got, c.ID), c.ID
		}
	}
	if !slices.Equal(got, ids) {
		t.Fatalf("pages give %v, want %v", got, ids)
	}
	page, _, _ := st.Sessions.List(sessiontest.Owner, session.Filter{Labels: map[string]string{"even": "true"}})
	if len(page) != 3 {
		t.Fatalf("%d with the label, want 3", len(page))
	}
}

func TestWorkspaceOutlivesItsContainer(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	a := st.Create(t, proto.CreateContainer{})
	sessiontest.Bash(t, a, "echo heirloom >/workspace/it")
	ws := a.WorkspaceID()
	_, err := st.Sessions.Create(ctx, sessiontest.Owner, proto.CreateContainer{WorkspaceID: ws})
	wantCode(t, err, proto.Conflict, a.ID())
	if err := st.Sessions.Delete(ctx, sessiontest.Owner, a.ID(), true); err != nil {
		t.Fatal(err)
	}
	b := st.Create(t, proto.CreateContainer{WorkspaceID: ws})
	if got := sessiontest.Bash(t, b, "cat /workspace/it").Stdout; got != "heirloom\n" {
		t.Fatalf("the next container reads %q", got)
	}
	if err := st.Sessions.Delete(ctx, sessiontest.Owner, b.ID(), false); err != nil {
		t.Fatal(err)
	}
	if list := st.Sessions.Workspaces(sessiontest.Owner); len(list) != 1 || list[0].ID != ws ||
		list[0].ContainerID != "" {
		t.Fatalf("a kept workspace went with its second container: %+v", list)
	}
	if err := st.Sessions.DeleteWorkspace(ctx, sessiontest.Owner, ws); err != nil {
		t.Fatal(err)
	}
	if inv, _ := st.Runtime.List(ctx); len(inv.Workspaces) != 0 {
		t.Fatalf("left on disk: %+v", inv)
	}
}

func TestFailedCreateLeavesNothing(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	st.Runtime.(*sessiontest.Runtime).FailStart(proto.Errorf(proto.Unavailable, "", "", "no"))
	_, err := st.Sessions.Create(ctx, sessiontest.Owner, proto.CreateContainer{})
	if proto.CodeOf(err) != proto.Unavailable {
		t.Fatal(err)
	}
	st.Runtime.(*sessiontest.Runtime).FailStart(nil)
	_, err = st.Sessions.Create(ctx, sessiontest.Owner, proto.CreateContainer{
		Files: []string{"file_0000000000000000000000"}})
	wantCode(t, err, proto.NotFound, "file_")
	list, _, _ := st.Sessions.List(sessiontest.Owner, session.Filter{})
	inv, _ := st.Runtime.List(ctx)
	if len(list)+len(inv.Sandboxes)+len(inv.Workspaces) != 0 {
		t.Fatalf("left: %v %+v", list, inv)
	}
}

func TestCreateRefusesBadRequests(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	for name, req := range map[string]proto.CreateContainer{
		"image":                {Image: "nosuch"},
		"runtime_class":        {RuntimeClass: "vm"},
		"idle_timeout_seconds": {IdleTimeoutSeconds: -1},
		"max_lifetime_seconds": {MaxLifetimeSeconds: 1 << 40},
		"labels":               {Labels: map[string]string{"a\nb": "c"}},
		"env":                  {Env: map[string]string{"A=B": "c"}},
		"limits.memory_bytes":  {Limits: proto.Limits{MemoryBytes: 1}},
		"limits.cpus":          {Limits: proto.Limits{CPUs: 1e9}},
		"workspace_":           {WorkspaceID: "workspace_../../etc"},
	} {
		_, err := st.Sessions.Create(context.Background(), sessiontest.Owner, req)
		var pe *proto.Error
		if !errors.As(err, &pe) || !strings.Contains(pe.Item+pe.Message, name) && name != "image" {
			t.Errorf("%s: error %v does not name it", name, err)
		}
	}
}

func TestRestartAttachesToWhatRuns(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	live := st.Create(t, proto.CreateContainer{Labels: map[string]string{"n": "live"}})
	boot := sessiontest.Bash(t, live, "echo alive >mark; cat /proc/sys/kernel/random/boot_id; echo $$ >/tmp/pid").Stdout
	dead := st.Create(t, proto.CreateContainer{})
	sessiontest.Bash(t, dead, "echo kept >mark")
	st.Close(t)
	st.Runtime.(*sessiontest.Runtime).Kill(dead.ID())
	st.Open(t)
	for _, id := range []string{live.ID(), dead.ID()} {
		s, err := st.Sessions.Get(sessiontest.Owner, id)
		if err != nil {
			t.Fatal(err)
		}
		out := sessiontest.Bash(t, s, "cat mark; ls /tmp/pid 2>/dev/null").Stdout
		if id == live.ID() && out != "alive\n/tmp/pid\n" {
			t.Errorf("the live one was not attached to, but says %q (boot %s)", out, boot)
		}
		if id == dead.ID() && out != "kept\n" {
			t.Errorf("the dead one came back with %q", out)
		}
	}
}

func TestReconcileRemovesStrangersAndUndoesHalfMade(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	rt := st.Runtime.(*sessiontest.Runtime)
	stranger := session.Spec{Workspace: "workspace_0000000000000000000000"}
	if err := rt.Start(ctx, "container_0000000000000000000000", stranger); err != nil {
		t.Fatal(err)
	}
	st.Reopen(t)
	if inv, _ := rt.List(ctx); len(inv.Sandboxes) != 0 || len(inv.Workspaces) != 1 {
		t.Fatalf("left: %+v, want the stranger's workspace alone", inv)
	}
}

func TestLostSandboxComesBackWithItsFiles(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	sessiontest.Bash(t, s, "echo kept >mark")
	e, err := s.Exec(ctx, proto.Cmd{Command: "echo begun; sleep 600"})
	if err != nil {
		t.Fatal(err)
	}
	st.Runtime.(*sessiontest.Runtime).Kill(s.ID())
	res, err := e.Wait(ctx)
	if err != nil || res.Exec.End.Reason != proto.EndLost || res.Result.Error == nil ||
		res.Result.Error.ErrorCode != proto.BlockUnavailable {
		t.Fatalf("an exec whose sandbox was killed ended as %+v, %v", res.Exec.End, err)
	}
	if got := sessiontest.Bash(t, s, "cat mark").Stdout; got != "kept\n" {
		t.Fatalf("after the loss the file holds %q", got)
	}
}

func TestDeleteEndsExecsAndRemovesAll(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	e, err := s.Exec(ctx, proto.Cmd{Command: "sleep 600", Background: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Sessions.Delete(ctx, sessiontest.Owner, s.ID(), false); err != nil {
		t.Fatal(err)
	}
	res, err := e.Wait(ctx)
	if err != nil || res.Exec.End.Reason != proto.EndStopped {
		t.Fatalf("%+v %v", res.Exec.End, err)
	}
	wantCode(t, st.Sessions.Delete(ctx, sessiontest.Owner, s.ID(), false), proto.NotFound, s.ID())
	_, err = s.Run(ctx, proto.Cmd{Command: "true"})
	wantCode(t, err, proto.NotFound, s.ID())
	inv, _ := st.Runtime.List(ctx)
	if len(inv.Sandboxes)+len(inv.Workspaces) != 0 {
		t.Fatalf("left: %+v", inv)
	}
}

func TestManyResumersStartOnce(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	if err := s.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := s.Run(context.Background(), proto.Cmd{Command: "true"}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if g := s.Info().Generation; g != 2 {
		t.Fatalf("generation %d after one stop, want 2", g)
	}
}
