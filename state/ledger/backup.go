package ledger

import (
	"berth/state/durable"
	"berth/state/ledger/journal"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/bbolt"
)

// Backups stand beside the ledger under its own name: .1 is the newest, .2 the one before. There are two because the
// daemon may be killed while it makes one, or may back up a ledger that was just damaged. One good backup then
// remains.

// Copy writes the ledger as of now to path, which must not exist. Writers wait for a checkpoint only. The copy is
// complete by itself: if it replaces the ledger, nothing of the journal is added to it.
func (db *DB) Copy(path string) error {
	err := db.checkpointNow()
	if err == nil {
		err = db.bolt.View(func(tx *bbolt.Tx) error { return tx.CopyFile(path, 0o600) })
	}
	if err == nil {
		err = detachJournal(path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return durable.Sync(path)
}

// CopyAsOf calls do, and writes the ledger as of that time to path, which must not exist. No update is committed while
// do runs, so what do finds on the disk fits the copy as it would after a power cut. Writers wait for do, which must
// not call Update, and not for the copying.
func (db *DB) CopyAsOf(path string, do func() error) error {
	tx, err := db.beginAround(do)
	if err != nil {
		return err
	}
	err = tx.CopyFile(path, 0o600)
	if err = errors.Join(err, tx.Rollback()); err == nil {
		err = detachJournal(path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return durable.Sync(path)
}

// beginAround begins a read of the ledger, and calls do before anything else is committed.
func (db *DB) beginAround(do func() error) (*bbolt.Tx, error) {
	db.commitMu.Lock()
	defer db.commitMu.Unlock()
	if err := db.checkpointPending(); err != nil {
		return nil, err
	}
	tx, err := db.bolt.Begin(false)
	if err != nil {
		return nil, err
	}
	if err := do(); err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	return tx, nil
}

// checkpointNow waits for commitMu and makes a checkpoint.
func (db *DB) checkpointNow() error {
	db.commitMu.Lock()
	defer db.commitMu.Unlock()
	return db.checkpointPending()
}

// detachJournal makes the database at path forget its journal.
func detachJournal(path string) error {
	bolt, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockWait, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return err
	}
	err = bolt.Update(forgetJournal)
	return errors.Join(err, bolt.Close())
}

// forgetJournal makes a database complete by itself.
func forgetJournal(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte(bucketJournal)) }

// Backup makes a copy the newest backup and reports whether it did. It does not if the newest backup is younger than
// age, or if the ledger has not changed since. The copy is read to its end before it replaces another.
func (db *DB) Backup(age time.Duration) (bool, error) {
	path := db.bolt.Path()
	fi, missing := os.Stat(path + ".1")
	if missing == nil && time.Since(fi.ModTime()).Abs() < age {
		return false, nil
	}
	if err := db.checkpointNow(); err != nil {
		return false, err
	}
	now := db.version()
	if missing == nil && now == db.backedUp.Load() {
		return false, nil
	}
	if err := db.copyChecked(path + ".new"); err != nil {
		return false, err
	}
	if err := os.Rename(path+".1", path+".2"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	if err := os.Rename(path+".new", path+".1"); err != nil {
		return false, err
	}
	db.backedUp.Store(now)
	return true, durable.Sync(filepath.Dir(path))
}

// copyChecked copies to a path where an incomplete copy may remain, and verifies the result.
func (db *DB) copyChecked(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := db.Copy(path); err != nil {
		return fmt.Errorf("copying the ledger: %w", err)
	}
	if err := check(path); err != nil {
		return errors.Join(fmt.Errorf("the ledger's copy cannot be read: %w", err), os.Remove(path))
	}
	return nil
}

// version changes with every checkpoint that writes something.
func (db *DB) version() int64 {
	n := int64(-1)
	_ = db.bolt.View(func(tx *bbolt.Tx) error { n = int64(tx.ID()); return nil })
	return n
}

// check reads a ledger to its end.
func check(path string) error {
	bolt, err := openAndWalk(path)
	if err != nil {
		return err
	}
	return bolt.Close()
}

// refuseLost refuses to start with an empty ledger if the journal or a backup shows that there was one before.
func refuseLost(path string) error {
	if fi, err := os.Stat(path); err == nil && fi.Size() > 0 {
		return nil
	}
	for _, beside := range []string{path + ".1", path + ".2", journalPath(path)} {
		if _, err := os.Lstat(beside); err == nil {
			return fmt.Errorf("the ledger is missing or empty although it existed before: %s", remedy(path))
		}
	}
	return nil
}

// remedy says what to do about a damaged ledger: which backups exist, and how to use one.
func remedy(path string) string {
	name := filepath.Base(path)
	for _, backup := range []string{name + ".1", name + ".2"} {
		fi, err := os.Stat(filepath.Join(filepath.Dir(path), backup))
		if err != nil || check(filepath.Join(filepath.Dir(path), backup)) != nil {
			continue
		}
		return fmt.Sprintf("%s in the data directory is a good backup of %s: with the daemon stopped, move %s aside "+
			"and copy %s to its name; containers and files that are newer are then unknown, and their workspaces "+
			"are set aside",
			backup, fi.ModTime().UTC().Format(time.RFC3339), name, backup)
	}
	return fmt.Sprintf("there is no good backup in the data directory; restore %s from one of yours, or move it, "+
		"its journal and its backups aside to start empty: workspaces are then set aside, stored files removed", name)
}

// damagedSuffix is added to the name of a damaged journal that OpenLossy has accepted.
const damagedSuffix = ".damaged"

// journalRemedy says what to do about a damaged journal.
func journalRemedy(d *journal.Damage) string {
	return fmt.Sprintf("it has updates that were acknowledged and are not in %s yet: put the right %s back if there "+
		"is one of the same moment, or start the daemon once with --accept-loss=journal; it then keeps what is "+
		"before the damage, and the file as %s; containers and files that are newer are then unknown, and their "+
		"workspaces are set aside", strings.TrimSuffix(d.File, filepath.Ext(d.File)), d.File, d.File+damagedSuffix)
}
