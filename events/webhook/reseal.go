package webhook

import (
	"errors"

	"berth/state/ledger"
)

// A Resealer seals a sealed text again under the present key of the vault; see vault.Rotate.
type Resealer = func(name, sealed string) (string, error)

// Reseal seals the secrets of all webhooks again, while they deliver. closed counts those that no key opens.
func (s *Store) Reseal(reseal Resealer) (changed, closed int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.all {
		fresh, err := reseal(sealName(h.rec.Webhook.ID), h.rec.Sealed)
		switch {
		case err != nil:
			closed++
		case fresh != h.rec.Sealed:
			if err := s.saveLocked(h, s.cfg.Ledger.Update, func(r *record) { r.Sealed = fresh }); err != nil {
				return changed, closed, err
			}
			changed++
		}
	}
	return changed, closed, nil
}

// Reseal does the work of Store.Reseal for a ledger that no daemon has open.
func Reseal(db *ledger.DB, reseal Resealer) (changed, closed int, err error) {
	err = db.Update(func(tx *ledger.Tx) error {
		changed, closed = 0, 0
		todo := map[string]record{}
		err := ledger.Each(tx, bucket, "", func(id string, r record) {
			fresh, err := reseal(sealName(r.Webhook.ID), r.Sealed)
			if err != nil {
				closed++
			} else if fresh != r.Sealed {
				r.Sealed = fresh
				todo[id] = r
			}
		})
		for id, r := range todo {
			err = errors.Join(err, tx.Put(bucket, id, r))
		}
		changed = len(todo)
		return err
	})
	return changed, closed, err
}
