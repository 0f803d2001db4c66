package client

import (
	"context"
	"encoding/json"
	"net/url"
)

// UseTool sends a model's tool-use block to a container and returns the result block. An empty container means a new
// one, which the result names. Neither block is decoded, so that fields unknown to this version are passed on.
func (c *Client) UseTool(ctx context.Context, container string, block json.RawMessage) (result json.RawMessage,
	err error) {
	path := "/v1/tool_use"
	if container != "" {
		path = "/v1/containers/" + url.PathEscape(container) + "/tool_use"
	}
	err = c.post(ctx, path, block, &result)
	return result, err
}
