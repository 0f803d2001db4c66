package upstream

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"weak"

	"berth/gateway/upstream/answer"
	"berth/gateway/upstream/chat"
	"berth/proto"
)

// translated returns a request as a chat completions upstream gets it.
func translated(t *testing.T, body string) string {
	t.Helper()
	r, err := chat.ReadRequest([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	u := only(t, Config{URL: "http://127.0.0.1:1", Kind: KindOpenAI, Prefixes: []string{"local/"}})
	text, err := r.Encode(u.OwnName(r.Model), u.isOpenAI())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func sameJSON(t *testing.T, got, want string) {
	t.Helper()
	norm := func(text string) string {
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		out, _ := json.Marshal(v)
		return string(out)
	}
	if norm(got) != norm(want) {
		t.Errorf("got  %s\nwant %s", norm(got), norm(want))
	}
}

func TestRequestOfChatCompletions(t *testing.T) {
	message := func(m string) string { return `{"model":"local/qwen","max_tokens":9,"messages":[` + m + `]}` }
	said := func(m string) string { return `{"model":"qwen","max_tokens":9,"messages":[` + m + `]}` }
	ask := `{"role":"user","content":"hello"}`
	for name, c := range map[string]struct{ body, want string }{
		"text": {message(ask), said(ask)},
		"system and settings": {
			`{"model":"m","max_tokens":9,"system":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}},{"type":"text","text":"b"}],"stop_sequences":["X"],"temperature":0,"top_p":0.5,
			"metadata":{"user_id":"u"},"thinking":{"type":"adaptive"},"container":null,"mcp_servers":[],"stream":true,"messages":[` + ask + `]}`,
			`{"model":"m","max_tokens":9,"stop":["X"],"temperature":0,"top_p":0.5,"stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"system","content":"a\n\nb"},` + ask + `]}`},
		"tools": {`{"model":"m","max_tokens":9,"messages":[` + ask +
			`],"tools":[{"name":"f","description":"d","input_schema":{"type":"object","properties":{"n":{"maximum":12345678901234567890}}},"strict":true},
			{"type":"custom","name":"g","input_schema":{"type":"object"},"allowed_callers":["direct"]}],"tool_choice":{"type":"any","disable_parallel_tool_use":true}}`,
			`{"model":"m","max_tokens":9,"messages":[` + ask +
				`],"tools":[{"type":"function","function":{"name":"f","description":"d","strict":true,"parameters":{"type":"object","properties":{"n":{"maximum":12345678901234567890}}}}},
			{"type":"function","function":{"name":"g","parameters":{"type":"object"}}}],"tool_choice":"required","parallel_tool_calls":false}`},
		"one tool": {`{"model":"m","max_tokens":9,"messages":[` + ask + `],"tool_choice":{"type":"tool","name":"f"}}`,
			`{"model":"m","max_tokens":9,"messages":[` + ask +
				`],"tool_choice":{"type":"function","function":{"name":"f"}}}`},
		"no tool": {`{"model":"m","max_tokens":9,"messages":[` + ask + `],"tool_choice":{"type":"none"}}`,
			`{"model":"m","max_tokens":9,"messages":[` + ask + `],"tool_choice":"none"}`},
		"a format": {`{"model":"m","max_tokens":9,"messages":[` + ask +
			`],"output_config":{"effort":"low","format":{"type":"json_schema","schema":{"type":"object"}}}}`,
			`{"model":"m","max_tokens":9,"messages":[` + ask +
				`],"response_format":{"type":"json_schema","json_schema":{"name":"answer","strict":true,"schema":{"type":"object"}}}}`},
		"calls and results": {message(ask +
			`,{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"redacted_thinking","data":"x"},{"type":"text","text":"I look."},
				{"type":"tool_use","id":"a","name":"f","input":{"x": 1}},{"type":"tool_use","id":"b","name":"g","input":{}}]},
				{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"one"},{"type":"tool_result","tool_use_id":"b","is_error":true,"content":[{"type":"text","text":"two"},{"type":"text","text":"three"}]},{"type":"text","text":"and?"}]},
				{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","is_error":true}]}`),
			said(
				ask +
					`,{"role":"assistant","content":"I look.","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\": 1}"}},{"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}]},
				{"role":"tool","tool_call_id":"a","content":"one"},{"role":"tool","tool_call_id":"b","content":"Error: two\nthree"},{"role":"user","content":"and?"},
				{"role":"assistant","content":"","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"Error"}`)},
		"images": {
			message(
				`{"role":"user","content":[{"type":"text","text":"see"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}},{"type":"image","source":{"type":"url","url":"https://a.example/x.png"}}]}`),
			said(
				`{"role":"user","content":[{"type":"text","text":"see"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}},{"type":"image_url","image_url":{"url":"https://a.example/x.png"}}]}`)},
		"an image in a result": {message(
			ask +
				`,{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"a plot"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}]}]}`),
			said(
				ask +
					`,{"role":"assistant","content":"","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"a","content":"a plot\n(image: see below)"},
				{"role":"user","content":[{"type":"text","text":"The image in the result of the tool call a:"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}`)},
		"system turns": {
			message(ask + `,{"role":"system","content":"a","clear_at":"next_user_message"},{"role":"system","content":[{"type":"text","text":"b"}]},{"role":"user","content":"and?"},
				{"role":"system","content":"c","clear_at":"next_user_message"},{"role":"system","output_config":{"effort":"low"}}`),
			said(ask + `,{"role":"system","content":"b"},{"role":"user","content":"and?"},{"role":"system","content":"c"}`)},
		"tools that come and go": {
			`{"model":"m","max_tokens":9,"tools":[{"name":"f","input_schema":{"type":"object"}},{"name":"g","input_schema":{"type":"object"},"defer_loading":true},{"name":"h","input_schema":{}}],"messages":[` + ask +
				`,{"role":"system","content":[{"type":"tool_removal","tool":{"type":"tool_reference","name":"f"}},{"type":"tool_removal","tool":{"type":"tool_reference","name":"h"}},{"type":"text","text":"s"}]},
				{"role":"user","content":"x"},{"role":"system","content":[{"type":"tool_addition","tool":{"type":"tool_definition","definition":{"name":"i","description":"d","input_schema":{"type":"object"}}}},
				{"type":"tool_addition","tool":{"type":"tool_reference","name":"f"}},{"type":"tool_addition","tool":{"type":"tool_reference","name":"g"}}]}]}`,
			`{"model":"m","max_tokens":9,"messages":[` + ask + `,{"role":"system","content":"s"},{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"g","parameters":{"type":"object"}}},
				{"type":"function","function":{"name":"i","description":"d","parameters":{"type":"object"}}},{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}]}`},
		"a search for tools": {message(ask +
			`,{"role":"assistant","content":[{"type":"server_tool_use","id":"s","name":"tool_search_tool_bm25","input":{"query":"x"}},{"type":"tool_search_tool_result","tool_use_id":"s","content":{"type":"tool_search_tool_search_result","tool_references":[{"type":"tool_reference","tool_name":"f"}]}},
				{"type":"fallback","from":{},"to":{}},{"type":"tool_use","id":"a","name":"find","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"tool_reference","tool_name":"f"}]}]}`),
			said(ask + `,{"role":"assistant","content":"","tool_calls":[{"id":"a","type":"function","function":{"name":"find","arguments":"{}"}}]},{"role":"tool","tool_call_id":"a","content":"The tool f can be called now."}`)},
		"an earlier name of the format": {`{"model":"m","max_tokens":9,"messages":[` + ask + `],"output_format":{"type":"json_schema","schema":{"type":"object"}}}`,
			`{"model":"m","max_tokens":9,"messages":[` + ask +
				`],"response_format":{"type":"json_schema","json_schema":{"name":"answer","strict":true,"schema":{"type":"object"}}}}`},
		"search results and a summary": {message(`{"role":"user","content":[{"type":"search_result","title":"T","source":"https://a.example","content":[{"type":"text","text":"found"}],"citations":{"enabled":true}},{"type":"text","text":"see"}]},
				{"role":"assistant","content":[{"type":"compaction","content":"before"},{"type":"tool_use","id":"a","name":"f","input":{}}]},
				{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"search_result","title":"U","source":"s","content":[{"type":"text","text":"more"}]}]}]}`),
			said(`{"role":"user","content":"T\n\nhttps://a.example\n\nfound\n\nsee"},{"role":"assistant","content":"before","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]},
				{"role":"tool","tool_call_id":"a","content":"U\n\ns\n\nmore"}`)},
		"documents": {
			message(
				`{"role":"user","content":[{"type":"document","title":"T","source":{"type":"text","media_type":"text/plain","data":"body"}},{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"AAAA"}}]}`),
			said(
				`{"role":"user","content":[{"type":"text","text":"T\n\nbody"},{"type":"file","file":{"filename":"document.pdf","file_data":"data:application/pdf;base64,AAAA"}}]}`)},
	} {
		t.Run(name, func(t *testing.T) { sameJSON(t, translated(t, c.body), c.want) })
	}
}

func TestOfficialServiceWantsAnotherName(t *testing.T) {
	r, err := chat.ReadRequest([]byte(hello))
	if err != nil {
		t.Fatal(err)
	}
	text, err := r.Encode(r.Model, only(t, Config{URL: "https://api.openai.com/v1", Kind: KindOpenAI}).isOpenAI())
	if err != nil || !strings.Contains(string(text), `"max_completion_tokens":9`) ||
		strings.Contains(string(text), `"max_tokens"`) {
		t.Errorf("%v %s", err, text)
	}
}

// TestBodyIsFreedWhileTheUpstreamAnswers checks that an encoded request keeps no part of the body.
func TestBodyIsFreedWhileTheUpstreamAnswers(t *testing.T) {
	body := []byte(`{"model":"m","max_tokens":9,"system":"` + strings.Repeat("s", 5000) + `","tools":[{"name":"f",
		"input_schema":{"type":"object"}}],"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[
		{"type":"tool_use","id":"toolu_1","name":"f","input":{}}]},{"role":"user","content":[
		{"type":"tool_result","tool_use_id":"toolu_1","content":"x"}]}]}`)
	kept := weak.Make(&body[0])
	r, err := chat.ReadRequest(body)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Encode("m", false); err != nil {
		t.Fatal(err)
	}
	runtime.KeepAlive(body)
	runtime.GC()
	if kept.Value() != nil {
		t.Error("the body is still held")
	}
	runtime.KeepAlive(r)
}

func TestWhatCannotBeExpressed(t *testing.T) {
	u := only(t, Config{URL: "http://127.0.0.1:1", Kind: KindOpenAI})
	with := func(more string) string {
		return `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"}],` + more + `}`
	}
	message := func(m string) string { return `{"model":"m","max_tokens":9,"messages":[` + m + `]}` }
	for body, want := range map[string]string{
		with(`"container":"container_1"`):                        "container: this model's upstream speaks chat completions",
		with(`"mcp_servers":[{}]`):                               "mcp_servers: ",
		with(`"compaction":{"type":"summarize"}`):                "compaction: ",
		with(`"tools":[{"type":"bash_20250124","name":"bash"}]`): "tools.0, of the type bash_20250124: ",
		with(
			`"tools":[{"name":"x","input_schema":{},"allowed_callers":["code_execution_20260120"]}]`): "tools.0.allowed_callers: ",
		with(
			`"tool_choice":{"type":"some"}`): "tool_choice.type: ",
		with(
			`"output_config":{"format":{"type":"x"}}`): "output_config.format, of the type x",
		message(
			`{"role":"user","content":[{"type":"container_upload","file_id":"f"}]}`): "messages.0.content.0, of the " +
			"type container_upload: ",
		message(
			`{"role":"user","content":[{"type":"image","source":{"type":"file","file_id":"f"}}]}`): "messages.0.content.0, of the type image with a source of the type file: ",
		message(
			`{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"browser_state"}]}]}`): "messages.0.content.0.content.0, of the type browser_state: ",
		message(
			`{"role":"user","content":"x"},{"role":"system","content":[{"type":"tool_addition","tool":{"type":"mcp_toolset_reference"}}]}`): "messages.1.content.0.tool: ",
		message(
			`{"role":"user","content":"x"},{"role":"system","content":[{"type":"tool_addition","tool":{"type":"tool_definition","definition":{"type":"web_search_20260318","name":"web_search"}}}]}`): "messages.1.content.0.tool.definition, of the type web_search_20260318: ",
		message(
			`{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"server_tool_use","id":"s","name":"n","input":{}}]},{"role":"user","content":"x"}`): "messages.1.content.0, of the type server_tool_use: ",
		message(
			`{"role":"user","content":"x"},{"role":"assistant","content":"It is"}`): "messages.1, the beginning of an answer",
		message(
			`{"role":"robot","content":"x"}`): "messages.0.role: ",
		`{"model":"m","max_tokens":"9"}`: "max_tokens: it cannot be string",
		`{"model":"m"`:                   "no JSON",
		`{"model":"m","messages":[{}]}`:  "max_tokens: ",
		`{"model":"m","max_tokens":1}`:   "messages: ",
		`{"max_tokens":1}`:               "model: ",
	} {
		res, err := u.Do(t.Context(), Request{Path: PathMessages, Header: head(), Body: []byte(body)})
		if err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		text, _ := io.ReadAll(res.Body)
		var e struct{ Error answer.Fault }
		if err := json.Unmarshal(text, &e); err != nil || res.StatusCode != http.StatusBadRequest ||
			e.Error.Type != "invalid_request_error" || !strings.Contains(e.Error.Message, want) {
			t.Errorf("%s: %d %s, want %s", body, res.StatusCode, text, want)
		}
	}
	res, err := u.Do(t.Context(), Request{Path: PathCountTokens, Header: head(), Body: []byte(hello)})
	if err != nil {
		t.Fatal(err)
	}
	if text, _ := io.ReadAll(res.Body); res.StatusCode != http.StatusBadRequest ||
		!strings.Contains(string(text), "cannot count tokens") {
		t.Errorf("count_tokens: %d %s", res.StatusCode, text)
	}
}

// TestWhatIsLeftOut checks that what cannot be expressed, and changes no answer, is named in a header of the answer.
func TestWhatIsLeftOut(t *testing.T) {
	const ask = `"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"}`
	for body, want := range map[string]string{
		`{` + ask + `]}`: "",
		`{` + ask + `],"context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]},"top_k":3,"thinking":{"type":"adaptive"},
			"output_config":{"effort":"high","task_budget":null},"fallbacks":[],"not_known_yet":{"a":1},"bad\r\nname":1}`: "context_management, not_known_yet, output_config.effort, thinking, top_k",
		`{` + ask + `],"tools":[{"name":"f","input_schema":{"type":"object"},"defer_loading":true,"eager_input_streaming":true,"input_examples":[]},
			{"type":"tool_search_tool_regex_20251119","name":"tool_search_tool_regex"},
			{"name":"g","input_schema":{"type":"object"},"allowed_callers":["direct","code_execution_20260120"]}]}`: "tools.allowed_callers, tools.defer_loading, tools.eager_input_streaming, tools.tool_search_tool_regex",
		`{` + ask + `,{"role":"system","output_config":{"effort":"low"}}]}`:                                                                  "messages.output_config.effort",
		`{` + ask + `,{"role":"user","content":[{"type":"document","citations":{"enabled":true},"source":{"type":"text","data":"body"}}]}]}`: "messages.citations",
	} {
		for _, stream := range []bool{false, true} {
			_, addr := play(t, `{"turns": [{"expect": {"body": {"/context_management": null, "/top_k": null, "/thinking": null, "/not_known_yet": null,
				"/tools/0/function/defer_loading": null, "/tools/2": null}}, "answer": {"content": [{"type": "text", "text": "done"}]}}]}`)
			u := only(t, Config{URL: addr, Kind: KindOpenAI})
			if stream {
				body = strings.Replace(body, `"max_tokens"`, `"stream":true,"max_tokens"`, 1)
			}
			res, text := do(t, u, head(), body)
			if got := res.Header.Get(IgnoredHeader); res.StatusCode != http.StatusOK || got != want {
				t.Errorf("%s: %d, left out %q, want %q: %s", body, res.StatusCode, got, want, text)
			}
		}
	}
}

// TestThreadIsRefused checks for the code on which SDKs send the whole history.
func TestThreadIsRefused(t *testing.T) {
	u := only(t, Config{URL: "http://127.0.0.1:1", Kind: KindOpenAI})
	for _, body := range []string{
		`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"}],"thread":{"type":"create"}}`,
		`{"model":"m","max_tokens":9,"messages":[],"thread":{"type":"continue","previous_message_id":"msg_1"}}`,
	} {
		res, text := do(t, u, head(), body)
		if res.StatusCode != http.StatusBadRequest ||
			!strings.Contains(text, `"details":{"error_code":"thread_unsupported_request"}`) {
			t.Errorf("%s: %d %s", body, res.StatusCode, text)
		}
	}
}

// TestChatConversation uses a scripted model that speaks chat completions and checks each request. It asks the model
// as JSON and as a stream.
func TestChatConversation(t *testing.T) {
	script := `{"turns": [
		{"expect": {"path": "/v1/chat/completions", "model": "qwen", "stream": %v, "tools": ["bash"], "headers": {"authorization": "Bearer sk-local", "x-api-key": null, "anthropic-version": null}},
		 "answer": {"content": [{"type": "thinking", "thinking": "let me see"}, {"type": "text", "text": "I look <é>."}, {"type": "tool_use", "name": "bash", "id": "call_1", "input": {"command": "date"}}, {"type": "tool_use", "name": "bash", "id": "call_2", "input": {"command": "id"}}],
		            "usage": {"input_tokens": 4, "cache_read_input_tokens": 6, "output_tokens": 2}}},
		{"expect": {"messages": 4, "last": [{"role": "tool", "tool_call_id": "call_1", "content": "noon"}, {"role": "tool", "tool_call_id": "call_2", "content": "Error: me"}]},
		 "answer": {"content": [{"type": "text", "text": "done"}], "stop_reason": "max_tokens"}}]}`
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprint("stream ", stream), func(t *testing.T) {
			_, addr := play(t, fmt.Sprintf(script, stream))
			u := only(t, Config{URL: addr, Kind: KindOpenAI, Key: "sk-local", Prefixes: []string{"local/"}})
			ask := fmt.Sprintf(
				`{"model":"local/qwen","max_tokens":9,"stream":%v,"tools":[{"name":"bash","input_schema":{"type":"object"}}],"messages":[{"role":"user","content":"go"}`, stream)
			msg := answered(t, u, ask+"]}")
			sameJSON(t, string(answer.Encode(msg.Content)),
				`[{"type":"thinking","thinking":"let me see","signature":""},{"type":"text","text":"I look <é>."},
				{"type":"tool_use","id":"call_1","name":"bash","input":{"command":"date"}},{"type":"tool_use","id":"call_2","name":"bash","input":{"command":"id"}}]`)
			if *msg.StopReason != "tool_use" || msg.Usage != (answer.Usage{Input: 4, CacheRead: 6, Output: 2}) ||
				msg.Model != "local/qwen" || !strings.HasPrefix(msg.ID, "msg_") {
				t.Errorf("%+v, stop %s", msg, *msg.StopReason)
			}
			msg = answered(t, u, ask+`,{"role":"assistant","content":`+string(answer.Encode(msg.Content))+
				`},{"role":"user","content":[
				{"type":"tool_result","tool_use_id":"call_1","content":"noon"},{"type":"tool_result","tool_use_id":"call_2","is_error":true,"content":"me"}]}]}`)
			if *msg.StopReason != "max_tokens" ||
				string(answer.Encode(msg.Content)) != `[{"text":"done","type":"text"}]` {
				t.Errorf("%+v", msg)
			}
		})
	}
}

// answered returns an upstream's answer. It assembles a streamed answer from its events.
func answered(t *testing.T, u *Upstream, body string) answer.Message {
	t.Helper()
	res, text := do(t, u, head(), body)
	if res.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", res.StatusCode, text)
	}
	if !strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		var msg answer.Message
		if err := json.Unmarshal([]byte(text), &msg); err != nil {
			t.Fatalf("%v %s", err, text)
		}
		return msg
	}
	msg, f := assemble(t, text)
	if f != nil {
		t.Fatalf("error event %+v in %s", f, text)
	}
	return msg
}

// assemble builds a message from its events and checks their order. An error event ends it.
func assemble(t *testing.T, text string) (msg answer.Message, failed *answer.Fault) {
	t.Helper()
	open, stopped, ended := -1, true, false
	for chunk := range strings.SplitSeq(strings.TrimSuffix(text, "\n\n"), "\n\n") {
		name, data, _ := strings.Cut(strings.TrimPrefix(chunk, "event: "), "\ndata: ")
		var e struct {
			Type    string
			Message answer.Message
			Index   int
			Block   map[string]any `json:"content_block"`
			Delta   map[string]any
			Usage   answer.Usage
			Error   answer.Fault
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil || e.Type != name || ended || failed != nil ||
			(msg.ID == "") != (name == "message_start") {
			t.Fatalf("%v: event %q in %s", err, chunk, text)
		}
		switch name {
		case "message_start":
			msg = e.Message
		case "content_block_start":
			if open++; !stopped || e.Index != open {
				t.Fatalf("block %d starts behind %d: %s", e.Index, open, text)
			}
			stopped = false
			msg.Content = append(msg.Content, e.Block)
		case "content_block_delta":
			if stopped || e.Index != open {
				t.Fatalf("a delta for block %d while %d is open: %s", e.Index, open, text)
			}
			grow(msg.Content[open].(map[string]any), e.Delta)
		case "content_block_stop":
			if stopped || e.Index != open {
				t.Fatalf("block %d stops while %d is open: %s", e.Index, open, text)
			}
			stopped = true
			settle(t, msg.Content[open].(map[string]any))
		case "message_delta":
			if !stopped {
				t.Fatalf("the message ends in a block: %s", text)
			}
			reason, _ := e.Delta["stop_reason"].(string)
			msg.StopReason, msg.Usage = &reason, e.Usage
			if s, ok := e.Delta["stop_sequence"].(string); ok {
				msg.StopSequence = &s
			}
		case "message_stop":
			ended = true
		case "error":
			failed = &e.Error
		}
	}
	if !ended && failed == nil {
		t.Fatalf("the stream has no end: %s", text)
	}
	return msg, failed
}

func grow(block, delta map[string]any) {
	for _, member := range []string{"text", "thinking", "partial_json"} {
		if more, ok := delta[member].(string); ok {
			have, _ := block[member].(string)
			block[member] = have + more
		}
	}
}

func settle(t *testing.T, block map[string]any) {
	t.Helper()
	if text, ok := block["partial_json"].(string); ok {
		var input any
		if err := json.Unmarshal([]byte(text), &input); err != nil {
			t.Fatalf("the input is %q: %v", text, err)
		}
		block["input"] = input
		delete(block, "partial_json")
	}
}

// serve answers every request with one text.
func serve(t *testing.T, status int, kind, text string) *Upstream {
	t.Helper()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Retry-After", "7")
		w.Header().Set("X-Request-Id", "req_up")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(web.Close)
	return only(t, Config{Name: "up", URL: web.URL, Kind: KindOpenAI})
}

const askedStops = `{"model":"m","max_tokens":9,"stop_sequences":["END"],"messages":[{"role":"user","content":"x"}]}`

// TestAnswersOfServers has answers of real servers that deviate from the official format.
func TestAnswersOfServers(t *testing.T) {
	choice := func(message, finish string) string {
		return `{"choices":[{"index":0,"message":` + message + `,"finish_reason":` + finish +
			`}],"usage":{"prompt_tokens":3,"completion_tokens":2}}`
	}
	for name, c := range map[string]struct{ answer, content, stop string }{
		"text": {choice(`{"role":"assistant","content":"hi"}`, `"stop"`),
			`[{"type":"text","text":"hi"}]`, "end_turn"},
		"extra members": {
			`{"timings":{},"choices":[{"index":0,"logprobs":[1],"matched_stop":3,"message":{"content":"hi","annotations":"none","tool_calls":null,"refusal":null},"finish_reason":"stop"}]}`, `[{"type":"text","text":"hi"}]`, "end_turn"},
		"no usage, nothing": {`{"choices":[{"message":{"content":null},"finish_reason":null}]}`, `[]`,
			"end_turn"},
		"parts": {choice(`{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`,
			`"stop"`), `[{"type":"text","text":"ab"}]`, "end_turn"},
		"thoughts": {choice(`{"content":"hi","reasoning_content":"hm"}`, `"stop"`),
			`[{"type":"thinking","thinking":"hm","signature":""},{"type":"text","text":"hi"}]`, "end_turn"},
		"thoughts by another name": {choice(`{"content":"hi","reasoning":"hm"}`, `"stop"`),
			`[{"type":"thinking","thinking":"hm","signature":""},{"type":"text","text":"hi"}]`, "end_turn"},
		"stop with calls": {
			choice(
				`{"content":"","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}]}`, `"stop"`), `[{"type":"tool_use","id":"a","name":"f","input":{"x":1}}]`, "tool_use"},
		"a call without type": {
			choice(`{"content":null,"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}]}`,
				`"tool_calls"`), `[{"type":"tool_use","id":"a","name":"f","input":{}}]`, "tool_use"},
		"arguments that are an object": {
			choice(`{"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":{"x":1}}}]}`,
				`"tool_calls"`), `[{"type":"tool_use","id":"a","name":"f","input":{"x":1}}]`, "tool_use"},
		"arguments that are missing": {
			choice(`{"tool_calls":[{"id":"a","type":"function","function":{"name":"f"}}]}`, `"tool_calls"`),
			`[{"type":"tool_use","id":"a","name":"f","input":{}}]`, "tool_use"},
		"arguments that are empty": {
			choice(`{"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":""}}]}`,
				`"tool_calls"`), `[{"type":"tool_use","id":"a","name":"f","input":{}}]`, "tool_use"},
		"arguments encoded twice": {
			choice(
				`{"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"\"{\\\"x\\\":1}\""}}]}`,
				`"tool_calls"`), `[{"type":"tool_use","id":"a","name":"f","input":{"x":1}}]`, "tool_use"},
		"arguments that are no JSON": {
			choice(`{"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":"}}]}`,
				`"tool_calls"`), `[{"type":"tool_use","id":"a","name":"f","input":{"INVALID_JSON":"{\"x\":"}}]`,
			"tool_use"},
		"arguments that are no object": {
			choice(`{"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"[1]"}}]}`,
				`"tool_calls"`), `[{"type":"tool_use","id":"a","name":"f","input":{"INVALID_JSON":"[1]"}}]`,
			"tool_use"},
		"too long": {choice(`{"content":"hi"}`, `"length"`), `[{"type":"text","text":"hi"}]`,
			"max_tokens"},
		"filtered": {choice(`{"content":"hi"}`, `"content_filter"`),
			`[{"type":"text","text":"hi"}]`, "refusal"},
		"refused": {choice(`{"content":null,"refusal":"no"}`, `"stop"`),
			`[{"type":"text","text":"no"}]`, "refusal"},
		"a stop sequence that is named": {
			`{"choices":[{"message":{"content":"hi"},"finish_reason":"stop","stop_reason":"END"}]}`,
			`[{"type":"text","text":"hi"}]`, "stop_sequence"},
		"a stop token that is no string": {
			`{"choices":[{"message":{"content":"hi"},"finish_reason":"stop","stop_reason":128009}]}`,
			`[{"type":"text","text":"hi"}]`, "end_turn"},
	} {
		t.Run(name, func(t *testing.T) {
			u := serve(t, 200, "application/json; charset=utf-8", c.answer)
			msg := answered(t, u, askedStops)
			sameJSON(t, string(answer.Encode(msg.Content)), c.content)
			if *msg.StopReason != c.stop || c.stop == "stop_sequence" && *msg.StopSequence != "END" {
				t.Errorf("stop reason %s", *msg.StopReason)
			}
			// A server that does not stream sends the same answer to a request for a stream.
			streamed := answered(t, u, strings.Replace(askedStops, `"model"`, `"stream":true,"model"`, 1))
			sameJSON(t, string(answer.Encode(streamed.Content)), c.content)
			if *streamed.StopReason != c.stop || streamed.Usage != msg.Usage {
				t.Errorf("streamed: %+v", streamed)
			}
		})
	}
}

// validID matches the IDs that Messages clients accept.
var validID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,256}$`)

func TestIDsOfCalls(t *testing.T) {
	u := serve(t, 200, "application/json",
		`{"choices":[{"message":{"tool_calls":[{"function":{"name":"f"}},{"id":"","function":{"name":"f"}},{"id":"functions.f:0","function":{"name":"f"}},{"id":"a","function":{"name":"f"}},{"id":"a","function":{"name":"f"}}]}}]}`)
	seen := map[string]bool{}
	for i, b := range answered(t, u, askedStops).Content {
		id := b.(map[string]any)["id"].(string)
		if seen[id] || !validID.MatchString(id) || (id == "a") != (i == 3) || i != 3 &&
			!strings.HasPrefix(id, "toolu_") {
			t.Errorf("call %d has the ID %q", i, id)
		}
		seen[id] = true
	}
}

// Some servers number the calls of each answer from 0. Clients get other IDs.
func TestIDsOfCallsInEachAnswer(t *testing.T) {
	const call = `[{"index":0,"id":"call_0","function":{"name":"f","arguments":"{}"}}]`
	for kind, text := range map[string]string{
		"application/json":  `{"choices":[{"message":{"tool_calls":` + call + `}}]}`,
		"text/event-stream": `data: {"choices":[{"index":0,"delta":{"tool_calls":` + call + "}}]}\n\ndata: [DONE]\n\n",
	} {
		u := serve(t, 200, kind, text)
		body := `{"model":"m","max_tokens":9,"stream":` + strconv.FormatBool(kind != "application/json") +
			`,"messages":[{"role":"user","content":"x"}%s]}`
		first := answered(t, u, fmt.Sprintf(body, "")).Content[0].(map[string]any)["id"]
		second := answered(t, u, fmt.Sprintf(body, `,{"role":"assistant","content":[{"type":"tool_use","id":"call_0",`+
			`"name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"call_0"}]}`)).Content[0]
		if id, _ := second.(map[string]any)["id"].(string); first != "call_0" || !strings.HasPrefix(id, "toolu_") {
			t.Errorf("%s: %v and %v", kind, first, second)
		}
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	for text, want := range map[string]string{
		"<html>hello</html>":  "gave an answer that is no JSON: <html>hello</html>",
		`{"choices":[]}`:      "without choices",
		`{"error":"no slot"}`: "without choices: {\\\"error\\\":\\\"no slot\\\"}",
		`{"choices":[{"message":{"tool_calls":[{"id":"a","function":{"arguments":"{}"}}]}}]}`: "a tool without a name",
		``: "no JSON: (nothing more)",
	} {
		res, got := do(t, serve(t, 200, "application/json", text), head(), hello)
		if want = string(answer.Encode(json.RawMessage(`"` + want + `"`))); res.StatusCode != http.StatusBadGateway ||
			!strings.Contains(got, strings.NewReplacer("<", "\\u003c", ">", "\\u003e").Replace(
				strings.Trim(want, `"`))) {
			t.Errorf("%s: %d %s", text, res.StatusCode, got)
		}
	}
}

func TestErrorsOfChatCompletions(t *testing.T) {
	for _, c := range []struct {
		status        int
		text          string
		kind, message string
	}{
		{429, `{"error":{"message":"slow down","type":"requests","code":"rate_limit_exceeded","param":null}}`,
			"rate_limit_error", "slow down"},
		{400, `{"error":"model is loading"}`, "invalid_request_error", "model is loading"},
		{400, `{"object":"error","message":"too long","type":"BadRequestError","code":400}`, "invalid_request_error",
			"too long"},
		{422, `{"detail":[{"loc":["body"],"msg":"field required"}]}`, "invalid_request_error",
			`[{"loc":["body"],"msg":"field required"}]`},
		{404, `{"detail":"Not Found"}`, "not_found_error", "Not Found"},
		{401, `{"error":{"message":"bad key"}}`, "authentication_error", "bad key"},
		{503, `<html>sorry</html>`, "overloaded_error", "The upstream up answered 503: <html>sorry</html>"},
		{500, ``, "api_error", "The upstream up answered 500: (nothing more)"},
		{500, `{"error":{}}`, "api_error", "{}"},
	} {
		res, text := do(t, serve(t, c.status, "application/json", c.text), head(), hello)
		var e struct {
			Type  string
			Error answer.Fault
		}
		if err := json.Unmarshal([]byte(text), &e); err != nil || res.StatusCode != c.status || e.Type != "error" ||
			e.Error != (answer.Fault{Type: c.kind, Message: c.message}) {
			t.Errorf("%d %s: %d %s", c.status, c.text, res.StatusCode, text)
		}
		if res.Header.Get("Retry-After") != "7" || res.Header.Get("Request-Id") != "req_up" {
			t.Errorf("head %v", res.Header)
		}
	}
}

func TestChatIsUnreachable(t *testing.T) {
	u := only(t, Config{URL: "http://127.0.0.1:1", Kind: KindOpenAI})
	if _, err := u.Do(t.Context(), Request{Path: PathMessages, Header: head(), Body: []byte(hello)}); proto.CodeOf(
		err) != proto.Unavailable {
		t.Error(err)
	}
}

func TestChatKeys(t *testing.T) {
	for name, c := range map[string]struct {
		key    string
		client []string
		want   string
	}{
		"configured": {"sk-c", []string{"X-Api-Key", "sk-x"}, "Bearer sk-c"}, "the caller's": {
			"", []string{"X-Api-Key", "sk-x"}, "Bearer sk-x"},
		"the caller's bearer": {"", []string{"X-Api-Key", "berth_1", "Authorization", "Bearer sk-x"}, "Bearer sk-x"},
		"none":                {"", []string{"X-Api-Key", "berth_1"}, ""},
	} {
		if got := only(t, Config{URL: "http://a", Kind: KindOpenAI, Key: c.key}).chatHeader(head(c.client...)).Get(
			"Authorization"); got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
