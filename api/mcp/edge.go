package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/api"
	"berth/artifacts"
	"berth/code"
	"berth/files"
	"berth/proto"
	"berth/session"
	"berth/tools/toolstore"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// endpoint is where the protocol is spoken.
const endpoint = "/mcp"

// Bounds of what clients can have.
const (
	maxMessage  = 4 << 20        // bytes of one message from a client
	maxSessions = 256            // MCP sessions of one owner at once
	defaultIdle = 24 * time.Hour // until a session that nobody uses ends
	keptEvents  = 8 << 20        // bytes of what clients whose connection broke may still come for, of all sessions
)

// A Config is what the edge serves. Sessions, Code, Jobs, Files and Life must be set.
type Config struct {
	Sessions *session.Sessions
	Code     *code.Runner
	Jobs     *artifacts.Jobs
	Files    *files.Store
	Tools    *toolstore.Store                   // stored tools; nil: there are none
	Life     func(keyID string) context.Context // ends when the key may no longer be used
	Audit    api.Auditor                        // told of tool calls and of files that are read; nil: nobody is
	Version  string                             // of the daemon; "" is proto.Version
	Origins  []string                           // of web pages that may send requests, beside those from loopback
	Idle     time.Duration                      // an MCP session that nobody uses ends after this; 0 is a day
	Log      *slog.Logger                       // nil: slog.Default
}

// An Edge is the edge, and the sessions that clients have with it.
type Edge struct {
	Config
	server   *sdk.Server
	http     http.Handler
	requests sync.Map // of HTTP requests under way, by request ID: their contexts

	mu       sync.Mutex // guards what follows
	sessions map[string]*mcpSession
	closed   bool
	ending   sync.WaitGroup // who wait for sessions to end
}

// Open makes the edge.
func Open(cfg Config) *Edge {
	cfg.Version = cmp.Or(cfg.Version, proto.Version)
	cfg.Idle = cmp.Or(cfg.Idle, defaultIdle)
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	e := &Edge{Config: cfg, sessions: map[string]*mcpSession{}}
	e.server = sdk.NewServer(&sdk.Implementation{Name: "berth", Title: "berth: containers for agents",
		Version: cfg.Version}, &sdk.ServerOptions{
		Instructions: instructions,
		// What lists show changes with the owner's files, but nobody is told when.
		Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}, Resources: &sdk.ResourceCapabilities{}},
		SetCacheable: func(_ context.Context, _ sdk.Request, c *sdk.Cacheable) { *c = privateCache },
	})
	e.server.AddReceivingMiddleware(e.receive)
	e.addTemplates()
	events := sdk.NewMemoryEventStore(nil)
	events.SetMaxBytes(keptEvents)
	e.http = sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return e.server },
		&sdk.StreamableHTTPOptions{
			EventStore: events, SessionTimeout: cfg.Idle, MaxRequestBodyBytes: maxMessage,
			// Ours looks at the origin, and no page has a key; this one would refuse a proxy on the same machine.
			DisableLocalhostProtection: true,
		})
	return e
}

// privateCache has nobody in between keep a list or a resource for somebody else.
var privateCache = sdk.Cacheable{CacheScope: "private"}

// instructions are what a client may show its model.
const instructions = `berth runs commands and code in a Linux container of this session's own: it is made when it is first needed, keeps its files between calls, and goes with the session.
bash is a persistent shell; run_code runs a fresh interpreter, or one that keeps its variables if context names it. Both see the same files, below /workspace.
Files that are put into $OUTPUT_DIR are stored and come back as links.`

// Edge is what a server mounts.
func (e *Edge) Edge() api.Edge {
	return api.Edge{
		Name:     "mcp",
		Prefixes: []string{endpoint},
		Dialect:  dialect,
		Check:    e.check,
		Routes: []api.Route{
			{Method: "POST", Pattern: endpoint, Where: api.InHeader, Handle: e.serve, Act: "mcp.message",
				Covered: true, Media: []string{"application/json"}, MaxBodyBytes: maxMessage},
			{Method: "GET", Pattern: endpoint, Where: api.InHeader, Handle: e.serve},
			{Method: "DELETE", Pattern: endpoint, Where: api.InHeader, Handle: e.serve, Act: "mcp.end", Covered: true},
		},
	}
}

// Close ends all sessions. Their containers stay, as all do when the daemon ends.
func (e *Edge) Close() error {
	e.mu.Lock()
	e.closed = true
	all := e.sessions
	e.sessions = map[string]*mcpSession{}
	e.mu.Unlock()
	for _, v := range all {
		v.end()
		_ = v.session.Close() // there is nobody left to tell
	}
	e.ending.Wait()
	return nil
}

// sessionHeader carries the ID of an MCP session.
const sessionHeader = "Mcp-Session-Id"

// wireHeader is ours alone: it ties what the SDK hands over to the HTTP request that it came with. What a client
// sends is replaced.
const wireHeader = "Berth-Request"

// serve lets the SDK answer a request of somebody who may send it.
func (e *Edge) serve(w http.ResponseWriter, r *http.Request, c api.Caller) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	// the SDK would run each of them, past the rate of requests
	if bytes.HasPrefix(bytes.TrimSpace(body), []byte("[")) {
		return messageError{noID, jsonrpc.CodeInvalidRequest, proto.Errorf(proto.InvalidArgument, "", "body",
			"each message is a request of its own; send those of a batch one by one")}
	}
	v, p, err := e.sessionOf(r, c)
	if err != nil {
		return messageError{id: idOf(body), error: err}
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	switch r.Method {
	case http.MethodGet: // which stays open for as long as there is nothing to say
		go untilDrained(ctx, cancel)
	case http.MethodDelete:
		if err := e.endSession(v); err != nil {
			return err
		}
	}
	id := api.RequestID(ctx)
	e.requests.Store(id, ctx)
	defer e.requests.Delete(id)
	r = r.Clone(ctx)
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.Header.Set(wireHeader, id)
	r.Header.Set(containerHeader, p.container)
	r.Header.Set(imageHeader, p.image)
	l := &responseFilter{ResponseWriter: w}
	e.http.ServeHTTP(l, r)
	// the daemon leaves, of which the SDK says nothing
	if cause := context.Cause(ctx); proto.CodeOf(cause) == proto.Unavailable {
		return messageError{id: idOf(body), error: cause}
	}
	if l.refusal != nil {
		return l.answer(body)
	}
	return nil
}

// untilDrained cancels once the server begins to shut down, unless ctx has ended before.
func untilDrained(ctx context.Context, cancel func()) {
	select {
	case <-api.Draining(ctx):
		cancel()
	case <-ctx.Done():
	}
}

// sessionOf is the session that a request names: its owner's alone, for nobody else is it there. One that names none may
// begin one, in that place.
func (e *Edge) sessionOf(r *http.Request, c api.Caller) (*mcpSession, place, error) {
	id := r.Header.Get(sessionHeader)
	v, full := e.findSession(id, c.Owner)
	switch {
	case v != nil:
		return v, place{}, nil
	case id != "":
		return nil, place{}, proto.Errorf(proto.NotFound, "", sessionHeader, "there is no such session, or no "+
			"longer; send initialize to begin a new one")
	case r.Method != http.MethodPost:
		return nil, place{}, proto.Errorf(proto.InvalidArgument, "", sessionHeader, "the request needs the header "+
			"%s, with the ID that initialize answered", sessionHeader)
	case full != nil:
		return nil, place{}, full
	}
	p, err := e.requestedPlace(r, c)
	return nil, p, err
}

// findSession is an owner's session, if it is there, and why there can be no further one, if so.
func (e *Edge) findSession(id, owner string) (v *mcpSession, full error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if v = e.sessions[id]; v != nil && v.owner != owner {
		v = nil
	}
	return v, e.sessionLimit(owner)
}

// sessionLimit is why an owner can have no further session, if so. Called with mu held.
func (e *Edge) sessionLimit(owner string) error {
	count := 0
	for _, v := range e.sessions {
		if v.owner == owner {
			count++
		}
	}
	if count < maxSessions {
		return nil
	}
	return proto.Errorf(proto.TooMany, "", "sessions", "there are %d sessions already, which is the limit; end one "+
		"with DELETE, or wait until idle ones do", count)
}

// Where a client that begins a session says in which container.
const (
	containerHeader = "Berth-Container"
	imageHeader     = "Berth-Image"
)

// A place is which container a session works in: one that is there, or one that is to be made.
type place struct{ container, image string }

// requestedPlace is what a request that begins a session says about its container.
func (e *Edge) requestedPlace(r *http.Request, c api.Caller) (place, error) {
	p := place{container: r.Header.Get(containerHeader), image: r.Header.Get(imageHeader)}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return p, proto.Errorf(proto.InvalidArgument, "", "query", "the query of the URL cannot be read")
	}
	for key, values := range query {
		switch key {
		case "container":
			p.container = values[0]
		case "image":
			p.image = values[0]
		default:
			return p, proto.Errorf(proto.InvalidArgument, "", "query", "query key %.80q is not known; there are "+
				"container and image", key)
		}
	}
	if p.container == "" {
		return p, nil
	}
	if p.image != "" {
		return p, proto.Errorf(proto.InvalidArgument, "", "image", "image is for a container that is made; leave it "+
			"out where container names one")
	}
	_, err = e.Sessions.Get(c.Owner, p.container)
	return p, err
}

// check refuses requests that a web page of somebody else's sends from its reader's browser. Only browsers send an
// origin, and they send it truly; but a page whose host name was made to mean this machine has that name in Host too,
// so that one counts only where it cannot be somebody else's.
func (e *Edge) check(r *http.Request) error {
	origin := r.Header.Get("Origin")
	if origin == "" || slices.ContainsFunc(e.Origins, func(o string) bool { return strings.EqualFold(o, origin) }) {
		return nil
	}
	if u, err := url.Parse(origin); err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host) &&
		isOwnName(u.Hostname()) {
		return nil
	}
	return proto.Errorf(proto.PermissionDenied, "", "Origin", "the origin %.80q may not send requests here; allow "+
		"it with --origin", origin)
}

// isOwnName reports whether a host is an address, or this machine by its first name.
func isOwnName(host string) bool { return host == "localhost" || net.ParseIP(host) != nil }

// dialect has what goes wrong before the protocol begins in the protocol's shape.
var dialect = api.Dialect{Status: api.PlainStatus, Body: func(f api.Failure) any {
	to := messageError{id: noID}
	errors.As(f.Cause, &to)
	return struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   rpcError        `json:"error"`
	}{"2.0", to.id, rpcError{Code: cmp.Or(to.code, rpcCode(f.Err.Code)), Message: f.Err.Message,
		Data: failure{f.Err, f.RequestID}}}
}}

// messageError is an error that answers a message, by which clients know it as theirs.
type messageError struct {
	id   json.RawMessage
	code int64 // 0: its error's
	error
}

func (a messageError) Unwrap() error { return a.error }

// noID is that of an answer to what has none.
var noID = json.RawMessage("null")

// idOf is the ID of the one message that a body is, or null.
func idOf(body []byte) json.RawMessage {
	var m struct {
		ID json.RawMessage `json:"id"`
	}
	if json.Unmarshal(body, &m) != nil || m.ID == nil {
		return noID
	}
	return m.ID
}

type rpcError struct {
	Code    int64   `json:"code"`
	Message string  `json:"message"`
	Data    failure `json:"data"`
}

// A failure is an error in this project's own words, beside the protocol's number for it.
type failure struct {
	*proto.Error
	RequestID string `json:"request_id,omitempty"`
}
