package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"berth/gateway/messages/rawjson"
	"berth/gateway/upstream/answer"

	"github.com/go-json-experiment/json/jsontext"
)

// appendMessages appends the system text and all messages as a list. The list is written without structures of the
// openai library: histories have many megabytes.
func (r *Request) appendMessages(b []byte) ([]byte, error) {
	b = append(b, '[')
	if len(r.system) > 0 {
		text, err := texts("system", r.system)
		if err != nil {
			return nil, err
		}
		b = appendMessage(b, "system", text)
	}
	for i, m := range r.turns {
		where := fmt.Sprintf("messages.%d", i)
		blocks, err := m.blocks(where)
		if err != nil {
			return nil, err
		}
		r.note(where, blocks)
		switch m.role {
		case "user":
			b, err = r.appendUser(b, where, blocks)
		case "assistant":
			b, err = r.appendAssistant(b, where, blocks)
		case "system":
			b, err = r.appendSystem(b, where, i, blocks)
		default:
			err = fmt.Errorf("%s.role: it is %q; there are user, assistant and system", where, answer.Short(m.role))
		}
		if err != nil {
			return nil, err
		}
	}
	if last := len(r.turns) - 1; r.turns[last].role == "assistant" {
		return nil, cannotEncode("messages.%d, the beginning of an answer that is to be continued", last)
	}
	if b[len(b)-1] == '[' {
		return nil, errors.New("messages: there is none of the user")
	}
	return append(b, ']'), nil
}

// beginMessage appends the beginning of a message up to its content.
func beginMessage(b []byte, role string) []byte {
	if b[len(b)-1] == '}' {
		b = append(b, ',')
	}
	return append(append(append(b, `{"role":"`...), role...), `","content":`...)
}

// appendMessage appends a message whose content is texts.
func appendMessage(b []byte, role string, list []words) []byte {
	return append(appendJoined(beginMessage(b, role), list, paragraph), '}')
}

// texts returns the texts of blocks. It refuses blocks of any other type.
func texts(where string, list []block) (parts []words, err error) {
	for i, b := range list {
		if b.kind != "text" {
			return nil, cannotEncode("%s.content.%d, of the type %s", where, i, answer.Short(b.kind))
		}
		parts = append(parts, b.words("", "text"))
	}
	return parts, nil
}

// appendSystem appends a system message in the middle of the conversation. It drops one that a later user message
// clears, and what remains without text: changes of tools are applied to the tools, and settings have no equivalent.
func (r *Request) appendSystem(b []byte, where string, i int, blocks []block) ([]byte, error) {
	m := r.turns[i]
	if rawjson.Text(rawjson.Member(m.raw, "clear_at")) == "next_user_message" &&
		slices.ContainsFunc(r.turns[i+1:], func(later turn) bool { return later.role == "user" }) {
		return b, nil
	}
	settings, _ := rawjson.Known(rawjson.Member(m.raw, "output_config"))
	for _, s := range settings {
		r.ignoreAll("messages.output_config.", map[string]jsontext.Value{s.Name: jsontext.Value(s.Value)})
	}
	list, err := texts(where, slices.DeleteFunc(blocks, func(b block) bool {
		return b.kind == "tool_addition" || b.kind == "tool_removal"
	}))
	if err != nil || !slices.ContainsFunc(list, func(w words) bool { return len(w) > 0 }) {
		return b, err
	}
	return appendMessage(b, "system", list), nil
}

// A part is a part of a user message: a text, or the JSON of an image or a file.
type part struct {
	text  words
	other []words // pieces of its JSON; nil: it is a text
}

// appendUser appends a user message: first each tool result as a message of its own, then all other blocks as one
// message. A tool message can hold text only, so images of results go into that last message.
func (r *Request) appendUser(b []byte, where string, list []block) ([]byte, error) {
	var rest []part
	for i, one := range list {
		if one.kind == "text" {
			rest = append(rest, part{text: one.words("", "text")})
			continue
		}
		at := fmt.Sprintf("%s.content.%d", where, i)
		if one.kind == "tool_result" {
			text, shown, err := r.readResult(at, one)
			if err != nil {
				return nil, err
			}
			b = append(appendJoined(beginMessage(b, "tool"), text, newline), `,"tool_call_id":`...)
			b = append(appendJoined(b, []words{one.words("", "tool_use_id")}, ""), '}')
			rest = append(rest, shown...)
			continue
		}
		p, err := r.readPart(at, one)
		if err != nil {
			return nil, err
		}
		rest = append(rest, p)
	}
	switch {
	case len(list) == 0:
		return nil, fmt.Errorf("%s.content: it is empty", where)
	case len(rest) == 0:
		return b, nil
	case !slices.ContainsFunc(rest, func(p part) bool { return p.other != nil }):
		// The content of a message with text only is a string: not all servers accept lists.
		var plain []words
		for _, p := range rest {
			plain = append(plain, p.text)
		}
		return appendMessage(b, "user", plain), nil
	}
	b = append(beginMessage(b, "user"), '[')
	for i, p := range rest {
		if i > 0 {
			b = append(b, ',')
		}
		if p.other == nil {
			b = append(appendJoined(append(b, `{"type":"text","text":`...), []words{p.text}, ""), '}')
		}
		for _, w := range p.other {
			b = append(b, w...)
		}
	}
	return append(b, "]}"...), nil
}

// readResult returns the lines of a tool result, and its images with a note that says which result they belong to.
func (r *Request) readResult(where string, b block) (lines []words, shown []part, err error) {
	list, err := b.content(where)
	if err != nil {
		return nil, nil, err
	}
	for i, inner := range list {
		if inner.kind == "text" {
			lines = append(lines, inner.words("", "text"))
			continue
		}
		at := fmt.Sprintf("%s.content.%d", where, i)
		if inner.kind == "tool_reference" { // the model has all tools from the beginning
			lines = append(lines, spoken("The tool "+inner.text("tool_name")+" can be called now."))
			continue
		}
		p, err := r.readPart(at, inner)
		if err != nil {
			return nil, nil, err
		}
		if p.other == nil && inner.kind != "document" {
			lines = append(lines, p.text)
			continue
		}
		lines = append(lines, spoken("("+inner.kind+": see below)"))
		shown = append(shown, part{text: spoken("The " + inner.kind + " in the result of the tool call " +
			b.text("tool_use_id") + ":")}, p)
	}
	if string(rawjson.Member(b.raw, "is_error")) == "true" {
		if len(lines) == 0 || len(lines) == 1 && len(lines[0]) == 0 {
			return []words{words("Error")}, shown, nil
		}
		lines[0] = slices.Concat(words("Error: "), lines[0])
	}
	return lines, shown, nil
}

// readPart converts a block of a user message that is not a tool result.
func (r *Request) readPart(where string, b block) (p part, err error) {
	if b.kind == "text" {
		return part{text: b.words("", "text")}, nil
	}
	if b.wantsCitations() {
		r.ignore("messages.citations")
	}
	kind := rawjson.Text(rawjson.Member(rawjson.Member(b.raw, "source"), "type"))
	data := func() []words {
		return []words{words(`"data:`), b.words("source", "media_type"), words(";base64,"), b.words("source", "data"),
			words(`"`)}
	}
	var text []words
	switch strings.TrimSuffix(b.kind+" "+kind, " ") {
	case "image base64":
		return part{other: slices.Concat([]words{words(`{"type":"image_url","image_url":{"url":`)}, data(),
			[]words{words("}}")})}, nil
	case "image url":
		return part{other: []words{words(`{"type":"image_url","image_url":{"url":"`), b.words("source", "url"),
			words(`"}}`)}}, nil
	case "document base64":
		if len(b.words("", "context")) > 0 {
			r.ignore("messages.context")
		}
		title := b.words("", "title")
		if len(title) == 0 {
			title = words("document.pdf")
		}
		return part{other: slices.Concat([]words{words(`{"type":"file","file":{"filename":"`), title,
			words(`","file_data":`)}, data(), []words{words("}}")})}, nil
	case "document text":
		text = []words{b.words("source", "data")}
	case "document content":
		var list []block
		if list, err = readContent(where+".source.content", rawjson.Member(rawjson.Member(b.raw, "source"),
			"content")); err == nil {
			text, err = texts(where+".source", list)
		}
	case "search_result":
		var list []block
		if list, err = b.content(where); err == nil {
			text, err = texts(where, list)
		}
	default:
		if kind == "" {
			return p, cannotEncode("%s, of the type %s", where, answer.Short(b.kind))
		}
		return p, cannotEncode("%s, of the type %s with a source of the type %s", where, answer.Short(b.kind),
			answer.Short(kind))
	}
	var parts []words
	before := []words{b.words("", "title"), b.words("", "source"), b.words("", "context")}
	for _, w := range slices.Concat(before, text) {
		if len(w) > 0 {
			parts = append(parts, w)
		}
	}
	joined := appendJoined(nil, parts, paragraph)
	return part{text: words(joined[1 : len(joined)-1])}, err
}

// appendAssistant appends an assistant message as one message. It drops thinking blocks: chat completions have no field
// for them that all servers accept. It also drops searches for tools, and the marks of fallbacks.
func (r *Request) appendAssistant(b []byte, where string, list []block) ([]byte, error) {
	var said []words
	var calls []block
	for i, one := range list {
		switch {
		case one.kind == "text":
			said = append(said, one.words("", "text"))
		case one.kind == "compaction" && len(one.words("", "content")) > 0: // the summary of earlier messages
			said = append(said, one.words("", "content"))
		case one.kind == "thinking", one.kind == "redacted_thinking", one.kind == "fallback",
			one.kind == "server_tool_use" && strings.HasPrefix(one.text("name"), toolSearch),
			one.kind == "tool_search_tool_result":
		case one.kind == "tool_use":
			calls = append(calls, one)
		default:
			return nil, cannotEncode("%s.content.%d, of the type %s", where, i, answer.Short(one.kind))
		}
	}
	b = appendJoined(beginMessage(b, "assistant"), said, paragraph) // some servers require content beside calls, too
	for i, c := range calls {
		if i == 0 {
			b = append(b, `,"tool_calls":[`...)
		} else {
			b = append(b, ',')
		}
		b = append(appendJoined(append(b, `{"id":`...), []words{c.words("", "id")}, ""), `,"type":"function"`...)
		b = append(appendJoined(append(b, `,"function":{"name":`...), []words{c.words("", "name")}, ""),
			`,"arguments":`...)
		b = append(appendArguments(b, rawjson.Member(c.raw, "input")), "}}"...)
	}
	if len(calls) > 0 {
		b = append(b, ']')
	}
	return append(b, '}'), nil
}

// appendArguments appends the input of a call as a string.
func appendArguments(b []byte, input json.RawMessage) []byte {
	if len(input) == 0 {
		return append(b, `"{}"`...)
	}
	b, _ = jsontext.AppendQuote(b, []byte(input)) // invalid UTF-8 is replaced
	return b
}
