package client

import (
	"context"

	"berth/proto"
)

// Ports lists the ports that programs in a container listen on.
func (c *Client) Ports(ctx context.Context, container string) ([]proto.Port, error) {
	return list[proto.Port](ctx, c, at("containers", container, "ports"), nil)
}
