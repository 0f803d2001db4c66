package client

import (
	"context"
	"net/http"

	"berth/proto"
)

// CreateKey makes an API key. Its secret is in the answer and nowhere else.
func (c *Client) CreateKey(ctx context.Context, req proto.CreateKey) (k proto.NewKey, err error) {
	err = c.post(ctx, at("keys"), req, &k)
	return k, err
}

// Keys lists API keys, newest first, the revoked ones too.
func (c *Client) Keys(ctx context.Context) ([]proto.Key, error) {
	var list struct {
		Data []proto.Key `json:"data"`
	}
	err := c.get(ctx, at("keys"), nil, &list)
	return list.Data, err
}

// KeyStatus describes an API key and what it uses; the ID "self" is the one that this client has.
func (c *Client) KeyStatus(ctx context.Context, id string) (k proto.KeyStatus, err error) {
	err = c.get(ctx, at("keys", id), nil, &k)
	return k, err
}

// ChangeKey changes an API key's name or quota.
func (c *Client) ChangeKey(ctx context.Context, id string, req proto.ChangeKey) (k proto.Key, err error) {
	_, err = c.call(ctx, request{method: http.MethodPatch, path: at("keys", id), body: req}, &k)
	return k, err
}

// RevokeKey ends an API key for good.
// The answer is the key as the list will have it from now on.
func (c *Client) RevokeKey(ctx context.Context, id string) (k proto.Key, err error) {
	_, err = c.call(ctx, request{method: http.MethodDelete, path: at("keys", id)}, &k)
	return k, err
}
