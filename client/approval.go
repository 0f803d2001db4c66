package client

import (
	"context"

	"berth/proto"
)

// An ApprovalFilter selects approvals. Zero fields match all.
type ApprovalFilter struct {
	Kind      proto.ApprovalKind
	Container string
	Limit     int // 0 is the daemon's default
}

// Approvals lists what waits for a decision, newest first.
func (c *Client) Approvals(ctx context.Context, f ApprovalFilter) ([]proto.Approval, error) {
	q := chosen(map[string]string{"kind": string(f.Kind), "container": f.Container}, f.Limit)
	return list[proto.Approval](ctx, c, at("approvals"), q)
}

// Approval describes an approval.
func (c *Client) Approval(ctx context.Context, id string) (proto.Approval, error) {
	return get[proto.Approval](ctx, c, at("approvals", id), nil)
}

// Approve lets what waits go on.
func (c *Client) Approve(ctx context.Context, id string, how proto.Approving) (proto.Approval, error) {
	return post[proto.Approval](ctx, c, at("approvals", id, "approve"), how)
}

// Refuse refuses what waits.
func (c *Client) Refuse(ctx context.Context, id string, how proto.Refusing) (proto.Approval, error) {
	return post[proto.Approval](ctx, c, at("approvals", id, "refuse"), how)
}
