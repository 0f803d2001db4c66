package files

import (
	"context"
	"encoding/json"
	"time"

	"berth/proto"
	"berth/state/ledger"
)

// rememberExpired is how long an expired file is still listed.
const rememberExpired = 30 * 24 * time.Hour

// sweepBatch is how many records one transaction of Sweep changes.
const sweepBatch = 256

// Swept says what a Sweep did.
type Swept struct {
	Expired    int   // files that expired: content released, record kept
	Forgotten  int   // records removed, long after the files expired
	Strays     int   // contents without a record
	FreedBytes int64 // on disk
}

// Counts returns the counts by their names in log and metrics.
func (w Swept) Counts() map[string]int {
	return map[string]int{
		"expired":     w.Expired,
		"forgotten":   w.Forgotten,
		"strays":      w.Strays,
		"freed_bytes": int(w.FreedBytes),
	}
}

// Delete removes a file permanently. A second Delete fails with NotFound.
func (s *Store) Delete(ctx context.Context, owner, id string) error {
	var rec record
	err := s.cfg.Ledger.Update(func(tx *ledger.Tx) (err error) {
		if rec, err = find(tx, "delete file", owner, id); err != nil {
			return err
		}
		return remove(tx, rec)
	})
	if err != nil {
		return err
	}
	if !rec.Dropped {
		s.letGo(ctx, rec)
	}
	return nil
}

// letGo releases the quota and the content of a record that is no longer counted.
func (s *Store) letGo(ctx context.Context, rec record) (freed int64) {
	s.account.release(rec.payer(), rec.SizeBytes)
	return s.dropContent(ctx, rec.SHA256)
}

// Sweep releases the content of files that have expired at now, removes records of files that expired long ago, and
// removes contents that no record counts. It stops when ctx ends; the result counts what it did until then.
func (s *Store) Sweep(ctx context.Context, now time.Time) (Swept, error) {
	var swept Swept
	for ctx.Err() == nil {
		n, err := s.sweepDue(ctx, now, &swept)
		if err != nil {
			return swept, err
		}
		if n == 0 {
			break
		}
	}
	n, freed, err := s.removeStrays(ctx)
	swept.Strays += n
	swept.FreedBytes += freed
	return swept, err
}

// sweepDue processes one batch of due records and returns how many there were.
func (s *Store) sweepDue(ctx context.Context, now time.Time, swept *Swept) (int, error) {
	var dropped []record
	var forgotten, n int
	err := s.cfg.Ledger.Update(func(tx *ledger.Tx) error {
		dropped, forgotten = nil, 0
		due, err := dueBy(tx, now)
		n = len(due)
		for _, rec := range due {
			if rec.Dropped {
				forgotten++
				err = remove(tx, rec)
			} else {
				dropped = append(dropped, rec)
				err = drop(tx, rec)
			}
			if err != nil {
				return err
			}
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	for _, rec := range dropped {
		swept.FreedBytes += s.letGo(ctx, rec)
	}
	swept.Expired += len(dropped)
	swept.Forgotten += forgotten
	return n, nil
}

// dueBy reads the first records that are due at now.
func dueBy(tx *ledger.Tx, now time.Time) (due []record, err error) {
	last := dueTime(now) + "\x01" // sorts after every key of this moment
	err = tx.Scan(bucketDue, "", func(key string, data []byte) (bool, error) {
		if key > last || len(due) == sweepBatch {
			return false, nil
		}
		var id string
		if err := json.Unmarshal(data, &id); err != nil {
			return false, err
		}
		var rec record
		ok, err := tx.Get(bucketFiles, id, &rec)
		if err == nil && !ok {
			err = proto.Errorf(proto.Internal, "sweep", id, "File `%s` is due but has no record.", id)
		}
		due = append(due, rec)
		return true, err
	})
	return due, err
}
