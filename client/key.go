package client

import (
	"context"
	"net/http"

	"berth/proto"
)

// CreateKey creates an API key. Only this answer contains its secret.
func (c *Client) CreateKey(ctx context.Context, req proto.CreateKey) (proto.NewKey, error) {
	return post[proto.NewKey](ctx, c, at("keys"), req)
}

// Keys lists API keys, newest first, including revoked ones.
func (c *Client) Keys(ctx context.Context) ([]proto.Key, error) {
	return list[proto.Key](ctx, c, at("keys"), nil)
}

// KeyStatus returns an API key and its usage. The ID "self" is the key of this client.
func (c *Client) KeyStatus(ctx context.Context, id string) (proto.KeyStatus, error) {
	return get[proto.KeyStatus](ctx, c, at("keys", id), nil)
}

// ChangeKey changes an API key's name or quota.
func (c *Client) ChangeKey(ctx context.Context, id string, req proto.ChangeKey) (proto.Key, error) {
	return patch[proto.Key](ctx, c, at("keys", id), req)
}

// RevokeKey revokes an API key for good. It returns the key as lists show it from then on.
func (c *Client) RevokeKey(ctx context.Context, id string) (k proto.Key, err error) {
	_, err = c.call(ctx, request{method: http.MethodDelete, path: at("keys", id)}, &k)
	return k, err
}

// ConsoleLink makes a link that logs one browser in to the console, in the name of the client's API key.
func (c *Client) ConsoleLink(ctx context.Context) (proto.ConsoleLink, error) {
	return post[proto.ConsoleLink](ctx, c, at("console", "links"), nil)
}
