package client

import (
	"context"
	"encoding/json"
	"net/url"
)

// UseTool gives a model's tool-use block to a container as it is, and returns the result block. An
// empty container makes a new one, which the result names.
// Neither block is decoded here, so that fields which this version does not know arrive as well.
func (c *Client) UseTool(ctx context.Context, container string, block json.RawMessage) (result json.RawMessage,
	err error) {
	path := "/v1/tool_use"
	if container != "" {
		path = "/v1/containers/" + url.PathEscape(container) + "/tool_use"
	}
	err = c.post(ctx, path, block, &result)
	return result, err
}
