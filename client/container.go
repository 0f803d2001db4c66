package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"berth/proto"
)

// pageSize is the number of items per request of a list: the API's maximum. Larger pages mean fewer requests.
const pageSize = 1000

// Create creates a container.
func (c *Client) Create(ctx context.Context, req proto.CreateContainer) (proto.Container, error) {
	if !req.Existing { // which is idempotent by its name
		req.IdempotencyKey = c.once(req.IdempotencyKey)
	}
	return submit[proto.Container](ctx, c, at("containers"), req, req.Existing || req.IdempotencyKey != "")
}

// A Filter selects containers. The zero Filter matches all that have not expired.
type Filter struct {
	Labels []string // "key=value"; all must match
	State  proto.State
}

// Containers lists the containers that match f, newest first.
func (c *Client) Containers(ctx context.Context, f Filter) ([]proto.Container, error) {
	q := url.Values{}
	for _, l := range f.Labels {
		q.Add("label", l)
	}
	if f.State != "" {
		q.Set("state", string(f.State))
	}
	return listPages[proto.Container](ctx, c, at("containers"), q)
}

// listPages collects the pages of a list. Each page starts after the last ID of the previous one, so an item that is
// made meanwhile neither shifts pages nor appears twice.
func listPages[T any](ctx context.Context, c *Client, path string, q url.Values) (all []T, err error) {
	q.Set("limit", strconv.Itoa(pageSize))
	for {
		page, err := get[struct {
			Data      []T     `json:"data"`
			HasMore   bool    `json:"has_more"`
			NextAfter *string `json:"next_after"`
		}](ctx, c, path, q)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Data...)
		// Either ends the loop, so that a daemon without a next position cannot cause an endless loop.
		if !page.HasMore || page.NextAfter == nil {
			return all, nil
		}
		q.Set("after", *page.NextAfter)
	}
}

// Container returns a container's description.
func (c *Client) Container(ctx context.Context, id string) (proto.Container, error) {
	return get[proto.Container](ctx, c, at("containers", id), nil)
}

// Change changes a live container.
func (c *Client) Change(ctx context.Context, id string, req proto.ChangeContainer) (proto.Container, error) {
	return patch[proto.Container](ctx, c, at("containers", id), req)
}

// Start starts a stopped container.
func (c *Client) Start(ctx context.Context, id string) (proto.Container, error) {
	return c.move(ctx, id, "start")
}

// Stop ends a container's processes. Its files stay.
func (c *Client) Stop(ctx context.Context, id string) (proto.Container, error) {
	return c.move(ctx, id, "stop")
}

// Reset ends a container's processes and removes all that it has written outside its workspace.
func (c *Client) Reset(ctx context.Context, id string) (proto.Container, error) {
	return c.move(ctx, id, "reset")
}

// Pause pauses a container until its next use.
func (c *Client) Pause(ctx context.Context, id string) (proto.Container, error) {
	return c.move(ctx, id, "pause")
}

// Resume resumes a paused container.
func (c *Client) Resume(ctx context.Context, id string) (proto.Container, error) {
	return c.move(ctx, id, "resume")
}

// move changes the state of a container.
func (c *Client) move(ctx context.Context, id, how string) (proto.Container, error) {
	return submit[proto.Container](ctx, c, at("containers", id, how), nil, how != "reset")
}

// Extend extends a container's lease to at least the given seconds from now. With 0 seconds it renews the lease by
// the idle timeout.
func (c *Client) Extend(ctx context.Context, id string, seconds int64) (proto.Container, error) {
	body := struct {
		Seconds int64 `json:"seconds,omitempty"`
	}{seconds}
	return submit[proto.Container](ctx, c, at("containers", id, "extend"), body, true)
}

// A Deleted is the result of a deletion. WorkspaceKept is what the daemon found afterwards, not what was requested.
type Deleted struct {
	ID            string `json:"id"`
	Deleted       bool   `json:"deleted"`
	WorkspaceID   string `json:"workspace_id"`
	WorkspaceKept bool   `json:"workspace_kept"`
}

// Delete deletes a container, and its workspace unless keepWorkspace is set.
func (c *Client) Delete(ctx context.Context, id string, keepWorkspace bool) (d Deleted, err error) {
	q := url.Values{}
	if keepWorkspace {
		q.Set("keep_workspace", "true")
	}
	_, err = c.call(ctx, request{method: http.MethodDelete, path: at("containers", id), query: q}, &d)
	return d, err
}

// Workspaces lists the workspaces of the key's owner, newest first.
func (c *Client) Workspaces(ctx context.Context) ([]proto.Workspace, error) {
	return list[proto.Workspace](ctx, c, at("workspaces"), nil)
}

// DeleteWorkspace deletes a workspace that no container uses.
func (c *Client) DeleteWorkspace(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, at("workspaces", id))
}
