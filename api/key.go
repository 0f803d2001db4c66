package api

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"

	"berth/proto"
)

// DefaultOwner is who owns everything where there is but one API key.
const DefaultOwner = "default"

// A SingleKey is an Authenticator with one key, an admin's of DefaultOwner, which never ends.
type SingleKey struct {
	sum [sha256.Size]byte // keys are compared by hash, so that not even their length shows in time
}

// NewSingleKey knows key.
func NewSingleKey(key string) SingleKey { return SingleKey{sha256.Sum256([]byte(key))} }

// Authenticate fails with Unauthenticated for every other key.
func (k SingleKey) Authenticate(_ context.Context, key string) (Caller, error) {
	sum := sha256.Sum256([]byte(key))
	if subtle.ConstantTimeCompare(sum[:], k.sum[:]) != 1 {
		return Caller{}, proto.Errorf(proto.Unauthenticated, "", "", "Invalid API key.")
	}
	return Caller{Owner: DefaultOwner, KeyID: "key_" + hex.EncodeToString(k.sum[:4]), Admin: true}, nil
}

// Life never ends.
func (SingleKey) Life(string) context.Context { return context.Background() }
