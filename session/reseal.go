package session

import (
	"errors"

	"berth/proto"
	"berth/state/ledger"
)

// A Resealer gives a sealed text under the key that seals now; see vault.Rotate.
type Resealer = func(name, sealed string) (string, error)

// Reseal has the secrets of all sessions, of commands that may outlive the daemon, and the key of digests sealed
// anew, while they are in use.
func (ss *Sessions) Reseal(reseal Resealer) (changed, closed int, err error) {
	ss.mu.RLock()
	all := ss.snapshot()
	ss.mu.RUnlock()
	for _, s := range all {
		fresh, err := resealed(s.id, s.record().Sealed, reseal)
		switch {
		case err != nil:
			closed++
			continue
		case fresh == "":
			continue
		}
		// A record's environment is sealed when the session is made, and only ever dropped after that.
		err = s.change(func(r *record) {
			if r.Sealed != "" {
				r.Sealed = fresh
			}
		})
		if err != nil && proto.CodeOf(err) != proto.NotFound {
			return changed, closed, err
		}
		changed++
	}
	n, bad, err := resealOthers(ss.cfg.Ledger, reseal)
	return changed + n, closed + bad, err
}

// Reseal is Sessions.Reseal in a ledger that no daemon has open.
func Reseal(db *ledger.DB, reseal Resealer) (changed, closed int, err error) {
	changed, closed, err = resealBucket(db, bucketSessions, reseal, func(r *record) (string, *string) {
		return r.ID,
			&r.Sealed
	})
	if err != nil {
		return changed, closed, err
	}
	n, bad, err := resealOthers(db, reseal)
	return changed + n, closed + bad, err
}

// resealOthers reseals what no session's record has, which nobody changes meanwhile but in the ledger.
func resealOthers(db *ledger.DB, reseal Resealer) (changed, closed int, err error) {
	changed, closed, err = resealBucket(db, bucketExecs, reseal, func(r *execRecord) (string, *string) {
		return r.Exec.ID, &r.Sealed
	})
	if err != nil {
		return changed, closed, err
	}
	n, bad, err := resealBucket(db, bucketDigest, reseal, func(sealed *string) (string, *string) {
		return digestName,
			sealed
	})
	return changed + n, closed + bad, err
}

// resealBucket does it for one kind of record, of which the function gives the name and the sealed text.
func resealBucket[T any](db *ledger.DB, bucket string, reseal Resealer, of func(*T) (name string, sealed *string)) (
	changed, closed int, err error) {
	err = db.Update(func(tx *ledger.Tx) error {
		todo := map[string]T{}
		closed = 0
		err := ledger.Each(tx, bucket, "", func(key string, r T) {
			name, sealed := of(&r)
			fresh, err := resealed(name, *sealed, reseal)
			if err != nil {
				closed++
			} else if fresh != "" {
				*sealed = fresh
				todo[key] = r
			}
		})
		for key, r := range todo {
			err = errors.Join(err, tx.Put(bucket, key, r))
		}
		changed = len(todo)
		return err
	})
	return changed, closed, err
}

// resealed is a text under the newest key, or empty where there is nothing to change.
func resealed(name, sealed string, reseal Resealer) (string, error) {
	if sealed == "" {
		return "", nil
	}
	fresh, err := reseal(name, sealed)
	if err != nil || fresh == sealed {
		return "", err
	}
	return fresh, nil
}
