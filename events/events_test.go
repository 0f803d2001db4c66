package events

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/proto"
	"berth/state/audit"
	"berth/state/ledger"
)

// A site is an audit log and its feed.
type site struct {
	t    *testing.T
	dir  string
	db   *ledger.DB
	log  *audit.Log
	feed *Feed
}

func newSite(t *testing.T) *site {
	s := &site{t: t, dir: t.TempDir()}
	var err error
	if s.db, err = ledger.Open(filepath.Join(t.TempDir(), "ledger.db")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.db.Close() })
	s.open()
	t.Cleanup(func() { s.log.Close() })
	return s
}

func (s *site) open() {
	s.t.Helper()
	var err error
	if s.log, err = audit.Open(audit.Config{Dir: s.dir, Ledger: s.db, SegmentBytes: 4000}); err != nil {
		s.t.Fatal(err)
	}
	s.feed = New(s.log)
}

func (s *site) restart() {
	s.t.Helper()
	if err := s.log.Close(); err != nil {
		s.t.Fatal(err)
	}
	s.open()
}

// create logs n creations of containers.
func (s *site) create(owner string, n int) {
	for i := range n {
		s.log.Append(proto.AuditEntry{Act: "container.create", Outcome: proto.AuditOK, Owner: owner,
			ContainerID: fmt.Sprintf("container_%s_%d", owner, i)})
	}
}

func (s *site) read(f Filter, from Start, limit int) (list []proto.FeedEvent, more bool) {
	s.t.Helper()
	list, more, err := s.feed.Read(s.t.Context(), f, from, limit)
	if err != nil {
		s.t.Fatal(err)
	}
	return list, more
}

func names(list []proto.FeedEvent) (all []string) {
	for _, e := range list {
		all = append(all, strings.TrimSpace(string(e.Type)+" "+strings.TrimPrefix(e.ContainerID, "container_")))
	}
	return all
}

// An owner sees its own events alone, an admin all of them; pages follow on each other without a seam.
func TestOwnersSeeTheirOwnEvents(t *testing.T) {
	s := newSite(t)
	s.create("a", 10)
	s.create("b", 10)
	s.create(`"q\é`, 3)
	for owner, want := range map[string]int{"a": 10, "b": 10, `"q\é`: 3, "": 23, "c": 0} {
		var all []string
		list, more := s.read(Filter{Owner: owner}, Start{Since: time.Unix(1, 0)}, 4)
		for ; ; list, more = s.read(Filter{Owner: owner}, Start{After: list[len(list)-1].ID}, 4) {
			all = append(all, names(list)...)
			if !more {
				break
			}
		}
		if len(all) != want || len(slices.Compact(slices.Clone(all))) != want {
			t.Errorf("%q sees %v", owner, all)
		}
		if owner == "a" && (all[0] != "container.created a_0" || all[9] != "container.created a_9") {
			t.Errorf("a sees %v", all)
		}
	}
	if list, _ := s.read(Filter{Owner: "a"}, Start{}, 3); !slices.Equal(names(list), []string{"container.created a_7",
		"container.created a_8", "container.created a_9"}) {
		t.Errorf("the newest of a: %v", names(list))
	}
}

// What happens to a container's files has events with the container, and a snapshot's ID as their item. A fork is a new
// container, so that is what it says first.
func TestSnapshotsMakeEvents(t *testing.T) {
	s := newSite(t)
	for _, act := range []string{"snapshot.create", "container.restore", "container.fork", "container.reset",
		"snapshot.delete"} {
		s.log.Append(proto.AuditEntry{Act: act, Outcome: proto.AuditOK, Owner: "a", ContainerID: "container_" + act,
			Item: "item of " + act})
		s.log.Append(proto.AuditEntry{Act: act, Outcome: "not_found", Owner: "a", ContainerID: "container_failed"})
	}
	list, _ := s.read(Filter{Owner: "a"}, Start{}, 20)
	if want := []string{"snapshot.created snapshot.create", "container.restored container.restore",
		"container.created container.fork", "container.forked container.fork", "container.reset container.reset",
		"snapshot.deleted snapshot.delete"}; !slices.Equal(names(list), want) {
		t.Errorf("%q, want %q", names(list), want)
	}
	for _, e := range list {
		if act := strings.TrimPrefix(e.ContainerID, "container_"); e.Item != "item of "+act {
			t.Errorf("%s: item %q", e.Type, e.Item)
		}
	}
	if list, _ := s.read(Filter{Types: []string{"snapshot."}}, Start{}, 20); len(list) != 2 {
		t.Errorf("%q", names(list))
	}
}

// What a command makes are three events with one place in the log, and a page may end between them.
func TestCommandsMakeThreeEvents(t *testing.T) {
	s := newSite(t)
	s.log.Append(proto.AuditEntry{Act: "exec.end", Outcome: proto.AuditOK, Owner: "a", ContainerID: "c", ExecID: "x",
		Generation: 3, Exec: &proto.AuditExec{JobID: "job", Reason: proto.EndExit, ReturnCode: 0,
			Produced: []string{"f"}, FileIDs: []string{"file_1"}}})
	s.log.Append(proto.AuditEntry{Act: "exec.end", Outcome: "not_found", Owner: "a"})
	after := Start{Since: time.Unix(1, 0)}
	var got []proto.FeedEvent
	for range 3 {
		list, more := s.read(Filter{Owner: "a"}, after, 1)
		if len(list) != 1 || more != (len(got) < 2) {
			t.Fatalf("%v, more: %v", list, more)
		}
		got, after = append(got, list...), Start{After: list[0].ID}
	}
	end, changed, stored := got[0], got[1], got[2]
	if end.Type != proto.FeedExecEnded || end.Exec.Reason != proto.EndExit || end.Exec.ReturnCode == nil ||
		end.Generation != 3 || changed.Type != proto.FeedFilesChanged || changed.Paths[0] != "f" || changed.JobID != "job" ||
		stored.Type != proto.FeedFileStored || stored.FileIDs[0] != "file_1" || stored.ExecID != "x" {
		t.Errorf("%+v", got)
	}
	if list, _ := s.read(Filter{Types: []string{"file.", "exec.started"}}, Start{}, 5); len(list) != 1 ||
		list[0].Type != proto.FeedFileStored {
		t.Errorf("%v", names(list))
	}
	for _, bad := range []string{"exec", "exec.end", ".", ""} {
		if _, _, err := s.feed.Read(t.Context(), Filter{Types: []string{bad}}, Start{}, 5); proto.CodeOf(
			err) != proto.InvalidArgument {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// follow collects n events of a follower that has begun.
func (s *site) follow(f Filter, from Start, n int) func() []proto.FeedEvent {
	s.t.Helper()
	follower, err := s.feed.Follow(s.t.Context(), f, from)
	if err != nil {
		s.t.Fatal(err)
	}
	return func() (list []proto.FeedEvent) {
		defer follower.Close()
		err := follower.Each(s.t.Context(), func(e proto.FeedEvent) error {
			if list = append(list, e); len(list) == n {
				return errEnough
			}
			return nil
		})
		if !errors.Is(err, errEnough) {
			s.t.Error(err)
		}
		return list
	}
}

// A follower gets what comes after it, in order, while segments are rotated; one that was away gets the rest, also
// after a restart.
func TestFollowersMissNothing(t *testing.T) {
	s := newSite(t)
	s.create("a", 3)
	const n = 30
	await, written := s.follow(Filter{Owner: "a"}, Start{}, n), make(chan struct{})
	go func() {
		defer close(written)
		for range n / 2 {
			s.create("b", 1)
			s.create("a", 2)
		}
	}()
	first := await()
	<-written
	s.restart()
	s.create("a", 5)
	rest := s.follow(Filter{Owner: "a"}, Start{After: first[n-1].ID}, 5)()
	again := s.follow(Filter{Owner: "a"}, Start{After: first[9].ID}, n-10+5)()
	if !slices.EqualFunc(again, append(slices.Clone(first[10:]), rest...), func(x, y proto.FeedEvent) bool {
		return x.ID == y.ID
	}) {
		t.Errorf("again: %v", names(again))
	}
	for i, e := range append(first, rest...) {
		want := fmt.Sprintf("container_a_%d", i%2)
		if i >= n {
			want = fmt.Sprintf("container_a_%d", i-n)
		}
		if e.ContainerID != want {
			t.Errorf("%d: %+v", i, e)
		}
	}
}

// A client whose last event is too old, or is not in the log any more, is told, and gets what there is.
func TestLostEventsAreTold(t *testing.T) {
	s := newSite(t)
	s.create("a", 10)
	list, _ := s.read(Filter{}, Start{}, 10)
	old, last := list[0], list[9]
	s.create("a", 20*audit.Window)
	got, _ := s.read(Filter{Owner: "a"}, Start{After: old.ID}, 1000)
	if got[0].Type != proto.FeedGap || got[0].ID != "" || !strings.Contains(got[0].Note, "too old") || len(got) < 50 {
		t.Errorf("too old: %d events, the first %+v", len(got), got[0])
	}
	for name, id := range map[string]string{
		"another entry of the number": strings.Replace(last.ID, last.ID[len(last.ID)-10:len(last.ID)-2], "00000000", 1),
		"an entry to come":            "999999-00000000-0",
	} {
		s := newSite(t)
		s.create("a", 10)
		s.create("b", 1)
		got, _ := s.read(Filter{Owner: "a"}, Start{After: id}, 1000)
		if len(got) < 1 || got[0].Type != proto.FeedGap || !strings.Contains(got[0].Note, "restored") {
			t.Errorf("%s: %v", name, got)
		}
	}
	for _, bad := range []string{"1", "1-2-3", "0-00000000-0", "x-00000000-0", "1-00000000--1"} {
		if _, err := s.feed.Follow(t.Context(), Filter{}, Start{After: bad}); proto.CodeOf(err) != proto.InvalidArgument {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if err := os.Remove(filepath.Join(s.dir, segment(t, s.dir))); err != nil {
		t.Fatal(err)
	}
	all, _ := s.read(Filter{Owner: "a"}, Start{Since: time.Unix(1, 0)}, 1000)
	if !slices.ContainsFunc(all, func(e proto.FeedEvent) bool { return e.Type == proto.FeedGap }) {
		t.Error("a missing segment is not told")
	}
}

// segment returns the name of the segment before the last full one.
func segment(t *testing.T, dir string) string {
	full, err := filepath.Glob(filepath.Join(dir, "audit-*.log"))
	if err != nil || len(full) < 3 {
		t.Fatal(full, err)
	}
	return filepath.Base(full[len(full)-2])
}

// One owner has a bound on its followers, and others are not hindered.
func TestFollowersAreBounded(t *testing.T) {
	s := newSite(t)
	ctx := proto.WithCaller(t.Context(), proto.Caller{Owner: "a"})
	var last *Follower
	for range maxFollowers {
		f, err := s.feed.Follow(ctx, Filter{}, Start{})
		if err != nil {
			t.Fatal(err)
		}
		defer f.cursor.Close()
		last = f
	}
	if _, err := s.feed.Follow(ctx, Filter{}, Start{}); proto.CodeOf(err) != proto.TooMany {
		t.Errorf("one more: %v", err)
	}
	if err := last.Close(); err != nil {
		t.Fatal(err)
	}
	for _, ctx := range []context.Context{ctx, t.Context()} {
		f, err := s.feed.Follow(ctx, Filter{}, Start{})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
	}
}
