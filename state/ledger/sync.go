package ledger

// To sync the journal takes the disk's time, and one goroutine. Others write frames behind those that are being
// synced meanwhile, and whoever waits for no disk has its answer; those who do share the next sync.

// owe has updates answered by the next sync that begins.
func (db *DB) owe(updates []*update) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.owed = append(db.owed, updates...)
}

// syncUntil syncs until u is answered, unless somebody else syncs, or u is not committed yet.
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

// trySync syncs once for all that is owed. It reports false where nothing is, or somebody else syncs, who has the
// writer look again afterwards.
func (db *DB) trySync() bool {
	if !db.syncing.TryLock() {
		return false
	}
	defer db.syncing.Unlock()
	return db.answerOwed()
}

// answerOwed is trySync with syncing held.
func (db *DB) answerOwed() bool {
	db.mu.Lock()
	owed := db.owed
	db.owed = nil
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

// syncWritten has all that was written on disk when it returns nil: in the journal, or in the database if that fails.
// Called with syncing held, and without turn.
func (db *DB) syncWritten() error {
	written := db.journal.written.Load()
	if written == db.journal.synced.Load() {
		return nil // by a checkpoint
	}
	if db.journal.sync() == nil {
		db.journal.synced.Store(written)
		return nil
	}
	db.turn.Lock()
	defer db.turn.Unlock()
	db.journal.broken = true // the kernel tells only once
	return db.settle()
}

// wakeIfWaiting has the writer look if there is something for it.
func (db *DB) wakeIfWaiting() {
	db.mu.Lock()
	defer db.mu.Unlock()
	if len(db.queue)+len(db.owed) > 0 {
		db.wake()
	}
}
