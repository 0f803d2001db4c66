// Package native is the project's own HTTP edge: containers, commands, code, tools, files in containers, jobs,
// images, keys and the audit log. Stored files, skills and Messages are package anthropic's.
//
// routes.go is the table of all routes. Each row has the handler and what the OpenAPI document says of the route: its
// query, bodies and statuses. The same rows decide which query keys a request may have, so the document cannot differ
// from what is served.
//
//	call      one request: its checked query, its decoded body, its answer
//	stream    server-sent events and logs: one follower per request
//	live      a websocket: one reader, one follower per command, queues for input alone
//	document  the OpenAPI document
//
// A slow client delays its own follower and nothing else. The follower then continues further on in the kept output,
// and reports what it missed in a gap event.
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
	Files    FileStore
	Images   session.Images
	Keys     *keys.Store
	Audit    *audit.Log // nil: the audit log cannot be read here
	// runs all sweeps now; returns counts by sweep and action
	Sweep   func(context.Context) (map[string]map[string]int, error)
	Rotate  func(context.Context) (Rotation, error) // makes a new key for secrets; nil: no vault
	Forget  func(context.Context) (Rotation, error) // removes older keys
	Version string                                  // of the daemon; "" is proto.Version
	Info    Info                                    // the settings in /v1/info
	// origins of web pages that may open the live websocket, besides the daemon's own
	Origins []string
	Socket  api.SocketConfig // other bounds of the live websocket
	Log     *slog.Logger     // nil: slog.Default
}

// A FileStore knows the bounds and the use of stored files. Package files has one.
type FileStore interface {
	MaxFileBytes() int64
	KeyUsage(keyID string) int64 // bytes of the files that a key made
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
		c.Socket.MaxMessageBytes = maxJSON // the same as for a command over HTTP
	}
	// Clone, since appending could write into the caller's array.
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

// New makes the edge. The OpenAPI document also describes the documented routes of others.
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
