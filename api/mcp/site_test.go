package mcp

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"berth/api"
	"berth/code"
	"berth/proto"
	"berth/session"
	"berth/test/sessiontest"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// A site is the edge over the whole core, served over HTTP.
type site struct {
	*httptest.Server
	*sessiontest.Stack
	edge *Edge
}

func newSite(t *testing.T, adjust func(*Config)) *site {
	t.Helper()
	return newSiteOver(t, sessiontest.New(t, session.Config{}), adjust)
}

func newSiteOver(t *testing.T, stack *sessiontest.Stack, adjust func(*Config)) *site {
	t.Helper()
	s := &site{Stack: stack}
	runner := code.Open(code.Config{Sessions: s.Sessions})
	t.Cleanup(func() { runner.Close() })
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))
	cfg := Config{Sessions: s.Sessions, Code: runner, Jobs: s.Jobs, Files: s.Files, Life: s.Keys.Life, Version: "1.2.3",
		Log: log}
	if adjust != nil {
		adjust(&cfg)
	}
	s.edge = Open(cfg)
	server, err := api.New(api.Config{Auth: s.Keys, Audit: cfg.Audit, Edges: []api.Edge{s.edge.Edge()}, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	s.Server = httptest.NewServer(server)
	t.Cleanup(s.Server.Close)
	t.Cleanup(func() { s.edge.Close() })
	return s
}

// withKey sends every request with an API key, and further headers.
type withKey struct {
	key    string
	header map[string]string
}

func (w withKey) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("X-Api-Key", w.key)
	for k, v := range w.header {
		r.Header.Set(k, v)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// connect begins a session with the official client. Header is name, value, name, value.
func (s *site) connect(t *testing.T, key, query string, opts *sdk.ClientOptions, header ...string) (*sdk.ClientSession,
	error) {
	t.Helper()
	return s.connectAs(t, "2025-11-25", key, query, opts, header...)
}

// single is the official client as it is by default: its requests belong to no session.
func (s *site) single(t *testing.T, query string, opts *sdk.ClientOptions, header ...string) *sdk.ClientSession {
	t.Helper()
	cs, err := s.connectAs(t, "", sessiontest.Secret, query, opts, header...)
	if err != nil {
		t.Fatal(err)
	}
	return cs
}

func (s *site) connectAs(t *testing.T, version, key, query string, opts *sdk.ClientOptions, header ...string) (
	*sdk.ClientSession, error) {
	t.Helper()
	with := withKey{key: key, header: map[string]string{}}
	for i := 0; i < len(header); i += 2 {
		with.header[header[i]] = header[i+1]
	}
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, opts)
	cs, err := client.Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: s.URL + "/mcp" + query,
		HTTPClient: &http.Client{Transport: with}}, &sdk.ClientSessionOptions{ProtocolVersion: version})
	if err == nil {
		t.Cleanup(func() { cs.Close() })
	}
	return cs, err
}

func (s *site) session(t *testing.T) *sdk.ClientSession {
	t.Helper()
	cs, err := s.connect(t, sessiontest.Secret, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	return cs
}

// use calls a tool and returns the result and the text in it.
func use(t *testing.T, cs *sdk.ClientSession, name string, args map[string]any) (*sdk.CallToolResult, string) {
	t.Helper()
	res, err := cs.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	var b strings.Builder
	for _, c := range res.Content {
		if text, ok := c.(*sdk.TextContent); ok {
			b.WriteString(text.Text)
		}
	}
	return res, b.String()
}

// containerOf is the container that a result happened in.
func containerOf(t *testing.T, res *sdk.CallToolResult) string {
	t.Helper()
	ref, _ := res.Meta[metaContainer].(map[string]any)
	id, _ := ref["id"].(string)
	if !proto.ValidID(proto.ContainerPrefix, id) {
		t.Fatalf("the result names no container: %v", res.Meta)
	}
	return id
}

// post sends one message as it is.
func (s *site) post(t *testing.T, key, session, body string, header ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+"/mcp", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return s.send(t, req, key, session, header...)
}

func (s *site) send(t *testing.T, req *http.Request, key, session string, header ...string) (int, string) {
	t.Helper()
	for name, value := range map[string]string{"X-Api-Key": key, sessionHeader: session,
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream"} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

// waitFor asks until it is so. What it asks has no event.
func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	late := time.After(20 * time.Second)
	for !is() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("it never came that %s", what)
		}
	}
}
