package session_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"berth/proto"
	"berth/session"
	"berth/state/ledger"
	"berth/test/sessiontest"
)

// droppedJobs wraps Jobs and notes an end that is recorded after they were dropped.
type droppedJobs struct {
	heldJobs
	dropped chan struct{} // closed by Drop
	late    atomic.Bool
}

func (d *droppedJobs) End(ctx context.Context, s session.Files, e proto.Exec, tail string,
	seen session.DirectoryState) session.Produced {
	made := d.heldJobs.End(ctx, s, e, tail, seen)
	select {
	case <-d.dropped:
		d.late.Store(true)
	case <-time.After(300 * time.Millisecond): // there is no event for the absence of a call
	}
	return made
}

func (d *droppedJobs) Drop(ctx context.Context, workspace string) error {
	close(d.dropped)
	return d.heldJobs.Drop(ctx, workspace)
}

// TestBooksAreDroppedAfterTheLastEnd checks that no end of an exec is recorded after the manifests were dropped: that
// record would stay in the ledger for ever.
func TestBooksAreDroppedAfterTheLastEnd(t *testing.T) {
	ctx := context.Background()
	rt, st := faulty(t, session.Config{})
	if err := st.Sessions.Close(); err != nil {
		t.Fatal(err)
	}
	ended, removing := make(chan struct{}), make(chan struct{})
	jobs := &droppedJobs{dropped: make(chan struct{})}
	jobs.heldJobs = heldJobs{Jobs: st.Jobs, ending: func(context.Context, session.Files) {
		close(ended)
		<-removing
	}}
	var err error
	st.Sessions, err = session.Open(ctx, session.Config{Dir: st.Dir, Runtime: rt, Images: st.Images, Ledger: st.Ledger,
		Jobs: jobs})
	if err != nil {
		t.Fatal(err)
	}
	s := st.Create(t, proto.CreateContainer{})
	if _, err := s.Exec(ctx, proto.Cmd{Command: "echo x >made"}); err != nil {
		t.Fatal(err)
	}
	<-ended
	rt.stopping = func() error { close(removing); return nil }
	if err := st.Sessions.Delete(ctx, sessiontest.Owner, s.ID(), false); err != nil {
		t.Fatal(err)
	}
	rt.stopping = nil
	if jobs.late.Load() {
		t.Error("an end was booked in books that were dropped")
	}
	_ = st.Ledger.View(func(tx *ledger.Tx) error {
		for _, bucket := range []string{"execs", "jobs", "job_files", "job_execs"} {
			_ = tx.Scan(bucket, "", func(key string, _ []byte) (bool, error) {
				t.Errorf("left: %s/%s", bucket, key)
				return true, nil
			})
		}
		return nil
	})
}

// TestRemovalsDuringASweepLeaveNoStrays checks that a sweep does not take workspaces for orphaned that are removed
// meanwhile.
func TestRemovalsDuringASweepLeaveNoStrays(t *testing.T) {
	ctx := context.Background()
	rt, st := faulty(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	rt.listed = func() {
		rt.listed = nil
		if err := st.Sessions.Delete(ctx, sessiontest.Owner, s.ID(), false); err != nil {
			t.Error(err)
		}
	}
	if done, err := st.Sessions.Sweep(ctx); err != nil || done.Strays+done.Sandboxes > 0 {
		t.Errorf("a container deleted meanwhile: %+v %v", done, err)
	}
	s = st.Create(t, proto.CreateContainer{})
	if err := st.Sessions.Delete(ctx, sessiontest.Owner, s.ID(), true); err != nil {
		t.Fatal(err)
	}
	rt.removeWorkspace = func() error {
		rt.removeWorkspace = nil
		if done, err := st.Sessions.Sweep(ctx); err != nil || done.Strays+done.Workspaces > 0 {
			t.Errorf("a workspace that is being deleted: %+v %v", done, err)
		}
		if _, err := st.Sessions.Create(ctx, sessiontest.Owner, proto.CreateContainer{
			WorkspaceID: s.WorkspaceID()}); proto.CodeOf(err) != proto.NotFound {
			t.Errorf("a container was given it: %v", err)
		}
		if list := st.Sessions.Workspaces(sessiontest.Owner); len(list) != 0 {
			t.Errorf("it is listed: %+v", list)
		}
		return nil
	}
	if err := st.Sessions.DeleteWorkspace(ctx, sessiontest.Owner, s.WorkspaceID()); err != nil {
		t.Error(err)
	}
}

// TestKeptWorkspacesAreBounded checks the bound of kept workspaces. Without it a client with one container could fill
// the disk.
func TestKeptWorkspacesAreBounded(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{MaxSessions: 2})
	keep := func(workspace string) (string, error) {
		s := st.Create(t, proto.CreateContainer{WorkspaceID: workspace})
		err := st.Sessions.Delete(ctx, sessiontest.Owner, s.ID(), true)
		if err != nil {
			err = errors.Join(err, st.Sessions.Delete(ctx, sessiontest.Owner, s.ID(), false))
		}
		return s.WorkspaceID(), err
	}
	first, err := keep("")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := keep(""); err != nil {
		t.Fatal(err)
	}
	if id, err := keep(""); proto.CodeOf(err) != proto.TooMany || proto.AsError(err).Item != id {
		t.Errorf("one more than there may be: %v", err)
	}
	if _, err := keep(first); err != nil {
		t.Errorf("one that was kept before: %v", err)
	}
	if err := st.Sessions.DeleteWorkspace(ctx, sessiontest.Owner, first); err != nil {
		t.Fatal(err)
	}
	if _, err := keep(""); err != nil {
		t.Errorf("once there is room: %v", err)
	}
}

// TestExpiredNamesAreBounded checks that containers that expire at once leave no more IDs than there may be
// containers.
func TestExpiredNamesAreBounded(t *testing.T) {
	ctx := context.Background()
	now := time.Now()
	st := sessiontest.New(t, session.Config{MaxSessions: 3, Now: func() time.Time { return now },
		Elapsed: func() time.Duration { return time.Duration(now.UnixNano()) }})
	var ids []string
	for range 5 {
		ids = append(ids, st.Create(t, proto.CreateContainer{MaxLifetimeSeconds: 60}).ID())
		now = now.Add(2 * time.Minute)
		if _, err := st.Sessions.Sweep(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := st.Sessions.Sweep(ctx); err != nil {
		t.Fatal(err)
	}
	for i, id := range ids {
		want := proto.Expired
		if i < 2 {
			want = proto.NotFound
		}
		if _, err := st.Sessions.Get(sessiontest.Owner, id); proto.CodeOf(err) != want {
			t.Errorf("%d of %d: %v", i, len(ids), err)
		}
	}
}

// TestFleeting checks that a container whose creator never got an answer is removed with its daemon, and that another
// one stays.
func TestFleeting(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	gone, stays := st.Create(t, proto.CreateContainer{Fleeting: true}), st.Create(t, proto.CreateContainer{})
	sessiontest.Bash(t, gone, "echo x >/workspace/x")
	st.Reopen(t)
	if _, err := st.Sessions.Get(sessiontest.Owner, gone.ID()); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("the fleeting one: %v", err)
	}
	s, err := st.Sessions.Get(sessiontest.Owner, stays.ID())
	if err != nil {
		t.Fatal(err)
	}
	sessiontest.Bash(t, s, "true")
	inv, err := st.Runtime.List(context.Background())
	if err != nil || len(inv.Sandboxes) != 1 || inv.Sandboxes[0] != stays.ID() || len(inv.Workspaces) != 1 {
		t.Errorf("the runtime has %+v, %v", inv, err)
	}
}
