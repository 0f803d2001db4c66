package scripted

import (
	"encoding/json"
	"strings"
)

// finishReasons maps stop reasons of Messages to finish reasons of chat completions.
var finishReasons = map[string]string{"tool_use": "tool_calls", "max_tokens": "length", "refusal": "content_filter"}

func (m message) finish() string {
	if word := finishReasons[m.stop]; word != "" {
		return word
	}
	return "stop"
}

// parts returns the texts and tool calls of an answer in the form of chat completions.
func (m message) parts() (text, thinking string, calls []any) {
	var said, thought strings.Builder
	for _, b := range m.content {
		switch b["type"] {
		case "text":
			said.WriteString(textOf(b["text"]))
		case "thinking":
			thought.WriteString(textOf(b["thinking"]))
		case "tool_use":
			calls = append(calls, map[string]any{"id": b["id"], "type": "function", "function": map[string]any{
				"name": b["name"], "arguments": string(encode(b["input"]))}})
		}
	}
	return said.String(), thought.String(), calls
}

// completion returns the answer to a request without a stream.
func (m message) completion() any {
	text, thinking, calls := m.parts()
	answer := map[string]any{"role": "assistant", "content": nil, "refusal": nil}
	if text != "" {
		answer["content"] = text
	}
	if thinking != "" {
		answer["reasoning_content"] = thinking
	}
	if calls != nil {
		answer["tool_calls"] = calls
	}
	return map[string]any{
		"id": m.id, "object": "chat.completion", "created": 0, "model": m.model, "usage": m.chatUsage(),
		"choices": []any{map[string]any{"index": 0, "message": answer, "finish_reason": m.finish(), "logprobs": nil}},
	}
}

func (m message) chatUsage() any {
	number := func(name string) int64 {
		n, _ := m.usage[name].(json.Number)
		v, _ := n.Int64()
		return v
	}
	cached := number("cache_read_input_tokens")
	in, out := number("input_tokens")+cached, number("output_tokens")
	return map[string]any{"prompt_tokens": in, "completion_tokens": out, "total_tokens": in + out,
		"prompt_tokens_details": map[string]any{"cached_tokens": cached}}
}

// chunks returns the events of a streamed answer.
func (m message) chunks(usage bool, piece int) (out [][]byte) {
	add := func(delta map[string]any, finish any) {
		out = append(out, m.chunk(map[string]any{
			"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}}}))
	}
	add(map[string]any{"role": "assistant", "content": ""}, nil)
	call := 0
	for _, b := range m.content {
		switch b["type"] {
		case "text":
			for _, part := range pieces(textOf(b["text"]), piece) {
				add(map[string]any{"content": part}, nil)
			}
		case "thinking":
			for _, part := range pieces(textOf(b["thinking"]), piece) {
				add(map[string]any{"reasoning_content": part}, nil)
			}
		case "tool_use":
			for _, delta := range callDeltas(call, b, piece) {
				add(delta, nil)
			}
			call++
		}
	}
	add(map[string]any{}, m.finish())
	if usage {
		out = append(out, m.chunk(map[string]any{"choices": []any{}, "usage": m.chatUsage()}))
	}
	return append(out, []byte("data: [DONE]\n\n"))
}

func (m message) chunk(more map[string]any) []byte {
	return event("", with(map[string]any{"id": m.id, "object": "chat.completion.chunk", "created": 0, "model": m.model},
		more))
}

// callDeltas returns the deltas of a tool call: its head, and its arguments in pieces.
func callDeltas(index int, b map[string]any, piece int) []map[string]any {
	delta := func(call map[string]any) map[string]any {
		return map[string]any{"tool_calls": []any{with(map[string]any{"index": index}, call)}}
	}
	list := []map[string]any{delta(map[string]any{"id": b["id"], "type": "function", "function": map[string]any{
		"name": b["name"], "arguments": ""}})}
	for _, part := range pieces(string(encode(b["input"])), piece) {
		list = append(list, delta(map[string]any{"function": map[string]any{"arguments": part}}))
	}
	return list
}
