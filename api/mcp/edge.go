package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
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

// endpoint is the path of the edge.
const endpoint = "/mcp"

// Bounds for clients.
const (
	maxMessage  = 4 << 20        // bytes of one message from a client
	maxSessions = 256            // MCP sessions of one owner at once
	defaultIdle = 24 * time.Hour // until an unused session ends
	keptEvents  = 8 << 20        // bytes of events kept for clients whose connection broke, of all sessions together
)

// A Config is what the edge serves. Sessions, Code, Jobs, Files and Life must be set.
type Config struct {
	Sessions *session.Sessions
	Code     *code.Runner
	Jobs     *artifacts.Jobs
	Files    FileStore
	Tools    *toolstore.Store                   // stored tools; nil: none
	Life     func(keyID string) context.Context // ends when the key is no longer valid
	Audit    api.Auditor                        // gets tool calls and file reads; nil: no audit
	Version  string                             // of the daemon; "" is proto.Version
	Origins  api.Origins                        // of web pages that may send requests
	Idle     time.Duration                      // an unused MCP session ends after this; 0 is a day
	Log      *slog.Logger                       // nil: slog.Default
}

// A FileStore keeps stored files. Package files has one.
type FileStore interface {
	List(_ context.Context, owner string, q files.Query) (files.Page, error)
	Get(_ context.Context, owner, id string) (proto.StoredFile, error)
	Open(_ context.Context, owner, id string) (io.ReadSeekCloser, proto.StoredFile, error)
	Put(ctx context.Context, up files.Upload, r io.Reader) (proto.StoredFile, error)
}

// An Edge is the edge with the sessions of its clients.
type Edge struct {
	Config
	server   *sdk.Server       // for messages of sessions
	http     http.Handler      // of server
	single   http.Handler      // for requests that belong to no session
	send     sdk.MethodHandler // sends a notification to the client of its session
	quiet    time.Duration     // quietFor, except in tests
	requests sync.Map          // running HTTP requests by request ID: wireRequest

	mu       sync.Mutex // guards the fields below
	sessions map[string]*mcpSession
	listens  map[string]int // open streams of subscriptions by owner
	closed   bool
	ending   sync.WaitGroup // goroutines that wait for sessions to end
}

// Open makes the edge.
func Open(cfg Config) *Edge {
	cfg.Version = cmp.Or(cfg.Version, proto.Version)
	cfg.Idle = cmp.Or(cfg.Idle, defaultIdle)
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	e := &Edge{Config: cfg, sessions: map[string]*mcpSession{}, listens: map[string]int{}, quiet: quietFor}
	e.server = e.newServer(instructions)
	events := sdk.NewMemoryEventStore(nil)
	events.SetMaxBytes(keptEvents)
	e.http = sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return e.server },
		&sdk.StreamableHTTPOptions{
			EventStore: events, SessionTimeout: cfg.Idle, MaxRequestBodyBytes: maxMessage,
			// Edge's Check examines the origin, and web pages have no key; this protection would refuse a local proxy.
			DisableLocalhostProtection: true,
		})
	e.single = e.newSingle()
	return e
}

// newServer makes a server of the SDK.
func (e *Edge) newServer(instructions string) *sdk.Server {
	tools := &sdk.ToolCapabilities{ListChanged: e.Tools != nil}
	server := sdk.NewServer(&sdk.Implementation{Name: "berth", Title: "berth: containers for agents",
		Version: e.Version}, &sdk.ServerOptions{
		Instructions: instructions,
		// The list of resources changes with the files of the owner, but there are no notifications.
		Capabilities: &sdk.ServerCapabilities{Tools: tools, Resources: &sdk.ResourceCapabilities{}},
		SetCacheable: func(_ context.Context, _ sdk.Request, c *sdk.Cacheable) { *c = privateCache },
	})
	server.AddReceivingMiddleware(e.receive)
	server.AddSendingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
		e.send = next
		return next
	})
	e.addTemplates(server)
	return server
}

// privateCache keeps shared caches from storing lists and resources.
var privateCache = sdk.Cacheable{CacheScope: "private"}

// instructions are for the model of the client.
const instructions = `berth runs commands and code in a Linux container that belongs to this session. The container is created at its first use, keeps its files between calls, and is deleted with the session.
bash is a persistent shell. run_code starts a new interpreter, or continues the one that context names, which keeps its variables. Both use the same files, below /workspace.
Files in $OUTPUT_DIR are stored and returned as links.
A long text is cut in its middle. A large picture or file is a link. Read a link with resources/read; append ?offset=BYTES&length=BYTES to its URI to read a part.`

// Edge returns the edge for a server to mount.
func (e *Edge) Edge() api.Edge {
	return api.Edge{
		Name:     "mcp",
		Prefixes: []string{endpoint},
		Dialect:  dialect,
		Check:    e.Origins.Check,
		Routes: []api.Route{
			{Method: "POST", Pattern: endpoint, Where: api.InHeader, Handle: e.serve, Act: "mcp.message",
				Covered: true, Media: []string{"application/json"}, MaxBodyBytes: maxMessage},
			{Method: "GET", Pattern: endpoint, Where: api.InHeader, Handle: e.serve},
			{Method: "DELETE", Pattern: endpoint, Where: api.InHeader, Handle: e.serve, Act: "mcp.end", Covered: true},
		},
	}
}

// Close ends all sessions. Their containers stay, as all containers do when the daemon ends.
func (e *Edge) Close() error {
	e.mu.Lock()
	e.closed = true
	all := e.sessions
	e.sessions = map[string]*mcpSession{}
	e.mu.Unlock()
	for _, v := range all {
		v.end()
		_ = v.session.Close() // its error changes nothing here
	}
	e.ending.Wait()
	return nil
}

// sessionHeader carries the ID of an MCP session.
const sessionHeader = "Mcp-Session-Id"

// wireHeader connects a message in the SDK with its HTTP request. A value from a client is replaced.
const wireHeader = "Berth-Request"

// serve checks a request and passes it to the SDK.
func (e *Edge) serve(w http.ResponseWriter, r *http.Request, c api.Caller) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	// the SDK would run every message of a batch, past the rate limit
	if bytes.HasPrefix(bytes.TrimSpace(body), []byte("[")) {
		return messageError{id: noID, code: jsonrpc.CodeInvalidRequest, error: proto.Invalid("body",
			"batches are not supported; send each message as a request of its own")}
	}
	m := envelopeOf(body)
	if m.isSingle(r) {
		return e.serveSingle(w, r, c, m, body)
	}
	v, p, err := e.sessionOf(r, c)
	if err != nil {
		return messageError{id: m.id(), error: err}
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	switch r.Method {
	case http.MethodGet: // it stays open while there is nothing to send
		go untilDrained(ctx, cancel)
		defer e.tellChanges(ctx, v)()
	case http.MethodDelete:
		if err := e.endSession(v); err != nil {
			return err
		}
	}
	r = r.Clone(ctx)
	p.write(r.Header)
	return e.pass(w, r, body, m, e.http, nil)
}

// pass has the SDK handle a request, and sends its answer in the form that clients take. single is the sender of a
// message that belongs to no session.
func (e *Edge) pass(w http.ResponseWriter, r *http.Request, body []byte, m envelope, to http.Handler,
	single *peer) error {
	ctx := r.Context()
	id := api.RequestID(ctx)
	e.requests.Store(id, wireRequest{ctx, m.ID, single})
	defer e.requests.Delete(id)
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.Header.Set(wireHeader, id)
	l := newAnswerWriter(w, r, m.Method)
	if m.Method == listenMethod {
		defer l.keepAlive(e.quiet)()
	}
	to.ServeHTTP(l, r)
	l.finish()
	// the daemon shuts down, which the SDK does not report
	if cause := context.Cause(ctx); proto.CodeOf(cause) == proto.Unavailable {
		return messageError{id: m.id(), error: cause}
	}
	if l.refusal != nil {
		return l.answer(body, single != nil)
	}
	l.sendHeld()
	return nil
}

// untilDrained cancels when the server begins to shut down, unless ctx has ended before.
func untilDrained(ctx context.Context, cancel func()) {
	select {
	case <-api.Draining(ctx):
		cancel()
	case <-ctx.Done():
	}
}

// sessionOf returns the session that a request names, if it belongs to the caller. A request without one may start a
// session in the returned place.
func (e *Edge) sessionOf(r *http.Request, c api.Caller) (*mcpSession, place, error) {
	id := r.Header.Get(sessionHeader)
	v, full := e.findSession(id, c.Owner)
	switch {
	case v != nil:
		return v, place{}, nil
	case id != "":
		return nil, place{}, proto.Errorf(proto.NotFound, "", sessionHeader, "the session does not exist or has "+
			"ended; send initialize to start a new one")
	case r.Method != http.MethodPost:
		return nil, place{}, proto.Invalid(sessionHeader, "the header %s is missing; set it to the session ID that "+
			"initialize returned", sessionHeader)
	case full != nil:
		return nil, place{}, full
	}
	p, err := e.requestedPlace(r, c)
	return nil, p, err
}

// findSession returns a session of an owner, if it exists, and an error if the owner can have no further one.
func (e *Edge) findSession(id, owner string) (v *mcpSession, full error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if v = e.sessions[id]; v != nil && v.owner != owner {
		v = nil
	}
	return v, e.sessionLimit(owner)
}

// sessionLimit returns an error if an owner can have no further session. The caller holds mu.
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
	return proto.Errorf(proto.TooMany, "", "sessions", "the limit of %d sessions is reached; end one with DELETE, or "+
		"wait until idle sessions end", count)
}

// dialect writes errors outside the protocol in the shape of the protocol.
var dialect = api.Dialect{Status: api.PlainStatus, Body: func(f api.Failure) any {
	to := messageError{id: noID}
	errors.As(f.Cause, &to)
	return struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   rpcError        `json:"error"`
	}{"2.0", to.id, rpcError{Code: cmp.Or(to.code, rpcCode(f.Err.Code)), Message: f.Err.Message,
		Data: failure{f.Err, f.RequestID, to.versions}}}
}}

// A messageError is an error with the ID of the message that it answers.
type messageError struct {
	id   json.RawMessage
	code int64 // 0: that of the error
	error
	versions *sdk.UnsupportedProtocolVersionData // nil: the version is not what is wrong
}

func (a messageError) Unwrap() error { return a.error }

// noID answers messages without an ID.
var noID = json.RawMessage("null")

type rpcError struct {
	Code    int64   `json:"code"`
	Message string  `json:"message"`
	Data    failure `json:"data"`
}

// A failure is our error beside the error number of the protocol.
type failure struct {
	*proto.Error
	RequestID string `json:"request_id,omitempty"`
	*sdk.UnsupportedProtocolVersionData
}
