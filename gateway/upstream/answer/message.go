// Package answer makes answers of the Messages dialect that no upstream has made: messages, streams of events, and
// errors. The upstreams that speak another dialect use it.
package answer

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
)

// A Message is an answer in the Messages dialect.
type Message struct {
	ID           string  `json:"id"`
	Type         string  `json:"type"`
	Role         string  `json:"role"`
	Model        string  `json:"model"`
	Content      []any   `json:"content"`
	StopReason   *string `json:"stop_reason"`
	StopSequence *string `json:"stop_sequence"`
	Usage        Usage   `json:"usage"`
}

// A Usage counts tokens. A count that the upstream does not report is 0.
type Usage struct {
	Input       int64 `json:"input_tokens"`
	CacheCreate int64 `json:"cache_creation_input_tokens"`
	CacheRead   int64 `json:"cache_read_input_tokens"`
	Output      int64 `json:"output_tokens"`
}

// A TextBlock is a content block with text.
type TextBlock struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// A ThinkingBlock is a content block with the model's reasoning.
type ThinkingBlock struct {
	Type      string `json:"type"`
	Thinking  string `json:"thinking"`
	Signature string `json:"signature"` // empty: only the model's provider can make one
}

// A ToolUseBlock is a content block with a tool call.
type ToolUseBlock struct {
	Type  string          `json:"type"`
	ID    string          `json:"id"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
}

// NewMessage returns a message without content.
func NewMessage(model string) Message {
	return Message{ID: NewID("msg_"), Type: "message", Role: "assistant", Model: model, Content: []any{}}
}

// NewID returns a new ID with a prefix.
func NewID(prefix string) string { return prefix + rand.Text()[:24] }

// JSON encodes the message.
func (m Message) JSON() []byte { return Encode(m) }

// Encode encodes strings, numbers, valid JSON, and structures of them.
func Encode(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // cannot fail: v has only strings, numbers and valid JSON
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// Events buffers the events of a stream until they are read. Blocks do not overlap.
type Events struct {
	bytes.Buffer
	index int    // index of the open block, or of the next one
	open  string // type of the open block; "": none is open
}

// emit writes one event.
func (e *Events) emit(name string, data any) {
	fmt.Fprintf(e, "event: %s\ndata: %s\n\n", name, Encode(data))
}

type startEvent struct {
	Type    string  `json:"type"`
	Message Message `json:"message"`
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
	Usage Usage `json:"usage"`
}

// Start begins the message.
func (e *Events) Start(m Message) {
	m.Content, m.StopReason, m.StopSequence = []any{}, nil, nil
	e.emit("message_start", startEvent{"message_start", m})
}

// startBlock opens a block. It first closes the block that is open.
func (e *Events) startBlock(kind string, block any) {
	e.endBlock()
	e.open = kind
	e.emit("content_block_start", blockEvent{Type: "content_block_start", Index: e.index, Block: block})
}

func (e *Events) delta(kind, member, text string) {
	e.emit("content_block_delta", blockEvent{Type: "content_block_delta", Index: e.index, Delta: map[string]string{
		"type": kind, member: text}})
}

func (e *Events) endBlock() {
	if e.open != "" {
		e.emit("content_block_stop", blockEvent{Type: "content_block_stop", Index: e.index})
		e.open = ""
		e.index++
	}
}

// Text appends to the open text block, or opens one.
func (e *Events) Text(text string) {
	if e.open != "text" {
		e.startBlock("text", TextBlock{Type: "text"})
	}
	e.delta("text_delta", "text", text)
}

// Thinking appends to the open thinking block, or opens one.
func (e *Events) Thinking(text string) {
	if e.open != "thinking" {
		e.startBlock("thinking", ThinkingBlock{Type: "thinking"})
	}
	e.delta("thinking_delta", "thinking", text)
}

// ToolUse writes a whole tool call.
func (e *Events) ToolUse(b ToolUseBlock) {
	input := string(b.Input)
	b.Input = json.RawMessage("{}")
	e.startBlock("tool_use", b)
	e.delta("input_json_delta", "partial_json", "")
	e.delta("input_json_delta", "partial_json", input)
	e.endBlock()
}

// End ends the message.
func (e *Events) End(m Message) {
	e.endBlock()
	out := endEvent{Type: "message_delta", Usage: m.Usage}
	out.Delta.StopReason, out.Delta.StopSequence = m.StopReason, m.StopSequence
	e.emit("message_delta", out)
	e.emit("message_stop", map[string]string{"type": "message_stop"})
}

// Message writes all events of a complete message.
func (e *Events) Message(m Message) {
	e.Start(m)
	for _, b := range m.Content {
		switch b := b.(type) {
		case TextBlock:
			e.Text(b.Text)
		case ThinkingBlock:
			e.Thinking(b.Thinking)
		case ToolUseBlock:
			e.ToolUse(b)
		}
	}
	e.End(m)
}

// Ping writes a ping.
func (e *Events) Ping() { e.emit("ping", map[string]string{"type": "ping"}) }

// Fault writes an error event.
func (e *Events) Fault(f Fault) { fmt.Fprintf(e, "event: error\ndata: %s\n\n", f.Envelope()) }
