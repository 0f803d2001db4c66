package messages_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"berth/gateway/upstream"
)

// oddSite uses an upstream with an unusual answer.
func oddSite(t *testing.T, kind, answer string) *site {
	t.Helper()
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(model.Close)
	set, err := upstream.Open([]upstream.Config{{URL: model.URL}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { set.Close() })
	return newSite(t, `{"turns": [{"answer": {"content": [{"type": "text", "text": "never"}]}}]}`,
		func(c *config) { c.Upstreams = set })
}

// Some upstreams use the same ID in each round, and several times in one. The client and the upstream get others.
func TestTheSameIDInEachRound(t *testing.T) {
	both(t, func(t *testing.T, stream bool) {
		s := newSite(t, `{"plain": true, "turns": [
			{"answer": {"content": [{"type": "tool_use", "id": "call_0", "name": "bash_code_execution", "input": {"command": "echo one"}}]}},
			{"answer": {"content": [{"type": "tool_use", "id": "call_0", "name": "bash_code_execution", "input": {"command": "echo two"}}, {"type": "tool_use", "id": "call_0", "name": "bash_code_execution", "input": {"command": "echo three"}}]}},
			{"expect": {"last": [{"content": "two\n"}, {"content": "three\n"}]}, "answer": {"content": [{"type": "tool_use", "id": "call_0", "name": "own", "input": {}}]}},
			{"expect": {"last": [{"content": "four"}]}, "answer": {"content": [{"type": "tool_use", "id": "call_0", "name": "own", "input": {}}]}},
			{"expect": {"last": [{"content": "five"}]}, "answer": {"content": [{"type": "text", "text": "done"}]}}]}`)
		req, all := withOwn("go", "stream", stream), []map[string]any{}
		for _, answer := range []string{"four", "five"} {
			m := s.ask(req).msg
			all = append(all, m.Content...)
			req = again(req, m, []any{map[string]any{"type": "tool_result",
				"tool_use_id": m.Content[len(m.Content)-1]["id"], "content": answer}})
		}
		s.ask(req)
		s.played()
		ids, results := map[any]bool{}, map[any]any{}
		for _, b := range all {
			switch b["type"] {
			case "server_tool_use", "tool_use":
				if ids[b["id"]] {
					t.Errorf("two calls are %s", b["id"])
				}
				ids[b["id"]] = true
			default:
				results[b["tool_use_id"]] = b["content"].(map[string]any)["stdout"]
			}
		}
		if len(ids) != 5 || len(results) != 3 || !ids["srvtoolu_0x"+hex.EncodeToString([]byte("call_0"))] {
			t.Errorf("%v %v", ids, results)
		}
		sent := map[any]bool{}
		var last struct {
			Messages []struct{ Content any }
		}
		if err := json.Unmarshal(s.model.Requests()[4], &last); err != nil {
			t.Fatal(err)
		}
		for _, m := range last.Messages {
			blocks, _ := m.Content.([]any)
			for _, b := range blocks {
				if id := b.(map[string]any)["id"]; id != nil {
					sent[id] = true
				}
			}
		}
		if len(sent) != 5 {
			t.Errorf("the upstream gets %v", sent)
		}
	})
}

// The gateway adds what an upstream leaves out, because SDKs rely on it.
func TestUpstreamsThatLeaveOutMuch(t *testing.T) {
	for kind, answer := range map[string]string{
		"application/json": `{"content": [{"type": "text", "text": "hi"}]}`,
		"text/event-stream": `data: {"type": "message_start", "message": {"role": "assistant", "content": []}}

data: {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "hi"}}

data: {"type": "content_block_stop", "index": 0}

data: {"type": "message_delta", "delta": {}}

data: {"type": "message_stop"}

`,
	} {
		both(t, func(t *testing.T, stream bool) {
			m := oddSite(t, kind, answer).ask(body(bash, "go", "stream", stream)).msg
			if !strings.HasPrefix(m.ID, "msg_") || m.Model != "m" || m.StopReason != "end_turn" ||
				m.types() != "text" || m.Usage["input_tokens"] != 0.0 || m.Usage["output_tokens"] != 0.0 {
				t.Errorf("%s: %+v", kind, m)
			}
		})
	}
}

// A model that calls a tool gets the result, regardless of the stop reason that its upstream reports.
func TestCallsBehindTheWrongStopReason(t *testing.T) {
	s := newSite(t, `{"plain": true, "turns": [
		{"answer": {"stop_reason": "end_turn", "content": [{"type": "tool_use", "name": "bash_code_execution", "input": {"command": "echo one"}}]}},
		{"expect": {"last": [{"content": "one\n"}]}, "answer": {"content": [{"type": "text", "text": "done"}]}}]}`)
	if m := s.ask(body(bash, "go")).msg; m.types() != "server_tool_use bash_code_execution_tool_result text" {
		t.Errorf("%+v", m)
	}
	s.played()
}

// An error that an upstream sends as the first event has the status of its type.
func TestAnErrorAsTheFirstEvent(t *testing.T) {
	both(t, func(t *testing.T, stream bool) {
		s := oddSite(t, "text/event-stream", "event: error\ndata: {\"type\": \"error\", \"error\": {\"type\": "+
			"\"overloaded_error\", \"message\": \"busy\"}}\n\n")
		r := s.send(encode(t, body(bash, "go", "stream", stream)))
		if r.status != 529 || r.msg.Error == nil || r.msg.Error.Type != "overloaded_error" ||
			r.msg.Error.Message != "busy" {
			t.Errorf("%d %s", r.status, r.body)
		}
	})
}

// Code that an upstream has run itself is not run again, and goes back to it unchanged.
func TestCodeThatTheUpstreamHasRun(t *testing.T) {
	const own = `{"type": "server_tool_use", "id": "srvtoolu_n", "name": "code_execution", "input": {"code": "await web_search({})"}},
		{"type": "code_execution_tool_result", "tool_use_id": "srvtoolu_n", "content": {"type": "encrypted_code_execution_result", "encrypted_stdout": "zzz", "stderr": "", "return_code": 0, "content": []}}`
	both(t, func(t *testing.T, stream bool) {
		s := newSite(t, `{"turns": [
			{"answer": {"content": [`+own+
			`, {"type": "tool_use", "id": "toolu_b", "name": "bash_code_execution", "input": {"command": "echo one"}}]}},
			{"expect": {"body": {"/messages/1/content": [`+own+
			`, {"type": "tool_use", "id": "toolu_b"}]}, "last": [{"tool_use_id": "toolu_b", "content": "one\n"}]},
			 "answer": {"content": [{"type": "text", "text": "done"}]}}]}`)
		m := s.ask(body(repl, "go", "stream", stream)).msg
		s.played()
		if m.types() != "server_tool_use code_execution_tool_result server_tool_use bash_code_execution_tool_result text" {
			t.Errorf("%+v", m)
		}
	})
}

// A tool choice is forced only once, even if the turn pauses. Otherwise the turn would never end.
func TestToolChoiceIsNotForcedAgainAfterAPause(t *testing.T) {
	s := newSite(t, `{"plain": true, "turns": [
		{"expect": {"body": {"/tool_choice": {"type": "any"}}}, "answer": {"content": [{"type": "tool_use", "name": "bash_code_execution", "input": {"command": "echo one"}}]}},
		{"expect": {"body": {"/tool_choice": {"type": "auto"}}}, "answer": {"content": [{"type": "text", "text": "done"}]}}]}`,
		func(c *config) { c.MaxRounds = 1 })
	req := body(bash, "go", "tool_choice", map[string]any{"type": "any"})
	first := s.ask(req).msg
	if second := s.ask(again(req, first, nil)).msg; first.StopReason != "pause_turn" ||
		second.StopReason != "end_turn" {
		t.Errorf("%s, %s", first.StopReason, second.StopReason)
	}
	s.played()
}

// Members that deltas of an unknown type add to a block go back to the upstream, such as the summary in a compaction.
func TestDeltasThatAreNotKnown(t *testing.T) {
	const events = `data: {"type": "message_start", "message": {"content": []}}

data: {"type": "content_block_start", "index": 0, "content_block": {"type": "compaction", "content": null}}

data: {"type": "content_block_delta", "index": 0, "delta": {"type": "compaction_delta", "content": "all of it", "encrypted_content": "zzz"}}

data: {"type": "content_block_stop", "index": 0}

data: {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "toolu_a", "name": "bash_code_execution", "input": {"command": "echo one"}}}

data: {"type": "content_block_stop", "index": 1}

data: {"type": "message_delta", "delta": {"stop_reason": "tool_use"}}

data: {"type": "message_stop"}

`
	s := newSite(t, `{"turns": [
		{"answer": {"raw": {"body": `+string(encode(t, events))+`}, "headers": {"content-type": "text/event-stream"}}},
		{"expect": {"body": {"/messages/1/content": [{"type": "compaction", "content": "all of it", "encrypted_content": "zzz"}, {"type": "tool_use"}]}}, "answer": {"content": [{"type": "text", "text": "done"}]}}]}`)
	if r := s.ask(body(bash, "go", "stream", true)); !strings.Contains(string(r.body),
		`{"type":"compaction_delta","content":"all of it","encrypted_content":"zzz"}`) {
		t.Errorf("%s", r.body)
	}
	s.played()
}

// JSON with several lines becomes one line of a stream.
func TestAnswerOfSeveralLines(t *testing.T) {
	s := oddSite(t, "application/json", "{\r\n  \"content\": [{\n    \"type\": \"text\",\n    \"text\": "+
		"\"one\\ntwo\"\n  }, {\n    \"type\": \"odd\",\n    \"list\": [\n      1\n    ]\n  }],\n  \"usage\": {\n    "+
		"\"input_tokens\": 5\n  }\n}\n")
	m := s.ask(body(bash, "go", "stream", true)).msg
	if m.types() != "text odd" || m.Content[0]["text"] != "one\ntwo" || len(m.Content[1]["list"].([]any)) != 1 ||
		m.Usage["input_tokens"] != 5.0 {
		t.Errorf("%+v", m)
	}
}

// Upstreams refuse empty texts, even those that they have sent.
func TestTextsWithoutWords(t *testing.T) {
	s := newSite(t, `{"plain": true, "turns": [
		{"answer": {"content": [{"type": "text", "text": " \n"}, {"type": "tool_use", "name": "bash_code_execution", "input": {"command": "echo one"}}]}},
		{"expect": {"body": {"/messages/1/content": [{"type": "tool_use"}]}}, "answer": {"content": [{"type": "text", "text": "done"}]}}]}`)
	if m := s.ask(body(bash, "go")).msg; m.types() != "text server_tool_use bash_code_execution_tool_result text" {
		t.Errorf("%+v", m)
	}
	s.played()
}

// Answers to calls by code must cover exactly its calls. A refused request uses up nothing.
func TestAnswersToOtherCalls(t *testing.T) {
	s := newSite(t, remoteScript("import asyncio\nprint(await asyncio.gather(query({'n': 1}), query({'n': 2})))",
		`{"content": "['1', '2']\n"}`))
	req := withRemote("go")
	first := s.ask(req).msg
	echo := func(input map[string]any) (string, bool) { return fmt.Sprint(input["n"]), false }
	all := answerCalls(t, first, echo)
	wrong := map[string]any{"type": "tool_result", "tool_use_id": "toolu_wrong", "content": "9"}
	for want, answers := range map[string][]any{"toolu_wrong": append([]any{wrong}, all...),
		"has no tool_result": all[:1]} {
		if r := s.send(encode(t, again(req, first, answers))); r.status != 400 || r.msg.Error == nil ||
			!strings.Contains(r.msg.Error.Message, want) {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
	if m := s.ask(again(req, first, all)).msg; m.types() != "code_execution_tool_result text" ||
		m.result(t, 0)["stdout"] != "['1', '2']\n" {
		t.Errorf("%+v", m)
	}
	s.played()
}

// Code that waits for a client is ended when other code needs the interpreter. Otherwise the other code would wait
// for it and be asked for its calls.
func TestCodeThatNobodyAnswersMakesRoom(t *testing.T) {
	for name, ask := range map[string]func(string, ...any) map[string]any{"with tools": withRemote, "without": func(
		text string, more ...any) map[string]any {
		return body(repl, text, more...)
	}} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, `{"plain": true, "turns": [
				{"answer": {"content": [{"type": "tool_use", "id": "toolu_code", "name": "code_execution", "input": {"code": "x = 5; print(await query({'n': x}))"}}]}},
				{"answer": {"content": [{"type": "tool_use", "id": "toolu_b", "name": "code_execution", "input": {"code": "print(x + 1)"}}]}},
				{"expect": {"last": [{"content": "6\n"}]}, "answer": {"content": [{"type": "text", "text": "done"}]}},
				{"expect": {"last": [{"is_error": true}]}, "answer": {"content": [{"type": "text", "text": "lost"}]}}]}`)
			req := withRemote("go")
			first := s.ask(req).msg
			began := time.Now()
			second := s.ask(ask("something else", "container", first.Container.ID)).msg
			if took := time.Since(began); second.types() != "server_tool_use code_execution_tool_result text" ||
				took > 30*time.Second {
				t.Errorf("%s: %+v", took, second)
			}
			late := s.ask(again(req, first, answerCalls(t, first, func(map[string]any) (string, bool) {
				return "1",
					false
			}))).msg
			if late.result(t, 0)["error_code"] != "unavailable" {
				t.Errorf("%+v", late)
			}
			s.played()
		})
	}
}

// Some tools have names that are invalid in Python; the model is told their names there.
func TestToolsWhoseNamesAreNotPythons(t *testing.T) {
	for name, function := range map[string]string{"get-weather": "get_weather", "import": `tools["import"]`,
		"print": `tools["print"]`, "1st": `tools["1st"]`, "__x__": `tools["__x__"]`} {
		s := newSite(t, `{"plain": true, "turns": [
			{"expect": {"body": {"/tools": {"$has": {"description": {"$contains": `+
			string(encode(t, "await "+function+"(input: dict)"))+`}}}}},
			 "answer": {"content": [{"type": "tool_use", "id": "toolu_code", "name": "code_execution", "input": {"code": `+string(encode(t, "print(await "+function+"({'n': 1}))"))+`}}]}},
			{"expect": {"last": [{"content": "sun\n"}]}, "answer": {"content": [{"type": "text", "text": "done"}]}}]}`)
		req := withRemote("go")
		req["tools"].([]any)[1].(map[string]any)["name"] = name
		first := s.ask(req).msg
		if call := first.Content[len(first.Content)-1]; call["name"] != name {
			t.Fatalf("%s: %v", name, first.Content)
		}
		s.ask(again(req, first, []any{map[string]any{"type": "tool_result", "tool_use_id": first.Content[1]["id"],
			"content": "sun"}}))
		s.played()
	}
}

// A model's context cannot hold all that a command may write; the client gets the whole output.
func TestLongOutputIsShortenedForTheModel(t *testing.T) {
	s := newSite(t, `{"plain": true, "turns": [
		{"answer": {"content": [{"type": "tool_use", "name": "bash_code_execution", "input": {"command": "echo begin; yes é | head -c 600000; echo end"}}]}},
		{"expect": {"last": [{"content": {"$match": "^begin\n(?s:.*)\n\\[\\d+ bytes are left out here; look at less at once\\]\n(?s:.*)\nend\n$"}}]}, "answer": {"content": [{"type": "text", "text": "done"}]}}]}`)
	m := s.ask(body(bash, "go")).msg
	s.played()
	if n := len(m.result(t, 1)["stdout"].(string)); n < 600000 {
		t.Errorf("the client got %d bytes", n)
	}
	if n := len(s.model.Requests()[1]); n > 200000 {
		t.Errorf("the upstream got %d bytes", n)
	}
}
