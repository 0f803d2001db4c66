package ledger

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"berth/state/ledger/journal"
	"berth/test/needs"
)

// asKilled is a copy of the ledger's files as the death of its process would leave them now.
func asKilled(t *testing.T, db *DB) (path string) {
	t.Helper()
	db.commitMu.Lock()
	defer db.commitMu.Unlock()
	path = filepath.Join(t.TempDir(), "ledger.db")
	for _, suffix := range []string{"", ".log"} {
		data, err := os.ReadFile(db.bolt.Path() + suffix)
		if err == nil {
			err = os.WriteFile(path+suffix, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func reopen(t *testing.T, path string) *DB {
	t.Helper()
	db, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// all reads a bucket, in both directions.
func all(t *testing.T, view func(func(*Tx) error) error, bucket, prefix string) map[string]string {
	t.Helper()
	have := map[string]string{}
	var up, down []string
	err := view(func(tx *Tx) error {
		if err := Each(tx, bucket, prefix, func(key, v string) { have[key] = v; up = append(up, key) }); err != nil {
			return err
		}
		for key, want := range have {
			var v string
			if ok, err := tx.Get(bucket, key, &v); err != nil || !ok || v != want {
				t.Errorf("%s is %.20q to a scan, and %.20q %v %v to Get", key, want, v, ok, err)
			}
		}
		return tx.ScanBack(bucket, prefix, "", func(key string, _ []byte) (bool, error) {
			down = append(down, key)
			return true, nil
		})
	})
	slices.Reverse(down)
	if err != nil || !slices.IsSorted(up) || !slices.Equal(up, down) {
		t.Fatalf("up %v, down %v, %v", up, down, err)
	}
	return have
}

// A ledger that is killed at random, backed up and filled beyond its journal has after each step what a map has.
func TestLedgerIsAMap(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	db, _ := open(t)
	want := map[string]string{}
	step := func(tx *Tx, after map[string]string) error {
		for range 1 + r.IntN(5) {
			key := fmt.Sprintf("%c/%02d", 'a'+r.IntN(3), r.IntN(40))
			var err error
			switch r.IntN(8) {
			case 0:
				err = tx.Delete("b", key)
				delete(after, key)
			case 1:
				err = tx.DeletePrefix("b", key[:3])
				maps.DeleteFunc(after, func(k, _ string) bool { return strings.HasPrefix(k, key[:3]) })
			case 2:
				size := 1000
				if r.IntN(20) == 0 {
					size = 600_000
				}
				after[key] = strings.Repeat("x", 1+r.IntN(size))
				err = tx.Put("b", key, after[key])
			default:
				after[key] = fmt.Sprint(r.Uint64())
				err = tx.Put("b", key, after[key])
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	no := errors.New("no")
	for range 150 {
		after := maps.Clone(want)
		result := error(nil)
		if r.IntN(6) == 0 {
			result = no
		}
		do := db.Update
		if r.IntN(2) == 0 {
			do = db.UpdateAsync
		}
		if err := do(func(tx *Tx) error { return errors.Join(step(tx, after), result) }); (err == nil) != (result == nil) {
			t.Fatal(err)
		}
		if result == nil {
			want = after
		}
		switch r.IntN(20) {
		case 0:
			db = reopen(t, asKilled(t, db))
		case 1:
			if _, err := db.Backup(0); err != nil {
				t.Fatal(err)
			}
		case 2:
			path := db.bolt.Path()
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			if have := all(t, func(fn func(*Tx) error) error { return Peek(path, fn) }, "b", ""); !maps.Equal(
				have, want) {
				t.Fatal("Peek sees something else")
			}
			db = reopen(t, path)
		}
		if have := all(t, db.View, "b", ""); !maps.Equal(have, want) {
			t.Fatalf("%d records, want %d", len(have), len(want))
		}
		under := maps.Clone(want)
		maps.DeleteFunc(under, func(k, _ string) bool { return k < "b" || k >= "c" })
		if have := all(t, db.View, "b", "b/"); !maps.Equal(have, under) {
			t.Fatalf("%d records below b/, want %d", len(have), len(under))
		}
	}
}

// Wherever the journal is damaged, what is before that is there, whole updates only, and what is behind is not. It is
// an error if an update was acknowledged that is not there, and none if the damage is the end of the last write. After
// a power cut, that is all that was not synced.
func TestTornJournal(t *testing.T) {
	db, _ := open(t)
	const updates, synced = 6, 3
	for i := range updates {
		do := db.Update
		if i >= synced {
			do = db.UpdateAsync
		}
		if i == synced {
			db.syncMu.Lock()
			defer db.syncMu.Unlock()
		}
		err := do(func(tx *Tx) error {
			return errors.Join(tx.Put("b", fmt.Sprintf("%02d/1", i), "one"), tx.Put("b", fmt.Sprintf("%02d/2", i),
				"two"))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	killed := asKilled(t, db)
	path := journalPath(killed)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	start := startOf(t, killed)
	ends := []int{0} // of the frames
	for i := range updates {
		ends = append(ends, ends[i]+journal.HeaderSize+int(binary.LittleEndian.Uint32(text[ends[i]+8:])))
	}
	afterPowerCut := start
	afterPowerCut.Boot = "another"
	for at := range ends[updates] + 1 {
		whole := 0
		for ends[whole+1] <= at && whole+1 < updates {
			whole++
		}
		if at == ends[updates] {
			whole = updates
		}
		cut, flipped := text[:at], bytes.Clone(text)
		flipped[at] ^= 0x10
		for _, tt := range []struct {
			how     string
			text    []byte
			start   journal.Start
			damaged bool
		}{
			{"cut", cut, start, true},
			{"cut, with an earlier build's start", cut, journal.Start{Epoch: start.Epoch}, false},
			{"flipped", flipped, start, whole < updates-1 || at < 8},
			{"flipped, with an earlier build's start", flipped, journal.Start{Epoch: start.Epoch}, whole < updates-1},
			{"flipped by a power cut", flipped, afterPowerCut, whole < synced},
		} {
			if err := os.WriteFile(path, tt.text, 0o600); err != nil {
				t.Fatal(err)
			}
			var over *node
			err := journal.Replay(path, tt.start, func(key string, value []byte) { over = over.put(key, value) })
			n := 0
			for w := over.from("", false); w.at() != nil; w.next() {
				n++
			}
			var damage *journal.Damage
			if errors.As(err, &damage) != tt.damaged || n != 2*whole || damage == nil && err != nil {
				t.Fatalf("%s at %d: %d records, want %d; %v, want damage: %v", tt.how, at, n, 2*whole, err, tt.damaged)
			}
			if damage != nil && damage.At != int64(ends[whole]) {
				t.Fatalf("%s at %d: the damage is said to be at %d", tt.how, at, damage.At)
			}
		}
	}
}

// startOf returns the start of the epoch that the database at path records.
func startOf(t *testing.T, path string) (start journal.Start) {
	t.Helper()
	bolt, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: lockWait})
	if err != nil {
		t.Fatal(err)
	}
	defer bolt.Close()
	err = bolt.View(func(tx *bbolt.Tx) error {
		return json.Unmarshal(tx.Bucket([]byte(bucketJournal)).Get([]byte(keyStart)), &start)
	})
	if err != nil || start.Epoch == 0 || start.Boot == "" || start.Size != journal.MaxSize {
		t.Fatalf("the database records %+v; %v", start, err)
	}
	return start
}

// A ledger whose journal is damaged is refused, with what to do. OpenLossy takes what is whole.
func TestDamagedJournalIsRefused(t *testing.T) {
	for how, tt := range map[string]struct {
		damage func(path string, text []byte) error
		kept   int // of three records
	}{
		"missing": {func(path string, _ []byte) error { return os.Remove(path) }, 0},
		"empty":   {func(path string, _ []byte) error { return os.Truncate(path, 0) }, 0},
		"short":   {func(path string, _ []byte) error { return os.Truncate(path, journal.MaxSize-1) }, 3},
		"zeroed": {func(path string, text []byte) error {
			return os.WriteFile(path, make([]byte, len(text)), 0o600)
		}, 0},
		"another ledger's": {func(path string, text []byte) error {
			return os.WriteFile(path, append([]byte("12345678"), text[8:]...), 0o600)
		}, 0},
		"flipped": {func(path string, text []byte) error {
			text[journal.HeaderSize+3+int(binary.LittleEndian.Uint32(text[8:]))+journal.HeaderSize] ^= 1
			return os.WriteFile(path, text, 0o600)
		}, 1},
	} {
		t.Run(how, func(t *testing.T) {
			db, _ := open(t)
			for _, key := range []string{"1", "2", "3"} {
				if err := db.Update(putting(key)); err != nil {
					t.Fatal(err)
				}
			}
			path := asKilled(t, db)
			text, err := os.ReadFile(journalPath(path))
			if err == nil {
				err = tt.damage(journalPath(path), text)
			}
			if err != nil {
				t.Fatal(err)
			}
			_, err = Open(path)
			for _, err := range []error{err, Peek(path, func(*Tx) error { return nil })} {
				if err == nil || !strings.Contains(err.Error(), "ledger.db.log is damaged") ||
					!strings.Contains(err.Error(), "--accept-loss=journal") {
					t.Fatalf("opened: %v", err)
				}
			}
			lossy, err := OpenLossy(path)
			if err != nil {
				t.Fatal(err)
			}
			if have := all(t, lossy.View, "b", ""); len(have) != tt.kept || lossy.Lost() == "" {
				t.Errorf("%d records are kept, want %d; lost: %q", len(have), tt.kept, lossy.Lost())
			}
			if _, err := os.Stat(journalPath(path) + damagedSuffix); err != nil && how != "missing" {
				t.Errorf("the damaged journal: %v", err)
			}
			if err := errors.Join(lossy.Update(putting("4")), lossy.Close()); err != nil {
				t.Fatal(err)
			}
			if again := reopen(t, path); len(all(t, again.View, "b", "")) != tt.kept+1 || again.Lost() != "" {
				t.Errorf("afterwards: %v, lost: %q", all(t, again.View, "b", ""), again.Lost())
			}
		})
	}
}

// A ledger that was closed in order needs no journal.
func TestClosedLedgerNeedsNoJournal(t *testing.T) {
	db, path := open(t)
	if err := errors.Join(db.Update(putting("1")), db.Close(), os.Remove(journalPath(path))); err != nil {
		t.Fatal(err)
	}
	if have := all(t, reopen(t, path).View, "b", ""); len(have) != 1 {
		t.Errorf("there is %v", have)
	}
}

// What an earlier epoch left in the journal is older than the database, and must not come back.
func TestOldFramesDoNotComeBack(t *testing.T) {
	db, _ := open(t)
	set := func(v string) {
		t.Helper()
		if err := db.UpdateAsync(func(tx *Tx) error { return tx.Put("b", "k", v) }); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10 {
		set(fmt.Sprint("old", i))
	}
	set("new")
	if err := db.checkpointNow(); err != nil {
		t.Fatal(err)
	}
	for want := range 3 { // so many frames of the new epoch over those of the old one
		copied := reopen(t, asKilled(t, db))
		if have := all(t, copied.View, "b", "k"); have["k"] != "new" {
			t.Errorf("%d frames into the next epoch it is %q", want, have["k"])
		}
		if err := db.UpdateAsync(func(tx *Tx) error { return tx.Put("b", "other", want) }); err != nil {
			t.Fatal(err)
		}
	}
}

// A checkpoint may be in the file although the sync that it ends with failed. Nothing that is said to be done later
// is lost for it.
func TestCheckpointThatFailsOnceItIsDone(t *testing.T) {
	db, _ := open(t)
	if err := db.Update(putting("before")); err != nil {
		t.Fatal(err)
	}
	db.commitMu.Lock()
	db.persist = func(fn func(*bbolt.Tx) error) error { return errors.Join(db.bolt.Update(fn), syscall.EIO) }
	db.commitMu.Unlock()
	if err := db.checkpointNow(); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	if err := db.Update(putting("refused")); !errors.Is(err, syscall.EIO) {
		t.Errorf("with a disk that may not have the last checkpoint: %v", err)
	}
	db.commitMu.Lock()
	db.persist = db.bolt.Update
	db.commitMu.Unlock()
	if err := db.Update(putting("after")); err != nil {
		t.Fatal(err)
	}
	if have := all(t, reopen(t, asKilled(t, db)).View, "b", ""); have["before"] == "" || have["after"] == "" {
		t.Errorf("after a kill there is %v", have)
	}
}

// A backup that takes the ledger's place is what it was, whatever journal lies beside it.
func TestBackupStandsForItself(t *testing.T) {
	db, _ := open(t)
	put := func(key string) error { return db.Update(func(tx *Tx) error { return tx.Put("b", key, key) }) }
	if err := put("before"); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Backup(0); err != nil {
		t.Fatal(err)
	}
	if err := put("after"); err != nil {
		t.Fatal(err)
	}
	path := asKilled(t, db)
	backup, err := os.ReadFile(db.bolt.Path() + ".1")
	if err == nil {
		err = os.WriteFile(path, backup, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if have := all(t, reopen(t, path).View, "b", ""); len(have) != 1 || have["before"] == "" {
		t.Errorf("restored: %v", have)
	}
}

// On a disk that is full an update is done or fails; what was said to be done is there after a kill, and nothing else.
func TestJournalOnAFullDisk(t *testing.T) {
	for _, size := range []string{"512k", "3m"} { // with no room for the whole journal, and with it
		dir := t.TempDir()
		needs.Root(t)
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
			t.Fatalf("this test mounts a tmpfs: %v", err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
		db := reopen(t, filepath.Join(dir, "ledger.db"))
		want, failed := map[string]string{}, 0
		fill := func() {
			_ = os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 4<<20), 0o600)
		}
		for i := range 400 {
			if i == 20 {
				fill()
			}
			key, value := fmt.Sprintf("%03d", i), strings.Repeat("v", 10_000)
			switch err := db.Update(func(tx *Tx) error { return tx.Put("b", key, value) }); {
			case err == nil:
				want[key] = value
			case errors.Is(err, syscall.ENOSPC):
				failed++
			default:
				t.Fatal(err)
			}
			if i%200 == 199 {
				if have := all(t, reopen(t, asKilled(t, db)).View, "b", ""); !maps.Equal(have, want) {
					t.Fatalf("%s: after %d there are %d, want %d", size, i, len(have), len(want))
				}
			}
		}
		if failed == 0 {
			t.Errorf("%s: the disk was never full", size)
		}
		if err := os.Remove(filepath.Join(dir, "filler")); err != nil {
			t.Fatal(err)
		}
		if err := db.Update(func(tx *Tx) error { return tx.Put("b", "last", "v") }); err != nil {
			t.Errorf("%s: with room again: %v", size, err)
		}
	}
}

// Many who write at once, read and back up see no update in part.
func TestConcurrentUpdates(t *testing.T) {
	db, _ := open(t)
	var writers, readers sync.WaitGroup
	stop := make(chan struct{})
	for w := range 8 {
		writers.Go(func() {
			for i := range 50 {
				do := []func(func(*Tx) error) error{db.Update, db.UpdateAsync}[i%2]
				if err := do(func(tx *Tx) error {
					pair := strings.Repeat("p", 10_000+i)
					return errors.Join(tx.Put("b", fmt.Sprint(w, "/1"), pair), tx.Put("b", fmt.Sprint(w, "/2"), pair))
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				have := all(t, db.View, "b", "")
				for w := range 8 {
					if have[fmt.Sprint(w, "/1")] != have[fmt.Sprint(w, "/2")] {
						t.Error("half of an update is seen")
						return
					}
				}
			}
		})
	}
	for range 3 {
		if _, err := db.Backup(0); err != nil {
			t.Error(err)
		}
	}
	writers.Wait()
	close(stop)
	readers.Wait()
}

func TestRecordsThatNoCheckpointCouldWriteAreRefused(t *testing.T) {
	db, _ := open(t)
	for name, fn := range map[string]func(*Tx) error{
		"no key":         func(tx *Tx) error { return tx.Put("b", "", 1) },
		"a long key":     func(tx *Tx) error { return tx.Put("b", strings.Repeat("k", 40_000), 1) },
		"no bucket":      func(tx *Tx) error { return tx.Put("", "k", 1) },
		"a split bucket": func(tx *Tx) error { return tx.Put("b\x00c", "k", 1) },
	} {
		if db.Update(fn) == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if db.View(func(tx *Tx) error { return tx.Put("b", "k", 1) }) == nil {
		t.Error("a View writes")
	}
	if err := db.checkpointNow(); err != nil {
		t.Error(err)
	}
}

func BenchmarkUpdate(b *testing.B) {
	for name, do := range map[string]func(*DB) func(func(*Tx) error) error{
		"on disk": func(db *DB) func(func(*Tx) error) error { return db.Update },
		"async":   func(db *DB) func(func(*Tx) error) error { return db.UpdateAsync },
	} {
		b.Run(name, func(b *testing.B) {
			db, err := Open(filepath.Join(b.TempDir(), "ledger.db"))
			if err != nil {
				b.Fatal(err)
			}
			defer db.Close()
			value := strings.Repeat("v", 700)
			for i := 0; b.Loop(); i++ {
				if err := do(db)(func(tx *Tx) error { return tx.Put("b", fmt.Sprint(i), value) }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkAsyncBesideUpdates measures an async update while others write what must be on disk, one after the other.
func BenchmarkAsyncBesideUpdates(b *testing.B) {
	db, err := Open(filepath.Join(b.TempDir(), "ledger.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	var stop atomic.Bool
	var updates sync.WaitGroup
	updates.Go(func() {
		for !stop.Load() {
			if err := db.Update(func(tx *Tx) error { return tx.Put("b", "update", "v") }); err != nil {
				b.Error(err)
			}
		}
	})
	for b.Loop() {
		if err := db.UpdateAsync(func(tx *Tx) error { return tx.Put("b", "async", "v") }); err != nil {
			b.Fatal(err)
		}
	}
	stop.Store(true)
	updates.Wait()
}
