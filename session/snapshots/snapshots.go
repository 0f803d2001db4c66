// Package snapshots has the records of snapshots: what was taken of which session, when, and what becomes of it.
//
// In scope: the records in the ledger, names, bounds, expiry, and that a snapshot stays while something uses it. Out of
// scope: the files, which the runtime has under the same IDs, and sessions. Package session, the only caller, takes
// snapshots and makes containers of them.
package snapshots

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"berth/proto"
	"berth/state/ledger"
)

// Bucket has the records of snapshots by ID.
const Bucket = "snapshots"

// A Record is a snapshot in the ledger. It is written before the files are made, and stays until they are removed.
type Record struct {
	ID        string             `json:"id"`
	Owner     string             `json:"owner"`
	Key       string             `json:"key,omitempty"` // the API key that it counts for
	Name      string             `json:"name,omitempty"`
	Labels    map[string]string  `json:"labels,omitempty"`
	Container string             `json:"container"` // the session that it was taken of
	Image     string             `json:"image"`
	Digest    string             `json:"digest"`
	Class     proto.RuntimeClass `json:"class"`
	Limits    proto.Limits       `json:"limits"`
	Created   time.Time          `json:"created"`           // of the lease clock, as all times here
	Expires   time.Time          `json:"expires,omitzero"`  // zero: never
	Paused    bool               `json:"paused,omitempty"`  // the session was paused already when it was taken
	Done      bool               `json:"done,omitempty"`    // the files are there
	Delete    bool               `json:"delete,omitempty"`  // removal has begun and has to be finished
	Passing   bool               `json:"passing,omitempty"` // of a fork, which removes it; nobody sees it
}

// Config is what Open needs. All fields must be set.
type Config struct {
	Ledger *ledger.DB
	Now    func() time.Time                           // the lease clock
	Wall   func(time.Time) time.Time                  // what the wall clock shows at a time of the lease clock
	Used   func(id string) bool                       // a container is still to be made of the snapshot
	Remove func(ctx context.Context, id string) error // removes the files of a snapshot and all else but its record
	// the bytes of a snapshot's files, and those of them that nothing else has; 0 if they are unknown
	Size func(id string) (all, exclusive int64)
}

// A Store has all snapshots. It is safe for concurrent use.
type Store struct {
	cfg Config

	mu  sync.Mutex
	all map[string]*entry
}

type entry struct {
	Record
	users int // a copy is being made of it, or it is being taken or removed
}

// Open reads the snapshots of a ledger.
func Open(cfg Config) (*Store, error) {
	st := &Store{cfg: cfg, all: map[string]*entry{}}
	err := cfg.Ledger.View(func(tx *ledger.Tx) error {
		return ledger.Each(tx, Bucket, "", func(id string, r Record) { st.all[id] = &entry{Record: r} })
	})
	return st, err
}

// visible reports whether the owner can see the snapshot.
func (e *entry) visible(owner string) bool {
	return e.Owner == owner && e.Done && !e.Delete && !e.Passing
}

// find returns the owner's snapshot with that ID, or that name. Called with mu held.
func (st *Store) find(owner, ref string) *entry {
	if e := st.all[ref]; e != nil && e.visible(owner) {
		return e
	}
	for _, e := range st.all {
		if e.Name == ref && ref != "" && e.visible(owner) {
			return e
		}
	}
	return nil
}

func missing(ref string) error {
	return proto.Errorf(proto.NotFound, "", ref, "snapshot %.80q does not exist", ref)
}

// Begin records a snapshot that is about to be taken. It is in use until Finish or Remove; a passing one until Remove.
// It fails with AlreadyExists if another snapshot of the owner has its name, and with TooMany if there are most
// snapshots already, or mostOfKey of its API key; 0 is no bound.
func (st *Store) Begin(r Record, most, mostOfKey int64) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	ofKey := int64(0)
	for _, e := range st.all {
		if e.Key == r.Key {
			ofKey++
		}
		if r.Name != "" && e.Owner == r.Owner && e.Name == r.Name && !e.Delete {
			return proto.Errorf(proto.AlreadyExists, "", r.Name, "the name %q belongs to snapshot %s; delete that or "+
				"take another name", r.Name, e.ID)
		}
	}
	switch n := int64(len(st.all)); {
	case most > 0 && n >= most:
		return proto.Errorf(proto.TooMany, "", "", "this daemon has %d snapshots, which is its limit; delete one", n)
	case mostOfKey > 0 && ofKey >= mostOfKey && r.Key != "":
		return proto.Errorf(proto.TooMany, "", r.Key, "this API key has %d snapshots, and its quota is %d; delete one",
			ofKey, mostOfKey)
	}
	if err := st.write(r); err != nil {
		return err
	}
	st.all[r.ID] = &entry{Record: r, users: 1}
	return nil
}

// write waits until a later daemon would find the record.
func (st *Store) write(r Record) error {
	return st.cfg.Ledger.UpdateAsync(func(tx *ledger.Tx) error { return tx.Put(Bucket, r.ID, r) })
}

// Finish records that the files of a snapshot are there. When it returns, the record is on disk.
func (st *Store) Finish(id string) error {
	st.mu.Lock()
	r := st.all[id].Record
	st.mu.Unlock()
	r.Done = true
	if err := st.cfg.Ledger.Update(func(tx *ledger.Tx) error { return tx.Put(Bucket, r.ID, r) }); err != nil {
		return err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.all[id].Record = r
	if !r.Passing { // its fork uses it until Remove
		st.all[id].users--
	}
	return nil
}

// Get returns the owner's snapshot with that ID or name.
func (st *Store) Get(owner, ref string) (proto.Snapshot, error) {
	r, release, err := st.Hold(owner, ref)
	if err == nil {
		release()
	}
	return st.Info(r), err
}

// Hold finds the owner's snapshot with that ID or name, and keeps it until release.
func (st *Store) Hold(owner, ref string) (r Record, release func(), err error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	e := st.find(owner, ref)
	if e == nil {
		return Record{}, nil, missing(ref)
	}
	e.users++
	return e.Record, func() {
		st.mu.Lock()
		defer st.mu.Unlock()
		e.users--
	}, nil
}

// A Filter chooses snapshots to list.
type Filter struct {
	Container string            // "": of all containers
	Labels    map[string]string // all must match
	After     string            // list the snapshots after this ID
	Limit     int               // 1 to 1000; 0 is 100
}

// List returns a page of the owner's snapshots, newest first, and whether more follow.
func (st *Store) List(owner string, f Filter) (page []proto.Snapshot, more bool, err error) {
	limit := cmp.Or(f.Limit, 100)
	switch {
	case limit < 1 || limit > 1000:
		return nil, false, proto.Invalid("limit", "limit must be from 1 to 1000")
	case f.After != "" && !proto.ValidID(proto.SnapshotPrefix, f.After):
		return nil, false, proto.Invalid("after", "after %.80q is not a snapshot ID", f.After)
	}
	list := st.filter(func(e *entry) bool {
		return e.visible(owner) && (f.Container == "" || e.Container == f.Container) &&
			(f.After == "" || e.ID < f.After) && proto.HasLabels(e.Labels, f.Labels)
	})
	if more = len(list) > limit; more {
		list = list[len(list)-limit:]
	}
	for _, r := range slices.Backward(list) {
		page = append(page, st.Info(r))
	}
	return page, more, nil
}

// Delete removes the owner's snapshot with that ID or name. Containers that were made of it stay. It is a Conflict
// while one is being made.
func (st *Store) Delete(ctx context.Context, owner, ref string) (Record, error) {
	r, err := st.beginRemoval(owner, ref)
	if err == nil {
		err = st.Remove(context.WithoutCancel(ctx), r.ID)
	}
	return r, err
}

// beginRemoval records that the snapshot is to be removed. Nobody finds it from here on.
func (st *Store) beginRemoval(owner, ref string) (Record, error) {
	used := st.used()
	st.mu.Lock()
	defer st.mu.Unlock()
	e := st.find(owner, ref)
	switch {
	case e == nil:
		return Record{}, missing(ref)
	case e.users > 0 || used[e.ID]:
		return Record{}, proto.Errorf(proto.Conflict, "", e.ID, "snapshot %s is in use: a container is being made of "+
			"it; try again", e.ID)
	}
	return e.Record, st.markDeleted(e)
}

// markDeleted records that a snapshot that nobody uses is to be removed. The caller uses it for that until Remove.
// Called with mu held.
func (st *Store) markDeleted(e *entry) error {
	r := e.Record
	r.Delete = true
	if err := st.write(r); err != nil {
		return err
	}
	e.Record = r
	e.users++
	return nil
}

// Remove removes a snapshot that only the caller uses. The record goes last, so that a sweep or the next daemon can
// finish.
func (st *Store) Remove(ctx context.Context, id string) error {
	err := st.cfg.Remove(ctx, id)
	if err == nil {
		err = st.cfg.Ledger.UpdateAsync(func(tx *ledger.Tx) error { return tx.Delete(Bucket, id) })
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if err != nil {
		st.all[id].users = 0 // a sweep tries again
		return fmt.Errorf("removing snapshot %s: %w", id, err)
	}
	delete(st.all, id)
	return nil
}

// Undo removes the snapshots that an earlier daemon was taking, or needed only for a moment. It calls resume with the
// containers that this daemon may have frozen. Call it before the first Begin.
func (st *Store) Undo(ctx context.Context, resume func(container string) error) error {
	var errs []error
	used := st.used()
	for _, r := range st.filter(func(e *entry) bool { return !e.Done || e.Passing }) {
		if !r.Done && !r.Paused {
			if err := resume(r.Container); proto.CodeOf(err) != proto.NotFound { // it may have ended
				errs = append(errs, err)
			}
		}
		if !used[r.ID] {
			errs = append(errs, st.Remove(ctx, r.ID))
		}
	}
	return errors.Join(errs...)
}

// Sweep removes the snapshots that have expired, and what failures have left: those that were not finished, or needed
// only for a moment, or removed in part. It returns what it removed.
func (st *Store) Sweep(ctx context.Context) (removed []Record, err error) {
	now, used := st.cfg.Now(), st.used()
	over := st.filter(func(e *entry) bool {
		expired := !e.Expires.IsZero() && !now.Before(e.Expires)
		if e.users > 0 || used[e.ID] || !expired && !e.Delete && !e.Passing && e.Done {
			return false
		}
		failed := st.markDeleted(e)
		err = errors.Join(err, failed)
		return failed == nil
	})
	for _, r := range over {
		gone := st.Remove(ctx, r.ID)
		if gone == nil {
			removed = append(removed, r)
		}
		err = errors.Join(err, gone)
	}
	return removed, err
}

// used returns the snapshots that the owner of the sessions still needs. It asks without the lock.
func (st *Store) used() map[string]bool {
	used := map[string]bool{}
	for _, r := range st.All() {
		used[r.ID] = st.cfg.Used(r.ID)
	}
	return used
}

// filter returns the snapshots that match, oldest first. matches is called with mu held.
func (st *Store) filter(matches func(*entry) bool) (list []Record) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(st.all)) {
		if matches(st.all[id]) {
			list = append(list, st.all[id].Record)
		}
	}
	return list
}

// All returns all snapshots, oldest first.
func (st *Store) All() []Record { return st.filter(func(*entry) bool { return true }) }

// ImageName returns the name of an image of the snapshot that was given none.
func (r Record) ImageName() string { return "snapshot:" + cmp.Or(r.Name, r.ID) }

// Info describes a snapshot.
func (st *Store) Info(r Record) proto.Snapshot {
	labels := maps.Clone(r.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	info := proto.Snapshot{ID: r.ID, Name: r.Name, Labels: labels, ContainerID: r.Container, Image: r.Image,
		ImageDigest: r.Digest, RuntimeClass: r.Class, Limits: r.Limits, CreatedAt: proto.At(st.cfg.Wall(r.Created))}
	info.SizeBytes, info.ExclusiveBytes = st.cfg.Size(r.ID)
	if !r.Expires.IsZero() {
		expires := proto.At(st.cfg.Wall(r.Expires))
		info.ExpiresAt = &expires
	}
	return info
}
