package session

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"berth/proto"
	"berth/proto/span"
	"berth/session/snapshots"
	"berth/session/validate"
)

// An origin is the snapshot whose files a session is to have. It is in the session's record until the session has them,
// so that a later daemon goes on with it.
type origin struct {
	Snapshot string `json:"snapshot"`
	Copy     string `json:"copy"` // names this copy, so that it is made once
}

// Snapshot keeps the session's files as they are now: its workspace and its layer, as of one moment. Processes are
// frozen for that. A stopped session is not started.
func (s *Session) Snapshot(ctx context.Context, req proto.CreateSnapshot) (proto.Snapshot, error) {
	if err := validate.Snapshot(req); err != nil {
		return proto.Snapshot{}, err
	}
	now := s.core.clock.Now()
	r := snapshots.Record{Key: proto.CallerOf(ctx).KeyID, Name: req.Name, Labels: maps.Clone(req.Labels)}
	if req.ExpiresAfterSeconds > 0 {
		r.Expires = now.Add(time.Duration(req.ExpiresAfterSeconds) * time.Second)
	}
	r, err := s.takeSnapshot(ctx, r)
	return s.core.snapshots.Info(r), err
}

// takeSnapshot completes the record and takes the snapshot.
func (s *Session) takeSnapshot(ctx context.Context, r snapshots.Record) (_ snapshots.Record, err error) {
	ctx, sp := span.Start(ctx, "container.snapshot")
	defer func() { s.describeSpan(sp); sp.String(span.SnapshotID, r.ID); sp.End(err) }()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.core.cfg.StartTimeout)
	defer cancel()
	unlock, err := s.lockTransition(ctx) // nothing starts, stops or restores it meanwhile
	if err != nil {
		return r, err
	}
	defer unlock()
	if err := cmp.Or(s.usable(), s.revert(ctx)); err != nil {
		return r, err
	}
	ss, rec := s.core, s.record()
	r.ID, r.Owner, r.Container = proto.NewID(proto.SnapshotPrefix), s.owner, s.id
	r.Image, r.Digest, r.Class, r.Limits = rec.Image, rec.Digest, rec.Class, rec.Limits
	r.Created, r.Paused = ss.clock.Now(), s.is(&s.paused)
	if err := ss.snapshots.Begin(r, int64(ss.cfg.MaxSessions), ss.cfg.Quotas.MaxSessions(r.Key)); err != nil {
		return r, err
	}
	err = ss.cfg.Runtime.TakeSnapshot(ctx, s.id, rec.spec(), r.ID)
	if err == nil {
		err = ss.cfg.Jobs.Copy(ctx, s.workspace, r.ID)
	}
	if err == nil {
		err = ss.snapshots.Finish(r.ID)
	}
	if err != nil {
		return r, errors.Join(err, ss.snapshots.Remove(ctx, r.ID))
	}
	s.mu.Lock()
	s.touch()
	s.mu.Unlock()
	if !r.Passing { // what a fork needs for a moment is no snapshot of anyone
		s.auditItem(ctx, actionSnapshot, r.ID, r.Name)
	}
	return r, s.changeAsync(func(r *record) { r.Unused = 0 })
}

// A SnapshotFilter chooses snapshots to list.
type SnapshotFilter = snapshots.Filter

// Snapshots returns the snapshots of all owners.
func (ss *Sessions) Snapshots() *snapshots.Store { return ss.snapshots }

// openSnapshots reads the snapshots of the ledger.
func (ss *Sessions) openSnapshots() (err error) {
	ss.snapshots, err = snapshots.Open(snapshots.Config{Ledger: ss.cfg.Ledger, Now: ss.clock.Now, Wall: ss.clock.Wall,
		Used: ss.reverting, Size: ss.cfg.Runtime.SnapshotSize, Remove: func(ctx context.Context, id string) error {
			return cmp.Or(ss.cfg.Runtime.RemoveSnapshot(ctx, id), ss.cfg.Jobs.Drop(ctx, id))
		}})
	return err
}

// DeleteSnapshot removes the owner's snapshot with that ID or name.
func (ss *Sessions) DeleteSnapshot(ctx context.Context, owner, ref string) (proto.Snapshot, error) {
	r, err := ss.snapshots.Delete(ctx, owner, ref)
	if err == nil {
		ss.auditDeleted(ctx, r, r.Name)
	}
	return ss.snapshots.Info(r), err
}

// WriteSnapshot writes an OCI archive with the image and the files of the owner's snapshot with that ID or name. The
// image in it has the given name; "" is the snapshot's.
func (ss *Sessions) WriteSnapshot(ctx context.Context, owner, ref, name string, w io.Writer) error {
	r, release, err := ss.snapshots.Hold(owner, ref)
	if err != nil {
		return err
	}
	defer release()
	return ss.cfg.Runtime.WriteSnapshot(ctx, r.ID, r.Digest, cmp.Or(name, r.ImageName()), w)
}

// CommitSnapshot makes an image of the owner's snapshot with that ID or name.
func (ss *Sessions) CommitSnapshot(ctx context.Context, owner, ref, name string,
	progress func(ImageProgress)) (Image, error) {
	r, release, err := ss.snapshots.Hold(owner, ref)
	if err != nil {
		return Image{}, err
	}
	defer release()
	return ss.cfg.Runtime.CommitSnapshot(ctx, r.ID, r.Digest, cmp.Or(name, r.ImageName()), progress)
}

func (ss *Sessions) auditDeleted(ctx context.Context, r snapshots.Record, note string) {
	e := auditEntryFor(ctx)
	e.Act, e.Owner, e.ContainerID, e.Item, e.Note = actionSnapshotDelete, r.Owner, r.Container, r.ID, note
	ss.cfg.Audit(e)
}

// sweepSnapshots removes the snapshots that have expired, and finishes removals.
func (ss *Sessions) sweepSnapshots(ctx context.Context, done *Swept) error {
	removed, err := ss.snapshots.Sweep(ctx)
	for _, r := range removed {
		if r.Done && !r.Passing {
			done.Snapshots++
			ss.auditDeleted(ctx, r, "it has expired, or its removal was finished")
		}
	}
	return err
}

// reverting reports whether a session is still to get its files from a snapshot. One that is being created has its
// creator for that, who holds the snapshot; if that was an earlier daemon, the session is removed.
func (ss *Sessions) reverting(snapshot string) bool {
	return slices.ContainsFunc(ss.all(), func(s *Session) bool {
		r := s.record()
		return r.From != nil && r.From.Snapshot == snapshot && !r.Delete && r.State != proto.StateExpired &&
			!ss.incomplete(r)
	})
}

// Restore gives the session the files of one of its owner's snapshots in place of its own, and the image of that. It
// ends the session's processes; the next use starts it.
func (s *Session) Restore(ctx context.Context, ref string) error {
	r, release, err := s.core.snapshots.Hold(s.owner, ref)
	if err != nil {
		return err
	}
	defer release()
	return s.traced(ctx, "container.restore", func(ctx context.Context) error {
		span.Of(ctx).String(span.SnapshotID, r.ID)
		return s.replaceLayer(ctx, "the container was restored from a snapshot", func(rec *record) {
			rec.From, rec.Unused = &origin{r.ID, proto.NewID(proto.LayerPrefix)}, 0
			rec.Image, rec.Digest = r.Image, r.Digest
		}, func(ctx context.Context) { s.auditItem(ctx, actionRestore, r.ID, r.Name) })
	})
}

// revert gives the session the files that it is still to get from a snapshot. Called with transition held and no
// sandbox.
func (s *Session) revert(ctx context.Context) error {
	rec := s.record()
	if rec.From == nil {
		return nil
	}
	if err := s.core.cfg.Runtime.Revert(ctx, s.id, rec.spec(), rec.From.Snapshot, rec.From.Copy); err != nil {
		return err
	}
	if err := s.core.cfg.Jobs.Copy(ctx, rec.From.Snapshot, s.workspace); err != nil {
		return err
	}
	if rec.State == proto.StateCreating { // its start records that it is complete
		return nil
	}
	return s.change(func(r *record) { r.From = nil })
}

// beginWith gives the record of a new session what it has from a snapshot, unless the request asks for something else.
// The snapshot is kept until release.
func (ss *Sessions) beginWith(rec *record, req proto.CreateContainer) (release func(), err error) {
	r, release, err := ss.snapshots.Hold(rec.Owner, req.Snapshot)
	if err != nil {
		return nil, err
	}
	if req.RuntimeClass == "" {
		rec.Class = r.Class
	}
	rec.Image, rec.Digest, rec.Limits = r.Image, r.Digest, req.Limits.Or(r.Limits)
	rec.From = &origin{Snapshot: r.ID}
	if err := cmp.Or(ss.cfg.Classes.Check(rec.Class), validate.Sudo(rec.Sudo, ss.cfg.NoSudo, rec.Class),
		validate.Limits(rec.Limits, ss.cfg.Limits)); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// forksAtOnce is how many forks of one request are made at a time.
const forksAtOnce = 4

// Fork makes copies of the session: each has its files as of one moment, and its environment, secrets, tools, labels,
// network, limits, sudo and lease, but no processes and no name. If one of them cannot be made, none is.
func (s *Session) Fork(ctx context.Context, count int) ([]*Session, error) {
	if count = max(count, 1); count > validate.MaxForks {
		return nil, validate.Error("count", "count must be from 1 to %d", validate.MaxForks)
	}
	ss := s.core
	snap, err := s.takeSnapshot(ctx, snapshots.Record{Key: proto.CallerOf(ctx).KeyID, Passing: true})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err := ss.snapshots.Remove(context.WithoutCancel(ctx), snap.ID); err != nil {
			ss.cfg.Log.Warn("removing the snapshot of a fork; the next daemon tries again", "snapshot", snap.ID,
				"error", err)
		}
	}()
	forks, errs := make([]*Session, count), make([]error, count)
	var wg sync.WaitGroup
	slots := make(chan struct{}, forksAtOnce)
	for i := range count {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			forks[i], errs[i] = s.forkOf(ctx, snap)
		})
	}
	wg.Wait()
	i := slices.IndexFunc(errs, func(err error) bool { return err != nil })
	if i < 0 {
		return forks, nil
	}
	for _, fork := range forks {
		if fork != nil {
			ss.undoCreate(fork)
		}
	}
	return nil, errs[i]
}

// forkOf makes one fork.
func (s *Session) forkOf(ctx context.Context, snap snapshots.Record) (_ *Session, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ctx, sp := span.Start(ctx, "container.fork")
	sp.String(span.ForkOf, s.id)
	defer func() { sp.End(err) }()
	ss, had := s.core, s.record()
	if err := cmp.Or(had.unsealErr, validate.Sudo(had.Sudo, ss.cfg.NoSudo, had.Class)); err != nil {
		return nil, err
	}
	rec := record{Owner: s.owner, Key: proto.CallerOf(ctx).KeyID, State: proto.StateCreating, Image: snap.Image,
		Digest: snap.Digest, Class: snap.Class, Sudo: had.Sudo, Limits: snap.Limits, Labels: maps.Clone(had.Labels),
		Env: maps.Clone(had.Env), Secrets: maps.Clone(had.Secrets), NetworkSecrets: maps.Clone(had.NetworkSecrets),
		Tools: had.shownTools(), toolSecrets: had.toolSecrets, Network: had.network(), Mounts: slices.Clone(had.Mounts),
		Lease: had.Lease.Anew(ss.clock.Now()), Lifetime: had.Lifetime, Unused: ss.cfg.UnusedLifetime,
		From: &origin{Snapshot: snap.ID}}
	fork, err := ss.register(rec, proto.LeaseRequest{})
	if err != nil {
		return nil, err
	}
	defer close(fork.created)
	fork.describeSpan(sp)
	if err := fork.startNew(ctx, nil); err != nil {
		ss.undoCreate(fork)
		return nil, err
	}
	fork.auditItem(ctx, actionFork, s.id, "of "+s.id)
	return fork, nil
}
