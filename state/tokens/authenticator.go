package tokens

import (
	"context"

	"berth/proto"
)

// NamePrefix begins the names of API keys that tokens stand for. The subject follows.
const NamePrefix = "oauth:"

// Keys are the API keys of the daemon.
type Keys interface {
	Authenticate(ctx context.Context, secret string) (proto.Caller, error)
	Life(id string) context.Context
	// Named returns the caller of the usable key with this name, counts a request against its rate, and fails with
	// NotFound if there is none.
	Named(name string) (proto.Caller, error)
}

// An Authenticator knows API keys and tokens.
type Authenticator struct {
	Keys
	Tokens *Source
}

// Authenticate returns the caller that an API key or a token stands for. With a token nobody is an administrator.
func (a Authenticator) Authenticate(ctx context.Context, text string) (proto.Caller, error) {
	// The key of the key file is the operator's choice and may have the form of a token.
	c, err := a.Keys.Authenticate(ctx, text)
	if proto.CodeOf(err) != proto.Unauthenticated || !Is(text) {
		return c, err
	}
	t, err := a.Tokens.Verify(ctx, text)
	if err != nil {
		return proto.Caller{}, err
	}
	c, err = a.Named(NamePrefix + t.Subject)
	if proto.CodeOf(err) == proto.NotFound {
		return proto.Caller{}, proto.Errorf(proto.PermissionDenied, "", "", "No API key stands for %q, the %s of this "+
			"access token; an administrator makes one: berth key create --owner OWNER %q", t.Subject,
			a.Tokens.cfg.Claim, NamePrefix+t.Subject)
	}
	c.Admin, c.Ends = false, t.Expires
	return c, err
}
