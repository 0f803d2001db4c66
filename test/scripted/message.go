package scripted

import (
	"encoding/json"
	"fmt"
)

// A message is an answer's content, which can be written in either dialect.
type message struct {
	id, model    any
	content      []map[string]any
	stop         string
	stopSequence any
	usage        map[string]any
	container    any
}

// message fills in an answer's content from the request.
func (s *Server) message(got *received, a Answer) (message, error) {
	m := message{id: s.id("msg_"), model: got.value("/model"), stop: a.StopReason, container: a.Container}
	if m.usage, _ = a.Usage.(map[string]any); m.usage == nil {
		m.usage = map[string]any{"input_tokens": json.Number("10"), "output_tokens": json.Number("5")}
	}
	if a.StopSequence != "" {
		m.stopSequence = a.StopSequence
	}
	uses := false
	for i := range a.Content {
		v, err := fill(a.Content[i], got.body)
		if err != nil {
			return m, err
		}
		block, ok := v.(map[string]any)
		if !ok {
			return m, fmt.Errorf("block %d of the answer is %s", i, brief(v))
		}
		uses = uses || block["type"] == "tool_use"
		m.content = append(m.content, s.complete(block))
	}
	if m.stop == "" {
		m.stop = map[bool]string{true: "tool_use", false: "end_turn"}[uses]
	}
	return m, nil
}

// complete adds to a block the members that the script may omit.
func (s *Server) complete(block map[string]any) map[string]any {
	prefixes := map[any]string{"tool_use": "toolu_", "server_tool_use": "srvtoolu_"}
	if prefix := prefixes[block["type"]]; prefix != "" && block["id"] == nil {
		block["id"] = s.id(prefix)
	}
	if block["type"] == "thinking" && block["signature"] == nil {
		block["signature"] = "c2NyaXB0ZWQ="
	}
	return block
}

// json returns the answer to a request without a stream.
func (m message) json(got *received) any {
	if got.chat() {
		return m.completion()
	}
	out := map[string]any{
		"id": m.id, "type": "message", "role": "assistant", "model": m.model, "content": m.content,
		"stop_reason": m.stop, "stop_sequence": m.stopSequence, "usage": m.usage,
	}
	if m.container != nil {
		out["container"] = m.container
	}
	return out
}

// events returns the events of a streamed answer. piece is the number of characters in a delta.
func (m message) events(got *received, piece int) [][]byte {
	if got.chat() {
		return m.chunks(got.value("/stream_options/include_usage") == true, piece)
	}
	start := map[string]any{
		"id": m.id, "type": "message", "role": "assistant", "model": m.model, "content": []any{},
		"stop_reason": nil, "stop_sequence": nil, "usage": with(m.usage, map[string]any{"output_tokens": 1}),
	}
	out := [][]byte{
		event("message_start", map[string]any{"type": "message_start", "message": start}),
		event("ping", map[string]any{"type": "ping"}),
	}
	for i, b := range m.content {
		out = append(out, blockEvents(i, b, piece)...)
	}
	delta := map[string]any{"stop_reason": m.stop, "stop_sequence": m.stopSequence}
	if m.container != nil {
		delta["container"] = m.container
	}
	return append(out,
		event("message_delta", map[string]any{"type": "message_delta", "delta": delta, "usage": m.usage}),
		event("message_stop", map[string]any{"type": "message_stop"}))
}

// blockEvents returns the events of one block. A block of any other type comes whole in its first event.
func blockEvents(i int, b map[string]any, piece int) [][]byte {
	begin, deltas := b, []map[string]any(nil)
	switch b["type"] {
	case "text":
		begin, deltas = with(b, map[string]any{"text": ""}), textDeltas("text_delta", "text", textOf(b["text"]), piece)
	case "thinking":
		begin = with(b, map[string]any{"thinking": "", "signature": ""})
		deltas = append(textDeltas("thinking_delta", "thinking", textOf(b["thinking"]), piece),
			map[string]any{"type": "signature_delta", "signature": b["signature"]})
	case "tool_use", "server_tool_use":
		begin = with(b, map[string]any{"input": map[string]any{}})
		deltas = []map[string]any{{"type": "input_json_delta", "partial_json": ""}} // the real API begins this way
		deltas = append(deltas, textDeltas("input_json_delta", "partial_json", string(encode(b["input"])), piece)...)
	}
	out := [][]byte{event("content_block_start", map[string]any{"type": "content_block_start", "index": i,
		"content_block": begin})}
	for _, d := range deltas {
		out = append(out, event("content_block_delta", map[string]any{"type": "content_block_delta", "index": i,
			"delta": d}))
	}
	return append(out, event("content_block_stop", map[string]any{"type": "content_block_stop", "index": i}))
}

func textDeltas(kind, member, text string, piece int) (list []map[string]any) {
	for _, part := range pieces(text, piece) {
		list = append(list, map[string]any{"type": kind, member: part})
	}
	return list
}

// pieces cuts a text into parts of size characters.
func pieces(text string, size int) (parts []string) {
	for runes := []rune(text); len(runes) > 0; {
		n := min(size, len(runes))
		parts, runes = append(parts, string(runes[:n])), runes[n:]
	}
	return parts
}
