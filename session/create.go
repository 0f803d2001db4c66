package session

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"time"

	"berth/proto"
	"berth/proto/span"
	"berth/session/lease"
	"berth/session/retries"
	"berth/session/validate"
	"berth/state/ledger"
)

// Create makes a session and starts its sandbox. If it fails, or ctx ends first, nothing is left of the session. A
// session with an idempotency key that was asked for before is not made again.
func (ss *Sessions) Create(ctx context.Context, owner string, req proto.CreateContainer) (*Session, error) {
	s, _, err := ss.CreateOnce(ctx, owner, req)
	return s, err
}

// CreateOnce works like Create and also reports whether the session was there before: from an earlier request with the
// same key, or by its name if the request takes an existing one.
func (ss *Sessions) CreateOnce(ctx context.Context, owner string, req proto.CreateContainer) (s *Session, replayed bool,
	err error) {
	switch {
	case req.Existing:
		return ss.createOrFind(ctx, owner, req)
	case req.IdempotencyKey == "":
		s, err = ss.create(ctx, owner, req, retry{})
		return s, false, err
	}
	asked := req
	asked.IdempotencyKey = ""
	r, err := ss.digests.Identify(req.IdempotencyKey, asked)
	if err != nil {
		return nil, false, err
	}
	s, err = retries.FindOrReserve(ctx, func() (*Session, *pendingRequest, error) {
		return ss.findOrReserveCreate(owner, r)
	})
	switch {
	case err != nil:
		return nil, false, err
	case s != nil:
		s.awaitHandshake()
		return s, true, s.usable()
	}
	defer ss.finishPendingCreate(owner, r)
	s, err = ss.create(ctx, owner, req, r)
	return s, false, err
}

// findOrReserveCreate finds the session of an earlier request with this key, or the creation that runs. If there is
// neither, it reserves the key for the caller, until finishPendingCreate.
func (ss *Sessions) findOrReserveCreate(owner string, r retry) (*Session, *pendingRequest, error) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	at := ownerKey(owner, r.Key)
	if t := ss.pendingCreates[at]; t != nil {
		return nil, t, t.Same(r)
	}
	if s, ok := ss.index.Retried(owner, r.Key); ok {
		if rec := s.record(); !rec.Delete && !ss.incomplete(rec) {
			return s, nil, rec.Retry.Same(r)
		}
	}
	ss.pendingCreates[at] = &pendingRequest{Retry: r, Done: make(chan struct{})}
	return nil, nil, nil
}

func (ss *Sessions) finishPendingCreate(owner string, r retry) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	at := ownerKey(owner, r.Key)
	close(ss.pendingCreates[at].Done)
	delete(ss.pendingCreates, at)
}

// create makes the session of a new request. It checks the request, resolves the image, registers the record and
// starts the sandbox.
func (ss *Sessions) create(ctx context.Context, owner string, req proto.CreateContainer, r retry) (_ *Session,
	err error) {
	defer hideIn(req, &err)
	ctx, sp := span.Start(ctx, "container.create")
	defer func() { sp.End(err) }()
	if req.Snapshot == "" && proto.ValidID(proto.SnapshotPrefix, req.Image) { // a snapshot is an image
		req.Snapshot, req.Image = req.Image, ""
	}
	rec, err := ss.cfg.newRecord(owner, req)
	if err != nil {
		return nil, err
	}
	if req.Snapshot != "" {
		release, err := ss.beginWith(&rec, req)
		if err != nil {
			return nil, err
		}
		defer release()
	} else {
		img, err := ss.cfg.Images.Resolve(ctx, rec.Image)
		if err != nil {
			return nil, err
		}
		rec.Digest = img.Digest
	}
	rec.Key, rec.Retry = proto.CallerOf(ctx).KeyID, r
	rec.InputsMissing = len(req.Files) > 0
	s, err := ss.register(rec, req.Lease)
	if err != nil {
		return nil, err
	}
	defer close(s.created)
	s.describeSpan(sp)
	if err := s.startNew(ctx, req.Files); err != nil {
		ss.undoCreate(s)
		return nil, err
	}
	s.auditAction(ctx, actionCreate, "workspace "+s.workspace)
	return s, nil
}

// newRecord checks a request for a container and fills in defaults. The record has no image digest and no IDs yet.
func (c Config) newRecord(owner string, req proto.CreateContainer) (record, error) {
	r := record{
		Owner: owner, State: proto.StateCreating, Image: req.Image, Class: req.RuntimeClass, Sudo: req.Sudo,
		Fleeting: req.Fleeting, Name: req.Name, Labels: maps.Clone(req.Labels), Env: maps.Clone(req.Env),
		Secrets: maps.Clone(req.Secrets), Limits: req.Limits.Or(c.Limits), Workspace: req.WorkspaceID,
		Lifetime: seconds(float64(req.MaxLifetimeSeconds)), Unused: c.UnusedLifetime, Public: req.PublicPorts.Normal(),
		Lease: lease.Lease{Idle: seconds(float64(req.IdleTimeoutSeconds))},
	}
	setDefault(&r.Image, c.Image)
	setDefault(&r.Class, c.Classes.Usual())
	setDefault(&r.Lease.Idle, c.IdleTimeout)
	setDefault(&r.Lifetime, c.MaxLifetime)
	var denied, refused, kept error
	r.Network, denied = c.grant(req.Network)
	r.Tools, refused = c.grantTools(req.CodeTools)
	r.holdToolSecrets()
	r.NetworkSecrets, kept = c.grantNetworkSecrets(r.Network, req)
	err := cmp.Or(validate.Container(req, r.Lease.Idle, r.Lifetime, c.Limits), c.Classes.Check(r.Class),
		validate.Sudo(r.Sudo, c.NoSudo, r.Class), denied,
		refused, kept, validate.PublicPorts(r.Public, c.PortsMax))
	if err != nil {
		return record{}, err
	}
	return r, nil
}

// CheckConfinement checks whether a request may ask for a container that is confined like this.
func (ss *Sessions) CheckConfinement(asked proto.Confinement) error {
	return cmp.Or(ss.cfg.Classes.Check(asked.RuntimeClass), validate.Limits(asked.Limits, ss.cfg.Limits))
}

// register gives the record its IDs and writes it in state creating, as generation 1. The record is on disk by the
// time the sandbox runs; see startSandbox.
func (ss *Sessions) register(rec record, asked proto.LeaseRequest) (_ *Session, err error) {
	now := ss.clock.Now()
	rec.ID, rec.Job = proto.NewID(proto.ContainerPrefix), proto.NewID(proto.JobPrefix)
	rec.Layer = proto.NewID(proto.LayerPrefix)
	if rec.From != nil {
		rec.From.Copy = rec.Layer
	}
	rec.Created, rec.LastUsed, rec.Generation, rec.Host = now, now, 1, ss.host
	if rec.Lease, err = ss.changedLease(rec.Lease, asked, now, rec.cap()); err != nil {
		return nil, err
	}
	if err := ss.seal(&rec); err != nil {
		return nil, err
	}

	ss.mu.Lock()
	ws, err := ss.attachWorkspace(&rec)
	if err != nil {
		ss.mu.Unlock()
		return nil, err
	}
	s := newSession(ss, rec)
	s.created = make(chan struct{})
	ss.byID[rec.ID] = s
	ss.index.Add(s, rec.entry(), true)
	_ = ss.index.TakeName(s, rec.Name) // attachWorkspace has checked it
	ss.workspaces[ws.ID] = ws
	ss.mu.Unlock()

	err = ss.cfg.Ledger.UpdateAsync(func(tx *ledger.Tx) error {
		if err := tx.Put(bucketWorkspaces, ws.ID, ws); err != nil {
			return err
		}
		return tx.Put(bucketSessions, rec.ID, rec)
	})
	if err != nil {
		ss.forget(s)
		return nil, fmt.Errorf("recording the session: %w", err)
	}
	return s, nil
}

// attachWorkspace checks the limits on sessions and the name, and attaches the requested workspace, or a new one.
// Called with mu held.
func (ss *Sessions) attachWorkspace(rec *record) (workspaceRecord, error) {
	if ss.closed {
		return workspaceRecord{}, shuttingDown()
	}
	if err := cmp.Or(ss.checkRoom(rec.Key), ss.index.CheckName(rec.Owner, rec.Name)); err != nil {
		return workspaceRecord{}, err
	}
	if rec.Workspace == "" {
		rec.Workspace = proto.NewID(proto.WorkspacePrefix)
		return workspaceRecord{ID: rec.Workspace, Owner: rec.Owner, Key: rec.Key, Created: ss.cfg.Now(),
			Session: rec.ID}, nil
	}
	ws, ok := ss.workspaces[rec.Workspace]
	if !ok || ws.Owner != rec.Owner || ws.going {
		return ws, proto.Errorf(proto.NotFound, "", rec.Workspace, "workspace %.80q does not exist", rec.Workspace)
	}
	if ws.Session != "" {
		return ws, proto.Errorf(proto.Conflict, "", rec.Workspace, "workspace %s belongs to container %s; delete "+
			"that with keep_workspace first", ws.ID, ws.Session)
	}
	ws.Session = rec.ID
	return ws, nil
}

// checkRoom fails with TooMany if the daemon, or the API key that makes the session, has as many sessions as allowed.
// Called with mu held, under which the session is then added, so that two requests cannot take one slot.
func (ss *Sessions) checkRoom(key string) error {
	if n := ss.index.Live(); n >= int64(ss.cfg.MaxSessions) {
		return proto.Errorf(proto.TooMany, "", "", "this daemon has %d containers, which is its limit; delete one "+
			"or wait for one to expire", n).
			After(ss.untilRoom(""))
	}
	if key == "" {
		return nil
	}
	if most, n := ss.cfg.Quotas.MaxSessions(key), ss.index.LiveOf(key); most > 0 && n >= most {
		return proto.Errorf(proto.TooMany, "", key, "this API key has %d containers, and its quota is %d; delete "+
			"one or wait for one to expire", n, most).
			After(ss.untilRoom(key))
	}
	return nil
}

// longestWait bounds the time that a client is told to wait until a session expires, since a session may be deleted
// earlier.
const longestWait = time.Minute

// untilRoom returns the time until the first session expires, or the first one of an API key. Called with mu held.
func (ss *Sessions) untilRoom(key string) time.Duration {
	wait, now := longestWait, ss.clock.Now()
	for _, s := range ss.byID {
		if ss.index.Counts(s, key) {
			if what, when := s.next(); what == proto.LeaseRemove {
				wait = min(wait, when.Sub(now))
			}
		}
	}
	return wait
}

// startNew starts a session that was just created and puts its inputs in place. It does not start a session that a
// client found in a list and deleted meanwhile: its sandbox would never be removed.
func (s *Session) startNew(ctx context.Context, files []string) error {
	unlock, err := s.lockTransition(ctx)
	if err != nil {
		return err
	}
	if err = s.usable(); err == nil {
		err = s.startGeneration(ctx)
	}
	unlock()
	if err != nil || len(files) == 0 {
		return err
	}
	release, err := s.use(ctx, 0)
	if err != nil {
		return err
	}
	defer release()
	if err := s.core.cfg.Jobs.Begin(ctx, s.Files, files); err != nil {
		return err
	}
	return s.changeAsync(func(r *record) { r.InputsMissing, r.Unused = false, s.core.cfg.UnusedLifetime })
}

// undoCreate removes a session that did not come up. Its creator never got the ID.
func (ss *Sessions) undoCreate(s *Session) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ss.ctx), ss.cfg.StartTimeout)
	defer cancel()
	s.set(&s.failedCreate, true)
	if err := ss.remove(ctx, s, false); err != nil && !s.is(&s.removed) {
		ss.cfg.Log.Error("undoing a container that did not start; a sweep will try again", "container", s.id, "error",
			err)
	}
}
