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
func (c *Client) CreateTool(ctx context.Context, body json.RawMessage) (t proto.Tool, err error) {
	err = c.post(ctx, at("tools"), body, &t)
	return t, err
}

// ChangeTool creates a new version of a tool. body is the JSON of the changes.
func (c *Client) ChangeTool(ctx context.Context, name string, body json.RawMessage) (t proto.Tool, err error) {
	_, err = c.call(ctx, request{method: http.MethodPatch, path: at("tools", name), body: body}, &t)
	return t, err
}

// Tools lists stored tools, by name.
func (c *Client) Tools(ctx context.Context) ([]proto.Tool, error) {
	var list struct {
		Data []proto.Tool `json:"data"`
	}
	err := c.get(ctx, at("tools"), nil, &list)
	return list.Data, err
}

// Tool describes a stored tool. Version 0 means the current version.
func (c *Client) Tool(ctx context.Context, name string, version int64) (t proto.Tool, err error) {
	q := url.Values{}
	if version != 0 {
		q.Set("version", strconv.FormatInt(version, 10))
	}
	err = c.get(ctx, at("tools", name), q, &t)
	return t, err
}

// ToolVersions lists the versions of a tool, newest first.
func (c *Client) ToolVersions(ctx context.Context, name string) ([]proto.Tool, error) {
	var list struct {
		Data []proto.Tool `json:"data"`
	}
	err := c.get(ctx, at("tools", name, "versions"), nil, &list)
	return list.Data, err
}

// DeleteTool deletes a stored tool.
func (c *Client) DeleteTool(ctx context.Context, name string) error {
	_, err := c.call(ctx, request{method: http.MethodDelete, path: at("tools", name)}, nil)
	return err
}

// RunTool runs a stored tool and waits for its end. It does not wait for a run that needs approval or runs in the
// background.
func (c *Client) RunTool(ctx context.Context, name string, req proto.ToolRunRequest) (run proto.ToolRun, err error) {
	err = c.post(ctx, at("tools", name, "run"), req, &run)
	return run, err
}

// A RunFilter selects runs. Zero fields match all runs.
type RunFilter struct {
	Tool, State string
	Limit       int // 0 is the daemon's default
}

// ToolRuns lists the newest runs of stored tools.
func (c *Client) ToolRuns(ctx context.Context, f RunFilter) ([]proto.ToolRun, error) {
	q := chosen(map[string]string{"tool": f.Tool, "state": f.State}, f.Limit)
	var list struct {
		Data []proto.ToolRun `json:"data"`
	}
	err := c.get(ctx, at("tool_runs"), q, &list)
	return list.Data, err
}

// ToolRun describes a run.
func (c *Client) ToolRun(ctx context.Context, id string) (run proto.ToolRun, err error) {
	err = c.get(ctx, at("tool_runs", id), nil, &run)
	return run, err
}

// AwaitToolRun waits for the end of a run without a time limit.
func (c *Client) AwaitToolRun(ctx context.Context, id string) (run proto.ToolRun, err error) {
	for {
		err = c.get(ctx, at("tool_runs", id), url.Values{"wait_seconds": {strconv.Itoa(pollSeconds)}}, &run)
		if err != nil || run.State.Over() {
			return run, err
		}
	}
}

// ApproveToolRun approves a parked run, which then starts.
func (c *Client) ApproveToolRun(ctx context.Context, id string) (run proto.ToolRun, err error) {
	err = c.post(ctx, at("tool_runs", id, "approve"), nil, &run)
	return run, err
}

// RefuseToolRun refuses a parked run, which then ends.
func (c *Client) RefuseToolRun(ctx context.Context, id string, why proto.Refusal) (run proto.ToolRun, err error) {
	err = c.post(ctx, at("tool_runs", id, "refuse"), why, &run)
	return run, err
}
