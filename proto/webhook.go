package proto

// WebhookPrefix begins the ID of a webhook.
const WebhookPrefix = "webhook_"

// A CreateWebhook asks for events to be posted to a URL.
type CreateWebhook struct {
	// Where events are posted, http or https, at a public address unless the operator allows others.
	URL string `json:"url"`
	// Only these types, such as exec.ended; with a dot at the end, all types with this prefix: exec. Default all.
	Types []string `json:"types,omitempty"`
	// Only events of this container.
	ContainerID string `json:"container_id,omitempty"`
	Description string `json:"description,omitempty"` // For people, at most 1,000 bytes.
}

// A ChangeWebhook changes a webhook. Fields that are left out stay as they are.
type ChangeWebhook struct {
	URL     *string  `json:"url,omitempty"`
	Types   []string `json:"types,omitempty"`
	Enabled *bool    `json:"enabled,omitempty"` // true continues with the first event that was not delivered.
}

// A Webhook is a URL that events are posted to.
type Webhook struct {
	ID          string   `json:"id"`
	URL         string   `json:"url"`
	Types       []string `json:"types"` // Empty for all.
	ContainerID string   `json:"container_id,omitempty"`
	Description string   `json:"description,omitempty"`
	CreatedAt   Time     `json:"created_at"`
	Enabled     bool     `json:"enabled"`
	// Why it was disabled.
	DisabledReason string `json:"disabled_reason,omitempty"`
	// Since when nothing was delivered, and when the next attempt is; null while it works.
	FailingSince *Time `json:"failing_since"`
	NextAttempt  *Time `json:"next_attempt"`
	// The last attempts, newest last.
	Deliveries []WebhookDelivery `json:"deliveries"`
}

// A NewWebhook is a webhook with its secret, which only this answer has.
type NewWebhook struct {
	Webhook
	Secret string `json:"secret"` // Verifies signatures; begins with whsec_.
}

// A WebhookDelivery is one attempt to deliver an event.
type WebhookDelivery struct {
	MessageID string   `json:"message_id"` // The header webhook-id; the same in all attempts.
	Type      FeedType `json:"type"`
	At        Time     `json:"at"`
	Status    int      `json:"status"` // HTTP status of the receiver; 0 for none.
	Error     string   `json:"error,omitempty"`
	Seconds   float64  `json:"seconds"`
}

// A WebhookMessage is the body of a request to a webhook.
type WebhookMessage struct {
	Type      FeedType  `json:"type"`
	Timestamp Time      `json:"timestamp"`
	Data      FeedEvent `json:"data"`
}
