package messages_test

import (
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"berth/files"
	"berth/proto"
	"berth/session"
	"berth/test/sessiontest"
)

const bash = "code_execution_20250825"

// both runs a test with answers as JSON and as streams.
func both(t *testing.T, test func(t *testing.T, stream bool)) {
	for name, stream := range map[string]bool{"json": false, "stream": true} {
		t.Run(name, func(t *testing.T) { test(t, stream) })
	}
}

// twoRounds is a script in which the model runs one command and then writes a text.
const twoRounds = `{"plain": true, "turns": [
	{"expect": {"tools": ["bash_code_execution", "text_editor_code_execution"], "no_tools": ["code_execution"], "messages": 1},
	 "answer": {"content": [{"type": "text", "text": "I look."}, {"type": "tool_use", "id": "toolu_a1", "name": "bash_code_execution", "input": {"command": "echo out; echo err >&2; exit 3"}}]}},
	{"expect": {"messages": 3, "last": [{"type": "tool_result", "tool_use_id": "toolu_a1", "is_error": true, "content": {"$contains": "out\n[stderr]\nerr\n[return code: 3]"}}]},
	 "answer": {"content": [{"type": "text", "text": "It failed."}], "usage": {"input_tokens": 7, "output_tokens": 2, "cache_read_input_tokens": 4}}}
]}`

func TestCommandAndAnswer(t *testing.T) {
	var got []message
	both(t, func(t *testing.T, stream bool) {
		s := newSite(t, twoRounds)
		m := s.ask(body(bash, "go", "stream", stream)).msg
		s.played()
		if m.types() != "text server_tool_use bash_code_execution_tool_result text" || m.StopReason != "end_turn" {
			t.Fatalf("%+v", m)
		}
		use := m.Content[1]
		if use["id"] != "srvtoolu_a1" || use["name"] != "bash_code_execution" ||
			!reflect.DeepEqual(use["caller"], map[string]any{"type": "direct"}) ||
			use["input"].(map[string]any)["command"] == "" {
			t.Errorf("%v", use)
		}
		r := m.result(t, 2)
		if m.Content[2]["tool_use_id"] != "srvtoolu_a1" || r["type"] != "bash_code_execution_result" ||
			r["stdout"] != "out\n" || r["stderr"] != "err\n" || r["return_code"] != 3.0 ||
			len(r["content"].([]any)) != 0 {
			t.Errorf("%v", r)
		}
		if m.Usage["input_tokens"] != 17.0 || m.Usage["output_tokens"] != 7.0 ||
			m.Usage["cache_read_input_tokens"] != 4.0 {
			t.Errorf("usage %v", m.Usage)
		}
		if m.Container == nil || !strings.HasPrefix(m.Container.ID, "container_") || m.Container.ExpiresAt.IsZero() ||
			m.Container.Skills != nil {
			t.Errorf("container %+v", m.Container)
		}
		m.ID, m.Container = "", nil
		got = append(got, m)
	})
	if len(got) == 2 && !reflect.DeepEqual(got[0], got[1]) {
		t.Errorf("the answers differ:\n%+v\n%+v", got[0], got[1])
	}
}

// A request without the tool and its answer are passed through byte for byte.
func TestWithoutTheToolNothingIsTouched(t *testing.T) {
	const answer = `{ "id":"msg_1",  "type":"message","role":"assistant","content":[{"type":"text","text":"\u00e9"}],"model":"m","stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1} }`
	s := newSite(
		t, `{"turns": [{"expect": {"headers": {"anthropic-beta": "x-1", "x-odd": "1"}, "query": {"beta": "true"}},
		"answer": {"raw": {"body": `+string(encode(t, answer))+
			`}, "headers": {"request-id": "req_up", "anthropic-ratelimit-requests-remaining": "7", "retry-after": "3"}}}]}`)
	sent := []byte(
		`{"model" : "m","messages":[ {"role":"user","content":"h\u0069"}], "odd":{"a":[1.0,2e3]},"container":null, "max_tokens":5}`)
	req := s.request("/v1/messages?beta=true", sent, "anthropic-beta", "x-1", "x-odd", "1")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	r := s.read(res)
	s.played()
	if string(r.body) != answer || string(s.model.Requests()[0]) != string(sent) {
		t.Errorf("sent on %s\n  answered %s", s.model.Requests()[0], r.body)
	}
	if h := r.header; h.Get("request-id") != "req_up" || h.Get("anthropic-ratelimit-requests-remaining") != "7" ||
		h.Get("retry-after") != "3" {
		t.Errorf("%v", h)
	}
}

// A stream that is passed through is forwarded piece by piece without delay.
func TestAStreamIsPassedOnAsItComes(t *testing.T) {
	s := newSite(
		t,
		`{"turns": [{"answer": {"content": [{"type": "text", "text": "one two three four"}], "piece": 4, "pauses": [{"before_event": 6, "until": "later"}]}}]}`)
	res, err := http.DefaultClient.Do(s.request("/v1/messages",
		[]byte(`{"model":"m","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"x"}]}`)))
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1<<16)
	first := ""
	for !strings.Contains(first, "text_delta") {
		n, err := res.Body.Read(buf)
		if first += string(buf[:n]); err != nil {
			t.Fatalf("%v after %s", err, first)
		}
	}
	if strings.Contains(first, "message_stop") {
		t.Error("the stream came at once")
	}
	s.model.Release("later")
	rest, err := io.ReadAll(res.Body)
	res.Body.Close()
	if err != nil || !strings.Contains(string(rest), "message_stop") {
		t.Errorf("%v: %s", err, rest)
	}
	s.played()
}

func TestEditorAndParallelCalls(t *testing.T) {
	both(t, func(t *testing.T, stream bool) {
		s := newSite(t, `{"plain": true, "turns": [
			{"answer": {"content": [
				{"type": "tool_use", "id": "toolu_1", "name": "text_editor_code_execution", "input": {"command": "create", "path": "/workspace/a.txt", "file_text": "one\ntwo\n"}},
				{"type": "tool_use", "id": "toolu_2", "name": "text_editor_code_execution", "input": {"command": "view", "path": "../a.txt"}},
				{"type": "tool_use", "id": "toolu_3", "name": "text_editor_code_execution", "input": {"command": "str_replace", "path": "/workspace/a.txt", "old_str": "one", "new_str": "three"}},
				{"type": "tool_use", "id": "toolu_4", "name": "text_editor_code_execution", "input": {"command": "view", "path": "/workspace/none"}},
				{"type": "tool_use", "id": "toolu_5", "name": "bash_code_execution", "input": {"cmd": "wrong"}},
				{"type": "tool_use", "id": "toolu_6", "name": "bash_code_execution", "input": {"command": "cat /workspace/a.txt | head -1; echo made >$OUTPUT_DIR/made.txt"}}]}},
			{"expect": {"messages": 3, "last": [
				{"tool_use_id": "toolu_1", "content": "The file has been created."}, {"tool_use_id": "toolu_2", "content": "one\ntwo"}, {"tool_use_id": "toolu_3", "content": {"$contains": "-one\n+three"}},
				{"tool_use_id": "toolu_4", "is_error": true, "content": {"$contains": "file_not_found"}}, {"tool_use_id": "toolu_5", "is_error": true, "content": {"$contains": "invalid_tool_input"}},
				{"tool_use_id": "toolu_6", "content": {"$match": "^three\n\\[file for the user: file_\\w+\\]$"}}]},
			 "answer": {"content": [{"type": "text", "text": "done"}]}}]}`)
		m := s.ask(body(bash, "go", "stream", stream)).msg
		s.played()
		use, res := strings.Repeat("server_tool_use ", 6), strings.Repeat("text_editor_code_execution_tool_result ", 4)+
			strings.Repeat("bash_code_execution_tool_result ", 2)
		if m.types() != use+res+"text" {
			t.Fatal(m.types())
		}
		for i, want := range []string{"text_editor_code_execution_create_result",
			"text_editor_code_execution_view_result", "text_editor_code_execution_str_replace_result",
			"text_editor_code_execution_tool_result_error", "bash_code_execution_tool_result_error",
			"bash_code_execution_result"} {
			if got := m.result(t, 6+i); got["type"] != want {
				t.Errorf("result %d: %v, want %s", i, got, want)
			}
		}
		made := m.result(t, 11)["content"].([]any)
		if len(made) != 1 {
			t.Fatalf("%v", m.result(t, 11))
		}
		f, err := s.Files.Get(t.Context(), sessiontest.Owner, made[0].(map[string]any)["file_id"].(string))
		if err != nil || f.Filename != "made.txt" || !f.Downloadable {
			t.Errorf("%+v, %v", f, err)
		}
	})
}

// A key can only see its own containers and files.
func TestOthersHaveNothing(t *testing.T) {
	s := newSite(t, `{"turns": [{"answer": {"content": [{"type": "text", "text": "never"}]}}]}`)
	f, err := s.Files.Put(t.Context(), files.Upload{Owner: "somebody else", Filename: "a"}, strings.NewReader("secret"))
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := s.Sessions.Create(t.Context(), "somebody else", proto.CreateContainer{})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/v1/messages", "/v1/messages/count_tokens"} {
		req := body(bash, "x", "container", theirs.ID())
		if r := s.read(must(http.DefaultClient.Do(s.request(path, encode(t, req))))); r.status != 404 {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
	req := body(bash, "x")
	req["messages"] = []any{map[string]any{"role": "user", "content": []any{map[string]any{"type": "container_upload",
		"file_id": f.ID}}}}
	if r := s.send(encode(t, req)); r.status != 404 || r.msg.Error == nil ||
		!strings.Contains(r.msg.Error.Message, f.ID) {
		t.Errorf("%d %s", r.status, r.body)
	}
	if list, _, err := s.Sessions.List(sessiontest.Owner, session.Filter{}); err != nil || len(list) > 0 {
		t.Errorf("containers were made: %v, %v", list, err)
	}
}

// again returns the request that continues a conversation.
func again(req map[string]any, m message, user any) map[string]any {
	next := map[string]any{}
	for k, v := range req {
		next[k] = v
	}
	next["messages"] = append(req["messages"].([]any), map[string]any{"role": "assistant", "content": m.Content})
	if user != nil {
		next["messages"] = append(next["messages"].([]any), map[string]any{"role": "user", "content": user})
	}
	if m.Container != nil {
		next["container"] = m.Container.ID
	}
	return next
}

func TestPauseTurnGoesOn(t *testing.T) {
	both(t, func(t *testing.T, stream bool) {
		s := newSite(t, `{"plain": true, "turns": [
			{"answer": {"content": [{"type": "tool_use", "name": "bash_code_execution", "input": {"command": "echo x >>/workspace/n; cat /workspace/n"}}]}, "repeat": 3},
			{"expect": {"messages": 7, "last": [{"content": "x\nx\nx\n"}]}, "answer": {"content": [{"type": "text", "text": "done"}]}}]}`,
			func(c *config) { c.MaxRounds = 2 })
		req := body(bash, "go", "stream", stream)
		first := s.ask(req).msg
		if first.StopReason != "pause_turn" || first.types() != "server_tool_use bash_code_execution_tool_result "+
			"server_tool_use bash_code_execution_tool_result" {
			t.Fatalf("%+v", first)
		}
		second := s.ask(again(req, first, nil)).msg
		s.played()
		if second.StopReason != "end_turn" ||
			second.types() != "server_tool_use bash_code_execution_tool_result text" ||
			second.Container.ID != first.Container.ID {
			t.Errorf("%+v", second)
		}
		if r := second.result(t, 1); r["stdout"] != "x\nx\nx\n" {
			t.Errorf("%v", r)
		}
	})
}

func TestClientAndServerToolsInOneTurn(t *testing.T) {
	both(t, func(t *testing.T, stream bool) {
		s := newSite(t, `{"plain": true, "turns": [
			{"expect": {"tools": ["weather"]}, "answer": {"content": [
				{"type": "tool_use", "id": "toolu_s", "name": "bash_code_execution", "input": {"command": "echo x >>/workspace/n; cat /workspace/n"}},
				{"type": "tool_use", "id": "toolu_c", "name": "weather", "input": {}}]}},
			{"expect": {"messages": 3, "last": [{"tool_use_id": "toolu_c", "content": "rain"}, {"tool_use_id": "toolu_s", "content": "x\n"}]}, "answer": {"content": [{"type": "text", "text": "done"}]}, "repeat": 2},
			{"expect": {"messages": 5}, "answer": {"content": [{"type": "text", "text": "bye"}]}}]}`)
		req := body(bash, "go", "stream", stream)
		req["tools"] = append(req["tools"].([]any), map[string]any{"name": "weather", "input_schema": map[string]any{
			"type": "object"}})
		first := s.ask(req).msg
		if first.StopReason != "tool_use" || first.types() != "server_tool_use tool_use" || first.Container != nil {
			t.Fatalf("%+v", first)
		}
		c := s.Create(t, proto.CreateContainer{})
		next := again(req, first, []any{map[string]any{"type": "tool_result", "tool_use_id": "toolu_c",
			"content": "rain"}})
		next["container"] = map[string]any{"id": c.ID()}
		for range 2 { // the command runs once even if the client repeats the request
			second := s.ask(next).msg
			if second.StopReason != "end_turn" || second.types() != "bash_code_execution_tool_result text" ||
				second.result(t, 0)["stdout"] != "x\n" || second.Content[0]["tool_use_id"] != "srvtoolu_s" ||
				second.Container.ID != c.ID() {
				t.Fatalf("%+v", second)
			}
			first = second
		}
		s.ask(again(next, first, "and now"))
		s.played()
	})
}

func TestUploads(t *testing.T) {
	s := newSite(t, `{"plain": true, "turns": [
		{"expect": {"last": [{"text": {"$contains": "/workspace/inputs/a.csv"}}, {"text": {"$contains": "/workspace/inputs/a (2).csv"}}, {"text": "sum"}]},
		 "answer": {"content": [{"type": "tool_use", "name": "bash_code_execution", "input": {"command": "cat \"$INPUT_DIR/a.csv\" \"$INPUT_DIR/a (2).csv\""}}]}},
		{"expect": {"last": [{"content": "1\n2\n"}]}, "answer": {"content": [{"type": "text", "text": "done"}]}},
		{"answer": {"content": [{"type": "tool_use", "name": "bash_code_execution", "input": {"command": "cat \"$INPUT_DIR\"/*"}}]}},
		{"expect": {"last": [{"content": "2\n1\n"}]}, "answer": {"content": [{"type": "text", "text": "done"}]}},
		{"expect": {"body": {"/messages/0/content/0/text": {"$contains": "a.csv"}, "/messages/0/content/1/text": {"$contains": "not available"}}}, "answer": {"content": [{"type": "text", "text": "done"}]}}]}`)
	a, b := s.upload("a.csv", "1\n"), s.upload("a.csv", "2\n")
	req := body(bash, "")
	give := func(id string) any { return map[string]any{"type": "container_upload", "file_id": id} }
	req["messages"] = []any{map[string]any{"role": "user", "content": []any{give(a), give(b),
		map[string]any{"type": "text", "text": "sum"}}}}
	first := s.ask(req).msg
	next := again(req, first, "again")
	delete(next, "container") // a new container also gets the files of earlier turns
	second := s.ask(next).msg
	if first.Container == nil || second.Container == nil || first.Container.ID == second.Container.ID {
		t.Errorf("%+v, %+v", first.Container, second.Container)
	}
	if err := s.Files.Delete(t.Context(), sessiontest.Owner, b); err != nil {
		t.Fatal(err)
	}
	third := again(next, second, "and again")
	delete(third, "container")
	if m := s.ask(third).msg; m.types() != "text" {
		t.Errorf("%+v", m)
	}
	s.played()
	r := s.send(encode(t, req)) // the file is now current
	if r.status != 404 || r.msg.Error == nil || !strings.Contains(r.msg.Error.Message, b) {
		t.Errorf("%d %s", r.status, r.body)
	}
}

func TestContainersThatAreNotThere(t *testing.T) {
	s := newSite(t, `{"turns": [{"answer": {"content": [{"type": "text", "text": "never"}]}}]}`)
	gone := s.Create(t, proto.CreateContainer{}).ID()
	if err := s.Sessions.Delete(t.Context(), sessiontest.Owner, gone, false); err != nil {
		t.Fatal(err)
	}
	other, err := s.Sessions.Create(t.Context(), "somebody else", proto.CreateContainer{})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{gone, other.ID(), "container_nobody", "x"} {
		for _, c := range []any{id, map[string]any{"id": id}} {
			for _, stream := range []bool{false, true} {
				r := s.send(encode(t, body(bash, "go", "container", c, "stream", stream)))
				if r.status != 404 || r.msg.Error == nil || r.msg.Error.Type != "not_found_error" ||
					r.msg.Error.Details.ErrorCode != "container_not_found" ||
					!strings.Contains(r.msg.Error.Message, id) {
					t.Errorf("%v: %d %s", c, r.status, r.body)
				}
			}
		}
	}
	if n := len(s.model.Requests()); n > 0 {
		t.Errorf("the upstream was asked %d times", n)
	}
}

// A model may give a command the ID of a pending command of an earlier answer. It is then a new command.
func TestCommandUnderTheIDOfAPendingOne(t *testing.T) {
	s := newSite(t, `{"plain": true, "turns": [
		{"answer": {"content": [{"type": "tool_use", "id": "toolu_1", "name": "bash_code_execution", "input": {"command": "echo first"}}, {"type": "tool_use", "id": "toolu_own", "name": "own", "input": {}}]}},
		{"answer": {"content": [{"type": "tool_use", "id": "toolu_1", "name": "bash_code_execution", "input": {"command": "echo second"}}]}},
		{"answer": {"content": [{"type": "text", "text": "done"}]}}]}`)
	req := body(bash, "go")
	req["tools"] = append(req["tools"].([]any), map[string]any{"name": "own", "input_schema": map[string]any{
		"type": "object"}})
	first := s.ask(req).msg
	m := s.ask(again(req, first, []any{map[string]any{"type": "tool_result", "tool_use_id": "toolu_own",
		"content": "ok"}})).msg
	s.played()
	if m.types() != "bash_code_execution_tool_result server_tool_use bash_code_execution_tool_result text" ||
		m.result(t, 0)["stdout"] != "first\n" || m.result(t, 2)["stdout"] != "second\n" {
		t.Errorf("%+v", m)
	}
}
