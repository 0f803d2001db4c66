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
