// Package mcpclient lists and calls the tools of a server that speaks the Model Context Protocol over streamable HTTP.
// tools/bridge/remote is the caller.
package mcpclient

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"berth/proto"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Config is what New needs.
type Config struct {
	URL      string
	Client   *http.Client
	MaxBytes int64                  // of one answer, and of all pages of a list
	Wants    func(tool string) bool // nil: all tools
}

// maxTools bounds how many tools are read of a server's list.
const maxTools = 1000

// listFor is how long a list of tools is cached.
const listFor = time.Minute

// A Client is one connection to a server. It is opened at its first use, and again after it was lost. Its methods are
// safe for concurrent use.
type Client struct {
	cfg Config

	turn chan struct{} // holds one token: the right to connect

	mu      sync.Mutex // guards what follows
	session *session
	tools   map[string]proto.ToolSpec
	asked   time.Time // when tools was read
	closed  bool
}

// A session with a server is closed after its last user: when the next call needs a new session, earlier calls go on
// in this one.
type session struct {
	*mcp.ClientSession
	users sync.WaitGroup // added to while it is the client's, under its mu
}

// New makes a client. It connects to nothing yet.
func New(cfg Config) *Client {
	client := *cfg.Client
	client.Transport = bounded{cfg.Client.Transport, cfg.MaxBytes}
	cfg.Client = &client
	return &Client{cfg: cfg, turn: make(chan struct{}, 1)}
}

// connect returns the session with the server, and counts one more user. The caller calls users.Done.
func (c *Client) connect(ctx context.Context) (*session, error) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s, err := c.current(); s != nil || err != nil {
		return s, err
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "berth", Version: "1"}, nil)
	made, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: c.cfg.URL, HTTPClient: c.cfg.Client,
		MaxRetries: -1, DisableStandaloneSSE: true}, nil)
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		go made.Close()
		return nil, errClosed
	}
	c.session = &session{ClientSession: made}
	c.session.users.Add(1)
	return c.session, nil
}

var errClosed = errors.New("the client is closed")

// current returns the session, and counts one more user; nil: there is none.
func (c *Client) current() (*session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosed
	}
	if c.session != nil {
		c.session.users.Add(1)
	}
	return c.session, nil
}

// drop forgets a session that failed, so that the next call opens a new one.
func (c *Client) drop(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == s {
		c.session = nil
		go func() {
			s.users.Wait()
			_ = s.Close() // it may send a last request
		}()
	}
}

// Tools returns the tools that the server lists, by name.
func (c *Client) Tools(ctx context.Context) (map[string]proto.ToolSpec, error) {
	c.mu.Lock()
	if c.tools != nil && time.Since(c.asked) < listFor {
		defer c.mu.Unlock()
		return c.tools, nil
	}
	c.mu.Unlock()
	s, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer s.users.Done()
	list, err := c.list(ctx, s.ClientSession)
	if err != nil {
		c.drop(s)
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tools, c.asked = list, time.Now()
	return list, nil
}

func (c *Client) list(ctx context.Context, s *mcp.ClientSession) (map[string]proto.ToolSpec, error) {
	var left atomic.Int64
	left.Store(c.cfg.MaxBytes)
	ctx = withTake(ctx, func(n int) error {
		if left.Add(-int64(n)) < 0 {
			return errTooLarge
		}
		return nil
	})
	out, seen := map[string]proto.ToolSpec{}, 0
	for t, err := range s.Tools(ctx, nil) {
		if err != nil {
			return nil, fmt.Errorf("listing tools: %w", err)
		}
		if seen++; seen > maxTools {
			break
		}
		if c.cfg.Wants != nil && !c.cfg.Wants(t.Name) {
			continue
		}
		spec := proto.ToolSpec{Name: t.Name, Description: t.Description}
		if spec.InputSchema, err = schemaOf(t.InputSchema); err == nil {
			spec.OutputSchema, err = schemaOf(t.OutputSchema)
		}
		if err != nil {
			return nil, err
		}
		out[t.Name] = spec
	}
	return out, nil
}

func schemaOf(v any) (json.RawMessage, error) {
	if v == nil {
		return nil, nil
	}
	return json.Marshal(v)
}

// Call calls a tool, once. take reserves memory for the bytes of the answer as they arrive; its error ends the call.
// failed is the message of a tool that failed. err means that it is unknown what the call did.
func (c *Client) Call(ctx context.Context, name string, input json.RawMessage, take func(n int) error) (
	result json.RawMessage, failed string, err error) {
	s, err := c.connect(ctx)
	if err != nil {
		return nil, "", err
	}
	defer s.users.Done()
	res, err := s.CallTool(withTake(ctx, take), &mcp.CallToolParams{Name: name, Arguments: input})
	if err != nil {
		c.drop(s)
		return nil, "", err
	}
	if res.IsError {
		return nil, cmp.Or(textOf(res.Content), "the tool failed and did not say why"), nil
	}
	result, err = resultOf(res)
	return result, "", err
}

// resultOf returns the result of a tool: its structured content if it has any, its text if it has nothing but text, or
// its content in the protocol's form.
func resultOf(res *mcp.CallToolResult) (json.RawMessage, error) {
	if res.StructuredContent != nil {
		return json.Marshal(res.StructuredContent)
	}
	for _, part := range res.Content {
		if _, ok := part.(*mcp.TextContent); !ok {
			return json.Marshal(res.Content)
		}
	}
	return json.Marshal(textOf(res.Content))
}

func textOf(content []mcp.Content) string {
	var parts []string
	for _, part := range content {
		if t, ok := part.(*mcp.TextContent); ok {
			parts = append(parts, t.Text)
		}
	}
	return strings.Join(parts, "\n")
}

// Close ends the connection.
func (c *Client) Close() {
	c.mu.Lock()
	s := c.session
	c.session, c.closed = nil, true
	c.mu.Unlock()
	if s != nil {
		_ = s.Close()
	}
	c.cfg.Client.CloseIdleConnections()
}
