// Package native is the project's own HTTP edge: containers, commands, code, tools, files in containers, jobs,
// images, keys and the audit log. Stored files, skills and Messages are package anthropic's.
//
// routes.go is the table of all routes. Each row has the handler and what the OpenAPI document says of the route: its
// query, bodies and statuses. The same rows decide which query keys a request may have, so the document cannot differ
// from what is served.
//
//	call      one request: its checked query, its decoded body, its answer
//	stream    server-sent events and logs: one follower per request
//
// The live websocket is package live's, and the texts and bounds of the OpenAPI document are package document's.
//
// A slow client delays its own follower and nothing else. The follower then continues further on in the kept output,
// and reports what it missed in a gap event.
package native

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"reflect"
	"slices"
	"strings"

	"berth/api"
	"berth/api/live"
	"berth/api/native/document"
	"berth/api/openapi"
	"berth/api/ports"
	"berth/artifacts"
	"berth/code"
	"berth/events"
	"berth/events/webhook"
	"berth/proto"
	"berth/session"
	"berth/session/inbound"
	"berth/session/stats"
	"berth/state/audit"
	"berth/tools/bridge"
	"berth/tools/toolstore"
	"berth/tools/tooluse"
)

// A Config is what the edge serves. Sessions, Code, Tools, Bridge, Jobs, Files, Images, Keys, Quotas and Sweep must be
// set.
type Config struct {
	Sessions *session.Sessions
	Code     *code.Runner
	Tools    *toolstore.Store
	Bridge   *bridge.Bridge
	Jobs     *artifacts.Jobs
	Files    FileStore
	Images   session.Images
	Builds   Builder // nil: no images are built
	// nil: there are no credentials for registries, and nothing is pushed
	Registries Registries
	Keys       KeyStore
	Quotas     Quotas
	Audit      *audit.Log     // nil: the audit log cannot be read here
	Events     *events.Feed   // nil: there are none here
	Stats      *stats.Store   // nil: nothing is measured here
	Ports      *inbound.Ports // nil: with the default limits
	Apps       *ports.Edge    // nil: one without a domain
	Webhooks   *webhook.Store // nil: there are none here
	// runs all sweeps now; returns counts by sweep and action
	Sweep   func(context.Context) (map[string]map[string]int, error)
	Rotate  func(context.Context) (Rotation, error) // makes a new key for secrets; nil: no vault
	Forget  func(context.Context) (Rotation, error) // removes older keys
	Backup  func(context.Context, io.Writer) error  // writes all that the daemon keeps; nil: none
	Version string                                  // of the daemon; "" is proto.Version
	Info    Info                                    // the settings in /v1/info
	Origins api.Origins                             // of web pages that may open websockets
	Socket  api.SocketConfig                        // other bounds of the live websocket
	Log     *slog.Logger                            // nil: slog.Default
}

// A FileStore knows the bounds and the use of stored files. Package files has one.
type FileStore interface {
	MaxFileBytes() int64
	KeyUsage(keyID string) int64 // bytes of the files that a key made
}

// A KeyStore keeps API keys. Package keys has one.
type KeyStore interface {
	Create(caller proto.Caller, req proto.CreateKey) (proto.NewKey, error)
	List() []proto.Key
	Get(id string) (proto.Key, error)
	Change(id string, req proto.ChangeKey) (proto.Key, error)
	Revoke(ctx context.Context, id string) (proto.Key, error)
}

// Quotas count what API keys use. Package keys has them.
type Quotas interface {
	Admit(id string) error            // counts a request against the key's rate
	Usage(k proto.Key) proto.KeyUsage // all but what sessions and files count
}

// Info is what a daemon reports about itself. The edge fills zero fields with the defaults of the core.
type Info struct {
	Version        string               `json:"version"`
	RuntimeClasses []proto.RuntimeClass `json:"runtime_classes"` // That containers may have here.
	// Class of containers that ask for none.
	DefaultRuntimeClass proto.RuntimeClass `json:"default_runtime_class"`
	DefaultImage        string             `json:"default_image"`
	// Also the maximum that a container may ask for.
	DefaultLimits proto.Limits `json:"default_limits"`
	// The widest network that a container may ask for.
	NetworkMax proto.NetworkMode `json:"network_max"`
	// The widest access to ports: private, signed or public.
	PortsMax           proto.PortAccess `json:"ports_max"`
	IdleTimeoutSeconds int64            `json:"idle_timeout_seconds"`
	MaxLifetimeSeconds int64            `json:"max_lifetime_seconds"`
	MaxFileBytes       int64            `json:"max_file_bytes"` // Of one stored file.
}

func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Ports == nil {
		c.Ports = inbound.New()
	}
	if c.Apps == nil {
		c.Apps = ports.New(ports.Config{Sessions: c.Sessions, Ports: c.Ports})
	}
	if c.Socket.MaxMessageBytes == 0 {
		c.Socket.MaxMessageBytes = maxJSON // the same as for a command over HTTP
	}
	// Clone, since appending could write into the caller's array.
	c.Socket.Origins = append(slices.Clone(c.Socket.Origins), c.Origins...)
	i := &c.Info
	i.Version = cmp.Or(i.Version, c.Version, proto.Version)
	i.NetworkMax, i.PortsMax = cmp.Or(i.NetworkMax, proto.NetworkNone), cmp.Or(i.PortsMax, proto.PortsSigned)
	if i.RuntimeClasses == nil {
		i.RuntimeClasses = []proto.RuntimeClass{proto.ClassRunc}
	}
	i.DefaultRuntimeClass = cmp.Or(i.DefaultRuntimeClass, i.RuntimeClasses[0])
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
	made, _ := Open(cfg, others...)
	return made
}

// Open is New, and returns the OpenAPI document as well.
func Open(cfg Config, others ...api.Edge) (api.Edge, []byte) {
	e := &edge{Config: cfg.withDefaults()}
	out := api.Edge{Name: "native", Dialect: api.Plain, Browser: true}
	for _, r := range e.rows() {
		// The first two segments, such as /v1/containers: /v1 alone would include the paths of hosted APIs.
		parts := strings.SplitN(r.path, "/", 4)
		if prefix := strings.Join(parts[:min(3, len(parts))], "/"); !slices.Contains(out.Prefixes, prefix) {
			out.Prefixes = append(out.Prefixes, prefix)
		}
		out.Routes = append(out.Routes, r.route())
	}
	e.document = document.Build(document.Config{
		Version: e.Info.Version, Limits: e.Info.DefaultLimits, NetworkMax: e.Info.NetworkMax, Names: typeNames,
		RuntimeClasses: e.Info.RuntimeClasses,
		Sockets: map[string]openapi.Socket{
			"live":       {Client: live.Message{}, Server: proto.Event{}},
			"serveTools": {Client: bridge.ClientMessage{}, Server: bridge.DaemonMessage{}},
		},
		Bounds: map[string]openapi.Schema{
			"language": {"enum": append([]string{""}, code.Names()...)},
			"tool":     {"enum": tooluse.Names()},
		},
	}, append([]api.Edge{out}, others...)...)
	return out, e.document
}

// typeNames are the documented names of types named New…: generators for Go give the maker of a Tool that name.
var typeNames = map[reflect.Type]string{
	reflect.TypeFor[code.NewContext]():   "CreateContext",
	reflect.TypeFor[toolstore.NewTool](): "CreateTool",
	reflect.TypeFor[proto.NewKey]():      "KeyAndSecret",
}

// live serves the live websocket of a container.
func (e *edge) live(c *call) (any, error) {
	s, err := e.session(c)
	if err != nil {
		return nil, err
	}
	// From here on there is no HTTP answer; errors are events.
	sock, err := api.Upgrade(c.w, c.r, e.Socket)
	if err != nil {
		return nil, err
	}
	// Keep the ID, not the key: Admit looks at the quota at the time of the command.
	key := proto.CallerOf(c.ctx()).KeyID
	live.Serve(live.Config{Session: s, Socket: sock, Watch: c.flag("watch"),
		Admit: func() error { return e.Quotas.Admit(key) },
		Log:   e.Log.With("request_id", api.RequestID(c.ctx()))})
	return nil, nil
}
