package client

import (
	"context"
	"io"
	"net/http"

	"berth/proto"
)

// An Info describes the daemon. It repeats the type of the API's edge, because importing that would link the whole
// server into the client.
type Info struct {
	Version             string               `json:"version"`
	RuntimeClasses      []proto.RuntimeClass `json:"runtime_classes"`
	DefaultRuntimeClass proto.RuntimeClass   `json:"default_runtime_class"`
	DefaultImage        string               `json:"default_image"`
	DefaultLimits       proto.Limits         `json:"default_limits"` // also the maximum that a container may request
	// the widest network mode that a container may request
	NetworkMax         proto.NetworkMode `json:"network_max"`
	IdleTimeoutSeconds int64             `json:"idle_timeout_seconds"`
	MaxLifetimeSeconds int64             `json:"max_lifetime_seconds"`
	MaxFileBytes       int64             `json:"max_file_bytes"` // of one stored file
}

// Info returns the daemon's description of itself.
func (c *Client) Info(ctx context.Context) (Info, error) {
	return get[Info](ctx, c, at("info"), nil)
}

// Sweep runs all sweeps of the daemon now. With strangers, the daemon first removes workspaces that its ledger does
// not know. The result has the counts of each sweep, such as counts["sessions"]["stopped"].
func (c *Client) Sweep(ctx context.Context, strangers bool) (map[string]map[string]int, error) {
	path := at("sweep")
	if strangers {
		path += "?strangers=true"
	}
	return post[map[string]map[string]int](ctx, c, path, nil)
}

// Ping checks whether the daemon is healthy.
func (c *Client) Ping(ctx context.Context) error { return c.do(ctx, http.MethodGet, "/healthz") }

// Metrics returns the daemon's metrics in the text format of Prometheus.
func (c *Client) Metrics(ctx context.Context) (string, error) {
	res, err := c.send(ctx, request{method: http.MethodGet, path: "/metrics"})
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return string(text), c.broken(ctx, err)
}

// A Rotation is the result of a change of the keys that seal secrets.
type Rotation struct {
	KeyID    string `json:"key_id"`   // ID of the key that seals now
	Keys     int    `json:"keys"`     // number of keys in the file
	Resealed int    `json:"resealed"` // records sealed with the new key
	Closed   int    `json:"closed"`   // records that no key in the file opens
}

// Backup opens an archive of all that the daemon keeps; package backup reads it. The caller closes it.
func (c *Client) Backup(ctx context.Context) (*Download, error) {
	return c.download(ctx, request{method: http.MethodGet, path: at("backup")})
}

// RotateVault creates a new key and seals all secrets with it. With forget, it removes the old keys instead.
func (c *Client) RotateVault(ctx context.Context, forget bool) (Rotation, error) {
	act := "rotate"
	if forget {
		act = "forget"
	}
	return post[Rotation](ctx, c, at("vault", act), nil)
}
