package filework

import (
	"context"

	"berth/guest/client"
	"berth/proto"
	"berth/session"
)

// Find returns a page of the entries below a directory, as a user. See proto.FindPage.
func Find(ctx context.Context, f session.Files, as, dir string, o proto.FindOptions) (p proto.FindPage, err error) {
	err = f.WithGuest(ctx, func(g *client.Client) error { p, err = g.Find(ctx, as, dir, o); return err })
	return p, err
}
