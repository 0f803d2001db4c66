package asking

import (
	"context"
	"slices"

	"berth/egress"
	"berth/proto"
	"berth/session"
	"berth/state/ledger"
	"berth/tools/approval"
)

// Approve lets the connections of an approval through, and others as its scope says. The same decision once more
// changes nothing; another one is a conflict.
func (d *Desk) Approve(ctx context.Context, owner, id string, how proto.Approving) (proto.Approval, error) {
	return d.decide(ctx, owner, id, proto.ApprovalApproved, how.For, "")
}

// Refuse refuses the connections of an approval, and others as its scope says.
func (d *Desk) Refuse(ctx context.Context, owner, id string, how proto.Refusing) (proto.Approval, error) {
	if err := approval.CheckReason(how.Reason); err != nil {
		return proto.Approval{}, err
	}
	return d.decide(ctx, owner, id, proto.ApprovalRefused, how.For, how.Reason)
}

func (d *Desk) decide(ctx context.Context, owner, id string, to proto.ApprovalState, scope proto.ApprovalScope,
	reason string) (proto.Approval, error) {
	switch scope {
	case "":
		scope = proto.ScopeOnce
	case proto.ScopeOnce, proto.ScopeLife:
	default:
		return proto.Approval{}, proto.Invalid("for", "for %.40q is not known; use %q or %q", scope, proto.ScopeOnce,
			proto.ScopeLife)
	}
	d.mu.Lock()
	a := d.byID[id]
	if a != nil && a.rec.Owner != owner {
		a = nil
	}
	d.mu.Unlock()
	if a == nil {
		r, err := d.read(owner, id)
		if err != nil {
			return proto.Approval{}, err
		}
		return r.again(to, scope)
	}
	a.deciding.Lock()
	defer a.deciding.Unlock()
	d.mu.Lock()
	r := a.rec
	d.mu.Unlock()
	if r.State != proto.ApprovalParked {
		return r.again(to, scope)
	}
	s, err := d.sessions.Get(owner, r.ContainerID)
	if err != nil {
		return proto.Approval{}, err
	}
	if r.Decision, err = r.request().Decide(ctx, d.cfg.Now(), s.Hide(reason)); err != nil {
		return proto.Approval{}, err
	}
	if !s.Info().Network.Ask {
		return proto.Approval{}, proto.Errorf(proto.Conflict, "", r.ContainerID, "container %s does not ask any more; "+
			"change its network", r.ContainerID)
	}
	r.State, r.For = to, scope
	return d.settle(ctx, a, r, s)
}

// settle makes a decision count. The list changes before the waiting connections learn it. The caller holds deciding.
func (d *Desk) settle(ctx context.Context, a *ask, r record, s *session.Session) (proto.Approval, error) {
	var running []*session.Exec
	if r.For == proto.ScopeLife {
		enter := func(n proto.Network) proto.Network { return r.enter(n, a.place.target) }
		if err := s.EditNetwork(ctx, enter); err != nil {
			return proto.Approval{}, err
		}
	} else {
		running = runningOf(s)
		for _, e := range running {
			r.Execs = append(r.Execs, e.ID())
		}
	}
	if err := d.cfg.Ledger.Update(r.put(len(running) == 0)); err != nil {
		return proto.Approval{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.count(a, -1, 0, 0)
	a.timer.Stop()
	a.rec = r
	close(a.decided)
	if len(running) == 0 {
		d.drop(a)
	} else {
		d.follow(a, running)
	}
	return a.shown(), nil
}

// enter returns a network with the decision about a target in it.
func (r record) enter(n proto.Network, t egress.Target) proto.Network {
	entry := egress.Rule{Name: t.Name, Addr: t.Addr, Port: t.Port}.String()
	to := &n.Allow
	if r.State == proto.ApprovalRefused {
		to = &n.Deny
	}
	if !slices.Contains(*to, entry) {
		*to = append(slices.Clone(*to), entry)
	}
	return n
}

// runningOf returns the commands of a session that run.
func runningOf(s *session.Session) []*session.Exec {
	return slices.DeleteFunc(s.Execs(), func(e *session.Exec) bool {
		select {
		case <-e.Done():
			return true
		default:
			return false
		}
	})
}

// follow lets a decision count until commands have ended. The caller holds mu.
func (d *Desk) follow(a *ask, running []*session.Exec) {
	d.wg.Go(func() {
		for _, e := range running {
			select {
			case <-e.Done():
			case <-d.ctx.Done():
				return
			}
		}
		d.close(a)
	})
}

// close ends what a decision once has allowed or refused.
func (d *Desk) close(a *ask) {
	d.mu.Lock()
	d.drop(a)
	r := a.rec
	d.mu.Unlock()
	if err := d.cfg.Ledger.UpdateAsync(r.put(true)); err != nil {
		d.cfg.Log.Error("recording that a decision does not count any more", "approval", r.ID, "error", err)
	}
}

// expire ends the wait of an ask about which nobody has decided.
func (d *Desk) expire(a *ask, to proto.ApprovalState) {
	a.deciding.Lock()
	defer a.deciding.Unlock()
	if !d.end(a, to) {
		return
	}
	if err := d.cfg.Ledger.UpdateAsync(a.rec.put(true)); err != nil { // rec changes no more
		d.cfg.Log.Error("recording that nobody decided in time", "approval", a.rec.ID, "error", err)
	}
}

// restore takes up the record of an earlier daemon.
func (d *Desk) restore(r record) {
	t, err := egress.ParseTarget(r.Item, 0)
	s := d.sessions.Any(r.ContainerID)
	running := []*session.Exec{}
	if s != nil {
		others := func(e *session.Exec) bool { return !slices.Contains(r.Execs, e.ID()) }
		running = slices.DeleteFunc(runningOf(s), others)
	}
	waits := r.State == proto.ApprovalParked
	switch {
	case err != nil || s == nil || !waits && len(running) == 0:
		if waits {
			r.State = proto.ApprovalCanceled
		}
		d.cfg.Ledger.UpdateLater(r.put(true))
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if a := d.keep(r, t); !waits {
		d.follow(a, running)
	}
}

// Waiting lists what waits for a decision of an owner, newest first.
func (d *Desk) Waiting(owner string) (list []proto.Approval) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range d.byID {
		if a.rec.Owner == owner && a.rec.State == proto.ApprovalParked {
			list = append(list, a.shown())
		}
	}
	return list
}

// Get describes an approval of an owner.
func (d *Desk) Get(owner, id string) (proto.Approval, error) {
	d.mu.Lock()
	a := d.byID[id]
	if a != nil && a.rec.Owner == owner {
		defer d.mu.Unlock()
		return a.shown(), nil
	}
	d.mu.Unlock()
	r, err := d.read(owner, id)
	return r.Approval, err
}

func (d *Desk) read(owner, id string) (r record, err error) {
	known := false
	if proto.ValidID(proto.AskPrefix, id) {
		err = d.cfg.Ledger.View(func(tx *ledger.Tx) error {
			known, err = tx.Get(records.Bucket, owner+"/"+id, &r)
			return err
		})
	}
	if err == nil && !known {
		err = Unknown(id)
	}
	return r, err
}

// Unknown is the error about an approval that does not exist, or is another owner's.
func Unknown(id string) error {
	return proto.Errorf(proto.NotFound, "", proto.Shorten(id, 80), "approval %.80q does not exist; list the approvals "+
		"to see which wait", id)
}
