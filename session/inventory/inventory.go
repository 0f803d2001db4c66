// Package inventory compares the workspaces in the ledger with those on disk. Missing ones are in the ledger alone,
// orphaned ones on disk alone.
//
// It has the records of orphaned workspaces and the texts about missing ones. Package session, its only caller, knows
// which workspaces there should be, and stops and starts what uses them.
package inventory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"berth/proto"
	"berth/state/ledger"
)

// Bucket has orphaned workspaces by ID, with the lease clock's time of their discovery.
const Bucket = "strays"

// Orphans are workspaces on disk that are not in the ledger. No crash causes that, since a workspace is recorded before
// it is made and until it is removed. So the ledger is another one than that of the workspace, such as one restored
// from a backup. Orphaned workspaces hold people's files, so they stay untouched for Keep. If the right ledger comes
// back in that time, nothing is lost. All fields must be set.
type Orphans struct {
	Ledger *ledger.DB
	Keep   time.Duration
	Log    *slog.Logger
	Known  func(workspace string) bool // the ledger has it
	Remove func(ctx context.Context, workspace string) error
}

// Sweep records new orphaned workspaces, forgets those that are known again or gone, and removes those that were kept
// for long enough. wasKnown has what the ledger had before onDisk was listed.
func (o Orphans) Sweep(ctx context.Context, now time.Time, onDisk []string, wasKnown map[string]bool) (fresh,
	removed int, err error) {
	noted, err := o.noted()
	if err != nil {
		return 0, 0, fmt.Errorf("reading what was set aside: %w", err)
	}
	var found, over []string
	for _, id := range onDisk {
		if wasKnown[id] || o.Known(id) {
			continue
		}
		switch at, ok := noted[id]; {
		case !ok:
			found = append(found, id)
		case now.Sub(at) >= o.Keep:
			over = append(over, id)
		}
	}
	var back []string // gone, or known again
	for id := range noted {
		if !slices.Contains(onDisk, id) || o.Known(id) {
			back = append(back, id)
		}
	}
	if err := o.record(found, back, now); err != nil {
		return 0, 0, err
	}
	if len(found) > 0 {
		o.Log.Warn("workspaces that the ledger does not know are set aside; was it restored from a backup? "+
			"`berth gc --strangers` removes them", "workspaces", len(found), "kept_for", o.Keep)
	}
	removed, err = o.remove(ctx, over)
	return len(found), removed, err
}

// RemoveAll removes all orphaned workspaces now and returns their number.
func (o Orphans) RemoveAll(ctx context.Context) (int, error) {
	noted, err := o.noted()
	if err != nil {
		return 0, err
	}
	var ids []string
	for id := range noted {
		if !o.Known(id) {
			ids = append(ids, id)
		}
	}
	return o.remove(ctx, ids)
}

// noted has the time of discovery by workspace ID.
func (o Orphans) noted() (map[string]time.Time, error) {
	noted := map[string]time.Time{}
	err := o.Ledger.View(func(tx *ledger.Tx) error {
		return ledger.Each(tx, Bucket, "", func(id string, at time.Time) { noted[id] = at })
	})
	return noted, err
}

func (o Orphans) record(found, back []string, now time.Time) error {
	if len(found)+len(back) == 0 {
		return nil
	}
	return o.Ledger.Update(func(tx *ledger.Tx) (err error) {
		for _, id := range found {
			err = errors.Join(err, tx.Put(Bucket, id, now))
		}
		for _, id := range back {
			err = errors.Join(err, tx.Delete(Bucket, id))
		}
		return err
	})
}

func (o Orphans) remove(ctx context.Context, ids []string) (removed int, err error) {
	for _, id := range ids {
		gone := o.Remove(ctx, id)
		if gone == nil {
			removed++
			gone = o.record(nil, []string{id}, time.Time{})
		}
		err = errors.Join(err, gone)
	}
	return removed, err
}

// BucketWorkspaces has the workspaces of the ledger. Package session knows the whole of a record.
const BucketWorkspaces = "workspaces"

// HasWorkspaces reports whether a ledger has workspaces that are on disk as far as it knows.
func HasWorkspaces(db *ledger.DB) (has bool, err error) {
	type record struct {
		Lost bool `json:"lost"`
	}
	err = db.View(func(tx *ledger.Tx) error {
		return ledger.Each(tx, BucketWorkspaces, "", func(_ string, w record) { has = has || !w.Lost })
	})
	return has, err
}

// Gone is the error for a workspace that was made and is missing.
func Gone(workspace string) error {
	return proto.Errorf(proto.NotFound, "", workspace, "the files of workspace %s are gone from the daemon's disk "+
		"pool, so that its container cannot start; delete the container and make a new one", workspace)
}

// A Workspace is one that was made according to the ledger.
type Workspace struct {
	ID      string
	Created time.Time
}

// unsynced is how long a new workspace may be missing on disk after a power cut, with time for a slow disk: a file
// system that nobody syncs writes its changes every 30 s.
const unsynced = time.Minute

// Missing returns which of the workspaces are not on disk. If the disk may have lost its last writes, as after a power
// cut, those are left out that were made shortly before the latest time that the ledger knows.
func Missing(made []Workspace, onDisk []string, lostWrites bool, latest time.Time) []string {
	there := map[string]bool{}
	for _, id := range onDisk {
		there[id] = true
	}
	var missing []string
	for _, w := range made {
		if !there[w.ID] && !(lostWrites && len(onDisk) > 0 && latest.Sub(w.Created) < unsynced) {
			missing = append(missing, w.ID)
		}
	}
	slices.Sort(missing)
	return missing
}

// named bounds how many workspaces an error names.
const named = 5

// MissingError says that the pool lacks workspaces, and what to do.
func MissingError(pool string, missing []string) error {
	names := strings.Join(missing[:min(named, len(missing))], ", ")
	if len(missing) > named {
		names += ", …"
	}
	return fmt.Errorf("%d workspaces of the ledger are not in the disk pool %s (%s): put back the pool that has them, "+
		"or start the daemon once with --accept-loss=workspaces; their containers then have no files, and say so at "+
		"their next use", len(missing), pool, names)
}
