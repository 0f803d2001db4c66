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

// A Grep is a search for text. The session is in use until it is closed.
type Grep struct{ events[proto.GrepEvent] }

// OpenGrep searches the files below a directory, or one file, as a user.
func OpenGrep(ctx context.Context, f session.Files, as, path string, o proto.GrepOptions) (*Grep, error) {
	e, err := openEvents(ctx, f, func(g *client.Client) (*client.Events[proto.GrepEvent], error) {
		return g.Grep(ctx, as, path, o)
	})
	return &Grep{e}, err
}

// Events calls each for every event, until the search or ctx ends, or each fails. The last is proto.GrepEnd.
func (g *Grep) Events(each func(proto.GrepEvent) error) error { return g.each(each) }
