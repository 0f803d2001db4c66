// Package ledger is the one place where the daemon's records live: a bbolt database, and a journal before it with
// group commit.
//
// A record is a JSON value under a key in a named bucket; every package owns its buckets and knows their shape:
//
//	sessions/   <container id>          session.record
//	workspaces/ <workspace id>          session.workspaceRecord
//	execs/      <container> / <exec>    session.execRecord
//	files/      <file id>               files.record
//	file_owners/<owner> 0 <file id>     order of listing
//	file_due/   <time> 0 <file id>      what a sweep has to look at next
//	blobs/      <sha-256>               count of files with this content
//	jobs/       <workspace> / <job>     artifacts.record
//	job_execs/  <workspace> / <job> / <exec>  proto.JobExec
//	inputs/     <workspace>             artifacts.inputs
//	audit/      head                    audit.Anchor
//	vault/      key                     vault.keyRecord
//	skills/     <owner> / <skill id>    skills.skillRecord
//	skill_versions/ <skill id> / <version id>  skills.versionRecord
//	gateway_turns/ <hash of request>    gateway.turnRecord
//	digest/     requests                sealed key of session's digests
//	keys/       <key id>                keys.record
//	tool_calls/ <container> / <call>    bridge.record, and what else package bridge has
//	key_usage/  <key id>                keys.spent
//	tools/, tool_names/, tool_versions/, tool_runs/, tool_runs_live/, tool_run_keys/  see package catalog
//	strays/     <workspace id>          when session found what nobody knows
//	clock/      ahead                   of session's clock
//	journal/    epoch                   the ledger's own
//
// An update is done when it is in a journal beside the database and that is synced: one append and one sync of what
// was allocated before, which a crowd of updates shares and a lone one never waits to share. What need not be on disk
// waits for no sync. The database gets it later, with many others: see journal. Readers see both as one.
// docs/decisions/0029 says why bbolt alone would not do.
package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"
)

// lockWait bounds how long Open waits for another process to let go of the file.
const lockWait = 2 * time.Second

// maxGroup bounds how many updates share one sync, and so how long the first waits.
const maxGroup = 256

// linger is how long an update that nobody waits for on disk may be in the page cache alone.
const linger = 100 * time.Millisecond

// The bucket and the key of the journal's epoch, as the database has it.
const (
	bucketJournal = "journal"
	keyEpoch      = "epoch"
)

// A DB is an open ledger.
type DB struct {
	bolt    *bbolt.DB
	persist func(func(*bbolt.Tx) error) error // bolt.Update; a test has it fail once it is done

	syncing sync.Mutex // held by whoever syncs the journal; locked before turn

	turn    sync.Mutex // held by whoever commits; guards what follows
	journal *journal

	state sync.RWMutex // guards over, and bolt against a checkpoint that over does not know of
	over  *node        // what the database has not got; changed with turn held too

	mu     sync.Mutex // guards what follows
	queue  []*update
	owed   []*update // committed, and answered by the next sync
	closed bool

	kick      chan struct{} // there is something in the queue
	flush     *time.Timer
	lingering atomic.Bool // flush is set
	stop      chan struct{}
	done      chan struct{}

	backedUp atomic.Int64 // the version that the newest backup has
}

type update struct {
	fn   func(*Tx) error
	sync bool // it is answered when it is on disk
	kept bool // it was committed; guarded by turn
	err  error
	done chan struct{}
}

// ErrClosed is what Update and View return after Close.
var ErrClosed = errors.New("the ledger is closed")

// Open opens or makes the ledger at path, mode 0600, and checks that it can be read
// to its end. It fails if another process has it open, or if it is damaged.
func Open(path string) (*DB, error) {
	if err := notLost(path); err != nil {
		return nil, err
	}
	bolt, err := openAndWalk(path)
	if errors.Is(err, berrors.ErrTimeout) {
		return nil, errors.New("another berth daemon uses this data directory; stop it or choose another --data")
	}
	if err != nil {
		return nil, fmt.Errorf("the ledger cannot be read: %w; %s", err, remedy(path))
	}
	db := &DB{bolt: bolt, persist: bolt.Update, kick: make(chan struct{}, 1), flush: time.NewTimer(linger),
		stop: make(chan struct{}), done: make(chan struct{})}
	db.flush.Stop()
	if err := db.openJournal(journalPath(path)); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the ledger's journal: %w", err), bolt.Close())
	}
	go db.write()
	return db, nil
}

// openJournal gives the database what the last daemon left in the journal.
func (db *DB) openJournal(path string) (err error) {
	err = db.bolt.View(func(tx *bbolt.Tx) error { db.over, err = journaled(tx, path); return err })
	if err != nil {
		return err
	}
	if db.journal, err = openJournal(path); err != nil {
		return err
	}
	if err := db.checkpoint(db.over); err != nil {
		return errors.Join(err, db.journal.f.Close())
	}
	db.journal.prepare()
	return nil
}

// journaled is what the journal at path adds to a database.
func journaled(tx *bbolt.Tx, path string) (*node, error) {
	b := tx.Bucket([]byte(bucketJournal))
	if b == nil {
		return nil, nil
	}
	var epoch uint64
	if err := json.Unmarshal(b.Get([]byte(keyEpoch)), &epoch); err != nil {
		return nil, nil // a backup, which stands for itself
	}
	return replay(path, epoch, nil)
}

// mapped is how much of the address space the file is given from the start, in bytes. Where it outgrows that, bbolt
// waits for all who read before it maps more, and a backup reads for as long as it takes.
const mapped = 1 << 30

// openAndWalk opens the file and reads every record once, some milliseconds a megabyte, so
// that damage shows now and not in the middle of a request.
func openAndWalk(path string) (bolt *bbolt.DB, err error) {
	err = surviving(func(open openFile) (err error) {
		bolt, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockWait, FreelistType: bbolt.FreelistMapType,
			InitialMmapSize: mapped, OpenFile: open})
		if err != nil {
			return err
		}
		bolt.AllocSize = journalSize // or the file would be as large as what is mapped allows, of holes
		whole := false
		defer func() {
			if !whole {
				bolt.Close()
			}
		}()
		err = bolt.View(func(tx *bbolt.Tx) error {
			return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
				return b.ForEach(func(k, v []byte) error {
					if !json.Valid(v) {
						return fmt.Errorf("record %s/%s is not readable", name, k)
					}
					return nil
				})
			})
		})
		whole = err == nil
		return err
	})
	return bolt, err
}

var errDamaged = errors.New("damaged page")

// openFile opens the file of a database.
type openFile func(name string, flag int, mode os.FileMode) (*os.File, error)

// surviving has fn work on a database that may be damaged. bbolt panics on a torn page, in Open too; its own Tx.Check
// does so on a goroutine, where nobody can recover. A file that was cut short faults, since bbolt maps it, which has
// to be made a panic first. Where fn fails, the file it opened is closed, or its lock would keep others out.
func surviving(fn func(openFile) error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	var f *os.File
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", errDamaged, r)
		}
		if err != nil && f != nil {
			// what bbolt has mapped of it when it panics in Open stays, and holds the lock
			_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
			_ = f.Close()
		}
	}()
	return fn(func(name string, flag int, mode os.FileMode) (_ *os.File, err error) {
		f, err = os.OpenFile(name, flag, mode)
		return f, err
	})
}

// Close waits for the updates under way and closes the files.
func (db *DB) Close() error {
	db.mu.Lock()
	if db.closed {
		db.mu.Unlock()
		return nil
	}
	db.closed = true
	db.mu.Unlock()
	close(db.stop)
	<-db.done
	db.syncing.Lock()
	defer db.syncing.Unlock()
	err := db.close()
	db.answerOwed()
	return errors.Join(err, db.journal.f.Close(), db.bolt.Close())
}

// close commits what is queued, and has the database hold all of it. If that fails it is in the journal, and the next
// Open tries again.
func (db *DB) close() error {
	db.turn.Lock()
	defer db.turn.Unlock()
	for db.commitNext() {
	}
	if db.settle() == nil {
		return nil
	}
	return db.journal.sync()
}

// SizeBytes is the size of the database file.
func (db *DB) SizeBytes() int64 {
	fi, err := os.Stat(db.bolt.Path())
	if err != nil {
		return 0
	}
	return fi.Size()
}

// Update runs fn in a transaction and returns once it is on disk; others may see it shortly before. If fn fails
// nothing of it is kept and its error is returned. It must not call the ledger again except through tx.
func (db *DB) Update(fn func(*Tx) error) error { return db.do(&update{fn: fn, sync: true}) }

// Jot is Update that returns once the kernel has it: it is safe from the death of the daemon, and a tenth of a second
// later, or with the next Update, from a power cut.
func (db *DB) Jot(fn func(*Tx) error) error { return db.do(&update{fn: fn}) }

// Begin is Update in two halves: it queues fn and returns; wait then returns once fn is on disk, so
// that the caller can do something else meanwhile. Order is kept between all calls.
func (db *DB) Begin(fn func(*Tx) error) (wait func() error) {
	u := &update{fn: fn, sync: true}
	if err := db.submit(u); err != nil {
		return func() error { return err }
	}
	db.wake()
	return func() error {
		<-u.done
		return u.err
	}
}

// Later is Jot without the wait, for records whose loss in a crash is
// harmless. The result of fn is dropped. The next update of anybody takes it along, or else a tenth of a second does.
func (db *DB) Later(fn func(*Tx) error) {
	if db.submit(&update{fn: fn}) == nil {
		db.lingerOn()
	}
}

// lingerOn makes sure that flush is set.
func (db *DB) lingerOn() {
	if !db.lingering.Swap(true) {
		db.flush.Reset(linger)
	}
}

func (db *DB) submit(u *update) error {
	u.done = make(chan struct{})
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed {
		return ErrClosed
	}
	db.queue = append(db.queue, u)
	return nil
}

// wake has the writer look at the queue.
func (db *DB) wake() {
	select {
	case db.kick <- struct{}{}:
	default:
	}
}

// do queues an update and waits for it. Where nobody else commits the caller does so itself, which saves two changes of
// goroutine; in a crowd the writer does.
func (db *DB) do(u *update) error {
	if err := db.submit(u); err != nil {
		return err
	}
	if db.turn.TryLock() {
		db.commitUntil(u)
	}
	if u.sync {
		db.syncUntil(u)
	}
	db.wakeIfWaiting()
	<-u.done
	return u.err
}

// commitUntil commits what is queued up to u. Called with turn held, which it gives back.
func (db *DB) commitUntil(u *update) {
	defer db.turn.Unlock() // whatever fn does to its goroutine
	for !u.kept {
		db.commitNext()
	}
}

// View runs fn on a consistent snapshot. It does not wait for writers, but for a checkpoint. fn must not call the
// ledger again.
func (db *DB) View(fn func(*Tx) error) error {
	db.state.RLock()
	tx := &Tx{over: db.over}
	var err error
	tx.read, err = db.bolt.Begin(false)
	db.state.RUnlock()
	if errors.Is(err, berrors.ErrDatabaseNotOpen) {
		return ErrClosed
	}
	if err != nil {
		return err
	}
	defer tx.close()
	return fn(tx)
}

// write commits what nobody waits for, or too many do.
func (db *DB) write() {
	defer close(db.done)
	for {
		select {
		case <-db.kick:
			db.commitQueued()
			for db.trySync() {
				db.commitQueued()
			}
		case <-db.flush.C:
			db.lingering.Store(false) // first, so that what is queued from now on sets it again
			db.commitQueued()
			db.syncing.Lock()
			if !db.answerOwed() {
				_ = db.syncWritten() // nobody waits, and what comes next finds out itself
			}
			db.syncing.Unlock()
			db.wakeIfWaiting()
		case <-db.stop:
			return
		}
	}
}

// commitQueued commits all that is queued.
func (db *DB) commitQueued() {
	db.turn.Lock()
	defer db.turn.Unlock()
	for db.commitNext() {
	}
}

// commitNext commits the updates that have waited longest, and reports whether there were any. Called with turn held.
func (db *DB) commitNext() bool {
	db.mu.Lock()
	n := min(len(db.queue), maxGroup)
	group := db.queue[:n:n]
	if db.queue = db.queue[n:]; len(db.queue) == 0 {
		db.queue = nil
	}
	db.mu.Unlock()
	if n > 0 {
		db.commit(group)
	}
	return n > 0
}

// commit runs a group and answers those of it that need no sync for it.
func (db *DB) commit(group []*update) {
	tx := &Tx{bolt: db.bolt, over: db.over, seal: db.journal.seal}
	for _, u := range group {
		u.err = tx.run(u.fn)
	}
	tx.close()
	err := db.keep(tx.over, tx.out)
	dirty := db.journal.dirty()
	var owed []*update
	for _, u := range group {
		u.kept = true
		if u.err == nil {
			u.err = err
		}
		if u.sync && u.err == nil && dirty {
			owed = append(owed, u)
		} else {
			close(u.done)
		}
	}
	if len(owed) > 0 {
		db.owe(owed)
	} else if dirty {
		db.lingerOn()
	}
}

// keep makes over what the ledger holds, by its frames or, where the journal has no room for them or cannot be
// written, by a checkpoint.
func (db *DB) keep(over *node, frames []byte) error {
	if err := db.journal.add(frames); err != nil {
		return db.checkpoint(over)
	}
	if over != db.over {
		db.state.Lock()
		db.over = over
		db.state.Unlock()
	}
	return nil
}

// checkpoint gives the database all that is over it, and begins the journal anew. If it fails, everything is as it
// was, or the database has got it and it is not known to be on disk. Then the journal's frames count no more, and
// none are added until the next one goes well. Called with turn held.
func (db *DB) checkpoint(over *node) error {
	db.state.Lock() // nobody must see the database's new state under the old changes
	defer db.state.Unlock()
	epoch := rand.Uint64()
	err := db.persist(func(tx *bbolt.Tx) error {
		for w := over.from("", false); w.at() != nil; w.next() {
			if err := store(tx, w.at()); err != nil {
				return err
			}
		}
		return store(tx, &node{key: bucketJournal + separator + keyEpoch, value: strconv.AppendUint(nil, epoch, 10)})
	})
	if err != nil {
		db.journal.broken = db.journal.broken || db.epoch() == epoch
		return err
	}
	db.over = nil
	db.journal.restart(epoch)
	return nil
}

// epoch is the one that the database knows, 0 if it knows none.
func (db *DB) epoch() (epoch uint64) {
	_ = db.bolt.View(func(tx *bbolt.Tx) error {
		if b := tx.Bucket([]byte(bucketJournal)); b != nil {
			epoch, _ = strconv.ParseUint(string(b.Get([]byte(keyEpoch))), 10, 64)
		}
		return nil
	})
	return epoch
}

// settle has the database hold all that was written so far. Called with turn held.
func (db *DB) settle() error {
	if db.over == nil {
		return nil
	}
	return db.checkpoint(db.over)
}

// store takes one change into the database.
func store(tx *bbolt.Tx, n *node) error {
	bucket, key, _ := strings.Cut(n.key, separator)
	if n.value != nil {
		b, err := tx.CreateBucketIfNotExists([]byte(bucket))
		if err != nil {
			return err
		}
		return b.Put([]byte(key), n.value)
	}
	if b := tx.Bucket([]byte(bucket)); b != nil {
		return b.Delete([]byte(key))
	}
	return nil
}
