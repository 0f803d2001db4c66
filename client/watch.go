package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"

	"berth/proto"
	"berth/proto/sse"
)

// WatchOptions say what a watch tells.
type WatchOptions struct {
	Recursive bool // also about the directories below
	Entries   bool // FileEvent.Entry
}

// maxFileEvent is longer than any event of a watch, in bytes.
const maxFileEvent = 4 << 20

// Watch follows the changes in a directory. each receives proto.FileWatched first, once the watch holds. Watch returns
// nil when the directory is gone, and the error of each. A stream that ends before that is broken: Unavailable.
func (f FS) Watch(ctx context.Context, dir string, o WatchOptions, each func(proto.FileEvent) error) error {
	r := f.request(http.MethodGet, "watch", dir)
	if o.Recursive {
		r.query.Set("recursive", "true")
	}
	if o.Entries {
		r.query.Set("entries", "true")
	}
	gone := false
	err := followEvents(ctx, f.c, r, func(ev proto.FileEvent) error {
		gone = ev.Type == proto.FileRemoved && ev.Name == ""
		return each(ev)
	})
	if err == nil && !gone {
		return f.c.broken(ctx, io.ErrUnexpectedEOF)
	}
	return err
}

// followEvents calls each with every event of an answer, which it asks for as a stream.
func followEvents[T any](ctx context.Context, c *Client, r request, each func(T) error) error {
	r.header = map[string]string{"Accept": sse.ContentType}
	res, err := c.send(ctx, r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	events := sse.NewReader(res.Body, sse.Options{MaxEvent: maxFileEvent})
	for {
		e, err := events.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return c.broken(ctx, err)
		}
		var ev T
		if err := json.Unmarshal(e.Data, &ev); err != nil {
			return err
		}
		if err := each(ev); err != nil {
			return err
		}
	}
}
