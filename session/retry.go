package session

import (
	"time"

	"berth/session/retries"
)

// Requests that may come again; see package retries.
type (
	retry          = retries.Retry
	pendingRequest = retries.Pending
)

// retryTime is how long an idempotency key is remembered at least. keptRetries is how many ended execs a session
// remembers for it.
const (
	retryTime   = 24 * time.Hour
	keptRetries = 1000
)

// Digest returns a keyed hash of a text. It stays the same under later daemons, and without the key it tells nothing
// about the text.
func (s *Session) Digest(text string) string { return s.core.digests.Digest([]byte(text)) }
