package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
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
			return tx.ScanBack("b", "b/", before, func(k string, _ []byte) (bool, error) {
				got += k + " "
				return true,
					nil
			})
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
	db.UpdateLater(func(*Tx) error { <-gate; return nil })
	var ran []int
	wait := make([]func() error, 0, 100)
	for i := range 100 {
		put := func(tx *Tx) error { ran = append(ran, i); return tx.Put("b", "last", i) }
		if i%3 == 0 {
			db.UpdateLater(put)
		} else {
			wait = append(wait, db.StartUpdate(put))
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
	if err := db.View(func(tx *Tx) error { _, err := tx.Get("b", "last", &last); return err }); err != nil ||
		last != 99 {
		t.Errorf("last is %d, %v", last, err)
	}
}

// TestResultsOfLaterUpdates checks that UpdateLaterThen tells of success, failure and the end of the ledger.
func TestResultsOfLaterUpdates(t *testing.T) {
	db, _ := open(t)
	refused := errors.New("refused")
	var got []error
	then := func(err error) { got = append(got, err) }
	db.UpdateLaterThen(func(tx *Tx) error { return tx.Put("b", "k", 1) }, then)
	db.UpdateLaterThen(func(*Tx) error { return refused }, then)
	if err := db.Update(func(*Tx) error { return nil }); err != nil { // waits for both
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db.UpdateLaterThen(func(*Tx) error { return nil }, then)
	if len(got) != 3 || got[0] != nil || got[1] != refused || got[2] != ErrClosed {
		t.Errorf("told are %v", got)
	}
}

func TestCloseWritesWhatWasQueued(t *testing.T) {
	db, path := open(t)
	for i := range 100 {
		db.UpdateLater(func(tx *Tx) error { return tx.Put("b", fmt.Sprint(i), i) })
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Errorf("closing twice: %v", err)
	}
	if err := db.StartUpdate(func(*Tx) error { return nil })(); !errors.Is(err, ErrClosed) {
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

// Every way in which a file may be torn is an error that says what to do, and never an empty ledger.
func TestTornLedgerNamesTheBackup(t *testing.T) {
	db, path := open(t)
	put := func(n int) {
		if err := db.Update(func(tx *Tx) error {
			for i := range 500 {
				if err := tx.Put("b", fmt.Sprintf("key%06d", i), fmt.Sprint(n, strings.Repeat("x", 1024))); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Backup(0); err != nil {
			t.Fatal(err)
		}
	}
	put(1)
	put(2)
	db.Close()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func() error{
		"cut to nothing":  func() error { return os.Truncate(path, 0) },
		"cut in the meta": func() error { return os.Truncate(path, 100) },
		"cut to metas":    func() error { return os.Truncate(path, 8192) },
		"cut in half":     func() error { return os.Truncate(path, int64(len(whole))/2/4096*4096) },
		"gone":            func() error { return os.Remove(path) },
		"metas flipped": func() error {
			return os.WriteFile(path, append(bytes.Repeat([]byte{0x5a}, 8192), whole[8192:]...), 0o600)
		},
		"zeroed": func() error { return os.WriteFile(path, make([]byte, len(whole)), 0o600) },
	} {
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		if err := Peek(path, func(tx *Tx) error { return Each(tx, "b", "", func(string, string) {}) }); err == nil {
			t.Errorf("%s: read to its end", name)
		}
		db, err := Open(path)
		if err == nil {
			db.Close()
			t.Errorf("%s: opened", name)
		} else if !strings.Contains(err.Error(), "ledger.db.1 in the data directory is a good backup") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".1", whole[:5000], 0o600); err != nil {
		t.Fatal(err)
	}
	if db, err := Open(path); err == nil || !strings.Contains(err.Error(), "ledger.db.2") {
		if err == nil {
			db.Close()
		}
		t.Errorf("with the newest backup torn too: %v", err)
	}
}

// A journal alone says that there was a ledger.
func TestLedgerGoneBesideItsJournal(t *testing.T) {
	db, path := open(t)
	db.Close()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if db, err := Open(path); err == nil || !strings.Contains(err.Error(), "its journal and its backups aside") {
		if err == nil {
			db.Close()
		}
		t.Errorf("an empty ledger was begun where one was: %v", err)
	}
}

func TestBackupsRotateAndSkipWhatDidNotChange(t *testing.T) {
	db, path := open(t)
	value := func(path string) (v int) {
		old, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer old.Close()
		_ = old.View(func(tx *Tx) error { _, err := tx.Get("b", "k", &v); return err })
		return v
	}
	for n := 1; n <= 3; n++ {
		if err := db.Update(func(tx *Tx) error { return tx.Put("b", "k", n) }); err != nil {
			t.Fatal(err)
		}
		for range 3 { // the second and third find nothing new
			if _, err := db.Backup(0); err != nil {
				t.Fatal(err)
			}
		}
	}
	if one, two := value(path+".1"), value(path+".2"); one != 3 || two != 2 {
		t.Errorf("the backups hold %d and %d, want 3 and 2", one, two)
	}
}

// TestCopyAsOf checks that no update is committed while a copy's function runs, and that the copy is as of that time.
func TestCopyAsOf(t *testing.T) {
	db, path := open(t)
	put := func(key string) error { return db.Update(func(tx *Tx) error { return tx.Put("b", key, 1) }) }
	if err := put("before"); err != nil {
		t.Fatal(err)
	}
	has := func(db *DB, key string) (found bool) {
		if err := db.View(func(tx *Tx) error {
			return tx.Scan("b", key, func(string, []byte) (bool, error) { found = true; return false, nil })
		}); err != nil {
			t.Fatal(err)
		}
		return found
	}
	meanwhile := make(chan error, 1)
	copied := path + ".copy"
	err := db.CopyAsOf(copied, func() error {
		begun := make(chan struct{})
		go func() { close(begun); meanwhile <- put("meanwhile") }()
		<-begun
		for range 1000 { // gives a wrong commit its chance
			runtime.Gosched()
			if has(db, "meanwhile") {
				return errors.New("an update was committed meanwhile")
			}
		}
		return nil
	})
	if err = errors.Join(err, <-meanwhile); err != nil {
		t.Fatal(err)
	}
	if !has(db, "meanwhile") {
		t.Error("the update that waited is lost")
	}
	other, err := Open(copied)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if !has(other, "before") || has(other, "meanwhile") {
		t.Errorf("the copy has what was before: %t, and what was after: %t", has(other, "before"),
			has(other, "meanwhile"))
	}
	failed := errors.New("no")
	if err := db.CopyAsOf(path+".failed", func() error { return failed }); !errors.Is(err, failed) {
		t.Errorf("a failing function: %v", err)
	}
	if err := put("after"); err != nil {
		t.Error(err)
	}
}
