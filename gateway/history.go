package gateway

import (
	"encoding/json"
	"slices"
	"strings"
)

// A history is a conversation in the form that the upstream gets. Calls of server tools become calls of its tools,
// their results a user message behind them; what is not ours stays as it is.
type history struct {
	list  []message
	names map[string]string // path of each uploaded file in the container, by file ID; "" is not there any more

	open    []call          // of the server's tools; closed tells which of them have a result
	closed  map[string]int  // how many of open there were when the last result came, by the ID of its call
	where   map[string]int  // the message of each call of a server tool, by the upstream's ID
	foreign map[string]bool // IDs of calls whose results only another server can read
	hidden  map[string]bool // IDs of calls that code made: the upstream knows nothing of them
	makers  map[string]int  // the last message with calls of each piece of code, by the ID of its call
}

// A message is one of the upstream's.
type message struct {
	raw     json.RawMessage // as it came; nil: it is base with results and content
	base    object
	role    string
	results []json.RawMessage // that content begins with
	content []json.RawMessage
	reply   *message // with the results of its calls, where no user message follows; nil: there are none
}

// A call is one use of a server tool.
type call struct {
	id    string // as clients see it
	name  string
	input json.RawMessage
	turn  int // number of the message that it is in, or thisTurn
}

// thisTurn is in place of the number of a message where there is none so far: that of the answer.
const thisTurn = -1

// resultSuffix ends the type of every block that answers a server tool.
const resultSuffix = "_tool_result"

// newHistory translates the messages of a request.
func newHistory(messages []json.RawMessage, names map[string]string) (*history, error) {
	h := &history{names: names, closed: map[string]int{}, where: map[string]int{}, foreign: map[string]bool{},
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
		if err := h.add(i, o, messages[i]); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// survey notes which calls are not to be translated.
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

// makerOf is the ID of the call whose code made a call; "": the model did.
func makerOf(b object) string {
	caller, err := parseObject(b.get("caller"))
	if err != nil || !strings.HasPrefix(caller.text("type"), codeToolPrefix) {
		return ""
	}
	return caller.text("tool_id")
}

// called reports whether the code of a call has called tools, and waits for what the request brings. There are models
// that use one ID in each round: what called tools before this call was made is another one.
func (h *history) called(c call) bool {
	at, ok := h.makers[c.id]
	return ok && c.turn != thisTurn && at >= c.turn
}

// blocksOf are the blocks of a message that are objects.
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

// add translates one message.
func (h *history) add(i int, o object, raw json.RawMessage) error {
	role, content := o.text("role"), o.get("content")
	if len(content) == 0 || content[0] != '[' {
		if last := h.last(); role == "user" && last != nil && last.role == role && last.raw == nil {
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
	if !slices.ContainsFunc(blocks, h.translated) && !h.joins(role) {
		h.list = append(h.list, message{raw: raw, base: o, role: role, content: blocks})
		return nil
	}
	fresh := !h.joins(role)
	for _, b := range blocks {
		fresh = h.block(i, role, b, fresh)
	}
	return nil
}

// joins reports whether a message goes on what was made of results.
func (h *history) joins(role string) bool {
	last := h.last()
	return role == "user" && last != nil && last.role == role && last.raw == nil
}

func (h *history) last() *message {
	if len(h.list) == 0 {
		return nil
	}
	return &h.list[len(h.list)-1]
}

// translated reports whether a block is not to go to the upstream as it is.
func (h *history) translated(raw json.RawMessage) bool {
	o, err := parseObject(raw)
	if err != nil {
		return false
	}
	switch o.text("type") {
	case "server_tool_use":
		return ownTool(o.text("name")) && !h.foreign[o.text("id")]
	case "tool_use":
		return o.get("caller") != nil
	case "tool_result":
		return h.hidden[o.text("tool_use_id")]
	case "container_upload":
		return true
	}
	return h.isResult(o)
}

// isResult reports whether a block answers a server tool of ours.
func (h *history) isResult(o object) bool {
	name, ok := strings.CutSuffix(o.text("type"), resultSuffix)
	return ok && ownTool(name) && !h.foreign[o.text("tool_use_id")]
}

// block adds one of a message, which has nothing in the list so far if it is fresh.
func (h *history) block(i int, role string, raw json.RawMessage, fresh bool) (still bool) {
	o, err := parseObject(raw)
	kind := o.text("type")
	switch {
	case err != nil || !h.translated(raw):
		// upstreams refuse what they sent
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
		raw = h.upload(o)
	default:
		h.result(o)
		return fresh
	}
	h.put(role, raw, fresh)
	if kind == "server_tool_use" {
		h.where[upstreamID(o.text("id"))] = len(h.list) - 1
	}
	return false
}

// put adds a block to the message of that role at the end of the list, or to a new one.
func (h *history) put(role string, raw json.RawMessage, fresh bool) {
	if last := h.last(); fresh || last == nil || last.role != role || last.raw != nil {
		h.list = append(h.list, newMessage(role))
	}
	last := h.last()
	last.content = append(last.content, raw)
}

// result puts a result where the upstream expects it: into the user message behind its call.
func (h *history) result(o object) {
	id := o.text("tool_use_id")
	h.closed[id] = len(h.open)
	h.answer(upstreamID(id), toolResult(o))
}

// answer puts a tool_result into the user message behind its call. Without the call there is nothing to answer.
func (h *history) answer(id string, result json.RawMessage) {
	at, ok := h.where[id]
	if !ok {
		return
	}
	m := h.behind(at)
	m.open()
	m.results = append(m.results, result)
}

// behind is the user message behind another one, made if need be. Between two of the assistant's, the first has it,
// so that the list stays as it is.
func (h *history) behind(at int) *message {
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

// open makes a message one that can be given results.
func (m *message) open() {
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

// pending are the calls of the last assistant message, by its number, that nothing has answered. Those of earlier
// ones were given up by the client: the upstream is told so.
func (h *history) pending(last int) (calls []call) {
	from := last // the message whose calls are being run: code may have called tools over several
	open := h.unanswered()
	for _, c := range open {
		if at, ok := h.makers[c.id]; ok && at == last {
			from = c.turn
		}
	}
	for _, c := range open {
		if c.turn == last || c.turn == from {
			calls = append(calls, c)
			continue
		}
		h.answer(upstreamID(c.id), abandoned(upstreamID(c.id)))
	}
	return calls
}

// unanswered are the calls that have no result so far. They are somebody else's from then on.
func (h *history) unanswered() (calls []call) {
	for i, c := range h.open {
		if i >= h.closed[c.id] {
			calls = append(calls, c)
		}
	}
	h.open, h.closed = nil, map[string]int{}
	return calls
}

// upload tells the upstream of a file that was put into the container.
func (h *history) upload(o object) json.RawMessage {
	id := o.text("file_id")
	path := h.names[id]
	text := "The user gave a file, " + path + " in the container ($INPUT_DIR)."
	if path == "" {
		text = "The user gave a file, " + id + ", which is not available any more."
	}
	return textBlock(text, o.get("cache_control"))
}

// raw is the whole of it.
func (h *history) raw() json.RawMessage {
	list := make([]json.RawMessage, 0, len(h.list))
	for _, m := range h.list {
		list = append(list, m.whole())
		if m.reply != nil {
			list = append(list, m.reply.whole())
		}
	}
	return joined(list)
}

// whole is the message as JSON.
func (m message) whole() json.RawMessage {
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

// textBlock is a text with what its place said of caching.
func textBlock(text string, cache json.RawMessage) json.RawMessage {
	o := object{}.with("type", "text").with("text", text)
	if cache != nil {
		o = o.with("cache_control", cache)
	}
	return o.raw()
}
