// Package remote has servers answer calls of tools: a server that gets each call as a POST, or one that speaks the
// Model Context Protocol.
//
// Package bridge makes one Server for each container whose allow-list names a server, and checks calls and results.
package remote

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"time"

	"berth/proto"
	"berth/tools/bridge/codeapi"
	"berth/tools/bridge/mcpclient"
	"berth/tools/bridge/provider"
)

// aroundResult is what an answer may have beside its result, in bytes.
const aroundResult = 4 << 10

// A Server answers calls of one container. Its methods are safe for concurrent use.
type Server interface {
	// Tools returns the tools that the server has, by name.
	Tools(ctx context.Context) (map[string]*provider.Prepared, error)
	// Answer has a call answered, once. It returns neither a result nor a failure if ctx ends. take reserves memory for
	// the answer as it arrives; its error ends the call.
	Answer(ctx context.Context, c provider.Call, take func(n int) error) (json.RawMessage, *codeapi.Failure)
	Close()
}

// Config is what New needs.
type Config struct {
	Container string // for the log
	Provider  proto.ToolProvider
	Allow     []proto.AllowedTool // the tools that code may call
	Dial      func(ctx context.Context, network, hostPort string) (net.Conn, error)
	Log       *slog.Logger
}

// New makes a server. It connects to nothing yet.
func New(cfg Config) (Server, error) {
	// it follows no redirect, since a redirect may lead to another host
	client := &http.Client{
		Transport: headed{cfg.Provider.Headers, &http.Transport{
			DialContext: cfg.Dial, MaxIdleConns: 4, IdleConnTimeout: time.Minute, TLSHandshakeTimeout: 10 * time.Second,
			MaxResponseHeaderBytes: 64 << 10, ForceAttemptHTTP2: true,
		}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if cfg.Provider.Type != proto.ProviderMCP {
		return newCallback(cfg.Provider, client)
	}
	m := &mcpServer{cfg: cfg, prepared: map[string]listed{}}
	m.client = mcpclient.New(mcpclient.Config{URL: cfg.Provider.URL, Client: client,
		MaxBytes: provider.MaxResult + aroundResult, Wants: m.allows})
	return m, nil
}

// headed sets headers on each request.
type headed struct {
	headers map[string]string
	next    *http.Transport
}

// RoundTrip implements http.RoundTripper.
func (h headed) RoundTrip(r *http.Request) (*http.Response, error) {
	if len(h.headers) > 0 {
		r = r.Clone(r.Context())
		for name, value := range h.headers {
			r.Header.Set(name, value)
		}
	}
	return h.next.RoundTrip(r)
}

// CloseIdleConnections closes connections that are not in use.
func (h headed) CloseIdleConnections() { h.next.CloseIdleConnections() }

func resultTooLarge(tool string) *codeapi.Failure {
	return codeapi.Fail(codeapi.RuntimeError, "the result of %s has more than %d bytes, which is the limit", tool,
		provider.MaxResult)
}
