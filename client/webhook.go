package client

import (
	"context"
	"net/http"

	"berth/proto"
)

// CreateWebhook has events posted to a URL. Only its result has the secret.
func (c *Client) CreateWebhook(ctx context.Context, req proto.CreateWebhook) (proto.NewWebhook, error) {
	return post[proto.NewWebhook](ctx, c, at("webhooks"), req)
}

// Webhooks lists webhooks, oldest first.
func (c *Client) Webhooks(ctx context.Context) ([]proto.Webhook, error) {
	return list[proto.Webhook](ctx, c, at("webhooks"), nil)
}

// Webhook returns one webhook with its last deliveries.
func (c *Client) Webhook(ctx context.Context, id string) (proto.Webhook, error) {
	return get[proto.Webhook](ctx, c, at("webhooks", id), nil)
}

// ChangeWebhook changes a webhook.
func (c *Client) ChangeWebhook(ctx context.Context, id string, req proto.ChangeWebhook) (proto.Webhook, error) {
	return patch[proto.Webhook](ctx, c, at("webhooks", id), req)
}

// DeleteWebhook removes a webhook.
func (c *Client) DeleteWebhook(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, at("webhooks", id))
}
