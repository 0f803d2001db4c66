package client

import (
	"context"
	"io"
	"net/http"

	"berth/proto"
)

// An Info is what the daemon says of itself.
// It repeats the type of the API's edge: importing that would draw the whole server into the
// client.
type Info struct {
	Version            string               `json:"version"`
	RuntimeClasses     []proto.RuntimeClass `json:"runtime_classes"`
	DefaultImage       string               `json:"default_image"`
	DefaultLimits      proto.Limits         `json:"default_limits"` // also the most that a container may ask for
	NetworkMax         proto.NetworkMode    `json:"network_max"`    // the widest network that a container may ask for
	IdleTimeoutSeconds int64                `json:"idle_timeout_seconds"`
	MaxLifetimeSeconds int64                `json:"max_lifetime_seconds"`
	MaxFileBytes       int64                `json:"max_file_bytes"` // of one stored file
}

// Info asks the daemon for it.
func (c *Client) Info(ctx context.Context) (info Info, err error) {
	err = c.get(ctx, at("info"), nil, &info)
	return info, err
}

// Sweep has the daemon run all its sweeps now, and with strangers first remove the workspaces that its ledger does
// not know. It counts what each one did: counts["sessions"]["stopped"].
func (c *Client) Sweep(ctx context.Context, strangers bool) (counts map[string]map[string]int, err error) {
	path := at("sweep")
	if strangers {
		path += "?strangers=true"
	}
	err = c.post(ctx, path, nil, &counts)
	return counts, err
}

// Ping asks the daemon whether it can do its work.
func (c *Client) Ping(ctx context.Context) error { return c.get(ctx, "/healthz", nil, nil) }

// Metrics are the daemon's counters, as Prometheus reads them.
func (c *Client) Metrics(ctx context.Context) (string, error) {
	res, err := c.send(ctx, request{method: http.MethodGet, path: "/metrics"})
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return string(text), c.broken(ctx, err)
}
