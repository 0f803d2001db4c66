package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"berth/proto"
	"berth/session"
	"berth/state/ledger"
	"berth/test/sessiontest"
)

const owner = sessiontest.Owner

// named returns a request that takes an existing container.
func named(name string) proto.CreateContainer {
	return proto.CreateContainer{Name: name, Existing: true}
}

// rename gives a container another name.
func rename(t *testing.T, s *session.Session, name string) {
	t.Helper()
	if c, err := s.Change(t.Context(), proto.ChangeContainer{Name: &name}); err != nil || c.Name != name {
		t.Fatalf("renaming to %q: %+v %v", name, c, err)
	}
}

// TestExistingIsOne checks that of many requests for one name at a time one makes the container, and all get it.
func TestExistingIsOne(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	const requests = 12
	var mu sync.Mutex
	var ids []string
	made := 0
	var all sync.WaitGroup
	for range requests {
		all.Go(func() {
			s, found, err := st.Sessions.CreateOnce(t.Context(), owner, named("web"))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
			if ids = append(ids, s.ID()); !found {
				made++
			}
			if state := s.Info().State; state != proto.StateRunning {
				t.Errorf("it is %s", state)
			}
		})
	}
	all.Wait()
	slices.Sort(ids)
	if ids = slices.Compact(ids); len(ids) != 1 || made != 1 {
		t.Errorf("%d made %v", made, ids)
	}
}

// TestExistingIsWoken checks that an existing container is started or resumed, and that one that was deleted, or whose
// creation failed, is made again.
func TestExistingIsWoken(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	first := st.Create(t, named("web"))
	for _, rest := range []func(context.Context) error{first.Stop, first.Pause} {
		if err := rest(t.Context()); err != nil {
			t.Fatal(err)
		}
		s, found, err := st.Sessions.CreateOnce(t.Context(), owner, named("web"))
		if err != nil || !found || s != first || s.Info().State != proto.StateRunning {
			t.Fatalf("found %v %v, %s", found, err, s.Info().State)
		}
	}
	st.Reopen(t)
	s, found, err := st.Sessions.CreateOnce(t.Context(), owner, named("web"))
	if err != nil || !found || s.ID() != first.ID() {
		t.Fatalf("after a restart: %v %v", found, err)
	}
	if err := st.Sessions.Delete(t.Context(), owner, "web", false); err != nil {
		t.Fatal(err)
	}
	st.Runtime.(*sessiontest.Runtime).FailStart(proto.Errorf(proto.Unavailable, "", "", "not now"))
	if _, _, err := st.Sessions.CreateOnce(t.Context(), owner, named("web")); proto.CodeOf(err) != proto.Unavailable {
		t.Fatalf("a start that fails: %v", err)
	}
	st.Runtime.(*sessiontest.Runtime).FailStart(nil)
	if s, found, err = st.Sessions.CreateOnce(t.Context(), owner, named("web")); err != nil || found || s.ID() == first.ID() {
		t.Errorf("after its deletion: %v %v", found, err)
	}
}

// TestExistingNeedsItsName checks which requests for an existing container are refused.
func TestExistingNeedsItsName(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	st.Create(t, named("web"))
	for item, req := range map[string]proto.CreateContainer{
		"existing":        {Existing: true},
		"idempotency_key": {Existing: true, Name: "web", IdempotencyKey: "k"},
		"limits.cpus":     {Existing: true, Name: "web", Limits: proto.Limits{CPUs: -1}},
	} {
		_, _, err := st.Sessions.CreateOnce(t.Context(), owner, req)
		if proto.CodeOf(err) != proto.InvalidArgument || proto.AsError(err).Item != item {
			t.Errorf("%s: %v", item, err)
		}
	}
}

// TestRename checks that a container is found by its present name only, that the old name is free, and that a taken
// one is refused and changes nothing.
func TestRename(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{Name: "old"})
	other := st.Create(t, proto.CreateContainer{})
	rename(t, s, "new")
	rename(t, other, "old")
	name := "old"
	if _, err := s.Change(t.Context(), proto.ChangeContainer{Name: &name}); proto.CodeOf(err) != proto.AlreadyExists {
		t.Errorf("a taken name: %v", err)
	}
	for range 2 {
		for name, id := range map[string]string{"new": s.ID(), "old": other.ID(), s.ID(): s.ID()} {
			if got, err := st.Sessions.Get(owner, name); err != nil || got.ID() != id {
				t.Errorf("%s is %v: %v", name, got, err)
			}
		}
		if _, err := st.Sessions.Get("someone else", "new"); proto.CodeOf(err) != proto.NotFound {
			t.Errorf("another owner finds it: %v", err)
		}
		st.Reopen(t)
	}
	if s, err := st.Sessions.Get(owner, "new"); err != nil {
		t.Error(err)
	} else {
		rename(t, s, "")
	}
	if _, err := st.Sessions.Get(owner, "new"); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("a name that was taken away: %v", err)
	}
}

// TestNameOfTwoRecords checks that of two stored containers with the same name the older one keeps it.
func TestNameOfTwoRecords(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	older := st.Create(t, proto.CreateContainer{Name: "web"})
	newer := st.Create(t, proto.CreateContainer{Name: "other"})
	st.Close(t)
	db, err := ledger.Open(filepath.Join(st.Dir, "ledger.db"))
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *ledger.Tx) error {
		var rec map[string]json.RawMessage
		if _, err := tx.Get("sessions", newer.ID(), &rec); err != nil {
			return err
		}
		rec["name"] = json.RawMessage(`"web"`)
		return tx.Put("sessions", newer.ID(), rec)
	})
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	st.Open(t)
	if s, err := st.Sessions.Get(owner, "web"); err != nil || s.ID() != older.ID() {
		t.Errorf("web is %v: %v", s, err)
	}
	if s, err := st.Sessions.Get(owner, newer.ID()); err != nil || s.Info().Name != "" {
		t.Errorf("the newer one is called %q: %v", s.Info().Name, err)
	}
}
