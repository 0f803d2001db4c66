package tooluse_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"berth/proto"
	"berth/session"
	"berth/test/sessiontest"
	"berth/tools/tooluse"
)

// use runs one tool and returns its result as the JSON that a model would see.
func use(t *testing.T, s *session.Session, name, input string) map[string]any {
	t.Helper()
	res, err := tooluse.Run(context.Background(), s, tooluse.Use{Type: "tool_use", ID: "toolu_1", Name: name,
		Input: json.RawMessage(input)})
	if err != nil {
		t.Fatalf("%s %s: %v", name, input, err)
	}
	b, err := json.Marshal(res)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	if m["tool_use_id"] != "toolu_1" || m["container"].(map[string]any)["id"] != s.ID() {
		t.Errorf("%v", m)
	}
	return m
}

func content(t *testing.T, m map[string]any) map[string]any {
	t.Helper()
	c, ok := m["content"].(map[string]any)
	if !ok {
		t.Fatalf("content is %T", m["content"])
	}
	return c
}

func TestHostedTools(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	for _, tool := range []string{"bash_code_execution", "bash"} {
		told := use(t, s, tool, `{"command":"mkdir $OUTPUT_DIR/d; echo x >$OUTPUT_DIR/d/a; mkfifo $OUTPUT_DIR/p"}`)
		if !strings.Contains(fmt.Sprint(told["notes"], told["content"]), `"p" was not stored`) {
			t.Errorf("%s: %v", tool, told)
		}
	}
	m := use(t, s, "bash_code_execution", `{"command":"echo hi; echo no >&2; exit 2"}`)
	if m["type"] != "bash_code_execution_tool_result" {
		t.Errorf("%v", m)
	}
	if c := content(t, m); len(c) != 5 || c["type"] != proto.TypeBashResult || c["stdout"] != "hi\n" ||
		c["stderr"] != "no\n" || c["return_code"] != 2.0 || len(c["content"].([]any)) != 0 {
		t.Errorf("%v", c)
	}
	for _, step := range []struct{ input, want string }{
		{`{"command":"create","path":"/workspace/n.txt","file_text":"a\nb\nc\n"}`,
			`{"is_file_update":false,"type":"text_editor_code_execution_create_result"}`},
		{`{"command":"create","path":"/workspace/n.txt","file_text":"a\nb\nc\n"}`,
			`{"is_file_update":true,"type":"text_editor_code_execution_create_result"}`},
		{`{"command":"view","path":"/workspace/n.txt","view_range":[2,-1]}`,
			`{"content":"b\nc","file_type":"text","num_lines":2,"start_line":2,"total_lines":3,"type":"text_editor_code_execution_view_result"}`},
		{`{"command":"str_replace","path":"/workspace/n.txt","old_str":"b","new_str":"B"}`,
			`{"lines":[" a","-b","+B"," c"],"new_lines":3,"new_start":1,"old_lines":3,"old_start":1,"type":"text_editor_code_execution_str_replace_result"}`},
	} {
		got, err := json.Marshal(content(t, use(t, s, "text_editor_code_execution", step.input)))
		if err != nil || string(got) != step.want {
			t.Errorf("%s gives\n%s, want\n%s", step.input, got, step.want)
		}
	}
	for input, code := range map[string]string{
		`{"command":"view","path":"/workspace/none"}`:                                      "file_not_found",
		`{"command":"str_replace","path":"/workspace/n.txt","old_str":"zzz","new_str":""}`: "invalid_tool_input",
		`{"command":"undo_edit","path":"/workspace/n.txt"}`:                                "invalid_tool_input",
		`{"command":7}`: "invalid_tool_input",
		``:              "invalid_tool_input",
	} {
		c := content(t, use(t, s, "text_editor_code_execution", input))
		if c["type"] != proto.TypeEditorError || c["error_code"] != code || c["error_message"] == nil {
			t.Errorf("%s: %v", input, c)
		}
	}
	if c := content(t, use(t, s, "bash_code_execution", `{}`)); c["error_code"] != "invalid_tool_input" || len(c) != 2 {
		t.Errorf("%v", c)
	}
}

func TestClientSideTools(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	steps := []struct {
		name, input, want string
		failed            bool
	}{
		{"bash", `{"command":"cd /tmp; V=7"}`, "", false},
		{"bash", `{"command":"pwd; echo $V"}`, "/tmp\n7\n", false},
		{"bash", `{"command":"nosuchcommand"}`, "nosuchcommand: command not found", true},
		{"bash", `{"restart":true}`, "Bash session restarted", false},
		{"bash", `{"command":"echo ${V-gone}"}`, "gone\n", false},
		{"bash", `{"command":"exit"}`, `[shell "bash" ended with this command`, false},
		{"bash", `{"command":"set -e"}`, "", false},
		{"bash", `{"command":"false"}`, "[exit code: 1]\n[shell \"bash\" ended with this command", true},
		{"bash", `{}`, "no command", true},
		{"str_replace_based_edit_tool", `{"command":"create","path":"/workspace/f.py","file_text":"a\nb\n"}`,
			"File created successfully at: /workspace/f.py", false},
		{"str_replace_based_edit_tool", `{"command":"view","path":"/workspace/f.py"}`, "     1\ta\n     2\tb\n", false},
		{"str_replace_based_edit_tool",
			`{"command":"insert","path":"/workspace/f.py","insert_line":1,"insert_text":"new\n"}`, "     2\tnew\n",
			false},
		{"str_replace_based_edit_tool",
			`{"command":"insert","path":"/workspace/f.py","insert_line":0,"new_str":"top\n"}`, "     1\ttop\n", false},
		{"str_replace_based_edit_tool",
			`{"command":"insert","path":"/workspace/f.py","insert_line":99,"insert_text":"x"}`, "insert_line", true},
		{"str_replace_based_edit_tool",
			`{"command":"str_replace","path":"/workspace/f.py","old_str":"new","new_str":"newer"}`, "     3\tnewer\n",
			false},
		{"str_replace_based_edit_tool", `{"command":"str_replace","path":"/workspace/f.py","old_str":"absent"}`,
			"did not appear", true},
		{"str_replace_based_edit_tool", `{"command":"view","path":"/workspace"}`, "/workspace/f.py", false},
		{"str_replace_based_edit_tool", `{"command":"view","path":"/workspace/none"}`, "File not found", true},
		{"str_replace_based_edit_tool", `{"command":"undo_edit","path":"/workspace/f.py"}`, "undo_edit", true},
	}
	for _, step := range steps {
		m := use(t, s, step.name, step.input)
		text, _ := m["content"].(string)
		failed, _ := m["is_error"].(bool)
		if m["type"] != "tool_result" || failed != step.failed || !strings.Contains(text, step.want) ||
			step.want == "" && text != "" {
			t.Errorf("%s %s: %v, want %q", step.name, step.input, m, step.want)
		}
	}
}

func TestBlocksThatAreNone(t *testing.T) {
	for item, u := range map[string]tooluse.Use{
		"type": {Type: "text", ID: "x", Name: "bash"},
		"id":   {Type: "tool_use", Name: "bash"},
		"name": {Type: "tool_use", ID: "x", Name: "rm_rf"},
	} {
		err := tooluse.Check(u)
		if proto.CodeOf(err) != proto.InvalidArgument || proto.AsError(err).Item != item {
			t.Errorf("%s: %v", item, err)
		}
	}
}

// TestRelativePaths: bash and the editors resolve a relative path to the same file.
func TestRelativePaths(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	if m := use(t, s, "bash", `{"command":"echo hi >rel.txt"}`); m["is_error"] != nil {
		t.Fatal(m)
	}
	if c := content(t, use(t, s, "text_editor_code_execution",
		`{"command":"view","path":"rel.txt"}`)); c["content"] != "hi" {
		t.Error(c)
	}
	if m := use(t, s, "str_replace_based_edit_tool",
		`{"command":"create","path":"sub/made.txt","file_text":"there"}`); m["is_error"] != nil {
		t.Error(m)
	}
	if m := use(t, s, "bash", `{"command":"cat sub/made.txt"}`); m["content"] != "there" {
		t.Error(m)
	}
}

// TestErrorsHideSecrets: a model may name a secret, and the error must not show it.
func TestErrorsHideSecrets(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{Secrets: map[string]string{"TOK": "hunter2secret"}})
	for _, call := range [][2]string{
		{"text_editor_code_execution", `{"command":"view","path":"/workspace/hunter2secret"}`},
		{"text_editor_code_execution", `{"command":"view","path":"/etc/hunter2secret/"}`},
		{"str_replace_based_edit_tool", `{"command":"view","path":"/workspace/hunter2secret"}`},
		{"str_replace_based_edit_tool", `{"command":"create","path":"/etc/hunter2secret","file_text":""}`},
	} {
		text, _ := json.Marshal(use(t, s, call[0], call[1])["content"])
		if strings.Contains(string(text), "hunter2") || !strings.Contains(string(text), "redacted") {
			t.Errorf("%s: %s", call, text)
		}
	}
}

func TestOnlyTheSessionsOwnErrorsAreErrors(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{MaxExecs: 1})
	s := st.Create(t, proto.CreateContainer{})
	for _, path := range []string{"container_none", "container_0000000000000000000000/x", s.ID() + "/x", "/etc/shadow",
		"/dev/null", "/proc/1/mem", "relative", "a\x00b", ""} {
		in, _ := json.Marshal(map[string]string{"command": "view", "path": path})
		c := content(t, use(t, s, "text_editor_code_execution", string(in)))
		if code := c["error_code"]; c["type"] != proto.TypeEditorError || code != "file_not_found" &&
			code != "invalid_tool_input" {
			t.Errorf("%q: %v", path, c)
		}
		if m := use(t, s, "str_replace_based_edit_tool", string(in)); m["is_error"] != true ||
			!strings.HasPrefix(m["content"].(string), "Error: ") {
			t.Errorf("%q: %v", path, m)
		}
	}
	e, err := s.Exec(ctx, proto.Cmd{Command: "sleep 600", Background: true})
	if err != nil {
		t.Fatal(err)
	}
	if c := content(t, use(t, s, "bash_code_execution",
		`{"command":"true"}`)); c["error_code"] != "too_many_requests" || len(c) != 2 {
		t.Errorf("%v", c)
	}
	if m := use(t, s, "bash", `{"command":"true"}`); m["is_error"] != true {
		t.Errorf("%v", m)
	}
	e.Cancel(proto.EndKilled, "test")
	if _, err := e.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	long, _ := json.Marshal(map[string]string{"command": strings.Repeat("x", 2<<20)})
	if c := content(t, use(t, s, "bash_code_execution", string(long))); c["error_code"] != "invalid_tool_input" {
		t.Errorf("%v", c)
	}
	if err := st.Sessions.Delete(ctx, sessiontest.Owner, s.ID(), false); err != nil {
		t.Fatal(err)
	}
	for _, u := range []tooluse.Use{
		{Name: "bash_code_execution", Input: json.RawMessage(`{"command":"true"}`)},
		{Name: "bash", Input: json.RawMessage(`{"restart":true}`)},
		{Name: "bash", Input: json.RawMessage(`{"command":"true"}`)}, {Name: "text_editor_code_execution",
			Input: json.RawMessage(`{"command":"view","path":"/x"}`)},
		{Name: "str_replace_based_edit_tool", Input: json.RawMessage(`{"command":"view","path":"/x"}`)},
	} {
		u.Type, u.ID = "tool_use", "x"
		if _, err := tooluse.Run(ctx, s, u); proto.CodeOf(err) != proto.NotFound {
			t.Errorf("%s in a container that is gone: %v", u.Name, err)
		}
	}
}

func TestEndsThatACommandDidNotBringAbout(t *testing.T) {
	st := sessiontest.New(t, session.Config{ExecTimeout: 300 * time.Millisecond})
	s := st.Create(t, proto.CreateContainer{})
	if c := content(t, use(t, s, "bash_code_execution",
		`{"command":"sleep 600"}`)); c["error_code"] != "execution_time_exceeded" || len(c) != 2 {
		t.Errorf("%v", c)
	}
	m := use(t, s, "bash", `{"command":"echo before; sleep 600"}`)
	if text := m["content"].(string); m["is_error"] != true ||
		!strings.HasPrefix(text, "before\nError: command did not finish within") {
		t.Errorf("%q", text)
	}
	if m := use(t, s, "bash", `{"command":"echo after"}`); m["content"] != "after\n" {
		t.Errorf("%v", m)
	}
	if m := use(t, s, "str_replace_based_edit_tool",
		`{"command":"create","path":"/workspace/e","file_text":""}`); m["is_error"] != nil {
		t.Errorf("%v", m)
	}
	if m := use(t, s, "str_replace_based_edit_tool", `{"command":"view","path":"/workspace/e"}`); m["is_error"] != nil {
		t.Errorf("an empty file: %v", m)
	}
}

// Models send numbers as strings and null for what they leave out, and add arguments that no tool has.
func TestInputsAsModelsWriteThem(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	use(t, s, "bash", `{"command":"seq 9 >/workspace/s.txt"}`)
	for input, want := range map[string]string{
		`{"command":"view","path":"/workspace/s.txt","view_range":["2","3"]}`:                          "     2\t2\n     3\t3\n",
		`{"command":"view","path":"/workspace/s.txt","view_range":"[2, 3]","description":"two lines"}`: "     2\t2\n     3\t3\n",
		`{"command":"insert","path":"/workspace/s.txt","insert_line":"9","insert_text":"x\n"}`:         "    10\tx\n",
		`{"command":"view","path":"/workspace/s.txt","view_range":null,"old_str":null}`:                "     1\t1\n",
	} {
		m := use(t, s, "str_replace_based_edit_tool", input)
		if text, _ := m["content"].(string); m["is_error"] != nil || !strings.Contains(text, want) {
			t.Errorf("%s: %v", input, m)
		}
	}
	for input, want := range map[string]string{
		`{"command":"echo hi","restart":"false"}`:                        "hi\n",
		`{"command":"echo hi","restart":null,"timeout":5000,"other":{}}`: "hi\n",
	} {
		if m := use(t, s, "bash", input); m["content"] != want {
			t.Errorf("%s: %v", input, m)
		}
	}
	if c := content(t, use(t, s, "text_editor_code_execution",
		`{"command":"view","path":"/workspace/s.txt","view_range":["1","2"],"file_text":null}`)); c["content"] != "1\n2" {
		t.Errorf("%v", c)
	}
	m := use(t, s, "str_replace_based_edit_tool", `{"command":"view","path":"/workspace/s.txt","view_range":{"from":1}}`)
	if m["content"] != "Error: view_range must be a list of two integers, not an object" || m["is_error"] != true {
		t.Errorf("%v", m)
	}
}
