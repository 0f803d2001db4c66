package gateway_test

import (
	"reflect"
	"strings"
	"testing"
)

const bash = "code_execution_20250825"

// both runs a test with answers as JSON and as streams.
func both(t *testing.T, test func(t *testing.T, stream bool)) {
	for name, stream := range map[string]bool{"json": false, "stream": true} {
		t.Run(name, func(t *testing.T) { test(t, stream) })
	}
}

// twoRounds is a script in which the model runs one command and then speaks.
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
		if use["id"] != "srvtoolu_a1" || use["name"] != "bash_code_execution" || !reflect.DeepEqual(use["caller"], map[string]any{"type": "direct"}) || use["input"].(map[string]any)["command"] == "" {
			t.Errorf("%v", use)
		}
		r := m.result(t, 2)
		if m.Content[2]["tool_use_id"] != "srvtoolu_a1" || r["type"] != "bash_code_execution_result" || r["stdout"] != "out\n" || r["stderr"] != "err\n" || r["return_code"] != 3.0 || len(r["content"].([]any)) != 0 {
			t.Errorf("%v", r)
		}
		if m.Usage["input_tokens"] != 17.0 || m.Usage["output_tokens"] != 7.0 || m.Usage["cache_read_input_tokens"] != 4.0 {
			t.Errorf("usage %v", m.Usage)
		}
		if m.Container == nil || !strings.HasPrefix(m.Container.ID, "container_") || m.Container.ExpiresAt.IsZero() || m.Container.Skills != nil {
			t.Errorf("container %+v", m.Container)
		}
		m.ID, m.Container = "", nil
		got = append(got, m)
	})
	if len(got) == 2 && !reflect.DeepEqual(got[0], got[1]) {
		t.Errorf("the answers differ:\n%+v\n%+v", got[0], got[1])
	}
}
