package native

import (
	"berth/api"
	"berth/api/openapi"
	"berth/proto"
)

// webhookRows are the routes of webhooks. A daemon that posts no events has none.
func (e *edge) webhookRows() []row {
	if e.Webhooks == nil {
		return nil
	}
	const all, one = "/v1/webhooks", "/v1/webhooks/{id}"
	return []row{
		{"POST", all, take(e.createWebhook).created(), openapi.Operation{ID: "createWebhook",
			Summary: "Have events posted to a URL from now on. Only this answer has the secret.",
			Fails:   also(basic, 501),
			Description: "Each event is posted as a WebhookMessage, in order and at least once, with the headers " +
				"webhook-id, webhook-timestamp and webhook-signature of Standard Webhooks. Any answer but a 2xx is a " +
				"failure. After one the same event is posted again, first after 5 seconds, later once an hour, also " +
				"by the next daemon. A receiver that fails for 24 hours, or that answers 410, is disabled. Addresses " +
				"that are not public are refused unless the operator allows them."}},
		{"GET", all, get(e.listWebhooks), openapi.Operation{ID: "listWebhooks",
			Summary: "List webhooks, oldest first.", Fails: basic}},
		{"GET", one, get(e.getWebhook), openapi.Operation{ID: "getWebhook",
			Summary: "Describe a webhook, with its last deliveries.", Fails: namesItem}},
		{"PATCH", one, take(e.changeWebhook), openapi.Operation{ID: "changeWebhook",
			Summary: "Change a webhook, or enable it again.", Fails: namesItem,
			Description: "The next attempt is at once."}},
		{"DELETE", one, get(e.deleteWebhook), openapi.Operation{ID: "deleteWebhook",
			Summary: "Remove a webhook.", Fails: namesItem}},
	}
}

func (e *edge) createWebhook(c *call, req proto.CreateWebhook) (proto.NewWebhook, error) {
	made, err := e.Webhooks.Create(c.ctx(), c.owner, req)
	api.Note(c.ctx(), made.ID)
	return made, err
}

func (e *edge) listWebhooks(c *call) (page[proto.Webhook], error) {
	return list(e.Webhooks.List(c.owner), nil)
}

func (e *edge) getWebhook(c *call) (proto.Webhook, error) { return e.Webhooks.Get(c.owner, c.id()) }

func (e *edge) changeWebhook(c *call, req proto.ChangeWebhook) (proto.Webhook, error) {
	return e.Webhooks.Change(c.owner, c.id(), req)
}

func (e *edge) deleteWebhook(c *call) (deletion, error) {
	return deletion{c.id(), true}, e.Webhooks.Delete(c.owner, c.id())
}
