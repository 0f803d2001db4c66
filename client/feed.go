package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"berth/proto"
	"berth/proto/sse"
)

// A FeedFilter selects events. Empty fields match all.
type FeedFilter struct {
	Container string   // ID
	Types     []string // types, or beginnings of types that end in a dot: "exec."
	Owner     string   // for admins; others see their own events
	Since     time.Time
	After     string // ID of an event: only events behind it
	Limit     int    // of Events; 0 is the daemon's default
}

func (f FeedFilter) query() url.Values {
	q := chosen(map[string]string{"container": f.Container, "owner": f.Owner, "after": f.After}, f.Limit)
	for _, t := range f.Types {
		q.Add("type", t)
	}
	if !f.Since.IsZero() && f.After == "" {
		q.Set("since", f.Since.UTC().Format(time.RFC3339Nano))
	}
	return q
}

// Events returns one page of events, oldest first, and whether there are more behind the last one. Without Since and
// After they are the newest.
func (c *Client) Events(ctx context.Context, f FeedFilter) (list []proto.FeedEvent, more bool, err error) {
	page, err := get[struct {
		Data    []proto.FeedEvent `json:"data"`
		HasMore bool              `json:"has_more"`
	}](ctx, c, at("events"), f.query())
	return page.Data, page.HasMore, err
}

// maxFeedEvent bounds one event, in bytes.
const maxFeedEvent = 4 << 20

// FollowEvents calls fn with events until ctx ends or fn fails. Without Since and After it begins with the next event.
// If the daemon ends, the error is proto.Unavailable; a request with After set to the ID of the last event continues
// there. began is called once the daemon has accepted the request; it may be nil.
func (c *Client) FollowEvents(ctx context.Context, f FeedFilter, began func(), fn func(proto.FeedEvent) error) error {
	f.Limit = 0
	res, err := c.send(ctx, request{method: http.MethodGet, path: at("events"), query: f.query(),
		header: map[string]string{"Accept": sse.ContentType}})
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if began != nil {
		began()
	}
	return eachEvent(ctx, c, res.Body, fn)
}

// eachEvent calls fn with each event of a stream that has no end of its own.
func eachEvent[T any](ctx context.Context, c *Client, body io.Reader, fn func(T) error) error {
	r := sse.NewReader(body, sse.Options{MaxEvent: maxFeedEvent})
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return c.broken(ctx, err)
		}
		var v T
		if err := json.Unmarshal(e.Data, &v); err != nil {
			return fmt.Errorf("decoding an event: %w", err)
		}
		if err := fn(v); err != nil {
			return err
		}
	}
}
