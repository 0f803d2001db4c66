package toolstore

import (
	"errors"
	"strings"

	"berth/state/ledger"
	"berth/state/vault"
)

// Reseal seals the environments of all versions, and the inputs of runs that wait for approval, with a new key; see
// vault.Rotate. A daemon may have the ledger open, since it caches none of them.
func Reseal(db *ledger.DB, reseal vault.Resealer) (changed, closed int, err error) {
	err = db.Update(func(tx *ledger.Tx) error {
		changed, closed = 0, 0
		again := func(name string, sealed *string, put func() error) error {
			fresh, err := vault.Resealed(name, *sealed, reseal)
			if err != nil {
				closed++
				return nil
			}
			if fresh == "" {
				return nil
			}
			*sealed = fresh
			changed++
			return put()
		}
		versions := map[string]versionRecord{}
		err := ledger.Each(tx, bucketVersions, "", func(key string, v versionRecord) {
			if v.Sealed != "" {
				versions[key] = v
			}
		})
		for key, v := range versions {
			tool, _, _ := strings.Cut(key, "/")
			err = errors.Join(err, again(tool, &v.Sealed, func() error { return tx.Put(bucketVersions, key, v) }))
		}
		return errors.Join(err, runs.EachLive(tx, "", func(rec runRecord) error {
			return again(rec.ID, &rec.Kept, func() error { return rec.put(tx) })
		}))
	})
	return changed, closed, err
}
