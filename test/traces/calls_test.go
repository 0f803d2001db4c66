package traces_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"berth/proto"
	"berth/test/scripted"
)

// TestSpansOfATurn follows a trace through a model's answer, the tool that it calls and the command, and to the model.
func TestSpansOfATurn(t *testing.T) {
	script, err := scripted.Load(strings.NewReader(`{"plain": true, "turns": [
		{"answer": {"usage": {"input_tokens": 7, "output_tokens": 2, "cache_read_input_tokens": 4}, "content": [
			{"type": "tool_use", "name": "bash_code_execution", "input": {"command": "echo hi"}}]}},
		{"answer": {"content": [{"type": "text", "text": "done"}]}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	model := scripted.New(script)
	web := httptest.NewServer(model)
	t.Cleanup(web.Close)
	s := newServer(t, "--upstream", web.URL)
	trace := s.trace()
	call[map[string]any](t, s, trace, "POST", "/v1/messages", `{"model":"m","max_tokens":9,
		"tools":[{"type":"code_execution_20250825","name":"code_execution"}],
		"messages":[{"role":"user","content":"go"}]}`)
	request := s.await(t, trace, "POST /v1/messages", nil)
	chat := s.await(t, trace, "chat m", nil)
	childOf(t, chat, request.id)
	has(t, chat, map[string]any{"gen_ai.operation.name": "chat", "gen_ai.request.model": "m",
		"http.response.status_code": int64(200), "gen_ai.usage.input_tokens": int64(11),
		"gen_ai.usage.output_tokens": int64(2), "gen_ai.response.model": "m"})
	if got := model.Headers()[0].Get("Traceparent"); got != "00-"+trace+"-"+chat.id+"-01" {
		t.Errorf("the model got traceparent %q; its span is %s", got, chat.id)
	}
	tool := s.await(t, trace, "execute_tool bash", nil)
	has(t, tool, map[string]any{"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "bash"})
	childOf(t, tool, request.id)
	childOf(t, s.await(t, trace, "exec", nil), tool.id)
}

// TestSpansOfCode checks the spans of cells, programs and stored tools.
func TestSpansOfCode(t *testing.T) {
	s := newServer(t)
	trace := s.trace()
	c := call[proto.Container](t, s, trace, "POST", "/v1/containers", `{}`)
	call[proto.Outcome](t, s, trace, "POST", "/v1/run_code", `{"code":"1","container":"`+c.ID+`"}`)
	program := s.await(t, trace, "code", nil)
	has(t, program, map[string]any{"berth.code.language": "python"})
	childOf(t, s.await(t, trace, "exec", nil), program.id)
	const tell = `{"code":"import os; print(os.environ['TRACEPARENT'])","context":"main","container":"`
	out := call[proto.Outcome](t, s, trace, "POST", "/v1/run_code", tell+c.ID+`"}`)
	cell := s.await(t, trace, "code.cell", nil)
	if want := "00-" + trace + "-" + cell.id + "-01\n"; strings.Join(out.Logs.Stdout, "") != want {
		t.Errorf("the cell has TRACEPARENT %q, not %q", out.Logs.Stdout, want)
	}
	has(t, cell, map[string]any{"berth.code.language": "python", "berth.container.id": c.ID,
		"berth.context.id": "main"})
	call[map[string]any](t, s, trace, "POST", "/v1/tools", `{"name":"t","tool_type":"code_runner",
		"configuration":{"type":"CodeRunner","code":"def run(input):\n    return {}"}}`)
	call[map[string]any](t, s, trace, "POST", "/v1/tools/t/run", `{"input":{}}`)
	has(t, s.await(t, trace, "execute_tool t", nil), map[string]any{"gen_ai.tool.name": "t"})
}

// TestSpansOfWebhooks checks that a delivery is a trace of its own, which its receiver gets.
func TestSpansOfWebhooks(t *testing.T) {
	s := newServer(t, "--webhook-allow-private=127.0.0.1/32")
	got := make(chan string, 16)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got <- r.Header.Get("Traceparent")
	}))
	t.Cleanup(receiver.Close)
	trace := s.trace()
	call[proto.NewWebhook](t, s, trace, "POST", "/v1/webhooks", `{"url":"`+receiver.URL+`",
		"types":["container.created"]}`)
	call[proto.Container](t, s, trace, "POST", "/v1/containers", `{}`)
	parts := strings.Split(<-got, "-")
	if len(parts) != 4 {
		t.Fatalf("the receiver got traceparent %q", parts)
	}
	sent := s.await(t, parts[1], "webhook", nil)
	if sent.id != parts[2] {
		t.Errorf("the receiver got span %s of %s", parts[2], sent.id)
	}
	has(t, sent, map[string]any{"http.response.status_code": int64(200), "berth.event.type": "container.created"})
}

// TestSpansOfMCP checks that a message's metadata name the parent of its span.
func TestSpansOfMCP(t *testing.T) {
	s := newServer(t)
	trace := s.trace()
	session := ""
	send := func(body string) {
		t.Helper()
		req, err := http.NewRequest("POST", s.Daemon.URL+"/mcp", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"X-Api-Key": {s.Key}, "Content-Type": {"application/json"},
			"Accept": {"application/json, text/event-stream"}}
		if session != "" {
			req.Header.Set("Mcp-Session-Id", session)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if out, err := io.ReadAll(res.Body); err != nil || res.StatusCode >= http.StatusBadRequest {
			t.Fatalf("%s: %s %v %s", body, res.Status, err, out)
		}
		if id := res.Header.Get("Mcp-Session-Id"); id != "" {
			session = id
		}
	}
	send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},
		"clientInfo":{"name":"test","version":"1"}}}`)
	send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	send(`{"jsonrpc":"2.0","id":3,"method":"tools/list"}`) // without params
	send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"bash","arguments":{"command":"true"},
		"_meta":{"traceparent":"00-` + trace + `-` + parentSpan + `-01"}}}`)
	called := s.await(t, trace, "tools/call bash", nil)
	childOf(t, called, parentSpan)
	has(t, called, map[string]any{"mcp.method.name": "tools/call", "gen_ai.tool.name": "bash", "mcp.session.id": session})
	childOf(t, s.await(t, trace, "exec", nil), called.id)
}
