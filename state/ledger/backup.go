package ledger

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
)

// Backups are beside the ledger, in its own name with .1 for the newest and .2 for the one before. Two, so
// that a daemon killed in the middle of making one, or a backup of what was just spoilt, still leaves one that is good.

// Copy writes the ledger as it is at this moment to path, which must not exist. Writers wait for a checkpoint and no
// longer. The copy stands for itself: where it takes the ledger's place, nothing of the journal is added to it.
func (db *DB) Copy(path string) error {
	err := db.settleNow()
	if err == nil {
		err = db.bolt.View(func(tx *bbolt.Tx) error { return tx.CopyFile(path, 0o600) })
	}
	if err == nil {
		err = leaveJournal(path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return SyncPath(path)
}

// settleNow waits for the turn to settle.
func (db *DB) settleNow() error {
	db.turn.Lock()
	defer db.turn.Unlock()
	return db.settle()
}

// leaveJournal has the database at path know of no journal.
func leaveJournal(path string) error {
	bolt, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockWait, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return err
	}
	err = bolt.Update(func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte(bucketJournal)) })
	return errors.Join(err, bolt.Close())
}

// Backup keeps a copy as the newest backup, and reports whether it did: not if the newest is younger than age, and not
// if the ledger has not changed since. The copy is read to its end before it takes the place of another.
func (db *DB) Backup(age time.Duration) (bool, error) {
	path := db.bolt.Path()
	fi, missing := os.Stat(path + ".1")
	if missing == nil && time.Since(fi.ModTime()).Abs() < age {
		return false, nil
	}
	if err := db.settleNow(); err != nil {
		return false, err
	}
	now := db.version()
	if missing == nil && now == db.backedUp.Load() {
		return false, nil
	}
	if err := db.freshCopy(path + ".new"); err != nil {
		return false, err
	}
	if err := os.Rename(path+".1", path+".2"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	if err := os.Rename(path+".new", path+".1"); err != nil {
		return false, err
	}
	db.backedUp.Store(now)
	return true, SyncPath(filepath.Dir(path))
}

// freshCopy is Copy to a path where an earlier one may have been left half done, and a look at the result.
func (db *DB) freshCopy(path string) error {
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

// version changes with every checkpoint that has something to write.
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

// notLost refuses to begin anew where a ledger was: one that is missing or empty beside its journal or its backups
// was lost.
func notLost(path string) error {
	if fi, err := os.Stat(path); err == nil && fi.Size() > 0 {
		return nil
	}
	for _, beside := range []string{path + ".1", path + ".2", journalPath(path)} {
		if _, err := os.Lstat(beside); err == nil {
			return fmt.Errorf("the ledger is missing or empty, and was not before: %s", remedy(path))
		}
	}
	return nil
}

// remedy says what to do about a damaged ledger: which backups there are, and how to use one.
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

// SyncPath flushes a file to disk, or the names in a directory, so that a power cut takes back neither.
func SyncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
