package client

import (
	"context"
	"net/http"

	"berth/proto"
)

// Registries lists the registries that the daemon has credentials for.
func (c *Client) Registries(ctx context.Context) ([]proto.Registry, error) {
	return list[proto.Registry](ctx, c, at("registries"), nil)
}

// SetRegistry sets the credentials for a registry. The daemon asks the registry whether it takes them.
func (c *Client) SetRegistry(ctx context.Context, host string, req proto.SetRegistry) (proto.Registry, error) {
	return put[proto.Registry](ctx, c, at("registries", host), req)
}

// RemoveRegistry makes the daemon forget the credentials for a registry.
func (c *Client) RemoveRegistry(ctx context.Context, host string) error {
	return c.do(ctx, http.MethodDelete, at("registries", host))
}

// PushImage makes the daemon push an image to a registry. The result has the name there.
func (c *Client) PushImage(ctx context.Context, req proto.PushImage, progress func(proto.ImageProgress)) (proto.Image,
	error) {
	return c.imageStream(ctx, request{method: http.MethodPost, path: at("images", "push"), body: req}, progress)
}
