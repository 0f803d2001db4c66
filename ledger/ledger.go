// Package ledger is the one place where the daemon's records live: a bbolt
// database with group commit.
//
// A record is a JSON value under a key in a named bucket; every package owns its
// buckets and knows their shape:
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
//	digest/     requests                sealed key of session's digests
//	keys/       <key id>                keys.record
//	key_usage/  <key id>                keys.spent
//
// bbolt's own Update pays one fsync per caller, and its Batch makes a lone caller wait
// for company. Here a single writer takes whatever is waiting, runs it in one
// transaction and answers all of them after one sync: a lone caller never waits, a crowd shares.
package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// lockWait bounds how long Open waits for another process to let go of the file.
const lockWait = 2 * time.Second

// maxGroup bounds how many updates share one transaction, and so how long the first waits.
const maxGroup = 256

// A DB is an open ledger.
type DB struct {
	bolt    *bbolt.DB
	updates chan *update
	done    chan struct{}

	backedUp atomic.Int64 // the version that the newest backup has

	mu     sync.RWMutex // guards closed against Update
	closed bool
}

// A Tx is a view of the ledger inside Update or View.
type Tx struct{ tx *bbolt.Tx }

type update struct {
	fn   func(*Tx) error
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
	db := &DB{bolt: bolt, updates: make(chan *update, maxGroup), done: make(chan struct{})}
	go db.write()
	return db, nil
}

// openAndWalk opens the file and reads every record once, some milliseconds a megabyte, so
// that damage shows now and not in the middle of a request. bbolt panics on a torn page, in
// Open too; its own Tx.Check does so on a goroutine, where nobody can recover. A file that was cut
// short faults, since bbolt maps it, which has to be made a panic first.
func openAndWalk(path string) (bolt *bbolt.DB, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("damaged page: %v", r)
		}
	}()
	bolt, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockWait, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return nil, err
	}
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
	if err != nil {
		bolt.Close()
	}
	return bolt, err
}

// Close waits for the updates under way and closes the file.
func (db *DB) Close() error {
	db.mu.Lock()
	if db.closed {
		db.mu.Unlock()
		return nil
	}
	db.closed = true
	close(db.updates)
	db.mu.Unlock()
	<-db.done
	return db.bolt.Close()
}

// SizeBytes is the size of the file.
func (db *DB) SizeBytes() int64 {
	fi, err := os.Stat(db.bolt.Path())
	if err != nil {
		return 0
	}
	return fi.Size()
}

// Update runs fn in a transaction and returns once it is on disk. If fn fails nothing of it is
// kept and its error is returned; fn may run more than once, so it must set, not add to,
// what it captures. It must not call the ledger again except through tx.
func (db *DB) Update(fn func(*Tx) error) error { return db.Begin(fn)() }

// Begin is Update in two halves: it queues fn and returns; wait then returns once fn is on disk, so
// that the caller can do something else meanwhile. Order is kept between all calls.
func (db *DB) Begin(fn func(*Tx) error) (wait func() error) {
	u := &update{fn: fn, done: make(chan struct{})}
	if err := db.submit(u); err != nil {
		return func() error { return err }
	}
	return func() error {
		<-u.done
		return u.err
	}
}

// Later is Update without the wait, for records whose loss in a crash is
// harmless. The result of fn is dropped.
func (db *DB) Later(fn func(*Tx) error) { db.Begin(fn) }

func (db *DB) submit(u *update) error {
	db.mu.RLock()
	defer db.mu.RUnlock()
	if db.closed {
		return ErrClosed
	}
	db.updates <- u
	return nil
}

// View runs fn on a consistent snapshot. It does not wait for writers.
func (db *DB) View(fn func(*Tx) error) error {
	err := db.bolt.View(func(tx *bbolt.Tx) error { return fn(&Tx{tx}) })
	if errors.Is(err, berrors.ErrDatabaseNotOpen) {
		return ErrClosed
	}
	return err
}

// write is the single writer.
func (db *DB) write() {
	defer close(db.done)
	for u := range db.updates {
		group := append(make([]*update, 0, 8), u)
		for len(group) < maxGroup {
			select {
			case next, ok := <-db.updates:
				if !ok {
					db.commit(group)
					return
				}
				group = append(group, next)
				continue
			default:
			}
			break
		}
		db.commit(group)
	}
}

// commit runs a group in one transaction. One that fails is answered and left out, and the
// others run again, since bbolt can only roll back the whole.
func (db *DB) commit(group []*update) {
	for len(group) > 0 {
		failed := -1
		err := db.bolt.Update(func(tx *bbolt.Tx) error {
			for i, u := range group {
				if err := run(u.fn, &Tx{tx}); err != nil {
					failed = i
					return err
				}
			}
			return nil
		})
		if failed < 0 {
			for _, u := range group {
				u.err = err
				close(u.done)
			}
			return
		}
		group[failed].err = err
		close(group[failed].done)
		group = append(group[:failed], group[failed+1:]...)
	}
}

// run keeps one caller's panic from taking the writer, and everybody's updates, with it.
func run(fn func(*Tx) error, tx *Tx) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("ledger update panicked: %v", r)
		}
	}()
	return fn(tx)
}

// Put stores v as JSON under key.
func (tx *Tx) Put(bucket, key string, v any) error {
	b, err := tx.tx.CreateBucketIfNotExists([]byte(bucket))
	if err != nil {
		return err
	}
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return b.Put([]byte(key), data)
}

// Get reads key into v and reports whether it was there.
func (tx *Tx) Get(bucket, key string, v any) (bool, error) {
	b := tx.tx.Bucket([]byte(bucket))
	if b == nil {
		return false, nil
	}
	data := b.Get([]byte(key))
	if data == nil {
		return false, nil
	}
	return true, json.Unmarshal(data, v)
}

// Delete removes key; a key that is not there is no error.
func (tx *Tx) Delete(bucket, key string) error {
	b := tx.tx.Bucket([]byte(bucket))
	if b == nil {
		return nil
	}
	return b.Delete([]byte(key))
}

// DeletePrefix removes every key with this prefix.
func (tx *Tx) DeletePrefix(bucket, prefix string) error {
	var keys []string // first, since a scan must not change what it walks
	err := tx.Scan(bucket, prefix, func(k string, _ []byte) (bool, error) { keys = append(keys, k); return true, nil })
	for _, k := range keys {
		err = errors.Join(err, tx.Delete(bucket, k))
	}
	return err
}

// Each calls fn with every record whose key has this prefix, decoded, in ascending order of keys.
func Each[T any](tx *Tx, bucket, prefix string, fn func(key string, v T)) error {
	return tx.Scan(bucket, prefix, func(key string, data []byte) (bool, error) {
		var v T
		if err := json.Unmarshal(data, &v); err != nil {
			return false, fmt.Errorf("reading record %s/%s: %w", bucket, key, err)
		}
		fn(key, v)
		return true, nil
	})
}

// Scan calls fn for each key with this prefix in ascending order, until fn returns false or an
// error. data is JSON, valid during the call only; fn must not write to the bucket.
func (tx *Tx) Scan(bucket, prefix string, fn func(key string, data []byte) (bool, error)) error {
	b := tx.tx.Bucket([]byte(bucket))
	if b == nil {
		return nil
	}
	c := b.Cursor()
	for k, v := c.Seek([]byte(prefix)); k != nil && hasPrefix(k, prefix); k, v = c.Next() {
		if more, err := fn(string(k), v); err != nil || !more {
			return err
		}
	}
	return nil
}

// ScanBack is Scan in descending order, starting just before key before, or at the end of
// the prefix if before is empty.
func (tx *Tx) ScanBack(bucket, prefix, before string, fn func(key string, data []byte) (bool, error)) error {
	b := tx.tx.Bucket([]byte(bucket))
	if b == nil {
		return nil
	}
	if before == "" {
		before = prefix + "\xff\xff\xff\xff"
	}
	c := b.Cursor()
	k, v := c.Seek([]byte(before))
	if k == nil {
		k, v = c.Last()
	}
	for ; k != nil && string(k) >= before; k, v = c.Prev() {
	}
	for ; k != nil && hasPrefix(k, prefix); k, v = c.Prev() {
		if more, err := fn(string(k), v); err != nil || !more {
			return err
		}
	}
	return nil
}

func hasPrefix(k []byte, prefix string) bool {
	return len(k) >= len(prefix) && string(k[:len(prefix)]) == prefix
}
