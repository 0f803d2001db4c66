package messages

import (
	"encoding/json"
	"slices"
	"strings"

	"berth/gateway"
	"berth/gateway/messages/rawjson"
	"berth/proto"
)

// readAnswers returns the client's answers to calls by code, by call ID. A request with such answers may contain
// nothing else.
func (q *query) readAnswers() (map[string]gateway.ClientAnswer, error) {
	if q.container.ID == "" {
		return nil, proto.Invalid("container", "container_id is required when there are pending tool uses generated "+
			"by code execution with tools.")
	}
	var asked []string // calls in the last assistant message
	for _, b := range q.messages[q.last].Blocks {
		if b.Kind == "tool_use" {
			asked = append(asked, b.Text("id"))
		}
	}
	all := map[string]gateway.ClientAnswer{}
	for i, m := range q.messages[q.last+1:] {
		if m.Role == "system" { // says nothing about the calls
			continue
		}
		if len(m.Blocks) == 0 {
			return nil, onlyResults(q.last + 1 + i)
		}
		for _, b := range m.Blocks {
			text, ok := textOf(b.Get("content"))
			if b.Kind != "tool_result" || !ok {
				return nil, onlyResults(q.last + 1 + i)
			}
			id := b.Text("tool_use_id")
			if !slices.Contains(asked, id) {
				return nil, proto.Invalid("messages", "messages.%d: there is no tool_use block %.80q in the message "+
					"before this tool_result", q.last+1+i, id)
			}
			all[id] = gateway.ClientAnswer{Text: text, Failed: string(b.Get("is_error")) == "true"}
		}
	}
	for _, id := range asked {
		if _, ok := all[id]; !ok {
			return nil, proto.Invalid("messages", "messages.%d: the tool_use block %.80q has no tool_result; answer "+
				"it, with is_error if there is no result", q.last+1, id)
		}
	}
	return all, nil
}

func onlyResults(i int) error {
	return proto.Invalid("messages", "messages.%d: while code waits for tools that it has called, a user message "+
		"must hold only tool_result blocks with text; send other content once the code has ended", i)
}

// textOf returns the content of a tool_result if that is text only.
func textOf(raw json.RawMessage) (text string, ok bool) {
	if isEmpty(raw) {
		return "", true
	}
	if json.Unmarshal(raw, &text) == nil {
		return text, true
	}
	list, err := rawjson.ParseArray(raw)
	if err != nil {
		return "", false
	}
	var all strings.Builder
	for _, b := range list {
		o, err := rawjson.Parse(b)
		if err != nil || o.Text("type") != "text" {
			return "", false
		}
		all.WriteString(o.Text("text"))
	}
	return all.String(), true
}
