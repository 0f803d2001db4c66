package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"sync"

	"berth/proto"
	"berth/tools/bridge/codeapi"
	"berth/tools/bridge/mcpclient"
	"berth/tools/bridge/provider"
)

// An mcpServer is a server that speaks the Model Context Protocol.
type mcpServer struct {
	cfg    Config
	client *mcpclient.Client

	mu       sync.Mutex // guards prepared
	prepared map[string]listed
}

// A listed is a tool as the server lists it, and in the form that calls need; nil: it cannot be called.
type listed struct {
	spec proto.ToolSpec
	tool *provider.Prepared
}

func (m *mcpServer) allows(name string) bool {
	return slices.ContainsFunc(m.cfg.Allow, func(t proto.AllowedTool) bool { return t.Name == name })
}

// Close implements Server.
func (m *mcpServer) Close() { m.client.Close() }

// Tools implements Server. It returns those of the server's tools that code may call.
func (m *mcpServer) Tools(ctx context.Context) (map[string]*provider.Prepared, error) {
	specs, err := m.client.Tools(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]*provider.Prepared{}
	for name, spec := range specs {
		if t := m.prepare(spec); t != nil && m.allows(name) {
			out[name] = t
		}
	}
	return out, nil
}

// prepare returns a tool in the form that calls need. It is made once for as long as the server lists it unchanged. A
// tool that cannot be called counts as missing.
func (m *mcpServer) prepare(s proto.ToolSpec) *provider.Prepared {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l, ok := m.prepared[s.Name]; ok && l.spec.Description == s.Description &&
		bytes.Equal(l.spec.InputSchema, s.InputSchema) && bytes.Equal(l.spec.OutputSchema, s.OutputSchema) {
		return l.tool
	}
	t, err := provider.Prepare("tools", provider.FromSpec(s))
	if err != nil {
		m.cfg.Log.Warn("a server lists a tool that cannot be called", "container", m.cfg.Container, "tool", s.Name,
			"error", err)
		t = nil
	}
	m.prepared[s.Name] = listed{s, t}
	return t
}

// Answer implements Server.
func (m *mcpServer) Answer(ctx context.Context, one provider.Call, take func(n int) error) (
	json.RawMessage, *codeapi.Failure) {
	result, failed, err := m.client.Call(ctx, one.Tool, one.Input, take)
	if ctx.Err() != nil {
		return nil, nil
	}
	if f := codeapi.FailureOf(err); f != nil {
		return nil, f
	}
	switch {
	case err != nil:
		m.cfg.Log.Warn("calling a tool of a server", "container", one.ContainerID, "call", one.ID, "error", err)
		return nil, codeapi.Fail(codeapi.RuntimeError, "the server that answers %s failed", one.Tool)
	case failed != "":
		return nil, codeapi.Fail(codeapi.RuntimeError, "%s", failed)
	case len(result) > provider.MaxResult:
		return nil, resultTooLarge(one.Tool)
	}
	return result, nil
}
