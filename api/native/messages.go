package native

import (
	"berth/api"
	"net/http"
)

// messageRows are what the document says of the Messages API, which api/anthropic serves.
func messageRows() []row {
	const more = "Goes to the upstream that has the model. An anthropic-version header is required, and errors have " +
		"the envelope of the hosted API, with the upstream's own status where it answered."
	message := func(op op) op {
		op.tag, op.failure, op.header = "messages", fileFailure, []param{versionParam}
		op.fails = fileFails
		op.more = more + op.more
		return op
	}
	request := []content{{media: "application/json", of: messageRequest}}
	return []row{
		{"POST", "/v1/messages", api.None, nil, message(op{id: "createMessage", does: "Ask a model.", body: request,
			more: " With the code execution tool, what the model calls is run in a container, and the answer has " +
				"typed blocks; with \"stream\": true it is a stream of events.",
			answers: map[int][]content{http.StatusOK: {{media: "application/json", of: messageAnswer},
				{media: "text/event-stream", of: stringType()}}}})},
		{"POST", "/v1/messages/count_tokens", api.None, nil, message(op{id: "countTokens", does: "Count the tokens of a request.",
			body: request,
			answers: ok(object([]string{"input_tokens"},
				schema{"input_tokens": schema{"type": "integer", "minimum": 0}}))})},
	}
}

// The shapes of Messages, as far as berth looks at them. All else is the upstream's.
var (
	messageRequest = object([]string{"model", "messages"}, schema{
		"model":    stringType(),
		"messages": schema{"type": "array", "items": schema{"type": "object"}},
		"tools":    schema{"type": "array", "items": schema{"type": "object"}},
		"stream":   schema{"type": "boolean"},
		"container": schema{"anyOf": []any{stringType(), schema{"type": "null"},
			object(nil, schema{"id": stringType(), "skills": schema{"type": "array", "items": schema{
				"type": "object"}}})}},
	})
	messageAnswer = object([]string{"id", "type", "role", "model", "content"}, schema{
		"id": stringType(), "type": schema{"const": "message"}, "role": stringType(), "model": stringType(),
		"content":     schema{"type": "array", "items": object([]string{"type"}, schema{"type": stringType()})},
		"stop_reason": orNull(stringType()), "stop_sequence": orNull(stringType()), "usage": schema{"type": "object"},
		"container": orNull(object([]string{"id", "expires_at"}, schema{"id": stringType(), "expires_at": dateTime(),
			"skills": orNull(schema{"type": "array", "items": schema{"type": "object"}})})),
	})
)
