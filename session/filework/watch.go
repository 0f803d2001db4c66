package filework

import (
	"context"
	"io"

	"berth/guest/client"
	"berth/proto"
	"berth/session"
)

// A Watch follows a directory until it is closed. The session is in use that long.
type Watch struct{ events[proto.FileEvent] }

// events are those of a guest. The session is in use until they are closed.
type events[T any] struct {
	*client.Events[T]
	held io.Closer
}

// openEvents has the session hold the events that open opens.
func openEvents[T any](ctx context.Context, f session.Files, open func(*client.Client) (*client.Events[T], error)) (
	e events[T], err error) {
	e.held, err = f.Open(ctx, func(g *client.Client) (io.ReadCloser, error) {
		var err error
		e.Events, err = open(g)
		return eventBody[T]{e.Events}, err
	})
	return e, err
}

// Close ends the events and the use of the session.
func (e events[T]) Close() error { return e.held.Close() }

// eventBody lets a session hold events as it holds other streams.
type eventBody[T any] struct{ *client.Events[T] }

// Read is not used: events come from Next.
func (eventBody[T]) Read([]byte) (int, error) { return 0, io.EOF }

// each calls fn for every event, until ctx or the events end, or fn fails.
func (e events[T]) each(fn func(T) error) error {
	for {
		ev, err := e.Next()
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = fn(ev)
		}
		if err != nil {
			return err
		}
	}
}

// OpenWatch watches a directory as a user, and those below it if recursive is set. With entries, events describe their
// file.
func OpenWatch(ctx context.Context, f session.Files, as, dir string, recursive, entries bool) (*Watch, error) {
	e, err := openEvents(ctx, f, func(g *client.Client) (*client.Watch, error) {
		return g.Watch(ctx, as, dir, recursive, entries)
	})
	return &Watch{e}, err
}

// Events calls each for every event, until ctx or the directory ends, or each fails. The first is proto.FileWatched.
func (w *Watch) Events(dir string, each func(proto.FileEvent) error) error {
	if err := each(proto.FileEvent{Type: proto.FileWatched, Path: dir}); err != nil {
		return err
	}
	return w.each(each)
}
