package messages_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"berth/files"
	"berth/proto"
	"berth/session"
	"berth/test/sessiontest"
)

const (
	legacy = "code_execution_20250522"
	repl   = "code_execution_20260120"
)

func TestPythonKeepsItsVariables(t *testing.T) {
	both(t, func(t *testing.T, stream bool) {
		s := newSite(t, `{"plain": true, "turns": [
			{"expect": {"tools": ["bash_code_execution", "text_editor_code_execution", "code_execution"]}, "answer": {"content": [{"type": "tool_use", "name": "code_execution", "input": {"code": "x = 20\nprint('set')"}}]}},
			{"expect": {"last": [{"content": "set\n"}]}, "answer": {"content": [{"type": "tool_use", "name": "code_execution", "input": {"code": "import os\nopen(os.environ['OUTPUT_DIR'] + '/a.txt', 'w').write('a')\nx + 1"}}]}},
			{"expect": {"last": [{"content": {"$match": "^21\n\\[file for the user: file_\\w+\\]$"}}]}, "answer": {"content": [{"type": "tool_use", "name": "code_execution", "input": {"code": "print('before')\n1/0"}}]}},
			{"expect": {"last": [{"is_error": true, "content": {"$contains": "ZeroDivisionError"}}]}, "answer": {"content": [{"type": "text", "text": "done"}]}},
			{"answer": {"content": [{"type": "tool_use", "name": "code_execution", "input": {"code": "x"}}]}},
			{"expect": {"last": [{"content": "20"}]}, "answer": {"content": [{"type": "text", "text": "still there"}]}}]}`)
		req := body(repl, "go", "stream", stream)
		m := s.ask(req).msg
		if m.types() != strings.Repeat("server_tool_use code_execution_tool_result ", 3)+"text" {
			t.Fatal(m.types())
		}
		made, failed := m.result(t, 3), m.result(t, 5)
		if made["type"] != "code_execution_result" || len(made["content"].([]any)) != 1 ||
			made["content"].([]any)[0].(map[string]any)["type"] != "code_execution_output" {
			t.Errorf("%v", made)
		}
		if failed["stdout"] != "before\n" || failed["return_code"] != 1.0 ||
			!strings.Contains(failed["stderr"].(string), "ZeroDivisionError") || len(failed["content"].([]any)) != 0 {
			t.Errorf("%v", failed)
		}
		s.ask(again(req, m, "and now"))
		s.played()
	})
}

// If code ends its interpreter, the result lists its own files and not those of earlier calls.
func TestFilesOfCodeThatEndsItsInterpreter(t *testing.T) {
	s := newSite(t, `{"plain": true, "turns": [
		{"answer": {"content": [{"type": "tool_use", "name": "code_execution", "input": {"code": "import os\ndef put(name, text): print(text, file=open(os.environ['OUTPUT_DIR'] + '/' + name, 'w'))\nput('a', 1)\nput('b', 1)"}}]}},
		{"answer": {"content": [{"type": "tool_use", "name": "code_execution", "input": {"code": "put('b', 2)\nput('c', 1)\nexit()"}}]}},
		{"answer": {"content": [{"type": "text", "text": "done"}]}}]}`)
	m := s.ask(body(repl, "go")).msg
	s.played()
	for at, want := range map[int][]string{1: {"a", "b"}, 3: {"b", "c"}} {
		var names []string
		for _, f := range m.result(t, at)["content"].([]any) {
			stored, err := s.Files.Get(t.Context(), sessiontest.Owner, f.(map[string]any)["file_id"].(string))
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, stored.Filename)
		}
		if !slices.Equal(names, want) {
			t.Errorf("call %d gave %q, want %q", at/2, names, want)
		}
	}
}

// A result names the files at the top of $OUTPUT_DIR only, as the hosted tool does. The others are stored, and the model
// is told, as it is of what was not stored.
func TestResultsNameFilesAtTheTop(t *testing.T) {
	const told = `\[stored, but not handed to the user: d/b.txt, d/c.txt; only files directly in \$OUTPUT_DIR are\]`
	const lost = `"link" was not stored: it is a link, and its target "/etc/passwd" is outside of /workspace`
	const command = `cd $OUTPUT_DIR; mkdir d; echo a >a.txt; echo b >d/b.txt; echo c >d/c.txt; ln -s /etc/passwd link`
	match := string(encode(t, map[string]any{"$match": told}))
	s := newSite(t, `{"plain": true, "turns": [
		{"answer": {"content": [{"type": "tool_use", "name": "bash_code_execution", "input": {"command": "`+command+`"}}]}},
		{"expect": {"last": [{"content": `+match+`}]},
		 "answer": {"content": [{"type": "tool_use", "name": "code_execution", "input": {"code": "import os\nos.system('''`+command+`''')"}}]}},
		{"expect": {"last": [{"content": `+match+`}]},
		 "answer": {"content": [{"type": "tool_use", "name": "code_execution", "input": {"code": "os.system('echo 2 >$OUTPUT_DIR/d/b.txt')"}}]}},
		{"expect": {"last": [{"content": {"$match": "user: d/b.txt; only files"}}]},
		 "answer": {"content": [{"type": "text", "text": "done"}]}}]}`)
	m := s.ask(body(repl, "go")).msg
	s.played()
	for at, want := range map[int]int{1: 1, 3: 1, 5: 0} {
		res := m.result(t, at)
		list := res["content"].([]any)
		if len(list) != want {
			t.Fatalf("call %d names %v", at/2, list)
		}
		if strings.Contains(res["stderr"].(string), lost) != (at < 5) {
			t.Errorf("call %d: %v", at/2, res)
		}
		for _, f := range list {
			stored, err := s.Files.Get(t.Context(), sessiontest.Owner, f.(map[string]any)["file_id"].(string))
			if err != nil || stored.Filename != "a.txt" {
				t.Errorf("call %d names %+v, %v", at/2, stored, err)
			}
		}
	}
	page, err := s.Files.List(t.Context(), sessiontest.Owner, files.Query{Limit: 100})
	if err != nil || len(page.Files) != 7 {
		t.Errorf("stored: %+v, %v", page.Files, err)
	}
}

func TestLegacyPythonKeepsNothing(t *testing.T) {
	s := newSite(t, `{"plain": true, "turns": [
		{"expect": {"tools": ["code_execution"], "no_tools": ["bash_code_execution"]}, "answer": {"content": [{"type": "tool_use", "name": "code_execution", "input": {"code": "x = 20\nopen('/workspace/n', 'w').write('kept')\nprint(x)"}}]}},
		{"answer": {"content": [{"type": "tool_use", "name": "code_execution", "input": {"code": "print(open('/workspace/n').read(), 'x' in globals())"}}]}},
		{"answer": {"content": [{"type": "text", "text": "done"}]}}]}`)
	m := s.ask(body(legacy, "go"), "anthropic-beta", "code-execution-2025-05-22").msg
	s.played()
	if r := m.result(t, 3); r["stdout"] != "kept False\n" || r["return_code"] != 0.0 {
		t.Errorf("%v", r)
	}
}

// A client that requests live output gets the output of running commands. Other clients get only the usual events.
func TestLiveOutput(t *testing.T) {
	for _, c := range []struct{ tool, name, input string }{
		{bash, "bash_code_execution",
			`{"command": "echo one; echo two >&2; while ! test -e /workspace/go; do sleep 0.02; done"}`},
		{repl, "code_execution",
			`{"code": "import os, sys, time\nprint('one', flush=True)\nprint('two', file=sys.stderr, flush=True)\nwhile not os.path.exists('/workspace/go'): time.sleep(0.02)"}`},
	} {
		s := newSite(
			t, `{"plain": true, "turns": [{"answer": {"content": [{"type": "tool_use", "id": "toolu_1", "name": "`+
				c.name+`", "input": `+c.input+
				`}]}}, {"expect": {"headers": {"berth-live-output": null}}, "answer": {"content": [{"type": "text", "text": "done"}]}}]}`)
		box := s.Create(t, proto.CreateContainer{})
		req := body(c.tool, "go", "stream", true, "container", box.ID())
		res := must(http.DefaultClient.Do(s.request("/v1/messages", encode(t, req), "berth-live-output", "1")))
		var seen strings.Builder
		buf := make([]byte, 1<<16)
		for strings.Count(seen.String(), "event: berth_output") < 2 { // they come while it runs
			n, err := res.Body.Read(buf)
			if seen.Write(buf[:n]); err != nil {
				t.Fatalf("%v after %s", err, seen.String())
			}
		}
		sessiontest.Bash(t, box, "touch /workspace/go")
		for {
			n, err := res.Body.Read(buf)
			if seen.Write(buf[:n]); err != nil {
				break
			}
		}
		res.Body.Close()
		s.played()
		texts := map[string]string{}
		for _, e := range eventsOf(t, []byte(seen.String())) {
			var out struct{ Type, Stream, Text, Tool_use_id string }
			if e.name == "berth_output" && json.Unmarshal(e.data, &out) == nil && out.Tool_use_id == "srvtoolu_1" &&
				out.Type == e.name {
				texts[out.Stream] += out.Text
			}
		}
		if texts["stdout"] != "one\n" || texts["stderr"] != "two\n" {
			t.Errorf("%s: %v", c.name, texts)
		}
	}
}

func TestCountTokens(t *testing.T) {
	s := newSite(
		t,
		`{"plain": true, "turns": [{"expect": {"path": "/v1/messages/count_tokens", "tools": ["bash_code_execution"], "last": [{"text": {"$contains": "/workspace/inputs/a.csv"}}]}, "answer": {"input_tokens": 42}}]}`)
	req := body(bash, "x")
	delete(req, "max_tokens")
	req["messages"] = []any{map[string]any{"role": "user", "content": []any{map[string]any{"type": "container_upload",
		"file_id": s.upload("a.csv", "1")}}}}
	res := must(http.DefaultClient.Do(s.request("/v1/messages/count_tokens", encode(t, req))))
	r := s.read(res)
	s.played()
	if r.status != 200 || !strings.Contains(string(r.body), `"input_tokens":42`) {
		t.Errorf("%d %s", r.status, r.body)
	}
	if list, _, err := s.Sessions.List(sessiontest.Owner, session.Filter{}); err != nil || len(list) > 0 {
		t.Errorf("containers were made: %v, %v", list, err)
	}
}
