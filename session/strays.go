package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"berth/state/ledger"
)

// A stray is a workspace on disk that the ledger does not know. No crash makes one, since a workspace is written down
// before it is made and until it is removed: strays mean that the ledger is not the one they were made under, as
// after one was restored from a backup. They are people's files, so they are set aside, untouched, for StrayKeep; if
// the right ledger comes back in that time, nothing has happened to them.

// bucketStrays holds a stray by workspace ID, with the lease clock's time of when it was first seen.
const bucketStrays = "strays"

// sweepStrays notes new strays, forgets those that are none any more, and removes what was kept for long enough.
func (ss *Sessions) sweepStrays(ctx context.Context, onDisk []string, known map[string]bool, done *Swept) error {
	noted, err := ss.strays()
	if err != nil {
		return fmt.Errorf("reading what was set aside: %w", err)
	}
	var fresh, over []string
	now := ss.clock.now()
	for _, id := range onDisk {
		if known[id] || ss.knowsWorkspace(id) {
			continue
		}
		switch found, ok := noted[id]; {
		case !ok:
			fresh = append(fresh, id)
		case now.Sub(found) >= ss.cfg.StrayKeep:
			over = append(over, id)
		}
	}
	var back []string // gone, or known again
	for id := range noted {
		if !slices.Contains(onDisk, id) || ss.knowsWorkspace(id) {
			back = append(back, id)
		}
	}
	if err := ss.noteStrays(fresh, back, now); err != nil {
		return err
	}
	if done.Strays += len(fresh); len(fresh) > 0 {
		ss.cfg.Log.Warn("workspaces that the ledger does not know are set aside; was it restored from a backup? "+
			"`berth gc --strangers` removes them",
			"workspaces", len(fresh), "kept_for", ss.cfg.StrayKeep)
	}
	return ss.dropStrays(ctx, over, done)
}

// strays is when each was first seen.
func (ss *Sessions) strays() (map[string]time.Time, error) {
	noted := map[string]time.Time{}
	err := ss.cfg.Ledger.View(func(tx *ledger.Tx) error {
		return ledger.Each(tx, bucketStrays, "", func(id string, found time.Time) { noted[id] = found })
	})
	return noted, err
}

func (ss *Sessions) noteStrays(fresh, back []string, now time.Time) error {
	if len(fresh)+len(back) == 0 {
		return nil
	}
	return ss.cfg.Ledger.Update(func(tx *ledger.Tx) (err error) {
		for _, id := range fresh {
			err = errors.Join(err, tx.Put(bucketStrays, id, now))
		}
		for _, id := range back {
			err = errors.Join(err, tx.Delete(bucketStrays, id))
		}
		return err
	})
}

func (ss *Sessions) dropStrays(ctx context.Context, ids []string, done *Swept) error {
	var errs []error
	for _, id := range ids {
		err := ss.cfg.Runtime.RemoveWorkspace(ctx, id)
		count(&done.Workspaces, err == nil)
		if err == nil {
			err = ss.noteStrays(nil, []string{id}, time.Time{})
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// RemoveStrays removes now what is set aside, and says how many workspaces that were.
func (ss *Sessions) RemoveStrays(ctx context.Context) (int, error) {
	noted, err := ss.strays()
	if err != nil {
		return 0, err
	}
	var ids []string
	for id := range noted {
		if !ss.knowsWorkspace(id) {
			ids = append(ids, id)
		}
	}
	var done Swept
	err = ss.dropStrays(ctx, ids, &done)
	return done.Workspaces, err
}
