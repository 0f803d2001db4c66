package api

import (
	"context"

	"berth/proto"
)

// oneOwner is who testKey belongs to.
const oneOwner = "default"

// oneKey is an Authenticator that knows one key, for what is not about keys.
type oneKey string

func (k oneKey) Authenticate(_ context.Context, key string) (Caller, error) {
	if key != string(k) {
		return Caller{}, proto.Errorf(proto.Unauthenticated, "", "", "Invalid API key.")
	}
	return Caller{Owner: oneOwner, KeyID: "key_0000000000000000000000", Admin: true}, nil
}

func (oneKey) Life(string) context.Context { return context.Background() }
