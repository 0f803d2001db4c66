package snapshots

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"berth/proto"
	"berth/state/ledger"
)

// TestOneRemoval sweeps in the middle of a removal. The sweep must leave the snapshot to it, and try again if it fails.
func TestOneRemoval(t *testing.T) {
	db, err := ledger.Open(filepath.Join(t.TempDir(), "ledger.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	var st *Store
	broken := errors.New("the disk has failed")
	calls, fails := 0, broken
	now := func() time.Time { return time.Unix(1, 0) }
	st, err = Open(Config{Ledger: db, Now: now, Wall: func(at time.Time) time.Time { return at },
		Used: func(string) bool { return false }, Size: func(string) (int64, int64) { return 3, 2 },
		Remove: func(ctx context.Context, _ string) error {
			if calls++; calls == 1 {
				if removed, err := st.Sweep(ctx); err != nil || len(removed) > 0 {
					t.Errorf("a sweep meanwhile: %v, %v", removed, err)
				}
			}
			return fails
		}})
	if err != nil {
		t.Fatal(err)
	}
	id := proto.NewID(proto.SnapshotPrefix)
	if err := errors.Join(st.Begin(Record{ID: id, Owner: "a"}, 0, 0), st.Finish(id)); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Delete(t.Context(), "a", id); !errors.Is(err, broken) || calls != 1 {
		t.Errorf("deleting: %v, after %d removals", err, calls)
	}
	fails = nil
	if removed, err := st.Sweep(t.Context()); err != nil || len(removed) != 1 || calls != 2 {
		t.Errorf("a sweep afterwards: %v, %v, after %d removals", removed, err, calls)
	}
	if all := st.All(); len(all) > 0 {
		t.Errorf("left: %v", all)
	}
}

// TestPages walks over the snapshots of one owner in pages, newest first, while others are taken and removed.
func TestPages(t *testing.T) {
	db, err := ledger.Open(filepath.Join(t.TempDir(), "ledger.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	st, err := Open(Config{Ledger: db, Now: time.Now, Wall: func(at time.Time) time.Time { return at },
		Used: func(string) bool { return false }, Size: func(id string) (int64, int64) { return int64(len(id)), 2 },
		Remove: func(context.Context, string) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	take := func(owner, container string) {
		t.Helper()
		id := fmt.Sprintf("%s%022d", proto.SnapshotPrefix, len(all))
		all = append(all, id)
		r := Record{ID: id, Owner: owner, Container: container, Labels: map[string]string{"of": container}}
		if err := errors.Join(st.Begin(r, 0, 0), st.Finish(id)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10 {
		take("me", []string{"even", "odd"}[i%2])
		take("other", "odd")
	}
	page := func(f Filter, more bool, want ...int) {
		t.Helper()
		got, left, err := st.List("me", f)
		same := err == nil && left == more && len(got) == len(want)
		for i := 0; same && i < len(want); i++ {
			same = got[i].ID == all[want[i]] && got[i].SizeBytes == int64(len(all[0])) && got[i].ExclusiveBytes == 2
		}
		if !same {
			t.Errorf("%+v: %+v, more %t, %v, want %v, more %t", f, got, left, err, want, more)
		}
	}
	page(Filter{Limit: 4}, true, 18, 16, 14, 12)
	take("me", "even")
	if _, err := st.Delete(t.Context(), "me", all[12]); err != nil {
		t.Fatal(err)
	}
	page(Filter{Limit: 4, After: all[12]}, true, 10, 8, 6, 4)
	page(Filter{Limit: 2, After: all[4]}, false, 2, 0)
	page(Filter{Limit: 4, After: all[0]}, false)
	page(Filter{Container: "odd", Limit: 5}, false, 18, 14, 10, 6, 2)
	page(Filter{Labels: map[string]string{"of": "even"}, Limit: 2}, true, 20, 16)
	page(Filter{}, false, 20, 18, 16, 14, 10, 8, 6, 4, 2, 0)
	for item, f := range map[string]Filter{"limit": {Limit: 1001}, "after": {After: "container_x"}} {
		if _, _, err := st.List("me", f); proto.CodeOf(err) != proto.InvalidArgument || proto.AsError(err).Item != item {
			t.Errorf("%+v: %v", f, err)
		}
	}
}
