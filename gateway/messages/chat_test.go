package messages_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"berth/gateway/upstream"
	"berth/test/scripted"
)

// newChatSite is newSite with an upstream that speaks chat completions.
func newChatSite(t *testing.T, script string) *site {
	t.Helper()
	read, err := scripted.Load(strings.NewReader(script))
	if err != nil {
		t.Fatal(err)
	}
	model := scripted.New(read)
	web := httptest.NewServer(model)
	t.Cleanup(web.Close)
	set, err := upstream.Open([]upstream.Config{{URL: web.URL, Kind: upstream.KindOpenAI}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { set.Close() })
	s := newSite(t, script, func(cfg *config) { cfg.Upstreams = set })
	s.model = model
	return s
}

// TestModelThatSpeaksChatCompletions lets a model call two commands at once, one of which fails, and read the
// results.
func TestModelThatSpeaksChatCompletions(t *testing.T) {
	both(t, func(t *testing.T, stream bool) {
		s := newChatSite(t, `{"turns": [
			{"expect": {"path": "/v1/chat/completions", "messages": 1, "tools": ["bash_code_execution"], "no_tools": ["code_execution"]},
			 "answer": {"content": [{"type": "text", "text": "I look."}, {"type": "tool_use", "id": "call_a", "name": "bash_code_execution", "input": {"command": "echo out >note; cat note"}},
			                        {"type": "tool_use", "id": "call_b", "name": "bash_code_execution", "input": {"command": "echo err >&2; exit 3"}}]}},
			{"expect": {"messages": 4, "last": [{"role": "assistant", "content": "I look.", "tool_calls": {"$length": 2}}, {"role": "tool", "tool_call_id": "call_a", "content": "out\n"}, {"role": "tool", "tool_call_id": "call_b", "content": {"$contains": "Error: [stderr]\nerr\n[return code: 3]"}}]},
			 "answer": {"content": [{"type": "text", "text": "One failed."}]}}]}`)
		m := s.ask(body(bash, "go", "stream", stream)).msg
		s.played()
		if m.types() != "text server_tool_use server_tool_use bash_code_execution_tool_result "+
			"bash_code_execution_tool_result text" || m.StopReason != "end_turn" {
			t.Errorf("%s, %+v", m.types(), m)
		}
		if m.Container == nil || m.Usage["output_tokens"] != 10.0 {
			t.Errorf("%+v", m)
		}
	})
}

// TestArgumentsThatAreNoJSON checks that the model gets invalid arguments back as it wrote them, in a failed call.
func TestArgumentsThatAreNoJSON(t *testing.T) {
	both(t, func(t *testing.T, stream bool) {
		call := `{"index":0,"id":"call_a","type":"function","function":{"name":"bash_code_execution","arguments":"{\"command\": \"date"}}`
		raw := `{"body": ` +
			quoted(`{"choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[`+call+
				`]},"finish_reason":"tool_calls"}]}`) + `}, "headers": {"content-type": "application/json"}`
		if stream {
			raw = `{"chunks": [` + quoted(`data: {"choices":[{"index":0,"delta":{"tool_calls":[`+call+
				`]},"finish_reason":"tool_calls"}]}`+"\n\n") +
				`, "data: [DONE]\n\n"]}, "headers": {"content-type": "text/event-stream"}`
		}
		s := newChatSite(t, `{"turns": [{"answer": {"raw": `+raw+`}},
			{"expect": {"last": [{"role": "assistant", "tool_calls": [{"function": {"arguments": {"$contains": "INVALID_JSON"}}}]}, {"role": "tool", "tool_call_id": "call_a", "content": {"$contains": "Error: "}}]},
			 "answer": {"content": [{"type": "text", "text": "sorry"}]}}]}`)
		m := s.ask(body(bash, "go", "stream", stream)).msg
		s.played()
		if m.types() != "server_tool_use bash_code_execution_tool_result text" ||
			m.result(t, 1)["error_code"] != "invalid_tool_input" || m.StopReason != "end_turn" {
			t.Errorf("%s, %+v", m.types(), m)
		}
	})
}

// TestWhatNewClientsSend sends what newer clients add to their requests: system turns, settings that chat completions
// cannot express, and a thread.
func TestWhatNewClientsSend(t *testing.T) {
	both(t, func(t *testing.T, stream bool) {
		s := newChatSite(t, `{"turns": [
			{"expect": {"messages": 2, "last": [{"role": "user", "content": "go"}, {"role": "system", "content": "be brief"}], "tools": ["bash_code_execution"], "body": {"/context_management": null, "/tools/0/defer_loading": null}},
			 "answer": {"content": [{"type": "tool_use", "id": "call_a", "name": "bash_code_execution", "input": {"command": "echo out"}}]}},
			{"expect": {"messages": 4, "last": [{"role": "tool", "content": "out\n"}]}, "answer": {"content": [{"type": "text", "text": "Done."}]}}]}`)
		ask := body(bash, "go", "stream", stream, "context_management", map[string]any{"edits": []any{map[string]any{
			"type": "clear_tool_uses_20250919"}}})
		ask["messages"] = append(ask["messages"].([]any), map[string]any{"role": "system", "content": "be brief"})
		ask["tools"].([]any)[0].(map[string]any)["defer_loading"] = true
		for _, thread := range []string{"create", "continue"} {
			ask["thread"] = map[string]any{"type": thread}
			if r := s.send(encode(t, ask)); r.status != http.StatusBadRequest ||
				r.msg.Error.Details.ErrorCode != "thread_unsupported_request" {
				t.Errorf("%s: %d %s", thread, r.status, r.body)
			}
			ask["thread"] = nil
		}
		r := s.ask(ask)
		s.played()
		if r.msg.types() != "server_tool_use bash_code_execution_tool_result text" {
			t.Errorf("%s, %+v", r.msg.types(), r.msg)
		}
		if got := r.header.Get(upstream.IgnoredHeader); got != "context_management, tools.defer_loading" {
			t.Errorf("%s: %q", upstream.IgnoredHeader, got)
		}
	})
}

// quoted returns a text as JSON.
func quoted(text string) string {
	out, _ := json.Marshal(text) // cannot fail: a string
	return string(out)
}
