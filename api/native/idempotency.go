package native

import (
	"berth/api/openapi"
	"berth/proto"
)

// Headers for clients that repeat requests.
const (
	keyHeader      = "Idempotency-Key"
	replayedHeader = "Idempotent-Replayed"
)

var keyParam = openapi.Param{Name: keyHeader, Pattern: "^[ -~]{1,255}$", Description: "1 to 255 " +
	"printable ASCII characters. A request that is repeated with its key is done once. The key with another " +
	"request is a conflict. The same as idempotency_key in the body."}

// replays documents the header of an answer that may repeat an earlier one.
var replays = map[string]string{replayedHeader: "true where the answer is that of an earlier request with the same " +
	"Idempotency-Key."}

// readRetryKey copies the key of the header to the field of the body. Both are supported: HTTP libraries know the
// header, and a websocket message only has a body.
func (c *call) readRetryKey(field *string) error {
	values := c.r.Header.Values(keyHeader)
	if len(values) == 0 {
		return nil
	}
	switch key := values[0]; {
	case len(values) > 1 || key == "" || !proto.ValidRetryKey(key):
		return proto.Invalid(keyHeader, "%s is one key of 1 to 255 printable ASCII characters.", keyHeader)
	case *field != "" && *field != key:
		return proto.Invalid(keyHeader, "The header %s and idempotency_key in the body differ; send one.", keyHeader)
	default:
		*field = key
		return nil
	}
}

// setReplayed marks the answer as that of an earlier request.
func (c *call) setReplayed(is bool) {
	if is {
		c.w.Header().Set(replayedHeader, "true")
	}
}
