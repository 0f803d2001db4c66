package session

import (
	"errors"

	"berth/ledger"
	"berth/proto"
)

// A Resealer gives a sealed text under the key that seals now; see vault.Rotate.
type Resealer = func(name, sealed string) (string, error)

// Reseal has the secrets of all sessions, and of commands that may outlive the daemon, sealed anew, while they are in use.
func (ss *Sessions) Reseal(reseal Resealer) (changed, closed int, err error) {
	ss.mu.Lock()
	all := make([]*Session, 0, len(ss.byID))
	for _, s := range ss.byID {
		all = append(all, s)
	}
	ss.mu.Unlock()
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
	n, bad, err := resealExecs(ss.cfg.Ledger, reseal)
	return changed + n, closed + bad, err
}

// Reseal is Sessions.Reseal in a ledger that no daemon has open.
func Reseal(db *ledger.DB, reseal Resealer) (changed, closed int, err error) {
	err = db.Update(func(tx *ledger.Tx) error {
		var todo []record
		changed, closed = 0, 0
		err := ledger.Each(tx, bucketSessions, "", func(_ string, r record) {
			fresh, err := resealed(r.ID, r.Sealed, reseal)
			if err != nil {
				closed++
			} else if fresh != "" {
				r.Sealed = fresh
				todo = append(todo, r)
			}
		})
		for _, r := range todo {
			err = errors.Join(err, tx.Put(bucketSessions, r.ID, r))
		}
		changed = len(todo)
		return err
	})
	if err != nil {
		return changed, closed, err
	}
	n, bad, err := resealExecs(db, reseal)
	return changed + n, closed + bad, err
}

func resealExecs(db *ledger.DB, reseal Resealer) (changed, closed int, err error) {
	err = db.Update(func(tx *ledger.Tx) error {
		todo := map[string]execRecord{}
		closed = 0
		err := ledger.Each(tx, bucketExecs, "", func(key string, r execRecord) {
			fresh, err := resealed(r.Exec.ID, r.Sealed, reseal)
			if err != nil {
				closed++
			} else if fresh != "" {
				r.Sealed = fresh
				todo[key] = r
			}
		})
		for key, r := range todo {
			err = errors.Join(err, tx.Put(bucketExecs, key, r))
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
