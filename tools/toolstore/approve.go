package toolstore

import (
	"context"
	"fmt"

	"berth/proto"
	"berth/state/ledger"
	"berth/tools/approval"
)

// Approve starts a run that waits for approval and returns its record; the run goes on in the background. An approval
// counts for that one run. A second or late decision gets a conflict.
func (c *Store) Approve(ctx context.Context, owner, id string) (Run, error) {
	rec, err := c.findRun(owner, id)
	if err != nil {
		return Run{}, err
	}
	if rec.State != proto.RunParked {
		return Run{}, rec.approval().Refused()
	}
	r, v, err := c.find(owner, rec.ToolID, rec.Version)
	if err != nil {
		return Run{}, proto.Errorf(proto.Conflict, "", id, "version %d of tool %s was deleted, so run %s "+
			"cannot start any more; refuse it", rec.Version, rec.Tool, id)
	}
	if err := c.checkContainer(r, v.Configuration, rec.Container); err != nil {
		return Run{}, err
	}
	env, err := c.environment(r.ID, v)
	if err != nil {
		return Run{}, err
	}
	input := []byte(rec.Input)
	if rec.Kept != "" { // with secrets, which Input has replaced
		if input, err = c.cfg.Vault.Unseal(rec.ID, rec.Kept); err != nil {
			return Run{}, err
		}
	}
	if rec, err = c.decide(ctx, owner, id, proto.RunRunning, ""); err != nil {
		return Run{}, err
	}
	c.launch(context.WithoutCancel(ctx), rec, v, env, input)
	return rec.Run, nil
}

// Refuse ends a run that waits for approval before it starts.
func (c *Store) Refuse(ctx context.Context, owner, id string, why Refusal) (Run, error) {
	if err := approval.CheckReason(why.Reason); err != nil {
		return Run{}, err
	}
	rec, err := c.decide(ctx, owner, id, proto.RunRefused, why.Reason)
	return rec.Run, err
}

// decide moves a run that waits for approval to another state, once.
func (c *Store) decide(ctx context.Context, owner, id string, to proto.ToolRunState, reason string) (
	rec runRecord, err error) {
	now := c.cfg.Now()
	err = c.cfg.Ledger.Update(func(tx *ledger.Tx) error {
		if rec, err = findRun(tx, owner, id); err != nil {
			return err
		}
		d, err := rec.approval().Decide(ctx, now, reason)
		if err != nil {
			return err
		}
		return rec.settle(tx, to, *d)
	})
	if err == nil {
		c.parking.Lock()
		c.notify()
		c.parking.Unlock()
	}
	return rec, err
}

// settle writes a decision.
func (r *runRecord) settle(tx *ledger.Tx, to proto.ToolRunState, d Decision) error {
	r.State, r.Decision, r.Kept = to, &d, ""
	if to == proto.RunRunning {
		r.StartedAt = &d.At
	} else {
		r.EndedAt = &d.At
		r.Error = &RunError{Type: string(to), Message: fmt.Sprintf("the run was %s before it started", to)}
	}
	return r.put(tx)
}

// approval describes the run to the package that decides.
func (r runRecord) approval() approval.Request {
	a := approval.Request{Kind: "run", ID: r.ID, State: string(r.State), Parked: r.State == proto.RunParked,
		ExpiresAt: r.ExpiresAt, Decision: r.Decision}
	if a.Parked {
		a.TooLate = fmt.Sprintf("waited for approval until %s, which has passed; run the tool again",
			r.ExpiresAt.Format("2006-01-02 15:04:05 MST"))
	}
	return a
}
