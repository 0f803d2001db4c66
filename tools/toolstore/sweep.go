package toolstore

import (
	"context"
	"slices"
	"strings"
	"time"

	"berth/proto"
	"berth/state/ledger"
)

// What is kept of ended runs for each owner: at most this many, the newest.
const (
	maxRuns     = 1000
	maxRunBytes = 64 << 20
	maxRunAge   = 30 * 24 * time.Hour
)

// pruneEvery is the time between two prunes. A prune reads all runs.
const pruneEvery = 10 * time.Minute

// Swept is what one Sweep did.
type Swept struct {
	Expired   int // runs that were not approved in time
	Forgotten int // old runs
}

// Counts are the counts by the names that log and metrics have for them.
func (w Swept) Counts() map[string]int {
	return map[string]int{
		"expired":   w.Expired,
		"forgotten": w.Forgotten,
	}
}

// eachLive calls fn with the parked and running runs of an owner; "" stands for all owners.
func eachLive(tx *ledger.Tx, owner string, fn func(runRecord) error) error {
	live := map[string]string{}
	if err := ledger.Each(tx, bucketLive, "", func(id, whose string) { live[id] = whose }); err != nil {
		return err
	}
	for id, whose := range live {
		if owner != "" && whose != owner {
			continue
		}
		var rec runRecord
		if known, err := tx.Get(bucketRuns, whose+"/"+id, &rec); err != nil || !known {
			return err
		}
		if err := fn(rec); err != nil {
			return err
		}
	}
	return nil
}

// loseRuns marks runs that an earlier daemon left running as lost.
func (c *Store) loseRuns() error {
	return c.cfg.Ledger.Update(func(tx *ledger.Tx) error {
		return eachLive(tx, "", func(rec runRecord) error {
			if rec.State != proto.RunRunning {
				return nil
			}
			rec.State, rec.Error, rec.EndedAt, rec.Kept = proto.RunLost, lostError(), proto.AtOrNil(c.cfg.Now()), ""
			return rec.put(tx)
		})
	})
}

// Sweep ends runs that waited too long for approval, and forgets old ones.
func (c *Store) Sweep(_ context.Context) (Swept, error) {
	var done Swept
	var err error
	if done.Expired, err = c.expire(); err != nil {
		return done, err
	}
	c.mu.Lock()
	now := c.cfg.Now()
	due := now.Sub(c.pruned) >= pruneEvery
	if due {
		c.pruned = now
	}
	c.mu.Unlock()
	if due {
		done.Forgotten, err = c.prune(now)
	}
	return done, err
}

// expire first looks without writing: most of the time it finds nothing.
func (c *Store) expire() (n int, err error) {
	now := c.cfg.Now()
	late := func(rec runRecord) bool { return rec.State == proto.RunParked && !now.Before(rec.ExpiresAt.Time) }
	any := false
	err = c.cfg.Ledger.View(func(tx *ledger.Tx) error {
		return eachLive(tx, "", func(rec runRecord) error { any = any || late(rec); return nil })
	})
	if err != nil || !any {
		return 0, err
	}
	err = c.cfg.Ledger.Update(func(tx *ledger.Tx) error {
		n = 0
		return eachLive(tx, "", func(rec runRecord) error {
			if !late(rec) {
				return nil
			}
			n++
			rec.State, rec.EndedAt, rec.Kept = proto.RunExpired, proto.AtOrNil(now), ""
			rec.Error = &RunError{Type: string(proto.RunExpired),
				Message: "nobody approved the run in time; run the tool again"}
			return rec.put(tx)
		})
	})
	c.notify()
	return n, err
}

// A kept is a run in the form that prune needs.
type kept struct {
	key  string
	size int
}

// prune forgets surplus runs.
func (c *Store) prune(now time.Time) (n int, err error) {
	var doomed []string
	err = c.cfg.Ledger.View(func(tx *ledger.Tx) error {
		live := map[string]bool{}
		if err := ledger.Each(tx, bucketLive, "", func(id, _ string) { live[id] = true }); err != nil {
			return err
		}
		byOwner := map[string][]kept{}
		err := tx.Scan(bucketRuns, "", func(key string, data []byte) (bool, error) {
			if owner, id, _ := strings.Cut(key, "/"); !live[id] {
				byOwner[owner] = append(byOwner[owner], kept{key, len(data)})
			}
			return true, nil
		})
		for _, runs := range byOwner {
			doomed = append(doomed, surplus(runs, oldest(now.Add(-maxRunAge)))...)
		}
		return err
	})
	if err != nil || len(doomed) == 0 {
		return 0, err
	}
	return len(doomed), c.cfg.Ledger.Update(func(tx *ledger.Tx) error { return forget(tx, doomed) })
}

// surplus returns the keys of runs that are too many, too large together, or older than an ID. runs has the oldest
// first.
func surplus(runs []kept, before string) (keys []string) {
	count, size := 0, 0
	for _, r := range slices.Backward(runs) {
		count, size = count+1, size+r.size
		if _, id, _ := strings.Cut(r.key, "/"); count > maxRuns || size > maxRunBytes || id < before {
			keys = append(keys, r.key)
		}
	}
	return keys
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

func forget(tx *ledger.Tx, keys []string) error {
	for _, key := range keys {
		var rec runRecord
		known, err := tx.Get(bucketRuns, key, &rec)
		if err != nil || !known {
			return err
		}
		if rec.Key != "" {
			if err := tx.Delete(bucketKeys, rec.retryKey()); err != nil {
				return err
			}
		}
		if err := tx.Delete(bucketRuns, key); err != nil {
			return err
		}
	}
	return nil
}
