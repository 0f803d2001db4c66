package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"berth/proto"
)

// pageSize is how many items one request of a list asks for: the most that the API gives.
// Every list is read whole, so the larger the page the fewer the requests.
const pageSize = 1000

// Create makes a container.
func (c *Client) Create(ctx context.Context, req proto.CreateContainer) (con proto.Container, err error) {
	err = c.post(ctx, at("containers"), req, &con)
	return con, err
}

// A Filter chooses containers. The zero Filter is all that have not expired.
type Filter struct {
	Labels []string // "key=value"; all must match
	State  proto.State
}

// Containers lists them, newest first.
func (c *Client) Containers(ctx context.Context, f Filter) ([]proto.Container, error) {
	q := url.Values{"limit": {strconv.Itoa(pageSize)}}
	for _, l := range f.Labels {
		q.Add("label", l)
	}
	if f.State != "" {
		q.Set("state", string(f.State))
	}
	// Pages go by the last ID that was seen, so a container made meanwhile neither shifts the
	// pages nor appears twice.
	var all []proto.Container
	for {
		var page struct {
			Data      []proto.Container `json:"data"`
			HasMore   bool              `json:"has_more"`
			NextAfter *string           `json:"next_after"`
		}
		if err := c.get(ctx, at("containers"), q, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Data...)
		// Either ends the walk: a daemon that gives no place to go on from must not have us ask
		// for ever.
		if !page.HasMore || page.NextAfter == nil {
			return all, nil
		}
		q.Set("after", *page.NextAfter)
	}
}

// Container describes one.
func (c *Client) Container(ctx context.Context, id string) (con proto.Container, err error) {
	err = c.get(ctx, at("containers", id), nil, &con)
	return con, err
}

// Start brings a stopped container back.
func (c *Client) Start(ctx context.Context, id string) (proto.Container, error) {
	return c.move(ctx, id, "start")
}

// Stop ends a container's processes and keeps its files.
func (c *Client) Stop(ctx context.Context, id string) (proto.Container, error) {
	return c.move(ctx, id, "stop")
}

// Pause has a container stand still until its next use.
func (c *Client) Pause(ctx context.Context, id string) (proto.Container, error) {
	return c.move(ctx, id, "pause")
}

// Resume has a paused container go on.
func (c *Client) Resume(ctx context.Context, id string) (proto.Container, error) {
	return c.move(ctx, id, "resume")
}

// move has a container go into another state.
func (c *Client) move(ctx context.Context, id, how string) (con proto.Container, err error) {
	err = c.post(ctx, at("containers", id, how), nil, &con)
	return con, err
}

// Extend renews a container's lease, or has it last at least the given seconds from now.
// With 0 seconds the field is left out, which means a renewal by the idle timeout alone.
func (c *Client) Extend(ctx context.Context, id string, seconds int64) (con proto.Container, err error) {
	body := struct {
		Seconds int64 `json:"seconds,omitempty"`
	}{seconds}
	err = c.post(ctx, at("containers", id, "extend"), body, &con)
	return con, err
}

// A Deleted says what became of a container's workspace.
// WorkspaceKept is what the daemon found afterwards, and no echo of what was asked for.
type Deleted struct {
	ID            string `json:"id"`
	Deleted       bool   `json:"deleted"`
	WorkspaceID   string `json:"workspace_id"`
	WorkspaceKept bool   `json:"workspace_kept"`
}

// Delete removes a container, and its workspace unless that is kept.
func (c *Client) Delete(ctx context.Context, id string, keepWorkspace bool) (d Deleted, err error) {
	q := url.Values{}
	if keepWorkspace {
		q.Set("keep_workspace", "true")
	}
	_, err = c.call(ctx, request{method: http.MethodDelete, path: at("containers", id), query: q}, &d)
	return d, err
}

// Workspaces lists those of this key.
func (c *Client) Workspaces(ctx context.Context) ([]proto.Workspace, error) {
	var list struct {
		Data []proto.Workspace `json:"data"`
	}
	err := c.get(ctx, at("workspaces"), nil, &list)
	return list.Data, err
}

// DeleteWorkspace removes a workspace that no container has.
func (c *Client) DeleteWorkspace(ctx context.Context, id string) error {
	_, err := c.call(ctx, request{method: http.MethodDelete, path: at("workspaces", id)}, nil)
	return err
}
