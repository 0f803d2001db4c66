package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"berth/proto"
	"berth/proto/sse"
)

// A StatsHistory is what a container uses now, and samples of the last hour, oldest first.
type StatsHistory struct {
	Current proto.Stats   `json:"current"`
	Data    []proto.Stats `json:"data"`
}

// ContainerStats returns what a container uses, with the samples from a time on; the zero time is all.
func (c *Client) ContainerStats(ctx context.Context, id string, since time.Time) (StatsHistory, error) {
	q := url.Values{}
	if !since.IsZero() {
		q.Set("since", since.UTC().Format(time.RFC3339Nano))
	}
	return get[StatsHistory](ctx, c, at("containers", id, "stats"), q)
}

// Stats returns what containers use now; without IDs, all that run.
func (c *Client) Stats(ctx context.Context, ids []string) ([]proto.Stats, error) {
	return list[proto.Stats](ctx, c, at("stats"), url.Values{"container": ids})
}

// FollowStats calls fn with what containers use, once each interval of whole seconds, until ctx ends or fn fails.
func (c *Client) FollowStats(ctx context.Context, ids []string, interval int, fn func([]proto.Stats) error) error {
	res, err := c.send(ctx, request{method: http.MethodGet, path: at("stats"), query: url.Values{"container": ids,
		"interval": {strconv.Itoa(interval)}}, header: map[string]string{"Accept": sse.ContentType}})
	if err != nil {
		return err
	}
	defer res.Body.Close()
	return eachEvent(ctx, c, res.Body, func(page struct {
		Data []proto.Stats `json:"data"`
	}) error {
		return fn(page.Data)
	})
}
