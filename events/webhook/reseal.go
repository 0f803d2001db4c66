package webhook

import (
	"berth/state/ledger"
	"berth/state/vault"
)

// Reseal seals the secrets of all webhooks again, while they deliver. closed counts those that no key opens.
func (s *Store) Reseal(reseal vault.Resealer) (changed, closed int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.all {
		fresh, err := vault.Resealed(sealName(h.rec.Webhook.ID), h.rec.Sealed, reseal)
		switch {
		case err != nil:
			closed++
		case fresh != "":
			if err := s.saveLocked(h, s.cfg.Ledger.Update, func(r *record) { r.Sealed = fresh }); err != nil {
				return changed, closed, err
			}
			changed++
		}
	}
	return changed, closed, nil
}

// Reseal does the work of Store.Reseal for a ledger that no daemon has open.
func Reseal(db *ledger.DB, reseal vault.Resealer) (changed, closed int, err error) {
	return vault.ResealBucket(db, bucket, reseal, func(r *record) (string, *string) {
		return sealName(r.Webhook.ID), &r.Sealed
	})
}
