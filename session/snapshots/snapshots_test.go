package snapshots

import (
	"context"
	"errors"
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
		Used: func(string) bool { return false },
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
