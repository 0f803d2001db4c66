// Package history translates the messages of a request to the form that the upstream gets. Calls of server tools
// become calls of plain tools, and their results become part of the user message that follows. It also finds the calls
// that have no result yet.
package messages

import (
	"encoding/json"
	"slices"
	"strings"
)

// A history is a conversation in the form that the upstream gets. Calls of server tools become calls of plain tools.
// Their results become part of the user message that follows. Everything else stays unchanged.
type history struct {
	list  []message
	paths map[string]string // of the uploaded files in the container, by file ID; a deleted file has none

	open    []call          // calls of server tools; closed tells which of them have a result
	closed  map[string]int  // length of open when the last result came, by the ID of its call
	where   map[string]int  // index in list of the message with each call of a server tool, by the upstream's ID
	foreign map[string]bool // IDs of calls whose results only another server can decrypt
	hidden  map[string]bool // IDs of calls by code, which are not sent to the upstream
	makers  map[string]int  // the last message with client calls made by a piece of code, by the ID of the code's call
}

// A message is one message for the upstream.
type message struct {
	raw     json.RawMessage // as the client sent it; nil: it is built from base, results and content
	base    object
	role    string
	results []json.RawMessage // tool results at the beginning of the content
	content []json.RawMessage
	reply   *message // a user message with the results of this message's calls, if no user message follows; nil: none
}

// A call is one use of a server tool.
type call struct {
	id    string // as clients see it
	name  string
	input json.RawMessage
	at    int // number of its message, or thisTurn
}

// thisTurn is used instead of a message's number for the answer of this turn.
const thisTurn = -1

// resultSuffix ends the type of every block that has the result of a server tool.
const resultSuffix = "_tool_result"

// ourWords are strings of which every history with blocks of server tools has at least one.
var ourWords = []string{`"` + toolBash + `"`, `"` + toolEditor + `"`, `"` + toolCode + `"`, `"container_upload"`}

// usesTools reports whether messages have blocks of server tools. A request without the tool may continue a
// conversation that had it. Its history must then be translated.
func usesTools(messages json.RawMessage) bool {
	if !slices.ContainsFunc(ourWords, func(w string) bool { return strings.Contains(string(messages), w) }) {
		return false
	}
	list, err := parseArray(messages)
	if err != nil {
		return false
	}
	h := &history{}
	for _, raw := range list {
		o, err := parseObject(raw)
		if err != nil {
			return false
		}
		for _, b := range blocksOf(o) {
			if b.text("type") == "container_upload" || b.text("type") == "server_tool_use" &&
				isOwnTool(b.text("name")) ||
				h.isResult(b) {
				return true
			}
		}
	}
	return false
}

// newHistory translates the messages of a request.
func newHistory(messages []json.RawMessage, paths map[string]string) (*history, error) {
	h := &history{paths: paths, closed: map[string]int{}, where: map[string]int{}, foreign: map[string]bool{},
		hidden: map[string]bool{}, makers: map[string]int{}}
	all := make([]object, len(messages))
	for i, raw := range messages {
		o, err := parseObject(raw)
		if err != nil {
			return nil, invalid("messages", "messages.%d must be an object", i)
		}
		all[i] = o
		h.survey(i, o)
	}
	for i, o := range all {
		if err := h.addMessage(i, o, messages[i]); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// survey finds the calls that must not be translated. It runs before addMessage.
func (h *history) survey(i int, o object) {
	for _, b := range blocksOf(o) {
		switch kind := b.text("type"); {
		case strings.HasSuffix(kind, resultSuffix):
			content, err := parseObject(b.get("content"))
			if err == nil && strings.HasPrefix(content.text("type"), "encrypted_") {
				h.foreign[b.text("tool_use_id")] = true
			}
		case kind == "tool_use" && makerOf(b) != "":
			h.hidden[b.text("id")] = true
			h.makers[makerOf(b)] = i
		}
	}
}

// makerOf returns the ID of the call whose code made a call, or "" if the model made it.
func makerOf(b object) string {
	caller, err := parseObject(b.get("caller"))
	if err != nil || !strings.HasPrefix(caller.text("type"), codeToolPrefix) {
		return ""
	}
	return caller.text("tool_id")
}

// calledTools reports whether the code of a call has called client tools and waits for their answers. Some models use
// the same ID in each round. So code that called tools before this call belongs to another call.
func (h *history) calledTools(c call) bool {
	at, ok := h.makers[c.id]
	return ok && c.at != thisTurn && at >= c.at
}

// blocksOf returns the blocks of a message that are objects.
func blocksOf(o object) (list []object) {
	raw := o.get("content")
	if len(raw) == 0 || raw[0] != '[' {
		return nil
	}
	blocks, err := parseArray(raw)
	if err != nil {
		return nil
	}
	for _, b := range blocks {
		if o, err := parseObject(b); err == nil {
			list = append(list, o)
		}
	}
	return list
}

// addMessage translates one message.
func (h *history) addMessage(i int, o object, raw json.RawMessage) error {
	role, content := o.text("role"), o.get("content")
	// A user message must be merged into the last one if that was made of tool results.
	last := h.last()
	joins := role == "user" && last != nil && last.role == role && last.raw == nil
	if len(content) == 0 || content[0] != '[' {
		if joins {
			last.content = append(last.content, textBlock(o.text("content"), nil))
			return nil
		}
		h.list = append(h.list, message{raw: raw, base: o, role: role})
		return nil
	}
	blocks, err := parseArray(content)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(blocks, h.translated) && !joins {
		h.list = append(h.list, message{raw: raw, base: o, role: role, content: blocks})
		return nil
	}
	fresh := !joins
	for _, b := range blocks {
		fresh = h.addBlock(i, role, b, fresh)
	}
	return nil
}

func (h *history) last() *message {
	if len(h.list) == 0 {
		return nil
	}
	return &h.list[len(h.list)-1]
}

// translated reports whether a block is sent to the upstream in another form, or not at all.
func (h *history) translated(raw json.RawMessage) bool {
	o, err := parseObject(raw)
	if err != nil {
		return false
	}
	switch o.text("type") {
	case "server_tool_use":
		return isOwnTool(o.text("name")) && !h.foreign[o.text("id")]
	case "tool_use":
		return o.get("caller") != nil
	case "tool_result":
		return h.hidden[o.text("tool_use_id")]
	case "container_upload":
		return true
	}
	return h.isResult(o)
}

// isResult reports whether a block is the result of a server tool.
func (h *history) isResult(o object) bool {
	name, ok := strings.CutSuffix(o.text("type"), resultSuffix)
	return ok && isOwnTool(name) && !h.foreign[o.text("tool_use_id")]
}

// addBlock adds a block of a message: to the last message if that has the same role, and to a new one otherwise. fresh
// means that no block of that message was added yet; addBlock returns its new value.
func (h *history) addBlock(i int, role string, raw json.RawMessage, fresh bool) (still bool) {
	o, err := parseObject(raw)
	kind := o.text("type")
	switch {
	case err != nil || !h.translated(raw):
		// upstreams refuse empty texts, although they send them
		if role == "assistant" && kind == "text" && strings.TrimSpace(o.text("text")) == "" {
			return fresh
		}
	case kind == "server_tool_use":
		h.open = append(h.open, call{o.text("id"), o.text("name"), o.get("input"), i})
		raw = o.without("caller").with("type", "tool_use").with("id", upstreamID(o.text("id"))).raw()
	case kind == "tool_use" && h.hidden[o.text("id")], kind == "tool_result":
		return fresh
	case kind == "tool_use":
		raw = o.without("caller").raw()
	case kind == "container_upload":
		raw = h.uploadText(o)
	default: // the result of a server tool
		id := o.text("tool_use_id")
		h.closed[id] = len(h.open)
		h.answerCall(upstreamID(id), toolResult(o))
		return fresh
	}
	if last := h.last(); fresh || last == nil || last.role != role || last.raw != nil {
		h.list = append(h.list, newMessage(role))
	}
	last := h.last()
	last.content = append(last.content, raw)
	if kind == "server_tool_use" {
		h.where[upstreamID(o.text("id"))] = len(h.list) - 1
	}
	return false
}

// abandon adds an error as the result of a call whose result the client does not send.
func (h *history) abandon(c call) {
	id := upstreamID(c.id)
	h.answerCall(id, object{}.with("type", "tool_result").with("tool_use_id", id).with("content",
		"Error: there is no result of this call.").with("is_error", true).raw())
}

// answerCall puts a tool_result where the upstream expects it: into the user message after the call. It does nothing
// if there is no such call.
func (h *history) answerCall(id string, result json.RawMessage) {
	at, ok := h.where[id]
	if !ok {
		return
	}
	m := h.messageBehind(at)
	m.prepareResults()
	m.results = append(m.results, result)
}

// messageBehind returns the user message after another one, and creates it if there is none. Between two assistant
// messages, the first holds it as its reply, so that the indexes of messages do not change.
func (h *history) messageBehind(at int) *message {
	if at+1 == len(h.list) {
		h.list = append(h.list, newMessage("user"))
	}
	if next := &h.list[at+1]; next.role == "user" {
		return next
	}
	m := &h.list[at]
	if m.reply == nil {
		reply := newMessage("user")
		m.reply = &reply
	}
	return m.reply
}

func newMessage(role string) message {
	return message{role: role, base: object{}.with("role", role)}
}

// prepareResults prepares a message so that results can be added to it.
func (m *message) prepareResults() {
	if m.raw != nil && m.content == nil {
		m.content = []json.RawMessage{textBlock(m.base.text("content"), nil)}
	}
	if m.raw = nil; m.results != nil {
		return
	}
	n := slices.IndexFunc(m.content, func(raw json.RawMessage) bool { return kindOf(raw) != "tool_result" })
	if n < 0 {
		n = len(m.content)
	}
	m.results, m.content = slices.Clip(m.content[:n]), m.content[n:]
}

// takePending returns the calls of the last assistant message that have no result. last is the number of that
// message. The client has abandoned the calls of earlier messages: they get an error as their result.
func (h *history) takePending(last int) (calls []call) {
	from := last // first message with calls to run: code may have called tools over several messages
	open := h.takeUnanswered()
	for _, c := range open {
		if at, ok := h.makers[c.id]; ok && at == last {
			from = c.at
		}
	}
	for _, c := range open {
		if c.at == last || c.at == from {
			calls = append(calls, c)
			continue
		}
		h.abandon(c)
	}
	return calls
}

// takeUnanswered returns the calls that have no result so far, and forgets them.
func (h *history) takeUnanswered() (calls []call) {
	for i, c := range h.open {
		if i >= h.closed[c.id] {
			calls = append(calls, c)
		}
	}
	h.open, h.closed = nil, map[string]int{}
	return calls
}

// uploadText returns a text block that tells the model about a file in the container.
func (h *history) uploadText(o object) json.RawMessage {
	id := o.text("file_id")
	path := h.paths[id]
	text := "The user gave a file, " + path + " in the container ($INPUT_DIR)."
	if path == "" {
		text = "The user gave a file, " + id + ", which is not available any more."
	}
	return textBlock(text, o.get("cache_control"))
}

// raw returns the history as JSON.
func (h *history) raw() json.RawMessage {
	list := make([]json.RawMessage, 0, len(h.list))
	for _, m := range h.list {
		list = append(list, m.asJSON())
		if m.reply != nil {
			list = append(list, m.reply.asJSON())
		}
	}
	return joined(list)
}

// asJSON returns the message as JSON.
func (m message) asJSON() json.RawMessage {
	if m.raw != nil {
		return m.raw
	}
	return m.base.with("content", joined(slices.Concat(m.results, m.content))).raw()
}

func kindOf(raw json.RawMessage) string {
	o, err := parseObject(raw)
	if err != nil {
		return ""
	}
	return o.text("type")
}

// textBlock returns a text block with the cache_control of the block that it replaces.
func textBlock(text string, cache json.RawMessage) json.RawMessage {
	o := object{}.with("type", "text").with("text", text)
	if cache != nil {
		o = o.with("cache_control", cache)
	}
	return o.raw()
}
