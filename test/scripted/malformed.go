package scripted

import (
	"encoding/json"
	"fmt"
	"slices"
)

// malformed returns why a real API would refuse a request, or "". If plain is true, malformed also refuses what only
// an API with server tools accepts.
func malformed(r *received, plain bool) string {
	if model, _ := r.value("/model").(string); model == "" {
		return "/model is missing"
	}
	list, _ := r.value("/messages").([]any)
	if len(list) == 0 {
		return "/messages is missing or empty"
	}
	if r.chat() {
		return malformedChat(list)
	}
	if r.header.Get("anthropic-version") == "" {
		return "header anthropic-version is missing"
	}
	if n, _ := r.value("/max_tokens").(json.Number); r.path == messagesPath && !positive(n) {
		return unlike("a number above 0", r.value("/max_tokens"), "/max_tokens")
	}
	if wrong := malformedTools(r, plain); wrong != "" {
		return wrong
	}
	return malformedMessages(list, plain)
}

func positive(n json.Number) bool {
	v, err := n.Int64()
	return err == nil && v > 0
}

func malformedTools(r *received, plain bool) string {
	list, _ := r.value("/tools").([]any)
	var names []string
	for i, tool := range list {
		t, _ := tool.(map[string]any)
		name, _ := t["name"].(string)
		if name == "" || slices.Contains(names, name) {
			return fmt.Sprintf("/tools/%d has no name, or that of another tool: %q", i, name)
		}
		names = append(names, name)
		_, schema := t["input_schema"].(map[string]any)
		if typed := t["type"] != nil && t["type"] != "custom"; plain && (typed || t["allowed_callers"] != nil) ||
			!typed && !schema {
			return fmt.Sprintf("/tools/%d, %s, is no plain tool with an input_schema: %s", i, name, brief(tool))
		}
	}
	if plain && r.value("/container") != nil {
		return "/container is nothing that a plain API knows"
	}
	return ""
}

// malformedMessages checks roles and blocks. It also checks that each tool_use has its result in the next message,
// and that each result has its tool_use in the previous one.
func malformedMessages(list []any, plain bool) string {
	var open []string // IDs of the tool_use blocks in the previous message
	var last any      // role of the previous message
	for i, m := range list {
		role, _ := at(m, "/role")
		content, _ := at(m, "/content")
		if role == "system" {
			if wrong := malformedSystem(m, last); wrong != "" {
				return fmt.Sprintf("/messages/%d, a system message, %s", i, wrong)
			}
			continue
		}
		last = role
		uses, results, wrong := toolIDs(blocks(content), plain)
		switch {
		case wrong != "":
			return fmt.Sprintf("/messages/%d/content: %s", i, wrong)
		case role != "user" && role != "assistant" || i == 0 && role != "user":
			return unlike("user or assistant, user first", role, fmt.Sprintf("/messages/%d/role", i))
		case len(blocks(content)) == 0 && !(role == "assistant" && i == len(list)-1):
			return fmt.Sprintf("/messages/%d/content is empty", i)
		case role == "user" && len(uses) > 0, role == "assistant" && len(results) > 0:
			return fmt.Sprintf("/messages/%d/content has tool blocks of the other role", i)
		case !sameSet(open, results):
			return fmt.Sprintf(
				"/messages/%d: the tool_use blocks before it are %q, and it has tool_result blocks for %q", i, open,
				results)
		}
		open = uses
	}
	if len(open) > 0 {
		return fmt.Sprintf("/messages ends with tool_use blocks without results: %q", open)
	}
	return ""
}

// malformedSystem checks a system message, which changes instructions, tools or settings in the middle of a
// conversation. last is the role of the message before it and before other system messages.
func malformedSystem(m, last any) string {
	if last != "user" {
		return "does not follow a message of the user"
	}
	content, _ := at(m, "/content")
	for _, b := range blocks(content) {
		if kind, _ := at(b, "/type"); kind != "text" && kind != "tool_addition" && kind != "tool_removal" {
			return "has a block that is none of its: " + brief(b)
		}
	}
	if settings, _ := at(m, "/output_config"); len(blocks(content)) == 0 && settings == nil {
		return "is empty"
	}
	return ""
}

// plainBlocks are the block types that every Messages API accepts.
var plainBlocks = []string{"text", "image", "document", "thinking", "redacted_thinking", "tool_use", "tool_result"}

// toolIDs returns the IDs of a message's tool_use blocks, and the IDs that its tool_result blocks answer.
func toolIDs(list []any, plain bool) (uses, results []string, wrong string) {
	for i, b := range list {
		block, _ := b.(map[string]any)
		kind, _ := block["type"].(string)
		switch {
		case kind == "":
			return nil, nil, fmt.Sprintf("block %d has no type", i)
		case plain && !slices.Contains(plainBlocks, kind), plain && block["caller"] != nil:
			return nil, nil, fmt.Sprintf("block %d is nothing that a plain API knows: %s", i, brief(b))
		case kind == "tool_use":
			uses = append(uses, textOf(block["id"]))
		case kind == "tool_result":
			results = append(results, textOf(block["tool_use_id"]))
		}
	}
	return uses, results, ""
}

func sameSet(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(a, b)
}

// malformedChat is malformedMessages for chat completions, where each result is a separate message.
func malformedChat(list []any) string {
	var open []string
	for i, m := range list {
		message, _ := m.(map[string]any)
		role, _ := message["role"].(string)
		if role == "tool" {
			id := textOf(message["tool_call_id"])
			n := slices.Index(open, id)
			if n < 0 {
				return fmt.Sprintf("/messages/%d answers the tool call %s, and open are %q", i, id, open)
			}
			open = slices.Delete(open, n, n+1)
			continue
		}
		if len(open) > 0 {
			return fmt.Sprintf("/messages/%d comes before the tool calls %q are answered", i, open)
		}
		if !oneOf(role, "system", "developer", "user", "assistant") {
			return fmt.Sprintf("/messages/%d has the role %q", i, role)
		}
		calls, _ := message["tool_calls"].([]any)
		for _, c := range calls {
			id, _ := at(c, "/id")
			open = append(open, textOf(id))
		}
	}
	if len(open) > 0 {
		return fmt.Sprintf("/messages ends with tool calls without results: %q", open)
	}
	return ""
}
