package ledger

import (
	"errors"
	"sync"
	"testing"

	"berth/state/durable"
	"berth/state/ledger/journal"
)

func putting(key string) func(*Tx) error {
	return func(tx *Tx) error { return tx.Put("b", key, key) }
}

// Who waits for no disk does not wait for a sync of others; all who do are answered by the next one, whoever it was
// that wrote for them.
func TestAsyncUpdatesDoNotWaitForSyncs(t *testing.T) {
	db, path := open(t)
	db.syncMu.Lock() // as whoever syncs has it
	var updates sync.WaitGroup
	for _, key := range []string{"u1", "u2", "u3"} {
		updates.Go(func() {
			if err := db.Update(putting(key)); err != nil {
				t.Error(err)
			}
		})
	}
	wait := db.StartUpdate(putting("begun"))
	owed := func() int {
		db.mu.Lock()
		defer db.mu.Unlock()
		return len(db.awaitingSync)
	}
	for n := 0; n == 0 || owed() < 4; n++ { // jots take along what is queued
		if err := db.UpdateAsync(putting("j")); err != nil {
			t.Fatal(err)
		}
		if n > 1_000_000 {
			t.Fatalf("%d updates are written", owed())
		}
	}
	if seen := all(t, db.View, "b", ""); len(seen) != 5 {
		t.Errorf("readers see %v", seen)
	}
	db.syncMu.Unlock()
	db.wakeIfWaiting() // as whoever has synced does
	updates.Wait()
	if err := wait(); err != nil {
		t.Error(err)
	}
	if db.journal.Dirty() {
		t.Error("they were answered without a sync")
	}
	if have := all(t, reopen(t, asKilled(t, db)).View, "b", ""); len(have) != 5 {
		t.Errorf("%s has %v", path, have)
	}
}

// Where the journal cannot be synced the database gets what is in it, before anybody is told that it is on disk.
func TestSyncFails(t *testing.T) {
	db, _ := open(t)
	was := db.journal
	zero, err := journal.Open("/dev/zero", durable.Sync) // takes all that is written, and cannot be synced
	if err != nil {
		t.Fatal(err)
	}
	defer zero.Close()
	db.commitMu.Lock()
	db.journal = zero
	db.commitMu.Unlock()
	if err := errors.Join(db.UpdateAsync(putting("async")), db.Update(putting("update")),
		db.Update(putting("again"))); err != nil {
		t.Fatal(err)
	}
	db.commitMu.Lock()
	db.journal = was
	db.commitMu.Unlock()
	if have := all(t, reopen(t, asKilled(t, db)).View, "b", ""); len(have) != 3 {
		t.Errorf("after a kill there is %v", have)
	}
}
