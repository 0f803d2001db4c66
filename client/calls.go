package client

import (
	"context"

	"berth/proto"
)

// A CallFilter selects tool calls. Zero fields match all calls.
type CallFilter struct {
	State, Exec string
	Limit       int // 0 is the daemon's default
}

// ToolCalls lists the newest tool calls of a container's code.
func (c *Client) ToolCalls(ctx context.Context, container string, f CallFilter) ([]proto.ToolCall, error) {
	q := chosen(map[string]string{"state": f.State, "exec": f.Exec}, f.Limit)
	var list struct {
		Data []proto.ToolCall `json:"data"`
	}
	err := c.get(ctx, at("containers", container, "tool_calls"), q, &list)
	return list.Data, err
}

// ToolCall describes a call.
func (c *Client) ToolCall(ctx context.Context, container, id string) (one proto.ToolCall, err error) {
	err = c.get(ctx, at("containers", container, "tool_calls", id), nil, &one)
	return one, err
}

// ApproveToolCall approves a parked call.
func (c *Client) ApproveToolCall(ctx context.Context, container, id string) (one proto.ToolCall, err error) {
	err = c.post(ctx, at("containers", container, "tool_calls", id, "approve"), nil, &one)
	return one, err
}

// RefuseToolCall refuses a parked call.
func (c *Client) RefuseToolCall(ctx context.Context, container, id string, why proto.Refusal) (one proto.ToolCall,
	err error) {
	err = c.post(ctx, at("containers", container, "tool_calls", id, "refuse"), why, &one)
	return one, err
}
