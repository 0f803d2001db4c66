package vault

import (
	"errors"

	"berth/state/ledger"
)

// A Resealer seals a sealed text under the present key; see Rotate.
type Resealer = func(name, sealed string) (string, error)

// ResealBucket reseals the records of one bucket; of returns the name and the sealed text of a record.
func ResealBucket[T any](db *ledger.DB, bucket string, reseal Resealer, of func(*T) (name string, sealed *string)) (
	changed, closed int, err error) {
	err = db.Update(func(tx *ledger.Tx) error {
		todo := map[string]T{}
		closed = 0
		err := ledger.Each(tx, bucket, "", func(key string, r T) {
			name, sealed := of(&r)
			fresh, err := Resealed(name, *sealed, reseal)
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

// Resealed returns a text sealed under the present key, or "" if it needs no change.
func Resealed(name, sealed string, reseal Resealer) (string, error) {
	if sealed == "" {
		return "", nil
	}
	fresh, err := reseal(name, sealed)
	if err != nil || fresh == sealed {
		return "", err
	}
	return fresh, nil
}
