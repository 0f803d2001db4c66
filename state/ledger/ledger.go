// Package ledger stores all records of the daemon: a bbolt database behind a journal with group commit.
//
// A record is a JSON value under a key in a named bucket. Each package owns its buckets and knows their shape:
//
//	sessions/   <container id>          session.record
//	workspaces/ <workspace id>          session.workspaceRecord
//	execs/      <container> / <exec>    session.execRecord
//	files/      <file id>               files.record
//	file_owners/<owner> 0 <file id>     order of listing
//	file_due/   <time> 0 <file id>      what a sweep has to look at next
//	blobs/      <sha-256>               count of files with this content
//	jobs/       <workspace> / <job>     artifacts.record
//	job_files/  <workspace> / <job> / <path>  artifacts.entry
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
//	tools/, tool_names/, tool_versions/, tool_runs/, tool_runs_live/, tool_run_keys/  see package toolstore
//	strays/     <workspace id>          when session found an orphaned workspace
//	session_cpu/ <container id>         cpu.State
//	clock/      ahead                   of session's clock
//	journal/    epoch, start            the ledger's own
//
// An update is durable once its frame is in the journal and the journal is synced. That is one append and one sync of
// allocated blocks. Concurrent updates share a sync; a lone update does not wait to share. Async updates wait for no
// sync. The database gets the changes later, many at a time: see journal. Readers see both as one. The decision
// record "Journal before the database" in docs/decisions says why bbolt alone is too slow.
//
// All packages that keep records call this one. It knows none of them.
package ledger

import (
	"berth/state/durable"
	"berth/state/ledger/journal"
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

// lockWait bounds how long Open waits for another process to release the file.
const lockWait = 2 * time.Second

// maxGroup bounds how many updates share one sync, and so how long the first one waits.
const maxGroup = 256

// asyncFlushDelay is how long an async update may stay in the page cache before it is synced.
const asyncFlushDelay = 100 * time.Millisecond

// The bucket in the database that says which frames of the journal count. A database without it needs no journal: a
// backup, or the database of a daemon that ended in order.
const (
	bucketJournal = "journal"
	keyEpoch      = "epoch"
	keyStart      = "start" // a journal.Start; only if its epoch is that of keyEpoch
)

// A DB is an open ledger.
type DB struct {
	bolt    *bbolt.DB
	persist func(func(*bbolt.Tx) error) error // bolt.Update; a test makes it fail after it is done

	syncMu sync.Mutex // held while the journal is synced; locked before commitMu

	commitMu sync.Mutex // held while updates are committed; guards what follows
	journal  *journal.Journal

	state   sync.RWMutex // guards pending, and bolt against a checkpoint that pending does not show yet
	pending *node        // changes that the database does not have yet; a change needs commitMu too

	mu           sync.Mutex // guards what follows
	queue        []*update
	awaitingSync []*update // committed, and answered by the next sync
	closed       bool

	kick           chan struct{} // signals that the queue is not empty
	flush          *time.Timer
	flushScheduled atomic.Bool // flush is set
	stop           chan struct{}
	done           chan struct{}

	backedUp atomic.Int64 // the version that the newest backup holds

	lost string // what OpenLossy accepted
}

type update struct {
	fn   func(*Tx) error
	sync bool // answer when it is on disk
	kept bool // it was committed; guarded by commitMu
	err  error
	then func(error) // gets err; nil: nobody does
	done chan struct{}
}

// ErrClosed is what Update and View return after Close.
var ErrClosed = errors.New("the ledger is closed")

// Open opens or creates the ledger at path, mode 0600, and reads it to its end. It fails if another process has it
// open or if it or its journal is damaged.
func Open(path string) (*DB, error) { return openAt(path, false) }

// OpenLossy is Open, but a damaged or missing journal does not make it fail. What is whole before the damage counts.
// The journal is kept beside the new one, and Lost says what was found.
func OpenLossy(path string) (*DB, error) { return openAt(path, true) }

// Lost says which damage OpenLossy accepted; "" if there was none.
func (db *DB) Lost() string { return db.lost }

func openAt(path string, lossy bool) (*DB, error) {
	if err := refuseLost(path); err != nil {
		return nil, err
	}
	bolt, err := openAndWalk(path)
	if errors.Is(err, berrors.ErrTimeout) {
		return nil, errors.New("another berth daemon uses this data directory; stop it or choose another --data")
	}
	if err != nil {
		return nil, fmt.Errorf("the ledger cannot be read: %w; %s", err, remedy(path))
	}
	db := &DB{bolt: bolt, persist: bolt.Update, kick: make(chan struct{}, 1), flush: time.NewTimer(asyncFlushDelay),
		stop: make(chan struct{}), done: make(chan struct{})}
	db.flush.Stop()
	if err := db.openJournal(journalPath(path), lossy); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the ledger's journal: %w", err), bolt.Close())
	}
	go db.write()
	return db, nil
}

// journalPath is the path of the journal for the ledger at path.
func journalPath(path string) string { return path + ".log" }

// openJournal moves what the last daemon left in the journal into the database.
func (db *DB) openJournal(path string, lossy bool) (err error) {
	err = db.bolt.View(func(tx *bbolt.Tx) error { db.pending, err = journaled(tx, path); return err })
	var damage *journal.Damage
	if errors.As(err, &damage) {
		if !lossy {
			return fmt.Errorf("%w; %s", err, journalRemedy(damage))
		}
		db.lost = damage.Error()
		if err = os.Rename(path, path+damagedSuffix); errors.Is(err, os.ErrNotExist) {
			err = nil
		}
	}
	if err != nil {
		return err
	}
	if db.journal, err = journal.Open(path, durable.Sync); err != nil {
		return err
	}
	db.journal.Prepare()
	if err := db.checkpoint(db.pending); err != nil {
		return errors.Join(err, db.journal.Close())
	}
	return nil
}

// journaled returns what the journal at path adds to a database. If it is damaged, that is what is before the damage.
func journaled(tx *bbolt.Tx, path string) (over *node, err error) {
	b := tx.Bucket([]byte(bucketJournal))
	if b == nil {
		return nil, nil
	}
	var epoch uint64
	if err := json.Unmarshal(b.Get([]byte(keyEpoch)), &epoch); err != nil {
		return nil, nil // a backup, which is complete by itself
	}
	start := journal.Start{Epoch: epoch}
	var recorded journal.Start
	if json.Unmarshal(b.Get([]byte(keyStart)), &recorded) == nil && recorded.Epoch == epoch {
		start = recorded // an earlier build leaves the start of an epoch before its own
	}
	err = journal.Replay(path, start, func(key string, value []byte) { over = over.put(key, value) })
	return over, err
}

// mapped is the address space in bytes that the file gets at the start. If the file outgrows it, bbolt waits for all
// readers before it maps more, and a backup reads for a long time.
const mapped = 1 << 30

// openAndWalk opens the file and reads every record once, which takes some milliseconds per megabyte. Damage then
// shows at the start and not in the middle of a request.
func openAndWalk(path string) (bolt *bbolt.DB, err error) {
	err = recoverPanics(func(open openFile) (err error) {
		bolt, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockWait, FreelistType: bbolt.FreelistMapType,
			InitialMmapSize: mapped, OpenFile: open})
		if err != nil {
			return err
		}
		bolt.AllocSize = journal.MaxSize // otherwise the file would be as large as the mapping, full of holes
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

// recoverPanics runs fn on a database that may be damaged. bbolt panics on a torn page, also in Open. Its own
// Tx.Check panics on a goroutine, where no caller can recover. A truncated file faults, because bbolt maps it; the
// fault is made a panic first. If fn fails, the file that it opened is closed: otherwise its lock would keep other
// processes out.
func recoverPanics(fn func(openFile) error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	var f *os.File
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", errDamaged, r)
		}
		if err != nil && f != nil {
			// if bbolt panics in Open, its mapping stays and holds the lock
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
	db.syncMu.Lock()
	defer db.syncMu.Unlock()
	err := db.close()
	db.answerWaiting()
	return errors.Join(err, db.journal.Close(), db.bolt.Close())
}

// close commits the queue and writes everything into the database. If that fails, the changes stay in the journal and
// the next Open tries again.
func (db *DB) close() error {
	db.commitMu.Lock()
	defer db.commitMu.Unlock()
	for db.commitNext() {
	}
	if db.checkpointPending() == nil {
		_ = db.bolt.Update(forgetJournal) // the next Open then does without the journal, or replays what is done
		return nil
	}
	return db.journal.Sync()
}

// SizeBytes is the size of the database file.
func (db *DB) SizeBytes() int64 {
	fi, err := os.Stat(db.bolt.Path())
	if err != nil {
		return 0
	}
	return fi.Size()
}

// Update runs fn in a transaction and returns when it is on disk. Readers may see it shortly before. If fn fails,
// none of its changes remain and its error is returned. fn must not call the ledger again except through tx.
func (db *DB) Update(fn func(*Tx) error) error { return db.do(&update{fn: fn, sync: true}) }

// UpdateAsync is Update without the sync: it returns when the kernel has the data. The update survives the death of
// the daemon at once. It survives a power cut after asyncFlushDelay or with the next Update.
func (db *DB) UpdateAsync(fn func(*Tx) error) error { return db.do(&update{fn: fn}) }

// StartUpdate is Update in two halves. It queues fn and returns. wait then returns when fn is on disk. Order is kept
// between all calls.
func (db *DB) StartUpdate(fn func(*Tx) error) (wait func() error) {
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

// UpdateLater is UpdateAsync without waiting for the commit, for records whose loss in a crash is harmless. The
// result of fn is dropped. The next update takes it along, or asyncFlushDelay passes.
func (db *DB) UpdateLater(fn func(*Tx) error) { db.UpdateLaterThen(fn, func(error) {}) }

// UpdateLaterThen is UpdateLater that calls then with the result. then holds up other updates and must not call the
// ledger.
func (db *DB) UpdateLaterThen(fn func(*Tx) error, then func(error)) {
	if err := db.submit(&update{fn: fn, then: then}); err != nil {
		then(err)
		return
	}
	db.scheduleFlush()
}

// scheduleFlush makes sure that flush is set.
func (db *DB) scheduleFlush() {
	if !db.flushScheduled.Swap(true) {
		db.flush.Reset(asyncFlushDelay)
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

// wake makes the writer look at the queue.
func (db *DB) wake() {
	select {
	case db.kick <- struct{}{}:
	default:
	}
}

// do queues an update and waits for it. If no commit is under way, the caller commits itself, which saves two
// goroutine switches. Otherwise the writer does.
func (db *DB) do(u *update) error {
	if err := db.submit(u); err != nil {
		return err
	}
	if db.commitMu.TryLock() {
		db.commitUntil(u)
	}
	if u.sync {
		db.syncUntil(u)
	}
	db.wakeIfWaiting()
	<-u.done
	return u.err
}

// commitUntil commits the queue up to u. The caller holds commitMu; commitUntil releases it.
func (db *DB) commitUntil(u *update) {
	defer db.commitMu.Unlock() // even if fn ends its goroutine
	for !u.kept {
		db.commitNext()
	}
}

// View runs fn on a consistent snapshot. It waits for checkpoints, not for writers. fn must not call the ledger
// again.
func (db *DB) View(fn func(*Tx) error) error {
	db.state.RLock()
	tx := &Tx{over: db.pending}
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

// write commits updates that no caller commits itself.
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
			db.flushScheduled.Store(false) // first, so that an update queued from now on sets it again
			db.commitQueued()
			db.syncMu.Lock()
			if !db.answerWaiting() {
				_ = db.syncWritten() // no caller waits, and the next update will see the error
			}
			db.syncMu.Unlock()
			db.wakeIfWaiting()
		case <-db.stop:
			return
		}
	}
}

// commitQueued commits the whole queue.
func (db *DB) commitQueued() {
	db.commitMu.Lock()
	defer db.commitMu.Unlock()
	for db.commitNext() {
	}
}

// commitNext commits the oldest updates and reports whether there were any. The caller holds commitMu.
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

// commit runs a group of updates and answers those that need no sync.
func (db *DB) commit(group []*update) {
	tx := &Tx{bolt: db.bolt, over: db.pending, seal: db.journal.Seal}
	for _, u := range group {
		u.err = tx.run(u.fn)
	}
	tx.close()
	err := db.commitChanges(tx.over, tx.out)
	dirty := db.journal.Dirty()
	var owed []*update
	for _, u := range group {
		u.kept = true
		if u.err == nil {
			u.err = err
		}
		if u.then != nil {
			u.then(u.err)
		}
		if u.sync && u.err == nil && dirty {
			owed = append(owed, u)
		} else {
			close(u.done)
		}
	}
	if len(owed) > 0 {
		db.queueForSync(owed)
	} else if dirty {
		db.scheduleFlush()
	}
}

// commitChanges makes changes the ledger's content: by frames in the journal or, if the journal is full or broken, by
// a checkpoint.
func (db *DB) commitChanges(over *node, frames []byte) error {
	if err := db.journal.Add(frames); err != nil {
		return db.checkpoint(over)
	}
	if over != db.pending {
		db.state.Lock()
		db.pending = over
		db.state.Unlock()
	}
	return nil
}

// checkpoint writes all pending changes into the database and restarts the journal. If it fails, either nothing
// changed or the database has the changes and may not have synced them. Then the journal's frames no longer count,
// and it takes no new ones until a checkpoint succeeds. The caller holds commitMu.
func (db *DB) checkpoint(over *node) error {
	db.state.Lock() // a reader must not see the database's new state below the old changes
	defer db.state.Unlock()
	epoch := rand.Uint64()
	start, err := json.Marshal(db.journal.Begin(epoch))
	if err != nil {
		return err
	}
	err = db.persist(func(tx *bbolt.Tx) error {
		for w := over.from("", false); w.at() != nil; w.next() {
			if err := store(tx, w.at()); err != nil {
				return err
			}
		}
		if err := store(tx, &node{key: bucketJournal + separator + keyStart, value: start}); err != nil {
			return err
		}
		return store(tx, &node{key: bucketJournal + separator + keyEpoch, value: strconv.AppendUint(nil, epoch, 10)})
	})
	if err != nil {
		if db.epoch() == epoch {
			db.journal.Break()
		}
		return err
	}
	db.pending = nil
	db.journal.Restart(epoch)
	return nil
}

// epoch is the epoch that the database records, 0 if it records none.
func (db *DB) epoch() (epoch uint64) {
	_ = db.bolt.View(func(tx *bbolt.Tx) error {
		if b := tx.Bucket([]byte(bucketJournal)); b != nil {
			epoch, _ = strconv.ParseUint(string(b.Get([]byte(keyEpoch))), 10, 64)
		}
		return nil
	})
	return epoch
}

// checkpointPending writes everything committed so far into the database. The caller holds commitMu.
func (db *DB) checkpointPending() error {
	if db.pending == nil {
		return nil
	}
	return db.checkpoint(db.pending)
}

// store writes one change into the database.
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
