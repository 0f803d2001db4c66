package chat

import (
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"

	"berth/gateway/upstream/answer"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/respjson"
)

// decode converts a complete chat completions answer to a Messages answer.
func (r *Request) decode(c openai.ChatCompletion) (answer.Message, error) {
	msg, said := answer.NewMessage(r.Model), c.Choices[0].Message
	if text := decodeThoughts(said.JSON.ExtraFields); text != "" {
		msg.Content = append(msg.Content, answer.ThinkingBlock{Type: "thinking", Thinking: text})
	}
	for _, text := range []string{decodeText(said.JSON.Content), said.Refusal} {
		if text != "" {
			msg.Content = append(msg.Content, answer.TextBlock{Type: "text", Text: text})
		}
	}
	var made calls
	for _, t := range said.ToolCalls {
		made.list = append(made.list, &call{id: t.ID, name: t.Function.Name, args: decodeArguments(
			t.Function.JSON.Arguments)})
	}
	uses, err := made.blocks(r.callIDs)
	for _, b := range uses {
		msg.Content = append(msg.Content, b)
	}
	end := ending{finish: c.Choices[0].FinishReason, calls: len(uses) > 0, refused: said.Refusal != "",
		stopped: decodeStop(c.Choices[0].JSON.ExtraFields, r.StopSequences)}
	end.setStop(&msg)
	msg.Usage = decodeUsage(c.Usage)
	return msg, err
}

// decodeUsage converts token counts. Like Messages, it counts cached input tokens separately from other input tokens.
func decodeUsage(u openai.CompletionUsage) answer.Usage {
	cached := min(max(u.PromptTokensDetails.CachedTokens, 0), max(u.PromptTokens, 0))
	return answer.Usage{Input: max(u.PromptTokens, 0) - cached, CacheRead: cached, Output: max(u.CompletionTokens, 0)}
}

// decodeThoughts returns the model's reasoning text. Servers use one of two field names for it.
func decodeThoughts(extra map[string]respjson.Field) string {
	for _, name := range []string{"reasoning_content", "reasoning"} {
		if text := decodeText(extra[name]); text != "" {
			return text
		}
	}
	return ""
}

// decodeText returns a string, or the joined texts of a list of parts. It returns "" for null and any other value.
func decodeText(f respjson.Field) (text string) {
	raw := []byte(f.Raw())
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var parts []struct{ Type, Text string }
	if json.Unmarshal(raw, &parts) != nil {
		return ""
	}
	for _, p := range parts {
		text += p.Text
	}
	return text
}

// decodeArguments returns the arguments of a call as text. Some servers send the object itself instead of a string.
func decodeArguments(f respjson.Field) (text string) {
	raw := f.Raw()
	if json.Unmarshal([]byte(raw), &text) == nil {
		return text
	}
	return raw
}

// decodeStop returns the stop sequence that ended an answer, or "" if the server does not report one.
func decodeStop(extra map[string]respjson.Field, stops []string) string {
	if word := decodeText(extra["stop_reason"]); slices.Contains(stops, word) {
		return word
	}
	return ""
}

// An ending describes how an answer ended.
type ending struct {
	finish         string
	stopped        string // stop sequence, or ""
	calls, refused bool
}

// setStop sets the stop reason of a Messages answer. A server may report "stop" although the model has called tools.
func (e ending) setStop(m *answer.Message) {
	reason := "end_turn"
	switch {
	case e.finish == "length":
		reason = "max_tokens"
	case e.finish == "content_filter", e.refused:
		reason = "refusal"
	case e.calls:
		reason = "tool_use"
	case e.stopped != "":
		reason = "stop_sequence"
		m.StopSequence = &e.stopped
	}
	m.StopReason = &reason
}

// A call is a tool call that may still be incomplete.
type call struct {
	index    int64
	id, name string
	args     string
	parts    []string // pieces of args that text has not joined yet
}

// calls holds the tool calls of one answer.
type calls struct {
	list []*call
	size int
}

// maxCalls and maxArguments limit the calls that are buffered until the answer ends: their number, and the bytes of
// their arguments.
const (
	maxCalls     = 1000
	maxArguments = 32 << 20
)

var errTooMuchCalled = errors.New("called more tools, or with longer arguments, than are taken: 1000 calls, 32 MiB")

// add adds a piece of a call.
func (c *calls) add(d openai.ChatCompletionChunkChoiceDeltaToolCall) error {
	args := decodeArguments(d.Function.JSON.Arguments)
	at := c.find(d, args)
	if at == nil {
		at = &call{index: d.Index}
		c.list = append(c.list, at)
	}
	if at.id == "" {
		at.id = d.ID
	}
	if at.name == "" {
		at.name = d.Function.Name
	}
	if args != "" {
		at.parts = append(at.parts, args)
	}
	if c.size += len(args); c.size > maxArguments || len(c.list) > maxCalls {
		return errTooMuchCalled
	}
	return nil
}

// find returns the call that a piece belongs to, or nil if the piece begins a new call. Servers that send whole calls
// may give all of them the same index, or none.
func (c *calls) find(d openai.ChatCompletionChunkChoiceDeltaToolCall, args string) *call {
	indexed := d.JSON.Index.Valid()
	for _, at := range slices.Backward(c.list) {
		if indexed && at.index != d.Index || !indexed && d.ID != "" && at.id != d.ID {
			continue
		}
		another := d.ID != "" && at.id != "" && at.id != d.ID
		whole := d.Function.Name != "" && args != "" && (d.ID == "" || at.id == "") && at.whole()
		if another || whole {
			return nil
		}
		return at
	}
	return nil
}

// text returns the arguments received so far.
func (c *call) text() string {
	if len(c.parts) > 0 {
		c.args, c.parts = c.args+strings.Join(c.parts, ""), nil
	}
	return c.args
}

// whole reports whether the arguments are a complete JSON value.
func (c *call) whole() bool {
	if n := len(c.parts); n > 0 && !strings.HasSuffix(strings.TrimSpace(c.parts[n-1]), "}") {
		return false // cheap check: most pieces do not end a value
	}
	return json.Valid([]byte(c.text()))
}

// clientID matches the IDs that Messages clients accept.
var clientID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,256}$`)

// blocks returns the calls as Messages blocks. It replaces an ID that is missing, malformed or not unique: some servers
// number the calls of each answer from 0. earlier holds the IDs of earlier calls.
func (c *calls) blocks(earlier map[string]bool) (out []answer.ToolUseBlock, err error) {
	own := map[string]bool{}
	for _, at := range c.list {
		if at.name == "" {
			return nil, errors.New("called a tool without a name")
		}
		id := at.id
		if !clientID.MatchString(id) || earlier[id] || own[id] {
			id = answer.NewID("toolu_")
		}
		own[id] = true
		out = append(out, answer.ToolUseBlock{Type: "tool_use", ID: id, Name: at.name, Input: input(at.text())})
	}
	return out, nil
}

// input returns the arguments of a call as a JSON object. If the model wrote something else, the object holds that
// text in the member INVALID_JSON. No tool has such a parameter, so the call fails and the model sees what it wrote.
func input(args string) json.RawMessage {
	text := strings.TrimSpace(args)
	var inner string
	switch {
	case text == "" || text == "null":
		return json.RawMessage("{}")
	case isObject(text):
		return json.RawMessage(text)
	case json.Unmarshal([]byte(text), &inner) == nil && isObject(inner): // an object that was encoded twice
		return json.RawMessage(inner)
	}
	return answer.Encode(map[string]string{"INVALID_JSON": args})
}

func isObject(text string) bool {
	text = strings.TrimSpace(text)
	return strings.HasPrefix(text, "{") && json.Valid([]byte(text))
}
