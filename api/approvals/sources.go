package approvals

import (
	"context"

	"berth/proto"
	"berth/session/asking"
	"berth/tools/bridge"
	"berth/tools/toolstore"
)

// connections are those that wait in containers.
type connections struct{ desk *asking.Desk }

func (c connections) waiting(owner string) ([]proto.Approval, error) {
	return c.desk.Waiting(owner), nil
}

func (c connections) get(owner, id string) (proto.Approval, error) { return c.desk.Get(owner, id) }

func (c connections) approve(ctx context.Context, owner, id string, how proto.Approving) (proto.Approval, error) {
	return c.desk.Approve(ctx, owner, id, how)
}

func (c connections) refuse(ctx context.Context, owner, id string, how proto.Refusing) (proto.Approval, error) {
	return c.desk.Refuse(ctx, owner, id, how)
}

// once refuses a scope, which calls and runs have not: a decision is for one of them.
func once(scope proto.ApprovalScope) error {
	if scope == "" || scope == proto.ScopeOnce {
		return nil
	}
	return proto.Invalid("for", "for %.40q is for connections; a decision about a call or a run is for this one alone",
		scope)
}

// calls are those of code in containers.
type calls struct{ bridge *bridge.Bridge }

func (c calls) waiting(owner string) (list []proto.Approval, err error) {
	parked, err := c.bridge.Parked(owner)
	for _, one := range parked {
		list = append(list, ofCall(one))
	}
	return list, err
}

func (c calls) get(owner, id string) (proto.Approval, error) {
	return c.with(owner, id, func(container string) (proto.ToolCall, error) {
		return c.bridge.GetCall(owner, container, id)
	})
}

func (c calls) approve(ctx context.Context, owner, id string, how proto.Approving) (proto.Approval, error) {
	if err := once(how.For); err != nil {
		return proto.Approval{}, err
	}
	return c.with(owner, id, func(container string) (proto.ToolCall, error) {
		return c.bridge.Approve(ctx, owner, container, id)
	})
}

func (c calls) refuse(ctx context.Context, owner, id string, how proto.Refusing) (proto.Approval, error) {
	if err := once(how.For); err != nil {
		return proto.Approval{}, err
	}
	return c.with(owner, id, func(container string) (proto.ToolCall, error) {
		return c.bridge.Refuse(ctx, owner, container, id, proto.Refusal{Reason: how.Reason})
	})
}

// with does something with a call in its container. A call that never waited is no approval.
func (c calls) with(owner, id string, do func(container string) (proto.ToolCall, error)) (a proto.Approval, err error) {
	container, err := c.bridge.ContainerOf(owner, id)
	if err != nil {
		return a, asking.Unknown(id)
	}
	call, err := do(container)
	if err == nil && call.ExpiresAt == nil {
		err = asking.Unknown(id)
	}
	if err != nil {
		return a, err
	}
	return ofCall(call), nil
}

func ofCall(c proto.ToolCall) proto.Approval {
	a := proto.Approval{ID: c.ID, Kind: proto.ApprovalToolCall, ContainerID: c.ContainerID, ExecID: c.ExecID,
		Item: c.Tool, Input: c.Input, State: proto.ApprovalApproved, CreatedAt: c.CreatedAt, ExpiresAt: c.ExpiresAt,
		Decision: c.Decision}
	switch {
	case c.State == proto.CallParked:
		a.State = proto.ApprovalParked
	case c.State == proto.CallRefused:
		a.State = proto.ApprovalRefused
	case c.State == proto.CallExpired:
		a.State = proto.ApprovalExpired
	case c.Decision == nil:
		a.State = proto.ApprovalCanceled
	}
	return a
}

// runs are those of stored tools.
type runs struct{ tools *toolstore.Store }

func (r runs) waiting(owner string) (list []proto.Approval, err error) {
	parked, _, err := r.tools.Runs(owner, toolstore.Filter{State: proto.RunParked, Limit: mostListed + 1})
	for _, one := range parked {
		list = append(list, ofRun(one))
	}
	return list, err
}

func (r runs) get(owner, id string) (a proto.Approval, err error) {
	run, err := r.tools.GetRun(owner, id)
	if err != nil || run.ExpiresAt == nil {
		return a, asking.Unknown(id)
	}
	return ofRun(run), nil
}

func (r runs) approve(ctx context.Context, owner, id string, how proto.Approving) (a proto.Approval, err error) {
	if err = once(how.For); err != nil {
		return a, err
	}
	run, err := r.tools.Approve(ctx, owner, id)
	if err != nil {
		return a, err
	}
	return ofRun(run), nil
}

func (r runs) refuse(ctx context.Context, owner, id string, how proto.Refusing) (a proto.Approval, err error) {
	if err = once(how.For); err != nil {
		return a, err
	}
	run, err := r.tools.Refuse(ctx, owner, id, proto.Refusal{Reason: how.Reason})
	if err != nil {
		return a, err
	}
	return ofRun(run), nil
}

func ofRun(r proto.ToolRun) proto.Approval {
	a := proto.Approval{ID: r.ID, Kind: proto.ApprovalToolRun, ContainerID: r.Container, Item: r.Tool, Input: r.Input,
		State: proto.ApprovalApproved, CreatedAt: r.CreatedAt, ExpiresAt: r.ExpiresAt, Decision: r.Decision}
	switch r.State {
	case proto.RunParked:
		a.State = proto.ApprovalParked
	case proto.RunRefused:
		a.State = proto.ApprovalRefused
	case proto.RunExpired:
		a.State = proto.ApprovalExpired
	}
	return a
}
