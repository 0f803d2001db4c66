package filework

import (
	"context"
	"io"

	"berth/guest/client"
	"berth/proto"
	"berth/session"
)

// A Watch follows a directory until it is closed. The session is in use that long.
type Watch struct {
	*client.Watch
	held io.Closer
}

// OpenWatch watches a directory as a user, and those below it if recursive is set. With entries, events describe their
// file.
func OpenWatch(ctx context.Context, f session.Files, as, dir string, recursive, entries bool) (*Watch, error) {
	w := &Watch{}
	held, err := f.Open(ctx, func(g *client.Client) (io.ReadCloser, error) {
		var err error
		w.Watch, err = g.Watch(ctx, as, dir, recursive, entries)
		return watchBody{w.Watch}, err
	})
	w.held = held
	return w, err
}

// Close ends the watch and the use of the session.
func (w *Watch) Close() error { return w.held.Close() }

// watchBody lets a session hold a watch as it holds other streams.
type watchBody struct{ *client.Watch }

// Read is not used: events come from Next.
func (watchBody) Read([]byte) (int, error) { return 0, io.EOF }

// Events calls each for every event, until ctx or the directory ends, or each fails. The first is proto.FileWatched.
func (w *Watch) Events(dir string, each func(proto.FileEvent) error) error {
	if err := each(proto.FileEvent{Type: proto.FileWatched, Path: dir}); err != nil {
		return err
	}
	for {
		ev, err := w.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := each(ev); err != nil {
			return err
		}
	}
}
