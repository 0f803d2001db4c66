package session_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/proto"
	"berth/session"
	"berth/session/snapshots"
	"berth/state/ledger"
	"berth/test/sessiontest"
)

// A snapper is a runtime whose snapshots can fail, or stop half way as in a crash.
type snapper struct {
	*sessiontest.Runtime
	take, revert error
}

func (r *snapper) TakeSnapshot(ctx context.Context, id string, spec session.Spec, snapshot string) error {
	if r.take != nil {
		return r.take
	}
	return r.Runtime.TakeSnapshot(ctx, id, spec, snapshot)
}

func (r *snapper) Revert(ctx context.Context, id string, spec session.Spec, snapshot, copied string) error {
	if r.revert != nil {
		return r.revert
	}
	return r.Runtime.Revert(ctx, id, spec, snapshot, copied)
}

// filesOf returns what a session has in its workspace and elsewhere.
func filesOf(t *testing.T, s *session.Session) string {
	t.Helper()
	return strings.Join(strings.Fields(sessiontest.Bash(t, s, "cat /workspace/a /tmp/b").Stdout), " ")
}

// snapshotsOf lists the snapshots that the runtime has.
func snapshotsOf(t *testing.T, rt session.Runtime) []string {
	t.Helper()
	inv, err := rt.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return inv.Snapshots
}

// TestSnapshotAndRestore takes a snapshot of a session, makes another session of it, and gives its files back to the
// first one as the next generation.
func TestSnapshotAndRestore(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{Labels: map[string]string{"of": "source"}})
	sessiontest.Bash(t, s, "echo old >/workspace/a; echo old >/tmp/b")
	snap, err := s.Snapshot(t.Context(), proto.CreateSnapshot{Name: "before", Labels: map[string]string{"a": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	if snap.ContainerID != s.ID() || snap.Name != "before" || snap.ImageDigest != s.Info().ImageDigest ||
		snap.Limits != s.Info().Limits || snap.ExpiresAt != nil {
		t.Errorf("%+v", snap)
	}
	sessiontest.Bash(t, s, "echo new >/workspace/a; echo new >/tmp/b")
	for _, req := range []proto.CreateContainer{{Snapshot: "before"}, {Snapshot: snap.ID}, {Image: snap.ID}} {
		if made := filesOf(t, st.Create(t, req)); made != "old old" {
			t.Errorf("a container made with %+v has %s", req, made)
		}
	}
	before := s.Info().Generation
	if err := s.Restore(t.Context(), "before"); err != nil {
		t.Fatal(err)
	}
	if got := filesOf(t, s); got != "old old" || s.Info().Generation != before+1 {
		t.Errorf("restored: %s, generation %d after %d", got, s.Info().Generation, before)
	}
	sessiontest.Bash(t, s, "echo newest >/workspace/a")
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := filesOf(t, s); got != "newest old" {
		t.Errorf("a later generation has %s: it was restored again", got)
	}

	all := st.Sessions.Snapshots()
	for what, f := range map[string]session.SnapshotFilter{
		"all": {}, "of the container": {Container: s.ID()}, "with a label": {Labels: map[string]string{"a": "1"}},
	} {
		if got, more, err := all.List(sessiontest.Owner, f); err != nil || more || len(got) != 1 || got[0].ID != snap.ID {
			t.Errorf("the list %s is %+v", what, got)
		}
	}
	others, _, _ := all.List("another", session.SnapshotFilter{})
	unlabelled, _, _ := all.List(sessiontest.Owner, session.SnapshotFilter{Labels: map[string]string{"a": "2"}})
	if len(others) > 0 || len(unlabelled) > 0 {
		t.Error("a list has what it should not")
	}
	for _, c := range []struct {
		do   func() error
		want proto.Code
	}{
		{func() error { _, err := s.Snapshot(t.Context(), proto.CreateSnapshot{Name: "before"}); return err },
			proto.AlreadyExists},
		{func() error { _, err := s.Snapshot(t.Context(), proto.CreateSnapshot{Name: "a b"}); return err },
			proto.InvalidArgument},
		{func() error { return s.Restore(t.Context(), "nosuch") }, proto.NotFound},
		{func() error { _, err := s.Fork(t.Context(), 101); return err }, proto.InvalidArgument},
		{func() error { _, err := st.Sessions.DeleteSnapshot(t.Context(), "another", snap.ID); return err },
			proto.NotFound},
		{func() error {
			_, err := st.Sessions.Create(t.Context(), "another", proto.CreateContainer{Snapshot: snap.ID})
			return err
		}, proto.NotFound},
		{func() error {
			_, err := st.Sessions.Create(t.Context(), sessiontest.Owner, proto.CreateContainer{Snapshot: snap.ID,
				Image: "base"})
			return err
		}, proto.InvalidArgument},
	} {
		if err := c.do(); proto.CodeOf(err) != c.want {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
	if gone, err := st.Sessions.DeleteSnapshot(t.Context(), sessiontest.Owner, "before"); err != nil || gone.ID != snap.ID {
		t.Errorf("deleting: %+v, %v", gone, err)
	}
	if _, err := all.Get(sessiontest.Owner, snap.ID); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("a deleted snapshot: %v", err)
	}
	if ids := snapshotsOf(t, st.Runtime); len(ids) > 0 {
		t.Errorf("left on disk: %v", ids)
	}
}

// TestFork makes copies of a session with its environment and secrets, and leaves no snapshot behind.
func TestFork(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{Name: "source", Sudo: true, Labels: map[string]string{"a": "1"},
		Env: map[string]string{"E": "env"}, Secrets: map[string]string{"S": "secret"}, Lease: proto.LeaseRequest{Mode: proto.LeaseAbsolute,
			AtEnd: proto.LeaseRemove, EndsInSeconds: &[]int64{600}[0]}})
	sessiontest.Bash(t, s, "echo old >/workspace/a; echo old >/tmp/b")
	forks, err := s.Fork(t.Context(), 3)
	if err != nil || len(forks) != 3 {
		t.Fatalf("%d forks, %v", len(forks), err)
	}
	for _, fork := range forks {
		if got := filesOf(t, fork); got != "old old" {
			t.Errorf("a fork has %s", got)
		}
		if got := sessiontest.Bash(t, fork, `echo $E; [ "$S" = sec""ret ] && echo same`).Stdout; got != "env\nsame\n" {
			t.Errorf("a fork's environment: %q", got)
		}
		if info := fork.Info(); info.Name != "" || !info.Sudo || info.Labels["a"] != "1" || info.WorkspaceID == s.WorkspaceID() ||
			info.Lease.Mode != proto.LeaseAbsolute || info.Lease.AtEnd != proto.LeaseRemove ||
			info.ExpiresAt.Sub(info.CreatedAt.Time).Round(time.Second) != 10*time.Minute {
			t.Errorf("a fork is %+v", info)
		}
		sessiontest.Bash(t, fork, "echo mine >/workspace/a")
	}
	if got := filesOf(t, s); got != "old old" {
		t.Errorf("the source has %s", got)
	}
	if ids, list := snapshotsOf(t, st.Runtime), st.Sessions.Snapshots().All(); len(ids)+len(list) > 0 {
		t.Errorf("left: %v, %+v", ids, list)
	}
}

// TestForkIsAllOrNothing checks that no fork is left if one of them cannot be made.
func TestForkIsAllOrNothing(t *testing.T) {
	st := sessiontest.New(t, session.Config{MaxSessions: 3})
	s := st.Create(t, proto.CreateContainer{})
	if _, err := s.Fork(t.Context(), 3); proto.CodeOf(err) != proto.TooMany {
		t.Fatalf("four containers where three may be: %v", err)
	}
	if list, _, err := st.Sessions.List(sessiontest.Owner, session.Filter{}); err != nil || len(list) != 1 {
		t.Errorf("left: %+v, %v", list, err)
	}
	inv, err := st.Runtime.List(t.Context())
	if err != nil || len(inv.Workspaces) != 1 || len(inv.Snapshots) > 0 || len(inv.Sandboxes) != 1 {
		t.Errorf("left: %+v, %v", inv, err)
	}
}

// TestSnapshotExpires checks that a sweep removes a snapshot when it is over, and not before.
func TestSnapshotExpires(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	st := sessiontest.New(t, session.Config{Now: func() time.Time { return now }})
	s := st.Create(t, proto.CreateContainer{})
	snap, err := s.Snapshot(t.Context(), proto.CreateSnapshot{ExpiresAfterSeconds: 3600})
	if err != nil || snap.ExpiresAt == nil || !snap.ExpiresAt.Equal(now.Add(time.Hour)) {
		t.Fatalf("%+v, %v", snap, err)
	}
	for _, c := range []struct {
		after time.Duration
		left  int
	}{{59 * time.Minute, 1}, {2 * time.Minute, 0}} {
		now = now.Add(c.after)
		done, err := st.Sessions.Sweep(t.Context())
		if err != nil || done.Snapshots != 1-c.left || len(snapshotsOf(t, st.Runtime)) != c.left {
			t.Errorf("%v later: %+v, %v, left %v", c.after, done, err, snapshotsOf(t, st.Runtime))
		}
	}
}

// TestFailedSnapshot checks that a snapshot that fails leaves nothing, and that the error is the runtime's.
func TestFailedSnapshot(t *testing.T) {
	rt := &snapper{Runtime: sessiontest.NewRuntime(t)}
	st := sessiontest.Over(t, rt, sessiontest.Images{}, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	rt.take = proto.Errorf(proto.Unsupported, "", "", "no btrfs")
	if _, err := s.Snapshot(t.Context(), proto.CreateSnapshot{Name: "a"}); proto.CodeOf(err) != proto.Unsupported {
		t.Errorf("%v", err)
	}
	if all := st.Sessions.Snapshots().All(); len(all) > 0 {
		t.Errorf("left: %+v", all)
	}
	rt.take = nil
	if _, err := s.Snapshot(t.Context(), proto.CreateSnapshot{Name: "a"}); err != nil {
		t.Errorf("the name is taken: %v", err)
	}
}

// TestRestoreGoesOn checks that a restore that has begun is finished by the next use, or by the next daemon, and that
// its snapshot stays until then.
func TestRestoreGoesOn(t *testing.T) {
	for _, restart := range []bool{false, true} {
		rt := &snapper{Runtime: sessiontest.NewRuntime(t)}
		st := sessiontest.Over(t, rt, sessiontest.Images{}, session.Config{})
		s := st.Create(t, proto.CreateContainer{})
		sessiontest.Bash(t, s, "echo old >/workspace/a; echo old >/tmp/b")
		snap, err := s.Snapshot(t.Context(), proto.CreateSnapshot{})
		if err != nil {
			t.Fatal(err)
		}
		sessiontest.Bash(t, s, "echo new >/workspace/a; echo new >/tmp/b")
		rt.revert = errors.New("the disk has failed")
		if err := s.Restore(t.Context(), snap.ID); !errors.Is(err, rt.revert) {
			t.Fatalf("restoring: %v", err)
		}
		if _, err := st.Sessions.DeleteSnapshot(t.Context(), sessiontest.Owner, snap.ID); proto.CodeOf(err) != proto.Conflict {
			t.Errorf("deleting a snapshot that is needed: %v", err)
		}
		rt.revert = nil
		if restart {
			st.Reopen(t)
			if s, err = st.Sessions.Get(sessiontest.Owner, s.ID()); err != nil {
				t.Fatal(err)
			}
		}
		if got := filesOf(t, s); got != "old old" {
			t.Errorf("restart %t: the container has %s", restart, got)
		}
		if _, err := st.Sessions.DeleteSnapshot(t.Context(), sessiontest.Owner, snap.ID); err != nil {
			t.Errorf("deleting: %v", err)
		}
		st.Close(t)
	}
}

// TestResetAfterRestore resets a container whose restore is still to be finished. The reset came last, so its layer is
// new, and its workspace is the snapshot's.
func TestResetAfterRestore(t *testing.T) {
	rt := &snapper{Runtime: sessiontest.NewRuntime(t)}
	st := sessiontest.Over(t, rt, sessiontest.Images{}, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	sessiontest.Bash(t, s, "echo old >/workspace/a; echo old >/tmp/b")
	snap, err := s.Snapshot(t.Context(), proto.CreateSnapshot{})
	if err != nil {
		t.Fatal(err)
	}
	sessiontest.Bash(t, s, "echo new >/workspace/a; echo new >/tmp/b")
	rt.revert = errors.New("the disk has failed")
	if err := s.Restore(t.Context(), snap.ID); !errors.Is(err, rt.revert) {
		t.Fatalf("restoring: %v", err)
	}
	rt.revert = nil
	if err := s.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := filesOf(t, s); got != "old" {
		t.Errorf("the container has %q", got)
	}
}

// TestUnfinishedFork checks what a daemon does after one that was killed while it made a fork: it removes the fork and
// the snapshot that the fork was made of.
func TestUnfinishedFork(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	if err := st.Sessions.Close(); err != nil {
		t.Fatal(err)
	}
	snapshot, fork := proto.NewID(proto.SnapshotPrefix), proto.NewID(proto.ContainerPrefix)
	layer := proto.NewID(proto.LayerPrefix)
	err := errors.Join(
		st.Runtime.TakeSnapshot(t.Context(), s.ID(), session.Spec{Workspace: s.WorkspaceID(), Layer: layer}, snapshot),
		st.Ledger.Update(func(tx *ledger.Tx) error {
			return errors.Join(
				tx.Put(snapshots.Bucket, snapshot, snapshots.Record{ID: snapshot, Owner: sessiontest.Owner,
					Container: s.ID(), Done: true, Passing: true}),
				tx.Put("sessions", fork, map[string]any{"id": fork, "owner": sessiontest.Owner, "state": "creating",
					"workspace": proto.NewID(proto.WorkspacePrefix), "layer": layer,
					"from": map[string]string{"snapshot": snapshot, "copy": layer}}))
		}))
	if err != nil {
		t.Fatal(err)
	}
	st.Reopen(t)
	if ids := snapshotsOf(t, st.Runtime); len(ids) > 0 {
		t.Errorf("left: %v", ids)
	}
	if _, err := st.Sessions.Get(sessiontest.Owner, fork); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("the fork: %v", err)
	}
}

// TestUnfinishedSnapshot checks what a daemon does that finds a snapshot half taken: it removes it, and lets the
// container go on that the last daemon had frozen. It does not wake one that was paused.
func TestUnfinishedSnapshot(t *testing.T) {
	for _, paused := range []bool{false, true} {
		st := sessiontest.New(t, session.Config{})
		s := st.Create(t, proto.CreateContainer{})
		id := s.ID()
		if err := st.Sessions.Close(); err != nil {
			t.Fatal(err)
		}
		snapshot := proto.NewID(proto.SnapshotPrefix)
		err := errors.Join(
			st.Runtime.TakeSnapshot(t.Context(), id, session.Spec{Workspace: s.WorkspaceID(),
				Layer: proto.NewID(proto.LayerPrefix)}, snapshot),
			st.Runtime.Pause(t.Context(), id),
			st.Ledger.Update(func(tx *ledger.Tx) error {
				return tx.Put(snapshots.Bucket, snapshot, snapshots.Record{ID: snapshot, Owner: sessiontest.Owner,
					Container: id, Paused: paused})
			}))
		if err != nil {
			t.Fatal(err)
		}
		st.Reopen(t)
		if got := st.Runtime.Paused(id); got != paused {
			t.Errorf("a container that was paused before: %t, is paused: %t", paused, got)
		}
		if ids := snapshotsOf(t, st.Runtime); len(ids) > 0 {
			t.Errorf("left: %v", ids)
		}
	}
}

// TestSnapshotsAreBounded checks the bound of all snapshots.
func TestSnapshotsAreBounded(t *testing.T) {
	st := sessiontest.New(t, session.Config{MaxSessions: 2})
	s := st.Create(t, proto.CreateContainer{})
	var codes []proto.Code
	for range 3 {
		_, err := s.Snapshot(t.Context(), proto.CreateSnapshot{})
		codes = append(codes, proto.CodeOf(err))
	}
	if want := []proto.Code{"", "", proto.TooMany}; !slices.Equal(codes, want) {
		t.Errorf("%q, want %q", codes, want)
	}
}

// TestSnapshotKeepsJobs checks that a copy of a container has the manifests of its jobs, and a restored one those of
// the snapshot.
func TestSnapshotKeepsJobs(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	run := func(s *session.Session, text string) {
		t.Helper()
		if _, err := s.Run(t.Context(), proto.Cmd{JobID: "job", Command: text}); err != nil {
			t.Fatal(err)
		}
	}
	paths := func(s *session.Session) string {
		t.Helper()
		m, err := st.Jobs.Manifest(t.Context(), s, "job")
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, f := range m.Files {
			names = append(names, f.Path+" "+f.SHA256)
		}
		return strings.Join(names, " ")
	}
	run(s, "echo >first")
	want := paths(s)
	snap, err := s.Snapshot(t.Context(), proto.CreateSnapshot{})
	if err != nil {
		t.Fatal(err)
	}
	run(s, "echo >second")
	if got := paths(st.Create(t, proto.CreateContainer{Snapshot: snap.ID})); got != want || want == "" {
		t.Errorf("a copy has %q, want %q", got, want)
	}
	if err := s.Restore(t.Context(), snap.ID); err != nil {
		t.Fatal(err)
	}
	if got := paths(s); got != want {
		t.Errorf("restored: %q, want %q", got, want)
	}
}
