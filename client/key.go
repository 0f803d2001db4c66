package client

import (
	"context"
	"net/http"

	"berth/proto"
)

// CreateKey creates an API key. Only this answer contains its secret.
func (c *Client) CreateKey(ctx context.Context, req proto.CreateKey) (k proto.NewKey, err error) {
	err = c.post(ctx, at("keys"), req, &k)
	return k, err
}

// Keys lists API keys, newest first, including revoked ones.
func (c *Client) Keys(ctx context.Context) ([]proto.Key, error) {
	var list struct {
		Data []proto.Key `json:"data"`
	}
	err := c.get(ctx, at("keys"), nil, &list)
	return list.Data, err
}

// KeyStatus returns an API key and its usage. The ID "self" is the key of this client.
func (c *Client) KeyStatus(ctx context.Context, id string) (k proto.KeyStatus, err error) {
	err = c.get(ctx, at("keys", id), nil, &k)
	return k, err
}

// ChangeKey changes an API key's name or quota.
func (c *Client) ChangeKey(ctx context.Context, id string, req proto.ChangeKey) (k proto.Key, err error) {
	_, err = c.call(ctx, request{method: http.MethodPatch, path: at("keys", id), body: req}, &k)
	return k, err
}

// RevokeKey revokes an API key for good. It returns the key as lists show it from then on.
func (c *Client) RevokeKey(ctx context.Context, id string) (k proto.Key, err error) {
	_, err = c.call(ctx, request{method: http.MethodDelete, path: at("keys", id)}, &k)
	return k, err
}
