package attack

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	"berth/client"
	"berth/proto"
)

// Group 35, MCP: a session is kept in the daemon's memory, and its ID is all that later messages have. Its tools and
// resources name containers and files a second time.
var _ = register(
	Case{
		Group: 35, Name: "tenants/mcp",
		Tries: "use another tenant's MCP session by its ID, and their container and file from a session of one's " +
			"own: by header, arguments of tools, and URIs of resources",
		Wants: "none is found, and the other tenant's session goes on",
		Run:   foreignMCP,
	},
	// A page of a foreign site can send requests to loopback from the operator's browser.
	Case{
		Group: 44, Name: "http/mcp-origin",
		Tries: "send MCP messages as web pages of foreign origins would, with the right key",
		Wants: "403",
		Run:   foreignMCPOrigin,
	},
)

// mcp sends one message to the MCP endpoint and returns the answer. It is an event stream or JSON.
func (t *Target) mcp(ctx context.Context, method, session string, message any, header ...string) (answer, error) {
	var body []byte
	if message != nil {
		var err error
		if body, err = json.Marshal(message); err != nil {
			return answer{}, err
		}
	}
	if session != "" {
		header = append(header, "Mcp-Session-Id", session)
	}
	header = append(header, "Content-Type", "application/json", "Accept", "application/json, text/event-stream")
	return t.ask(ctx, method, "/mcp", nil, bytes.NewReader(body), header...)
}

// rpc returns a message that calls a method.
func rpc(method string, params any) map[string]any {
	return map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
}

// toolCall returns a message that calls a tool.
func toolCall(name string, arguments any) map[string]any {
	return rpc("tools/call", map[string]any{"name": name, "arguments": arguments})
}

// mcpSingle sends a call as a request that belongs to no session.
func (t *Target) mcpSingle(ctx context.Context, call map[string]any) (answer, error) {
	const version = "2026-07-28"
	params := maps.Clone(call["params"].(map[string]any))
	name, _ := params["name"].(string)
	if uri, ok := params["uri"].(string); ok {
		name = uri
	}
	params["_meta"] = map[string]any{"io.modelcontextprotocol/protocolVersion": version,
		"io.modelcontextprotocol/clientCapabilities": map[string]any{}}
	method := call["method"].(string)
	return t.mcp(ctx, http.MethodPost, "", rpc(method, params), "Mcp-Protocol-Version", version, "Mcp-Method", method,
		"Mcp-Name", name)
}

// mcpHello begins a session.
var mcpHello = rpc("initialize", map[string]any{"protocolVersion": "2025-06-18", "capabilities": map[string]any{},
	"clientInfo": map[string]any{"name": "attack", "version": "1"}})

// mcpSession begins a session, which is ended with the case.
func (t *Target) mcpSession(ctx context.Context) (string, error) {
	a, err := t.mcp(ctx, http.MethodPost, "", mcpHello)
	if err != nil {
		return "", err
	}
	id := a.header.Get("Mcp-Session-Id")
	if a.status != http.StatusOK || id == "" {
		return "", fmt.Errorf("beginning an MCP session: %d %.300s", a.status, a.body)
	}
	t.Later(func(ctx context.Context) error {
		_, err := t.mcp(ctx, http.MethodDelete, id, nil)
		return err
	})
	_, err = t.mcp(ctx, http.MethodPost, id, map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"})
	return id, err
}

// message returns the JSON of an answer, which may be an event.
func (a answer) message() []byte {
	if _, text, found := bytes.Cut(a.body, []byte("data: {")); found {
		line, _, _ := bytes.Cut(text, []byte("\n"))
		return append([]byte("{"), line...)
	}
	return a.body
}

// failed reports whether an answer is an error of the protocol or of a tool.
func (a answer) failed() bool {
	var m struct {
		Error  any `json:"error"`
		Result struct {
			IsError bool `json:"isError"`
		} `json:"result"`
	}
	return a.status >= 400 || json.Unmarshal(a.message(), &m) != nil || m.Error != nil || m.Result.IsError
}

func foreignMCP(ctx context.Context, t *Target) (string, error) {
	n, err := t.Neighbour(ctx)
	if err != nil {
		return "", err
	}
	theirs, err := n.mcpSession(ctx)
	if err != nil {
		return "", err
	}
	const secret = "of-the-neighbour-alone"
	victim, err := n.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	if _, err := n.Do(ctx, victim.ID, proto.Cmd{Command: "echo " + secret + " | tee /workspace/secret >kept",
		JobID: "secret"}); err != nil {
		return "", err
	}
	file, err := n.UploadFile(ctx, client.Upload{Name: "secret.txt", Body: strings.NewReader(secret)})
	if err != nil {
		return "", err
	}
	n.Later(func(ctx context.Context) error { return n.removed(ctx, "/v1/files/"+file.ID) })

	if err := t.foreignSession(ctx, theirs); err != nil {
		return "", err
	}
	a, err := t.mcp(ctx, http.MethodPost, "", mcpHello, "Berth-Container", victim.ID)
	if err != nil {
		return "", err
	}
	if a.status != http.StatusNotFound {
		return "", Breached("a session for another tenant's container was answered %d %.200s", a.status, a.body)
	}
	tried, err := t.foreignArguments(ctx, victim.ID, file.ID, secret)
	if err != nil {
		return "", err
	}
	a, err = n.mcp(ctx, http.MethodPost, theirs, rpc("tools/list", map[string]any{}))
	if err != nil {
		return "", err
	}
	if a.failed() {
		return "", Breached("the other tenant's session does not go on: %d %.200s", a.status, a.body)
	}
	return fmt.Sprintf("the session, its container and %d calls that named it were not found", tried), nil
}

// foreignSession sends messages to another tenant's session.
func (t *Target) foreignSession(ctx context.Context, session string) error {
	for _, m := range []struct {
		method  string
		message any
	}{
		{http.MethodPost, rpc("ping", nil)}, {http.MethodPost, rpc("tools/list", map[string]any{})},
		{http.MethodPost, rpc("resources/list", map[string]any{})},
		{http.MethodPost, toolCall("bash", map[string]any{"command": "id"})},
		{http.MethodGet, nil}, {http.MethodDelete, nil},
	} {
		a, err := t.mcp(ctx, m.method, session, m.message)
		if err != nil {
			return err
		}
		if a.status != http.StatusNotFound {
			return Breached("%s %v in another tenant's session was answered %d %.200s", m.method, m.message, a.status,
				a.body)
		}
	}
	return nil
}

// foreignArguments calls every tool that takes a container with another tenant's, and reads what they have.
func (t *Target) foreignArguments(ctx context.Context, container, file, secret string) (tried int, err error) {
	own, err := t.mcpSession(ctx)
	if err != nil {
		return 0, err
	}
	calls, err := t.containerCalls(ctx, own, container)
	if err != nil {
		return 0, err
	}
	for _, uri := range []string{"berth://files/" + file, "berth://containers/" + container + "/workspace/secret",
		"berth://containers/" + container + "/jobs/secret/manifest.json"} {
		calls = append(calls, rpc("resources/read", map[string]any{"uri": uri}))
	}
	for _, call := range calls {
		for _, send := range []func() (answer, error){
			func() (answer, error) { return t.mcp(ctx, http.MethodPost, own, call) },
			func() (answer, error) { return t.mcpSingle(ctx, call) },
		} {
			a, err := send()
			if err != nil {
				return tried, err
			}
			if !a.failed() || bytes.Contains(a.body, []byte(secret)) {
				return tried, Breached("%v was answered %d %.300s", call["params"], a.status, a.body)
			}
			tried++
		}
	}
	a, err := t.mcp(ctx, http.MethodPost, own, rpc("resources/list", map[string]any{}))
	if err != nil {
		return tried, err
	}
	if a.failed() || bytes.Contains(a.body, []byte(file)) {
		return tried, Breached("the list of resources is %d %.300s", a.status, a.body)
	}
	return tried, nil
}

// containerCalls returns a call of each tool that takes a container, with this one.
func (t *Target) containerCalls(ctx context.Context, session, container string) (calls []map[string]any, err error) {
	a, err := t.mcp(ctx, http.MethodPost, session, rpc("tools/list", map[string]any{}))
	if err != nil {
		return nil, err
	}
	var list struct {
		Result struct {
			Tools []struct {
				Name        string `json:"name"`
				InputSchema struct {
					Properties map[string]struct {
						Type any   `json:"type"`
						Enum []any `json:"enum"`
					} `json:"properties"`
					Required []string `json:"required"`
				} `json:"inputSchema"`
			} `json:"tools"`
		} `json:"result"`
	}
	if err := json.Unmarshal(a.message(), &list); err != nil {
		return nil, fmt.Errorf("reading the list of tools: %w in %.300s", err, a.body)
	}
	for _, tool := range list.Result.Tools {
		if _, takes := tool.InputSchema.Properties["container"]; !takes {
			continue
		}
		arguments := map[string]any{"container": container}
		for _, name := range tool.InputSchema.Required {
			arguments[name] = "/workspace/secret"
			if choices := tool.InputSchema.Properties[name].Enum; len(choices) > 0 {
				arguments[name] = choices[0]
			}
		}
		if tool.Name == "bash" { // one of command and restart
			arguments["command"] = "cat /workspace/secret"
		}
		calls = append(calls, toolCall(tool.Name, arguments))
	}
	if len(calls) < 2 {
		return nil, fmt.Errorf("only %d tools take a container: %.300s", len(calls), a.body)
	}
	return calls, nil
}

// foreignMCPOrigin uses the right key, as a page might have it.
func foreignMCPOrigin(ctx context.Context, t *Target) (string, error) {
	host := strings.TrimSuffix(t.Host[strings.Index(t.Host, "://")+len("://"):], "/")
	origins := []string{"https://attacker.example", "null", "http://" + host + ".attacker.example",
		"http://attacker.example/" + host, "http://" + host + "@attacker.example", "file://", "://"}
	for _, origin := range origins {
		a, err := t.mcp(ctx, http.MethodPost, "", mcpHello, "Origin", origin)
		if err != nil {
			return "", err
		}
		if a.status != http.StatusForbidden {
			return "", Breached("the origin %q was answered %d %.200s", origin, a.status, a.body)
		}
	}
	// A name that an attacker has led to this machine is Host and Origin of its pages.
	body, err := json.Marshal(mcpHello)
	if err != nil {
		return "", err
	}
	conn, err := t.Dial(ctx, 30*time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: rebound.example\r\nOrigin: http://rebound.example\r\n"+
		"X-Api-Key: %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"+
		"Connection: close\r\nContent-Length: %d\r\n\r\n%s", t.Key, len(body), body); err != nil {
		return "", err
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusForbidden {
		return "", Breached("a page of a rebound name was answered %d", res.StatusCode)
	}
	return fmt.Sprintf("%d origins and a rebound one, all 403", len(origins)), nil
}
