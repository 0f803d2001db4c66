package proto

import (
	"context"
	"time"
)

// A Caller is who asks for something. An edge learns it from the API key or the access token; below the edge it travels
// with the context.
type Caller struct {
	Owner string // the workspace of keys that everything it makes belongs to
	KeyID string // names its key without giving it away
	Admin bool   // may make and revoke keys, and see what concerns the whole daemon

	Ends time.Time // when an access token expires; zero: the caller has an API key

	Browser bool // it has no key, and the console's cookie; a page of this daemon sends the request
}

type callerKey struct{}

// WithCaller says on whose behalf what is done with the context is done.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf is who WithCaller named. What the daemon does of itself, such as a sweep, has none: the zero Caller.
func CallerOf(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}
