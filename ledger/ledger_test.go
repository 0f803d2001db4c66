package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func open(t *testing.T) (*DB, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ledger.db")
	db, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db, path
}

func TestUpdateIsDurableAndShared(t *testing.T) {
	db, path := open(t)
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			if err := db.Update(func(tx *Tx) error { return tx.Put("b", fmt.Sprintf("k%03d", i), i) }); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	n := 0
	again.View(func(tx *Tx) error {
		return tx.Scan("b", "k", func(string, []byte) (bool, error) { n++; return true, nil })
	})
	if n != 200 {
		t.Fatalf("%d records after reopening, want 200", n)
	}
}

func TestFailingUpdateLeavesNothingAndSparesOthers(t *testing.T) {
	db, _ := open(t)
	bad := errors.New("no")
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			err := db.Update(func(tx *Tx) error {
				if err := tx.Put("b", fmt.Sprint(i), i); err != nil {
					return err
				}
				switch i % 3 {
				case 1:
					return bad
				case 2:
					panic("oops")
				}
				return nil
			})
			if (err == nil) != (i%3 == 0) {
				t.Errorf("update %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	for i := range 50 {
		db.View(func(tx *Tx) error {
			var v int
			if ok, _ := tx.Get("b", fmt.Sprint(i), &v); ok != (i%3 == 0) {
				t.Errorf("key %d present: %v", i, ok)
			}
			return nil
		})
	}
}

func TestScanBack(t *testing.T) {
	db, _ := open(t)
	db.Update(func(tx *Tx) error {
		for _, k := range []string{"a/1", "b/1", "b/2", "b/3", "c/1"} {
			tx.Put("b", k, k)
		}
		return nil
	})
	for before, want := range map[string]string{"": "b/3 b/2 b/1 ", "b/3": "b/2 b/1 ", "b/1": ""} {
		got := ""
		db.View(func(tx *Tx) error {
			return tx.ScanBack("b", "b/", before, func(k string, _ []byte) (bool, error) { got += k + " "; return true, nil })
		})
		if got != want {
			t.Errorf("before %q: got %q, want %q", before, got, want)
		}
	}
}

func TestSecondOpenIsRefused(t *testing.T) {
	_, path := open(t)
	if _, err := Open(path); err == nil {
		t.Fatal("two daemons have one ledger open")
	}
}

func TestDamagedLedgerIsRefused(t *testing.T) {
	db, path := open(t)
	db.Update(func(tx *Tx) error {
		for i := range 2000 {
			tx.Put("b", fmt.Sprintf("key%06d", i), bytes.Repeat([]byte{'x'}, 64))
		}
		return nil
	})
	db.Close()
	data, _ := os.ReadFile(path)
	for i := 4 * 4096; i < len(data)-4096; i += 4096 {
		copy(data[i:], bytes.Repeat([]byte{0xaa}, 64))
	}
	os.WriteFile(path, data, 0o600)
	if db, err := Open(path); err == nil {
		db.Close()
		t.Fatal("opened a damaged ledger")
	}
}

func TestClosedLedger(t *testing.T) {
	db, _ := open(t)
	db.Close()
	if err := db.Update(func(*Tx) error { return nil }); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if err := db.View(func(*Tx) error { return nil }); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

func TestOrderIsKeptBetweenAllCalls(t *testing.T) {
	db, _ := open(t)
	gate := make(chan struct{})
	db.Later(func(*Tx) error { <-gate; return nil })
	var ran []int
	wait := make([]func() error, 0, 100)
	for i := range 100 {
		put := func(tx *Tx) error { ran = append(ran, i); return tx.Put("b", "last", i) }
		if i%3 == 0 {
			db.Later(put)
		} else {
			wait = append(wait, db.Begin(put))
		}
	}
	close(gate)
	for _, w := range wait {
		if err := w(); err != nil {
			t.Fatal(err)
		}
		if err := w(); err != nil { // it may be asked twice
			t.Fatal(err)
		}
	}
	if err := db.Update(func(*Tx) error { return nil }); err != nil {
		t.Fatal(err)
	}
	for i, n := range ran {
		if i != n {
			t.Fatalf("ran in the order %v", ran)
		}
	}
	var last int
	if err := db.View(func(tx *Tx) error { _, err := tx.Get("b", "last", &last); return err }); err != nil || last != 99 {
		t.Errorf("last is %d, %v", last, err)
	}
}

func TestCloseWritesWhatWasQueued(t *testing.T) {
	db, path := open(t)
	for i := range 100 {
		db.Later(func(tx *Tx) error { return tx.Put("b", fmt.Sprint(i), i) })
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Errorf("closing twice: %v", err)
	}
	if err := db.Begin(func(*Tx) error { return nil })(); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	again, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	n := 0
	_ = again.View(func(tx *Tx) error {
		return tx.Scan("b", "", func(string, []byte) (bool, error) { n++; return true, nil })
	})
	if n != 100 {
		t.Errorf("%d of 100 queued records were written", n)
	}
}
