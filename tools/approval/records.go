package approval

import (
	"cmp"
	"encoding/json"

	"berth/state/ledger"
)

// Records are the records of one store in the ledger: Bucket has each under owner/ID, and Live has the owner of each
// one that has not ended.
type Records[R any] struct{ Bucket, Live string }

// Put writes a record, and whether it is live.
func (s Records[R]) Put(tx *ledger.Tx, owner, id string, r R, over bool) error {
	if err := tx.Put(s.Bucket, owner+"/"+id, r); err != nil {
		return err
	}
	if over {
		return tx.Delete(s.Live, id)
	}
	return tx.Put(s.Live, id, owner)
}

// EachLive calls fn with the live records of an owner; "" stands for all owners. fn may write records.
func (s Records[R]) EachLive(tx *ledger.Tx, owner string, fn func(R) error) error {
	live := map[string]string{}
	if err := ledger.Each(tx, s.Live, "", func(id, whose string) { live[id] = whose }); err != nil {
		return err
	}
	for id, whose := range live {
		if owner != "" && whose != owner {
			continue
		}
		var r R
		known, err := tx.Get(s.Bucket, whose+"/"+id, &r)
		if err == nil && known {
			err = fn(r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// A page has at most this many records, unless its caller asks for another number, and this many bytes of records.
const (
	defaultPage  = 20
	maxPageBytes = 8 << 20
)

// Page lists an owner's records that match, newest first, and reports whether there are more. It begins behind the
// record with the ID after; "" begins with the newest. limit 0 is 20.
func (s Records[R]) Page(db *ledger.DB, owner, after string, limit int, match func(R) bool) (
	list []R, more bool, err error) {
	if after != "" {
		after = owner + "/" + after
	}
	size := 0
	limit = cmp.Or(limit, defaultPage)
	err = db.View(func(tx *ledger.Tx) error {
		return tx.ScanBack(s.Bucket, owner+"/", after, func(_ string, data []byte) (bool, error) {
			var r R
			if err := json.Unmarshal(data, &r); err != nil {
				return false, err
			}
			if !match(r) {
				return true, nil
			}
			if size += len(data); len(list) == limit || size > maxPageBytes && len(list) > 0 {
				more = true
				return false, nil
			}
			list = append(list, r)
			return true, nil
		})
	})
	return list, more, err
}
