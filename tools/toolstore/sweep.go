package toolstore

import (
	"context"
	"errors"
	"strings"
	"time"

	"berth/proto"
	"berth/state/ledger"
	"berth/tools/approval"
)

// Bounds of the ended runs that are stored for each owner; the newest stay.
const (
	maxRuns     = 1000
	maxRunBytes = 64 << 20
	maxRunAge   = 30 * 24 * time.Hour
)

var limits = approval.Limits{Count: maxRuns, Bytes: maxRunBytes}

// Swept is what one Sweep did.
type Swept struct {
	Expired   int // runs that were not approved in time
	Forgotten int // old runs
}

// Counts are the counts by the names that log and metrics have for them.
func (w Swept) Counts() map[string]int {
	return map[string]int{"expired": w.Expired, "forgotten": w.Forgotten}
}

// Sweep ends runs that waited too long for approval, and forgets old ones.
func (c *Store) Sweep(_ context.Context) (done Swept, err error) {
	done.Expired, done.Forgotten, err = c.sweeper.Sweep(c.cfg.Now(), c.expire, c.prune)
	return done, err
}

// expire first looks without writing: most of the time it finds nothing.
func (c *Store) expire() (n int, err error) {
	now := c.cfg.Now()
	late := func(rec runRecord) bool { return rec.approval().Late(now) }
	any := false
	err = c.cfg.Ledger.View(func(tx *ledger.Tx) error {
		return runs.EachLive(tx, "", func(rec runRecord) error { any = any || late(rec); return nil })
	})
	if err != nil || !any {
		return 0, err
	}
	err = c.cfg.Ledger.Update(func(tx *ledger.Tx) error {
		n = 0
		return runs.EachLive(tx, "", func(rec runRecord) error {
			if !late(rec) {
				return nil
			}
			n++
			rec.State, rec.EndedAt, rec.Kept = proto.RunExpired, proto.AtOrNil(now), ""
			rec.Error = &RunError{Type: string(proto.RunExpired),
				Message: "the run was not approved in time; run the tool again"}
			return rec.put(tx)
		})
	})
	c.notify()
	return n, err
}

// prune forgets surplus runs.
func (c *Store) prune(now time.Time) (n int, err error) {
	var surplus []string
	err = c.cfg.Ledger.View(func(tx *ledger.Tx) error {
		live := map[string]bool{}
		if err := ledger.Each(tx, bucketLive, "", func(id, _ string) { live[id] = true }); err != nil {
			return err
		}
		byOwner, before := map[string][]approval.Candidate[string]{}, oldest(now.Add(-maxRunAge))
		err := tx.Scan(bucketRuns, "", func(key string, data []byte) (bool, error) {
			if owner, id, _ := strings.Cut(key, "/"); !live[id] {
				byOwner[owner] = append(byOwner[owner], approval.Candidate[string]{Record: key, Bytes: len(data),
					Old: id < before})
			}
			return true, nil
		})
		for _, list := range byOwner {
			surplus = append(surplus, approval.Surplus(limits, list)...)
		}
		return err
	})
	if err != nil || len(surplus) == 0 {
		return 0, err
	}
	return len(surplus), c.cfg.Ledger.Update(func(tx *ledger.Tx) error {
		for _, key := range surplus {
			var rec runRecord
			known, err := tx.Get(bucketRuns, key, &rec)
			if err == nil && known && rec.Key != "" {
				err = tx.Delete(bucketKeys, rec.retryKey())
			}
			if err := errors.Join(err, tx.Delete(bucketRuns, key)); err != nil {
				return err
			}
		}
		return nil
	})
}

// oldest is an ID that precedes those of all runs made from t on: IDs begin with their time in milliseconds.
func oldest(t time.Time) string {
	var bits [16]byte
	ms := uint64(max(0, t.UnixMilli()))
	for i := range 6 {
		bits[i] = byte(ms >> (40 - 8*i))
	}
	return proto.ID(runPrefix, bits)
}
