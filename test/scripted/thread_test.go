package scripted

import (
	"net/http"
	"strings"
	"testing"
)

// inThread is a script of one conversation, which a client may send whole or as a thread.
const inThread = `{"turns": [
	{"expect": {"messages": 1}, "answer": {"content": [{"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {}}]}},
	{"expect": {"messages": 3, "tools": ["bash"], "last": [{"type": "tool_result"}], "body": {"/system": "be brief"}}, "answer": {"content": [{"type": "text", "text": "done"}]}},
	{"expect": {"messages": 5}, "answer": {"content": [{"type": "text", "text": "again"}]}}]}`

func TestThreads(t *testing.T) {
	s := newStage(t, inThread)
	begin := strings.Replace(ask("go"), `"model"`, `"thread":{"type":"create"},"system":"be brief","model"`, 1)
	goOn := func(id, more, messages string) string {
		return `{"model":"m","max_tokens":9,"thread":{"type":"continue","previous_message_id":"` + id + `"},` + more +
			`"messages":[` + messages + `]}`
	}
	const result = `{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"x"}]}`
	first := s.good(messagesPath, begin, "/id").(string)
	for body, want := range map[string]string{
		goOn("msg_none", "", result):         "thread_not_found",
		goOn(first, `"system":"x",`, result): "system: a thread keeps",
	} {
		if status, text := s.post(messagesPath, body); status < 400 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
	second := s.good(messagesPath, goOn(first, "", result), "/id").(string)
	if _, text := s.post(messagesPath, goOn(first, "", result)); !strings.Contains(text,
		`"error_code":"thread_already_continued"`) {
		t.Error(text)
	}
	if got := s.good(messagesPath, goOn(second, "", `{"role":"user","content":"and?"}`), "/content/0/text"); got != "again" {
		t.Error(got)
	}
	if s.Err() != nil || s.Left() != 0 {
		t.Errorf("%v, left %d", s.Err(), s.Left())
	}
}

func TestPlainConversationsHaveNoThreads(t *testing.T) {
	s := newStage(t, strings.Replace(inThread, `{"turns"`, `{"plain": true, "turns"`, 1))
	status, text := s.post(messagesPath, strings.Replace(ask("go"), `"model"`, `"thread":{"type":"create"},"model"`, 1))
	if status != http.StatusBadRequest || !strings.Contains(text, `"error_code":"thread_unsupported_request"`) {
		t.Errorf("%d %s", status, text)
	}
	s.good(messagesPath, ask("go"), "/id")
	if s.Err() != nil || s.Left() != 2 {
		t.Errorf("%v, left %d", s.Err(), s.Left())
	}
}

func TestSystemTurns(t *testing.T) {
	const result = `{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"x"}]}`
	for messages, wrong := range map[string]string{
		`{"role":"user","content":"x"},{"role":"system","content":"y"},{"role":"system","output_config":{"effort":"low"}}`: "",
		`{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]},` + result +
			`,{"role":"system","content":[{"type":"tool_addition","tool":{"type":"tool_reference","name":"f"}}]}`: "",
		`{"role":"system","content":"y"},{"role":"user","content":"x"}`: "does not follow",
		`{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]},{"role":"system","content":"y"},` +
			result: "does not follow",
		`{"role":"user","content":"x"},{"role":"system"}`:                              "is empty",
		`{"role":"user","content":"x"},{"role":"system","content":[{"type":"image"}]}`: "a block that is none of its",
	} {
		s := newStage(t, `{"plain": true, "turns": [{"answer": {"content": [{"type": "text", "text": "done"}]}}]}`)
		status, text := s.post(messagesPath, `{"model":"m","max_tokens":9,"messages":[`+messages+`]}`)
		if (status == http.StatusOK) != (wrong == "") || !strings.Contains(text, wrong) {
			t.Errorf("%s: %d %s", messages, status, text)
		}
	}
}
