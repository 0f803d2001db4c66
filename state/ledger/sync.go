package ledger

// A sync of the journal occupies the disk and one goroutine. Meanwhile other goroutines append frames. Updates that
// need no sync are answered at once; the others share the next sync.

// queueForSync leaves updates to be answered by the next sync that begins.
func (db *DB) queueForSync(updates []*update) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.awaitingSync = append(db.awaitingSync, updates...)
}

// syncUntil syncs until u is answered, unless another goroutine syncs or u is not committed yet.
func (db *DB) syncUntil(u *update) {
	for {
		select {
		case <-u.done:
			return
		default:
		}
		if !db.trySync() {
			return
		}
	}
}

// trySync syncs once for all that wait. It reports false if none waits, or if another goroutine syncs; that goroutine
// makes the writer look again afterwards.
func (db *DB) trySync() bool {
	if !db.syncMu.TryLock() {
		return false
	}
	defer db.syncMu.Unlock()
	return db.answerWaiting()
}

// answerWaiting is trySync with syncMu held.
func (db *DB) answerWaiting() bool {
	db.mu.Lock()
	owed := db.awaitingSync
	db.awaitingSync = nil
	db.mu.Unlock()
	if len(owed) == 0 {
		return false
	}
	err := db.syncWritten()
	for _, u := range owed {
		u.err = err
		close(u.done)
	}
	return true
}

// syncWritten returns nil when everything written is on disk: in the journal or, if that fails, in the database. The
// caller holds syncMu and not commitMu.
func (db *DB) syncWritten() error {
	if db.journal.Sync() == nil {
		return nil
	}
	db.commitMu.Lock()
	defer db.commitMu.Unlock()
	db.journal.Break() // the kernel reports the error only once
	return db.checkpointPending()
}

// wakeIfWaiting makes the writer look if there is work for it.
func (db *DB) wakeIfWaiting() {
	db.mu.Lock()
	defer db.mu.Unlock()
	if len(db.queue)+len(db.awaitingSync) > 0 {
		db.wake()
	}
}
