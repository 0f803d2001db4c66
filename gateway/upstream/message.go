// Package answer makes answers of the Messages dialect that no upstream has made: messages, streams of events, and
// errors. The upstreams that speak another dialect use it.
package upstream

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
)

// A message is an answer in the Messages dialect.
type message struct {
	ID           string  `json:"id"`
	Type         string  `json:"type"`
	Role         string  `json:"role"`
	Model        string  `json:"model"`
	Content      []any   `json:"content"`
	StopReason   *string `json:"stop_reason"`
	StopSequence *string `json:"stop_sequence"`
	Usage        usage   `json:"usage"`
}

// A usage counts tokens. A count that the upstream does not report is 0.
type usage struct {
	Input       int64 `json:"input_tokens"`
	CacheCreate int64 `json:"cache_creation_input_tokens"`
	CacheRead   int64 `json:"cache_read_input_tokens"`
	Output      int64 `json:"output_tokens"`
}

type textBlock struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type thinkingBlock struct {
	Type      string `json:"type"`
	Thinking  string `json:"thinking"`
	Signature string `json:"signature"` // empty: only the model's provider can make one
}

type toolUseBlock struct {
	Type  string          `json:"type"`
	ID    string          `json:"id"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
}

func newMessage(model string) message {
	return message{ID: newID("msg_"), Type: "message", Role: "assistant", Model: model, Content: []any{}}
}

func newID(prefix string) string { return prefix + rand.Text()[:24] }

func (m message) json() []byte { return encode(m) }

func encode(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // cannot fail: v has only strings, numbers and valid JSON
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// events buffers the events of a stream until they are read. Blocks do not overlap.
type events struct {
	bytes.Buffer
	index int    // index of the open block, or of the next one
	open  string // type of the open block; "": none is open
}

// emit writes one event.
func (e *events) emit(name string, data any) {
	fmt.Fprintf(e, "event: %s\ndata: %s\n\n", name, encode(data))
}

type startEvent struct {
	Type    string  `json:"type"`
	Message message `json:"message"`
}

type blockEvent struct {
	Type  string `json:"type"`
	Index int    `json:"index"`
	Block any    `json:"content_block,omitempty"`
	Delta any    `json:"delta,omitempty"`
}

type endEvent struct {
	Type  string `json:"type"`
	Delta struct {
		StopReason   *string `json:"stop_reason"`
		StopSequence *string `json:"stop_sequence"`
	} `json:"delta"`
	Usage usage `json:"usage"`
}

func (e *events) start(m message) {
	m.Content, m.StopReason, m.StopSequence = []any{}, nil, nil
	e.emit("message_start", startEvent{"message_start", m})
}

// startBlock opens a block. It first closes the block that is open.
func (e *events) startBlock(kind string, block any) {
	e.endBlock()
	e.open = kind
	e.emit("content_block_start", blockEvent{Type: "content_block_start", Index: e.index, Block: block})
}

func (e *events) delta(kind, member, text string) {
	e.emit("content_block_delta", blockEvent{Type: "content_block_delta", Index: e.index, Delta: map[string]string{
		"type": kind, member: text}})
}

func (e *events) endBlock() {
	if e.open != "" {
		e.emit("content_block_stop", blockEvent{Type: "content_block_stop", Index: e.index})
		e.open = ""
		e.index++
	}
}

// text appends to the open text block, or opens one.
func (e *events) text(text string) {
	if e.open != "text" {
		e.startBlock("text", textBlock{Type: "text"})
	}
	e.delta("text_delta", "text", text)
}

func (e *events) thinking(text string) {
	if e.open != "thinking" {
		e.startBlock("thinking", thinkingBlock{Type: "thinking"})
	}
	e.delta("thinking_delta", "thinking", text)
}

func (e *events) toolUse(b toolUseBlock) {
	input := string(b.Input)
	b.Input = json.RawMessage("{}")
	e.startBlock("tool_use", b)
	e.delta("input_json_delta", "partial_json", "")
	e.delta("input_json_delta", "partial_json", input)
	e.endBlock()
}

// end ends the message.
func (e *events) end(m message) {
	e.endBlock()
	out := endEvent{Type: "message_delta", Usage: m.Usage}
	out.Delta.StopReason, out.Delta.StopSequence = m.StopReason, m.StopSequence
	e.emit("message_delta", out)
	e.emit("message_stop", map[string]string{"type": "message_stop"})
}

// message writes all events of a complete message.
func (e *events) message(m message) {
	e.start(m)
	for _, b := range m.Content {
		switch b := b.(type) {
		case textBlock:
			e.text(b.Text)
		case thinkingBlock:
			e.thinking(b.Thinking)
		case toolUseBlock:
			e.toolUse(b)
		}
	}
	e.end(m)
}

func (e *events) ping() { e.emit("ping", map[string]string{"type": "ping"}) }

func (e *events) fault(f fault) { fmt.Fprintf(e, "event: error\ndata: %s\n\n", f.envelope()) }
