package session

import (
	"context"

	"berth/proto"
)

// An Inspector is a Runtime that can tell how a running sandbox is isolated. What is not told counts as not
// there: nobody is told of a separation that was not looked at.
type Inspector interface {
	Inspect(ctx context.Context, id string) (proto.Isolation, error)
}
