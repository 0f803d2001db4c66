package scripted

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A stage is a server that plays a script, and a client for it.
type stage struct {
	*Server
	t   *testing.T
	url string
}

func newStage(t *testing.T, script string) *stage {
	t.Helper()
	s, err := Load(strings.NewReader(script))
	if err != nil {
		t.Fatal(err)
	}
	srv := New(s)
	web := httptest.NewServer(srv)
	t.Cleanup(web.Close)
	return &stage{srv, t, web.URL}
}

// open sends a request and returns the unread answer.
func (s *stage) open(ctx context.Context, path, body string) *http.Response {
	s.t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("anthropic-version", "2023-06-01")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { res.Body.Close() })
	return res
}

// post sends a request and returns the status and body of the answer.
func (s *stage) post(path, body string) (int, string) {
	s.t.Helper()
	res := s.open(s.t.Context(), path, body)
	data, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return res.StatusCode, string(data)
}

// good sends a request that must succeed with 200, and returns the value at a pointer in the answer.
func (s *stage) good(path, body, pointer string) any {
	s.t.Helper()
	status, text := s.post(path, body)
	if status != http.StatusOK {
		s.t.Fatalf("%d %s", status, text)
	}
	got, _ := at(parse(s.t, text), pointer)
	return got
}

func parse(t *testing.T, text string) (v any) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

const bashTool = `{"name":"bash","input_schema":{"type":"object"}}`

func ask(text string) string {
	return `{"model":"m","max_tokens":9,"tools":[` + bashTool + `],"messages":[{"role":"user","content":` +
		string(encode(text)) + `}]}`
}

// twoTurns is a conversation with a tool call.
const twoTurns = `{"plain": true, "turns": [
	{"expect": {"tools": ["bash"], "no_tools": ["code_execution"], "last": [{"type": "text", "text": {"$contains": "weather"}}], "headers": {"anthropic-version": "2023-06-01", "x-api-key": null}},
	 "answer": {"content": [{"type": "thinking", "thinking": "let me look"}, {"type": "text", "text": "I look."}, {"type": "tool_use", "name": "bash", "input": {"command": "echo \"<é>\""}}]}},
	{"expect": {"messages": 3, "last": [{"type": "tool_result", "content": {"$match": "rain"}}], "body": {"/max_tokens": {"$any": true}, "/container": null}},
	 "answer": {"content": [{"type": "text", "text": {"$join": ["It says: ", {"$from": "/messages/-1/content/0/content", "match": "file_(\\w+)"}]}}], "usage": {"input_tokens": 7, "output_tokens": 3}}}
]}`

func TestTurnsFollowEachOther(t *testing.T) {
	s := newStage(t, twoTurns)
	id := s.good(messagesPath, ask("the weather?"), "/content/2/id").(string)
	if s.Left() != 1 || !strings.HasPrefix(id, "toolu_") {
		t.Fatalf("left %d, id %s", s.Left(), id)
	}
	follow := `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"weather"},
		{"role":"assistant","content":[{"type":"tool_use","id":"` + id + `","name":"bash","input":{}}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"` + id + `","content":"rain in file_abc"}]}]}`
	if got := s.good(messagesPath, follow, "/content/0/text"); got != "It says: abc" {
		t.Errorf("got %v", got)
	}
	if err := s.Err(); err != nil || s.Left() != 0 || len(s.Requests()) != 2 || len(s.Headers()) != 2 {
		t.Errorf("%v, left %d, %d requests", err, s.Left(), len(s.Requests()))
	}
	status, text := s.post(messagesPath, follow)
	if status != http.StatusBadRequest || !strings.Contains(text, "all its turns were played") || s.Err() == nil {
		t.Errorf("a request too many: %d %s, %v", status, text, s.Err())
	}
}

func TestRequestsThatAreNotAsExpected(t *testing.T) {
	result := func(id string) string {
		return `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"weather"},{"role":"assistant","content":[{"type":"tool_use","id":"toolu_1","name":"bash","input":{}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"` + id + `","content":"x"}]}]}`
	}
	for name, c := range map[string]struct{ body, want string }{
		"another text": {ask("the time?"), "/messages/-1/content/0/text is \"the time?\"; expected " +
			"{\"$contains\":\"weather\"}"},
		"no tool": {strings.Replace(ask("weather"), `"bash"`, `"shell"`, 1), "/tools has no bash"},
		"a tool too many": {strings.Replace(ask("weather"), bashTool, bashTool+
			`,{"name":"code_execution","input_schema":{}}`, 1), "code_execution, which must not be there"},
		"a typed tool": {strings.Replace(ask("weather"), bashTool,
			`{"type":"code_execution_20250825","name":"code_execution"}`, 1), "is no plain tool"},
		"a tool twice": {strings.Replace(ask("weather"), bashTool, bashTool+","+bashTool, 1), "another tool"},
		"container": {strings.Replace(ask("weather"), `"model"`, `"container":"container_1","model"`, 1),
			"/container"},
		"no max_tokens":  {strings.Replace(ask("weather"), `"max_tokens":9,`, "", 1), "/max_tokens"},
		"no model":       {strings.Replace(ask("weather"), `"model":"m",`, "", 1), "/model"},
		"no messages":    {`{"model":"m","max_tokens":9,"messages":[]}`, "/messages is missing"},
		"another result": {result("toolu_2"), `tool_result blocks for ["toolu_2"]`},
		"no JSON":        {`{`, "no JSON"},
		"assistant first": {`{"model":"m","max_tokens":9,"messages":[{"role":"assistant","content":"x"}]}`,
			"/messages/0/role"},
		"a block of another": {
			`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"container_upload","file_id":"f"}]}]}`, "nothing that a plain API knows"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, twoTurns)
			status, text := s.post(messagesPath, c.body)
			got, _ := at(parse(t, text), "/error/message")
			if status != http.StatusBadRequest || !strings.Contains(textOf(got), c.want) {
				t.Errorf("%d %s", status, text)
			}
			if err := s.Err(); err == nil || !strings.Contains(err.Error(), c.want) || s.Left() != 2 {
				t.Errorf("Err is %v, left %d", err, s.Left())
			}
		})
	}
}

func TestAnotherPathIsAMistake(t *testing.T) {
	s := newStage(t, twoTurns)
	if status, text := s.post("/v1/models", "{}"); status != http.StatusNotFound ||
		!strings.Contains(text, "not_found_error") || s.Err() == nil {
		t.Errorf("%d %s", status, text)
	}
}

// sse reads events; the data of [DONE] is nil.
func sse(t *testing.T, r io.Reader) (names []string, data []any) {
	t.Helper()
	name := ""
	for lines := bufio.NewScanner(r); lines.Scan(); {
		line := lines.Text()
		if v, ok := strings.CutPrefix(line, "event: "); ok {
			name = v
		}
		if v, ok := strings.CutPrefix(line, "data: "); ok {
			names = append(names, name)
			if v == "[DONE]" {
				data = append(data, nil)
				continue
			}
			data = append(data, parse(t, v))
		}
	}
	return names, data
}

// TestStream assembles the pieces of a stream.
func TestStream(t *testing.T) {
	s := newStage(t, twoTurns)
	_, text := s.post(messagesPath, strings.Replace(ask("weather"), `"model"`, `"stream":true,"model"`, 1))
	names, data := sse(t, strings.NewReader(text))
	if slices.Compact(slices.Clone(names))[0] != "message_start" || names[1] != "ping" ||
		names[len(names)-2] != "message_delta" || names[len(names)-1] != "message_stop" {
		t.Fatalf("events %q", names)
	}
	open, texts := -1, map[string]string{}
	for i, d := range data {
		kind, _ := at(d, "/type")
		index, _ := at(d, "/index")
		if kind != names[i] {
			t.Errorf("event %s has the type %v", names[i], kind)
		}
		switch n, _ := index.(json.Number); kind {
		case "content_block_start":
			if open++; n.String() != string(encode(open)) {
				t.Errorf("block %v starts after %d others", n, open)
			}
		case "content_block_delta":
			for _, member := range []string{"text", "thinking", "signature", "partial_json"} {
				if v, ok := at(d, "/delta/"+member); ok {
					texts[member] += v.(string)
				}
			}
		}
	}
	want := map[string]string{"text": "I look.", "thinking": "let me look", "signature": "c2NyaXB0ZWQ=",
		"partial_json": `{"command":"echo \"<é>\""}`}
	for member, text := range want {
		if texts[member] != text {
			t.Errorf("%s is %q, want %q", member, texts[member], text)
		}
	}
	if stop, _ := at(data[len(data)-2], "/delta/stop_reason"); stop != "tool_use" {
		t.Errorf("stop reason %v", stop)
	}
}

func TestChat(t *testing.T) {
	body := `{"model":"m","messages":[{"role":"user","content":"weather"}],"tools":[{"type":"function","function":{"name":"bash"}}]`
	script := `{"turns": [{"expect": {"path": "/v1/chat/completions", "tools": ["bash"], "last": [{"content": "weather"}]}, "repeat": 2,
		"answer": {"content": [{"type": "text", "text": "I look, and then."}, {"type": "tool_use", "name": "bash", "input": {"command": "date"}}], "usage": {"input_tokens": 4, "cache_read_input_tokens": 6, "output_tokens": 2}}}]}`
	s := newStage(t, script)
	whole := s.good(chatPath, body+"}", "")
	for pointer, want := range map[string]any{
		"/choices/0/finish_reason": "tool_calls", "/choices/0/message/content": "I look, and then.",
		"/choices/0/message/tool_calls/0/function/arguments": `{"command":"date"}`,
		"/usage/prompt_tokens":                               json.Number("10"),
		"/usage/prompt_tokens_details/cached_tokens":         json.Number("6"),
	} {
		if got, _ := at(whole, pointer); got != want {
			t.Errorf("%s is %v, want %v", pointer, got, want)
		}
	}
	_, text := s.post(chatPath, body+`,"stream":true,"stream_options":{"include_usage":true}}`)
	_, data := sse(t, strings.NewReader(text))
	said, args, finish := "", "", any(nil)
	for _, d := range data {
		if v, _ := at(d, "/choices/0/delta/content"); v != nil {
			said += v.(string)
		}
		if v, _ := at(d, "/choices/0/delta/tool_calls/0/function/arguments"); v != nil {
			args += v.(string)
		}
		if v, _ := at(d, "/choices/0/finish_reason"); v != nil {
			finish = v
		}
	}
	usage, _ := at(data[len(data)-2], "/usage/total_tokens")
	if said != "I look, and then." || args != `{"command":"date"}` || finish != "tool_calls" ||
		usage != json.Number("12") || data[len(data)-1] != nil {
		t.Errorf("%q %q %v %v", said, args, finish, usage)
	}
	if err := s.Err(); err != nil || s.Left() != 0 {
		t.Error(err, s.Left())
	}
}

func TestChatNeedsResults(t *testing.T) {
	s := newStage(t, `{"turns": [{"answer": {"content": []}}]}`)
	call := `{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]}`
	for body, want := range map[string]string{
		call: "without results", call + `,{"role":"user","content":"x"}`: "before the tool calls",
		call + `,{"role":"tool","tool_call_id":"b"}`: "answers the tool call b", `{"role":"robot"}`: "has the role",
	} {
		if status, text := s.post(chatPath, `{"model":"m","messages":[`+body+`]}`); status != http.StatusBadRequest ||
			!strings.Contains(text, want) {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
}

func TestErrorsAndRawAnswers(t *testing.T) {
	s := newStage(t, `{"turns": [
		{"answer": {"error": {"status": 529, "type": "overloaded_error", "message": "busy"}, "headers": {"retry-after": "3"}}},
		{"answer": {"raw": {"status": 502, "body": "<html>"}, "headers": {"content-type": "text/html"}}},
		{"expect": {"path": "/v1/messages/count_tokens"}, "answer": {"error": {"status": 404, "type": "not_found_error"}}},
		{"answer": {"content": [{"type": "text", "text": "ok"}], "container": {"id": "container_x"}}}]}`)
	res := s.open(t.Context(), messagesPath, ask("x"))
	data, _ := io.ReadAll(res.Body)
	if res.StatusCode != 529 || res.Header.Get("Retry-After") != "3" ||
		!strings.Contains(string(data), `"overloaded_error"`) {
		t.Errorf("%d %v %s", res.StatusCode, res.Header, data)
	}
	res = s.open(t.Context(), messagesPath, ask("x"))
	data, _ = io.ReadAll(res.Body)
	if res.StatusCode != 502 || res.Header.Get("Content-Type") != "text/html" || string(data) != "<html>" {
		t.Errorf("%d %v %s", res.StatusCode, res.Header, data)
	}
	if status, _ := s.post(countPath, ask("x")); status != http.StatusNotFound {
		t.Errorf("count_tokens: %d", status)
	}
	if n := s.good(countPath, strings.Replace(ask("x"), `"max_tokens":9,`, "", 1), "/input_tokens"); n == nil ||
		s.Left() != 1 {
		t.Errorf("count_tokens: %v, left %d", n, s.Left())
	}
	if id := s.good(messagesPath, ask("x"), "/container/id"); id != "container_x" {
		t.Errorf("container %v", id)
	}
}

func TestCuts(t *testing.T) {
	for by, c := range map[string]struct {
		broken bool
		last   string
	}{"break": {true, "ping"}, "end": {false, "ping"}, "error": {false, "error"}} {
		t.Run(by, func(t *testing.T) {
			s := newStage(
				t,
				`{"turns": [{"repeat": 2, "answer": {"content": [{"type": "text", "text": "hello"}], "cut": {"after_events": 2, "by": "`+by+`", "error": {"status": 529, "type": "overloaded_error"}}}}]}`)
			res := s.open(t.Context(), messagesPath, strings.Replace(ask("x"), `"model"`, `"stream":true,"model"`, 1))
			text, err := io.ReadAll(res.Body)
			names, _ := sse(t, bytes.NewReader(text))
			if (err != nil) != c.broken || len(names) < 2 || names[len(names)-1] != c.last {
				t.Errorf("%v, events %q", err, names)
			}
			res = s.open(t.Context(), messagesPath, ask("x"))
			if text, err = io.ReadAll(res.Body); (err != nil) != c.broken || by != "error" && json.Valid(text) ||
				by == "error" && res.StatusCode != 529 {
				t.Errorf("JSON: %d %v %s", res.StatusCode, err, text)
			}
		})
	}
}

// TestPauseAndHang uses a client that disconnects in the middle.
func TestPauseAndHang(t *testing.T) {
	s := newStage(t, `{"turns": [
		{"answer": {"content": [{"type": "text", "text": "hello"}], "pauses": [{"before_event": 3, "until": "asked"}]}},
		{"answer": {"content": [{"type": "text", "text": "hello"}], "cut": {"after_events": 1, "by": "hang"}}}]}`)
	stream := strings.Replace(ask("x"), `"model"`, `"stream":true,"model"`, 1)
	res := s.open(t.Context(), messagesPath, stream)
	<-s.Reached("asked")
	s.Release("asked")
	if text, err := io.ReadAll(res.Body); err != nil || !strings.Contains(string(text), "message_stop") {
		t.Errorf("%v %s", err, text)
	}
	ctx, cancel := context.WithCancel(t.Context())
	res = s.open(ctx, messagesPath, stream)
	if line, err := bufio.NewReader(res.Body).ReadString('\n'); err != nil || line != "event: message_start\n" {
		t.Fatalf("%v %q", err, line)
	}
	cancel()
	if _, err := io.ReadAll(res.Body); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestConversationsDoNotMix(t *testing.T) {
	s := newStage(t, `{"conversations": [
		{"when": {"model": "a"}, "loop": true, "turns": [{"answer": {"content": [{"type": "text", "text": "a1"}]}}, {"answer": {"content": [{"type": "text", "text": "a2"}]}}]},
		{"when": {"headers": {"anthropic-version": "none"}}, "turns": [{"answer": {"content": []}}]},
		{"when": {"model": "b"}, "turns": [{"repeat": 20, "answer": {"content": [{"type": "text", "text": "b"}]}}]}]}`)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if got := s.good(messagesPath, strings.Replace(ask("x"), `"m"`, `"b"`, 1), "/content/0/text"); got != "b" {
				t.Errorf("got %v", got)
			}
		})
	}
	for _, want := range []string{"a1", "a2", "a1"} {
		if got := s.good(messagesPath, strings.Replace(ask("x"), `"m"`, `"a"`, 1), "/content/0/text"); got != want {
			t.Errorf("got %v, want %s", got, want)
		}
	}
	wg.Wait()
	if _, text := s.post(messagesPath, ask("x")); !strings.Contains(text, "no conversation") {
		t.Error(text)
	}
}

func TestScriptsThatAreWrong(t *testing.T) {
	for script, want := range map[string]string{
		`{`:                           "at byte",
		`{"turns": []}`:               "no turns",
		`{"turn": []}`:                `"turn"`,
		`{"turns": [{"answer": {}}]}`: "exactly one of content",
		`{"turns": [{"answer": {"content": [{"text": "x"}]}}]}`:                                     "block 0 has no type",
		`{"turns": [{"answer": {"content": [{"type": "tool_use", "name": "x"}]}}]}`:                 "needs name and input",
		`{"turns": [{"answer": {"content": [{"type": "text", "text": {"$from": "x"}}]}}]}`:          "JSON pointer",
		`{"turns": [{"answer": {"error": {"status": 200}}}]}`:                                       "status 200",
		`{"turns": [{"answer": {"content": [], "cut": {"by": "x"}}}]}`:                              "cut: by",
		`{"turns": [{"answer": {"content": [], "pauses": [{}]}}]}`:                                  "pauses",
		`{"turns": [{"answer": {"content": [], "pauses": [{"for": "1x"}]}}]}`:                       "1x",
		`{"turns": [{"expect": {"body": {"model": 1}}, "answer": {"content": []}}]}`:                "JSON pointer",
		`{"turns": [{"expect": {"last": [{"text": {"$regex": "("}}]}, "answer": {"content": []}}]}`: "$regex is not known",
		`{"turns": [{"expect": {"last": [{"text": {"$match": "("}}]}, "answer": {"content": []}}]}`: "missing closing",
		`{"turns": [{"answer": {"content": []}}]} x`:                                                "follows the script",
	} {
		if _, err := Load(strings.NewReader(script)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", script, err, want)
		}
	}
}

func TestDiffer(t *testing.T) {
	for _, c := range []struct {
		want, got string
		fits      bool
	}{
		{`{"a": 1}`, `{"a": 1.0, "b": 2}`, true}, {`{"a": 1}`, `{"b": 2}`, false}, {`{"a": null}`, `{}`, true},
		{`[1]`, `[1, 2]`, false}, {`[1, {"b": "c"}]`, `[1, {"b": "c", "d": 1}]`, true},
		{`{"$length": 2}`, `"éa"`, true}, {`{"$length": 2}`, `[1]`, false},
		{`{"$has": {"a": 1}}`, `[{"a": 2}, {"a": 1}]`, true}, {`{"$has": 3}`, `[1]`, false},
		{`{"$not": 3}`, `3`, false}, {`{"$not": 3}`, `4`, true}, {`{"$any": true}`, `null`, false},
		{`{"$any": false}`, `null`, true}, {`{"$contains": "a"}`, `1`, false}, {`"a"`, `"b"`, false},
	} {
		if wrong := differ(parse(t, c.want), parse(t, c.got), ""); (wrong == "") != c.fits {
			t.Errorf("%s and %s: %q", c.want, c.got, wrong)
		}
	}
}
