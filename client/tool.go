package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"

	"berth/proto"
)

// CreateTool stores a tool; body is its JSON.
func (c *Client) CreateTool(ctx context.Context, body json.RawMessage) (proto.Tool, error) {
	return post[proto.Tool](ctx, c, at("tools"), body)
}

// ChangeTool creates a new version of a tool. body is the JSON of the changes.
func (c *Client) ChangeTool(ctx context.Context, name string, body json.RawMessage) (proto.Tool, error) {
	return patch[proto.Tool](ctx, c, at("tools", name), body)
}

// Tools lists stored tools, by name.
func (c *Client) Tools(ctx context.Context) ([]proto.Tool, error) {
	return list[proto.Tool](ctx, c, at("tools"), nil)
}

// Tool describes a stored tool. Version 0 means the current version.
func (c *Client) Tool(ctx context.Context, name string, version int64) (proto.Tool, error) {
	q := url.Values{}
	if version != 0 {
		q.Set("version", strconv.FormatInt(version, 10))
	}
	return get[proto.Tool](ctx, c, at("tools", name), q)
}

// ToolVersions lists the versions of a tool, newest first.
func (c *Client) ToolVersions(ctx context.Context, name string) ([]proto.Tool, error) {
	return list[proto.Tool](ctx, c, at("tools", name, "versions"), nil)
}

// DeleteTool deletes a stored tool.
func (c *Client) DeleteTool(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, at("tools", name))
}

// RunTool runs a stored tool and waits for its end. It does not wait for a run that needs approval or runs in the
// background.
func (c *Client) RunTool(ctx context.Context, name string, req proto.ToolRunRequest) (proto.ToolRun, error) {
	return post[proto.ToolRun](ctx, c, at("tools", name, "run"), req)
}

// A RunFilter selects runs. Zero fields match all runs.
type RunFilter struct {
	Tool, State string
	Limit       int // 0 is the daemon's default
}

// ToolRuns lists the newest runs of stored tools.
func (c *Client) ToolRuns(ctx context.Context, f RunFilter) ([]proto.ToolRun, error) {
	q := chosen(map[string]string{"tool": f.Tool, "state": f.State}, f.Limit)
	return list[proto.ToolRun](ctx, c, at("tool_runs"), q)
}

// ToolRun describes a run.
func (c *Client) ToolRun(ctx context.Context, id string) (proto.ToolRun, error) {
	return get[proto.ToolRun](ctx, c, at("tool_runs", id), nil)
}

// AwaitToolRun waits for the end of a run without a time limit.
func (c *Client) AwaitToolRun(ctx context.Context, id string) (proto.ToolRun, error) {
	q := url.Values{"wait_seconds": {strconv.Itoa(pollSeconds)}}
	for {
		run, err := get[proto.ToolRun](ctx, c, at("tool_runs", id), q)
		if err != nil || run.State.Over() {
			return run, err
		}
	}
}

// ApproveToolRun approves a run that waits for approval; it then starts.
func (c *Client) ApproveToolRun(ctx context.Context, id string) (proto.ToolRun, error) {
	return post[proto.ToolRun](ctx, c, at("tool_runs", id, "approve"), nil)
}

// RefuseToolRun refuses a run that waits for approval; it then ends.
func (c *Client) RefuseToolRun(ctx context.Context, id string, why proto.Refusal) (proto.ToolRun, error) {
	return post[proto.ToolRun](ctx, c, at("tool_runs", id, "refuse"), why)
}

// A CallFilter selects tool calls. Zero fields match all calls.
type CallFilter struct {
	State, Exec string
	Limit       int // 0 is the daemon's default
}

// ToolCalls lists the newest tool calls of a container's code.
func (c *Client) ToolCalls(ctx context.Context, container string, f CallFilter) ([]proto.ToolCall, error) {
	q := chosen(map[string]string{"state": f.State, "exec": f.Exec}, f.Limit)
	return list[proto.ToolCall](ctx, c, at("containers", container, "tool_calls"), q)
}

// ToolCall describes a call.
func (c *Client) ToolCall(ctx context.Context, container, id string) (proto.ToolCall, error) {
	return get[proto.ToolCall](ctx, c, at("containers", container, "tool_calls", id), nil)
}

// ApproveToolCall approves a call that waits for approval.
func (c *Client) ApproveToolCall(ctx context.Context, container, id string) (proto.ToolCall, error) {
	return post[proto.ToolCall](ctx, c, at("containers", container, "tool_calls", id, "approve"), nil)
}

// RefuseToolCall refuses a call that waits for approval.
func (c *Client) RefuseToolCall(ctx context.Context, container, id string, why proto.Refusal) (proto.ToolCall, error) {
	return post[proto.ToolCall](ctx, c, at("containers", container, "tool_calls", id, "refuse"), why)
}

// UseTool sends a model's tool-use block to a container and returns the result block. An empty container means a new
// one, which the result names. Neither block is decoded, so that fields unknown to this version are passed on.
func (c *Client) UseTool(ctx context.Context, container string, block json.RawMessage) (json.RawMessage, error) {
	path := "/v1/tool_use"
	if container != "" {
		path = "/v1/containers/" + url.PathEscape(container) + "/tool_use"
	}
	return post[json.RawMessage](ctx, c, path, block)
}
