// Package native is the project's own HTTP edge: containers, commands, files in containers, jobs,
// images, and everything live.
//
// routes.go is the table of all routes. Each row has the handler and, beside it, what the OpenAPI document
// says of the route: its query, its bodies, its statuses. The document is built from that table, and the same
// rows decide which query keys a request may have, so neither can drift from what is served.
//
//	call      one request: its query, checked; its body, decoded; its answer, encoded
//	stream    server-sent events and logs: one follower per request
//	live      a websocket: one reader, one follower per command, no queues
//	schema    JSON schemas of the wire types, by reflection
//
// A slow client holds up its own follower and nothing else: the follower then reads further on in what
// the command's output keeps, and tells what it missed in a gap event.
package native

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"

	"berth/api"
	"berth/artifacts"
	"berth/code"
	"berth/files"
	"berth/proto"
	"berth/session"
	"berth/state/audit"
	"berth/state/keys"
	"berth/tools/bridge"
	"berth/tools/toolstore"
)

// A Config is what the edge serves. Sessions, Code, Tools, Bridge, Jobs, Files, Images, Keys and Sweep must be set.
type Config struct {
	Sessions *session.Sessions
	Code     *code.Runner
	Tools    *toolstore.Store
	Bridge   *bridge.Bridge
	Jobs     *artifacts.Jobs
	Files    *files.Store
	Images   session.Images
	Keys     *keys.Store
	Audit    *audit.Log // nil: nobody can read it here
	// runs every sweep now; counts by sweep and what it did
	Sweep   func(context.Context) (map[string]map[string]int, error)
	Rotate  func(context.Context) (Rotation, error) // makes a new key for secrets; nil: there is no vault
	Forget  func(context.Context) (Rotation, error) // takes the older ones away
	Version string                                  // of the daemon; "" is proto.Version
	Info    Info                                    // what /v1/info tells of the daemon's settings
	Origins []string                                // of web pages that may open the live websocket, beside the daemon's own
	Socket  api.SocketConfig                        // other bounds of the live websocket
	Log     *slog.Logger                            // nil: slog.Default
}

// Info is what a daemon reports about itself. The edge fills zero fields with the defaults of the core.
type Info struct {
	Version        string               `json:"version"`
	RuntimeClasses []proto.RuntimeClass `json:"runtime_classes"` // That containers may have here.
	DefaultImage   string               `json:"default_image"`
	// Also the maximum that a container may ask for.
	DefaultLimits proto.Limits `json:"default_limits"`
	// The widest network that a container may ask for.
	NetworkMax         proto.NetworkMode `json:"network_max"`
	IdleTimeoutSeconds int64             `json:"idle_timeout_seconds"`
	MaxLifetimeSeconds int64             `json:"max_lifetime_seconds"`
	MaxFileBytes       int64             `json:"max_file_bytes"` // Of one stored file.
}

func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Socket.MaxMessageBytes == 0 {
		c.Socket.MaxMessageBytes = maxJSON // as much as the same command may have over HTTP
	}
	// A clone: appending could write into the caller's array.
	c.Socket.Origins = append(slices.Clone(c.Socket.Origins), c.Origins...)
	i := &c.Info
	i.Version = cmp.Or(i.Version, c.Version, proto.Version)
	i.NetworkMax = cmp.Or(i.NetworkMax, proto.NetworkNone)
	if i.RuntimeClasses == nil {
		i.RuntimeClasses = []proto.RuntimeClass{proto.ClassRunc}
	}
	i.DefaultImage = cmp.Or(i.DefaultImage, "base")
	i.DefaultLimits = i.DefaultLimits.Or(session.DefaultLimits)
	i.IdleTimeoutSeconds = cmp.Or(i.IdleTimeoutSeconds, 5*60)
	i.MaxLifetimeSeconds = cmp.Or(i.MaxLifetimeSeconds, 30*24*60*60)
	i.MaxFileBytes = cmp.Or(i.MaxFileBytes, c.Files.MaxFileBytes())
	return c
}

// An edge holds what the handlers call.
type edge struct {
	Config
	document []byte // the OpenAPI document, as JSON
}

// New makes the edge. The document of the API also describes the routes of others, as far as those are documented.
func New(cfg Config, others ...api.Edge) api.Edge {
	e := &edge{Config: cfg.withDefaults()}
	out := api.Edge{Name: "native", Dialect: api.Plain}
	for _, r := range e.rows() {
		// The first two segments, such as /v1/containers: /v1 alone would include the paths of hosted APIs.
		parts := strings.SplitN(r.path, "/", 4)
		if prefix := strings.Join(parts[:min(3, len(parts))], "/"); !slices.Contains(out.Prefixes, prefix) {
			out.Prefixes = append(out.Prefixes, prefix)
		}
		out.Routes = append(out.Routes, r.route())
	}
	e.document = document(e.Info, append([]api.Edge{out}, others...))
	return out
}
