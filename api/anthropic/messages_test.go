package anthropic

import (
	"net/http/httptest"
	"strings"
	"testing"

	"berth/api"
	"berth/code"
	"berth/gateway"
	"berth/gateway/containers"
	"berth/gateway/messages"
	"berth/gateway/messages/batches"
	"berth/gateway/upstream"
	"berth/session"
	"berth/test/scripted"
	"berth/test/sessiontest"
)

// talks are what models say to the SDKs' programs, by their names. Each begins again when it is over.
const talks = `{"conversations": [
	{"when": {"model": "blocks"}, "plain": true, "loop": true, "turns": [
		{"answer": {"content": [
			{"type": "text", "text": "I try everything."},
			{"type": "tool_use", "id": "toolu_1", "name": "bash_code_execution", "input": {"command": "rm -f /workspace/a.txt; echo out; echo err >&2; echo made >$OUTPUT_DIR/made.txt; exit 3"}},
			{"type": "tool_use", "id": "toolu_2", "name": "bash_code_execution", "input": {"wrong": true}},
			{"type": "tool_use", "id": "toolu_3", "name": "text_editor_code_execution", "input": {"command": "create", "path": "/workspace/a.txt", "file_text": "one\ntwo\n"}},
			{"type": "tool_use", "id": "toolu_4", "name": "text_editor_code_execution", "input": {"command": "view", "path": "/workspace/a.txt"}},
			{"type": "tool_use", "id": "toolu_5", "name": "text_editor_code_execution", "input": {"command": "str_replace", "path": "/workspace/a.txt", "old_str": "one", "new_str": "three"}},
			{"type": "tool_use", "id": "toolu_6", "name": "text_editor_code_execution", "input": {"command": "view", "path": "/workspace/none"}},
			{"type": "tool_use", "id": "toolu_7", "name": "code_execution", "input": {"code": "print(6 * 7)"}},
			{"type": "tool_use", "id": "toolu_8", "name": "code_execution", "input": {}}]}},
		{"answer": {"content": [{"type": "text", "text": "Done."}], "stop_reason": "stop_sequence", "stop_sequence": "END", "usage": {"input_tokens": 7, "output_tokens": 3, "cache_read_input_tokens": 2, "cache_creation_input_tokens": 1}}}]},
	{"when": {"model": "pause"}, "plain": true, "loop": true, "turns": [
		{"answer": {"content": [{"type": "tool_use", "name": "bash_code_execution", "input": {"command": "echo x >>/workspace/n"}}]}, "repeat": 2},
		{"expect": {"messages": 5}, "answer": {"content": [{"type": "tool_use", "name": "bash_code_execution", "input": {"command": "cat /workspace/n"}}]}},
		{"expect": {"last": [{"content": "x\nx\n"}]}, "answer": {"content": [{"type": "text", "text": "Done."}]}}]},
	{"when": {"model": "mixed"}, "plain": true, "loop": true, "turns": [
		{"expect": {"tools": ["weather"]}, "answer": {"content": [
			{"type": "tool_use", "id": "toolu_s", "name": "bash_code_execution", "input": {"command": "echo ran"}},
			{"type": "tool_use", "id": "toolu_c", "name": "weather", "input": {"city": "Riga"}}]}},
		{"expect": {"messages": 3, "last": [{"tool_use_id": "toolu_c"}, {"tool_use_id": "toolu_s", "content": "ran\n"}]}, "answer": {"content": [{"type": "text", "text": "Done."}]}}]},
	{"when": {"model": "runner", "path": "/v1/messages"}, "plain": true, "loop": true, "turns": [
		{"answer": {"content": [{"type": "tool_use", "name": "bash_code_execution", "input": {"command": "echo kept >/workspace/n"}}]}},
		{"answer": {"content": [{"type": "tool_use", "name": "weather", "input": {"city": "Riga"}}]}},
		{"expect": {"last": [{"type": "tool_result", "content": {"$any": true}}]}, "answer": {"content": [{"type": "tool_use", "name": "weather", "input": {"city": "Oslo"}}]}},
		{"answer": {"content": [{"type": "tool_use", "name": "bash_code_execution", "input": {"command": "cat /workspace/n"}}]}},
		{"expect": {"last": [{"content": "kept\n"}]}, "answer": {"content": [{"type": "text", "text": "Done."}]}}]},
	{"when": {"model": "claude-code", "body": {"/tools/0": {"$any": true}}}, "loop": true, "turns": [
		{"expect": {"tools": ["Bash"]}, "answer": {"content": [{"type": "tool_use", "name": "Bash", "input": {"command": "echo kept >note", "description": "Keep a note"}}]}},
		{"answer": {"content": [{"type": "text", "text": "It is kept."}]}}]},
	{"when": {"model": "claude-code"}, "loop": true, "turns": [
		{"answer": {"content": [{"type": "text", "text": "{\"title\": \"A note\"}"}]}}]},
	{"when": {"model": "threads", "path": "/v1/messages"}, "loop": true, "turns": [
		{"expect": {"messages": 1, "tools": ["weather"]}, "answer": {"content": [{"type": "tool_use", "name": "weather", "input": {"city": "Riga"}}]}},
		{"expect": {"messages": 3, "tools": ["weather"], "last": [{"type": "tool_result"}]}, "answer": {"content": [{"type": "text", "text": "Done."}]}}]},
	{"when": {"model": "threads", "path": "/v1/chat/completions"}, "loop": true, "turns": [
		{"expect": {"messages": 1, "tools": ["weather"]}, "answer": {"content": [{"type": "tool_use", "name": "weather", "input": {"city": "Riga"}}]}},
		{"expect": {"messages": 3, "last": [{"role": "tool"}]}, "answer": {"content": [{"type": "text", "text": "Done."}]}}]},
	{"when": {"model": "runner", "path": "/v1/chat/completions"}, "loop": true, "turns": [
		{"expect": {"tools": ["bash_code_execution", "weather"], "body": {"/context_management": null}}, "answer": {"content": [{"type": "tool_use", "name": "bash_code_execution", "input": {"command": "echo kept >/workspace/n"}}]}},
		{"answer": {"content": [{"type": "tool_use", "name": "weather", "input": {"city": "Riga"}}]}},
		{"expect": {"last": [{"role": "tool", "content": {"$contains": "Riga: rain"}}]}, "answer": {"content": [{"type": "tool_use", "name": "weather", "input": {"city": "Oslo"}}]}},
		{"answer": {"content": [{"type": "tool_use", "name": "bash_code_execution", "input": {"command": "cat /workspace/n"}}]}},
		{"expect": {"last": [{"role": "tool", "content": "kept\n"}]}, "answer": {"content": [{"type": "text", "text": "Done."}]}}]}
]}`

// A studio is the edge with a gateway over real sessions, and the model that it asks.
type studio struct {
	*httptest.Server
	model *scripted.Server
}

func newStudio(t *testing.T) *studio {
	t.Helper()
	st := sessiontest.New(t, session.Config{})
	run := code.Open(code.Config{Sessions: st.Sessions})
	t.Cleanup(func() { run.Close() })
	script, err := scripted.Load(strings.NewReader(talks))
	if err != nil {
		t.Fatal(err)
	}
	s := &studio{model: scripted.New(script)}
	model := httptest.NewServer(s.model)
	t.Cleanup(model.Close)
	set, err := upstream.Open([]upstream.Config{{URL: model.URL}, {URL: model.URL, Kind: upstream.KindOpenAI,
		Prefixes: []string{"chat/"}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { set.Close() })
	host := containers.New(containers.Config{Sessions: st.Sessions, Code: run, Files: st.Files, Jobs: st.Jobs,
		Bridge: st.Bridge})
	turns := gateway.New(gateway.Config{Containers: host, Files: st.Files, Ledger: st.Ledger, MaxRounds: 2})
	service := messages.New(messages.Config{Turns: turns, Upstreams: set, Files: st.Files, Check: host})
	srv, err := api.New(api.Config{Auth: st.Keys, Edges: []api.Edge{New(Config{Files: st.Files,
		MaxFileBytes: st.Files.MaxFileBytes(), Messages: service,
		Batches: batches.New(batches.Config{Upstreams: set, Ledger: st.Ledger, Messages: service})})}})
	if err != nil {
		t.Fatal(err)
	}
	s.Server = httptest.NewServer(srv)
	t.Cleanup(func() {
		s.Server.Close()
		turns.Close()
		host.Close()
	})
	return s
}
