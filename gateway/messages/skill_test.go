package messages_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSkills(t *testing.T) {
	both(t, func(t *testing.T, stream bool) {
		s := newSite(t, `{"plain": true, "turns": [
			{"expect": {"body": {"/tools/0/description": {"$contains": "/skills/greeting/SKILL.md: How to greet."}}}, "answer": {"content": [{"type": "tool_use", "name": "bash_code_execution", "input": {"command": "tail -1 /skills/greeting/SKILL.md"}}]}},
			{"expect": {"last": [{"content": "Say hello.\n"}]}, "answer": {"content": [{"type": "text", "text": "hello"}]}}]}`)
		dir := filepath.Join(s.provided, "greeting")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "SKILL.md"), []byte("---\nname: greeting\ndescription: How to "+
			"greet.\n---\nSay hello.\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		ref := map[string]any{"type": "anthropic", "skill_id": "greeting", "version": "latest"}
		m := s.ask(body(bash, "go", "stream", stream, "container", map[string]any{"skills": []any{ref}})).msg
		s.played()
		list, _ := m.Container.Skills.([]any)
		if len(list) != 1 {
			t.Fatalf("%+v", m.Container)
		}
		if got := list[0].(map[string]any); got["type"] != "anthropic" || got["skill_id"] != "greeting" ||
			got["version"] == "latest" || got["version"] == "" {
			t.Errorf("%v", got)
		}
		ref["skill_id"] = "nothing"
		r := s.send(encode(t, body(bash, "go", "container", map[string]any{"skills": []any{ref}})))
		if r.status != 404 || r.msg.Error == nil || !strings.Contains(r.msg.Error.Message, "nothing") {
			t.Errorf("%d %s", r.status, r.body)
		}
	})
}
