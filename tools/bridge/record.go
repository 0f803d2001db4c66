package bridge

import (
	"context"

	"berth/proto"
	"berth/state/ledger"
	"berth/tools/approval"
	"berth/tools/bridge/codeapi"
)

// The ledger's buckets that this package owns.
const (
	bucketCalls    = "tool_calls"
	bucketIDs      = "tool_call_ids"
	bucketLive     = "tool_calls_live"
	bucketSessions = "tool_offers"
)

// callPrefix begins the IDs of calls.
const callPrefix = "call_"

// Wire types that this package answers with.
type (
	ToolCall  = proto.ToolCall
	CallError = proto.CallError
	Decision  = proto.Decision
	Refusal   = proto.Refusal
)

// A record is the ledger's record of a call.
type record struct {
	ToolCall
	Client string `json:"client"`           // the code's identifier of it
	Hash   string `json:"hash"`             // of tool and input, keyed
	Holder string `json:"holder,omitempty"` // holder of the provider session that has it
	Shared bool   `json:"shared,omitempty"` // under a later daemon the provider gets it again, by its ID
}

func (r record) key() string { return r.ContainerID + "/" + r.ID }

func (r record) clientKey() string { return r.ContainerID + "/" + r.ExecID + "/" + r.Client }

// records are the records of all calls.
var records = approval.Records[record]{Bucket: bucketCalls, Live: bucketLive}

// put writes a call, and whether it is live.
func (r record) put(tx *ledger.Tx) error {
	err := records.Put(tx, r.ContainerID, r.ID, r, r.State.Over())
	if err == nil && !r.State.Over() {
		err = tx.Put(bucketIDs, r.clientKey(), r.ID)
	}
	return err
}

// close writes a call that is over. A decision that came while it ended stays in the record.
func (r *record) close(tx *ledger.Tx) error {
	if r.ExpiresAt != nil && r.Decision == nil {
		old, err := findCall(tx, r.ContainerID, r.ID)
		if err != nil && proto.CodeOf(err) != proto.NotFound {
			return err
		}
		r.Decision = old.Decision
	}
	return r.put(tx)
}

// recall returns the call with this identifier if it was recorded.
func recall(tx *ledger.Tx, r record) (*record, error) {
	var id string
	if known, err := tx.Get(bucketIDs, r.clientKey(), &id); err != nil || !known {
		return nil, err
	}
	var old record
	known, err := tx.Get(bucketCalls, r.ContainerID+"/"+id, &old)
	if err != nil || !known {
		return nil, err
	}
	return &old, nil
}

func findCall(tx *ledger.Tx, container, id string) (r record, err error) {
	known := false
	if proto.ValidID(callPrefix, id) {
		known, err = tx.Get(bucketCalls, container+"/"+id, &r)
	}
	if err == nil && !known {
		err = proto.Errorf(proto.NotFound, "", proto.Shorten(id, 80), "call %.80q does not exist; list the calls of "+
			"the container to see which do", id)
	}
	return r, err
}

// GetCall describes a call of an owner's container.
func (b *Bridge) GetCall(owner, container, id string) (ToolCall, error) {
	d, err := b.find(owner, container)
	if err != nil {
		return ToolCall{}, err
	}
	var r record
	err = b.cfg.Ledger.View(func(tx *ledger.Tx) error {
		r, err = findCall(tx, d.s.ID(), id)
		return err
	})
	return r.ToolCall, err
}

// A Filter chooses calls. Empty fields choose all.
type Filter struct {
	State proto.ToolCallState
	Exec  string
	After string // a call's ID: list the calls that are older
	Limit int    // 0 is 20
}

// Calls lists the calls of an owner's container, newest first, and reports whether there are more.
func (b *Bridge) Calls(owner, container string, f Filter) (list []ToolCall, more bool, err error) {
	d, err := b.find(owner, container)
	if err != nil {
		return nil, false, err
	}
	if f.After != "" && !proto.ValidID(callPrefix, f.After) {
		return nil, false, proto.Invalid("after", "after: %.80q is not a call ID", f.After)
	}
	page, more, err := records.Page(b.cfg.Ledger, d.s.ID(), f.After, f.Limit, func(r record) bool {
		return (f.State == "" || f.State == r.State) && (f.Exec == "" || f.Exec == r.ExecID)
	})
	for _, r := range page {
		list = append(list, r.ToolCall)
	}
	return list, more, err
}

// Parked lists the calls of an owner's containers that wait for approval.
func (b *Bridge) Parked(owner string) (list []ToolCall, err error) {
	err = b.cfg.Ledger.View(func(tx *ledger.Tx) error {
		return records.EachLive(tx, "", func(r record) error {
			if s := b.sessions.Any(r.ContainerID); s != nil && s.Owner() == owner && r.State == proto.CallParked {
				list = append(list, r.ToolCall)
			}
			return nil
		})
	})
	return list, err
}

// ContainerOf returns the container of an owner's call.
func (b *Bridge) ContainerOf(owner, id string) (container string, err error) {
	err = b.cfg.Ledger.View(func(tx *ledger.Tx) error {
		for _, c := range b.sessions.Infos() {
			_, err := findCall(tx, c.ID, id)
			if s := b.sessions.Any(c.ID); err == nil && s != nil && s.Owner() == owner {
				container = c.ID
				return nil
			}
			if proto.CodeOf(err) != proto.NotFound && err != nil {
				return err
			}
		}
		_, err := findCall(tx, "", id)
		return err
	})
	return container, err
}

// Approve lets a call that waits for approval go on and returns its record. An approval counts for that one call. A
// second or late decision gets a conflict.
func (b *Bridge) Approve(ctx context.Context, owner, container, id string) (ToolCall, error) {
	return b.decide(ctx, owner, container, id, proto.CallApproved, "")
}

// Refuse ends a call that waits for approval; its code gets a PermissionError.
func (b *Bridge) Refuse(ctx context.Context, owner, container, id string, why Refusal) (ToolCall, error) {
	if err := approval.CheckReason(why.Reason); err != nil {
		return ToolCall{}, err
	}
	return b.decide(ctx, owner, container, id, proto.CallRefused, why.Reason)
}

// decide moves a call that waits for approval to another state, once. The decision is on disk before the code learns
// it.
func (b *Bridge) decide(ctx context.Context, owner, container, id string, to proto.ToolCallState, reason string) (
	ToolCall, error) {
	d, err := b.find(owner, container)
	if err != nil {
		return ToolCall{}, err
	}
	var r record
	now := b.cfg.Now()
	err = b.cfg.Ledger.Update(func(tx *ledger.Tx) error {
		if r, err = findCall(tx, d.s.ID(), id); err != nil {
			return err
		}
		decision, err := approval.Request{
			Kind: "call", ID: r.ID, State: string(r.State), Parked: r.State == proto.CallParked,
			ExpiresAt: r.ExpiresAt, Decision: r.Decision, Gone: !d.runs(r.ExecID),
			TooLate: "no longer waits for approval: its command has ended, or its time is over",
		}.Decide(ctx, now, d.s.Hide(reason))
		if err != nil {
			return err
		}
		r.State, r.Decision = to, decision
		if to == proto.CallRefused {
			r.EndedAt, r.Error = proto.AtOrNil(now), r.refusal()
		}
		return r.put(tx)
	})
	if err == nil {
		d.decided(r)
	}
	return r.ToolCall, err
}

// refusal is the failure that code gets for a call that a person refused.
func (r record) refusal() *codeapi.Failure {
	if r.Decision.Reason == "" {
		return codeapi.Fail(codeapi.PermissionError, "the call of %s was refused", r.Tool)
	}
	return codeapi.Fail(codeapi.PermissionError, "the call of %s was refused: %s", r.Tool, r.Decision.Reason)
}
