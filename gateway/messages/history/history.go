// Package history translates the messages of a request to the form that the upstream gets. Calls of server tools
// become calls of plain tools, and their results become part of the user message that follows. It also finds the calls
// that have no result yet.
package history

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode"

	"berth/gateway/messages/exectool"
	"berth/gateway/messages/rawjson"
	"berth/proto"
)

// A History is a conversation in the form that the upstream gets. Calls of server tools become calls of plain tools.
// Their results become part of the user message that follows. Everything else stays unchanged.
type History struct {
	list  []message
	paths map[string]string // of the uploaded files in the container, by file ID; a deleted file has none

	open    []Call          // calls of server tools; closed tells which of them have a result
	closed  map[string]int  // length of open when the last result came, by the ID of its call
	where   map[string]int  // index in list of the message with each call of a server tool, by the upstream's ID
	foreign map[string]bool // IDs of calls whose results only another server can decrypt
	hidden  map[string]bool // IDs of calls by code, which are not sent to the upstream
	makers  map[string]int  // the last message with client calls made by a piece of code, by the ID of the code's call

	ids      map[string]bool  // of all calls of tools, as the upstream gets them
	asked    map[int][]string // IDs of the client calls of each message
	answered map[string]int   // the last message with a tool_result for a client call, by the call's ID
}

// A message is one message for the upstream.
type message struct {
	raw     json.RawMessage // as the client sent it; nil: it is built from base, results and content
	blocks  []Block         // of raw
	base    rawjson.Object
	role    string
	results []json.RawMessage // tool results at the beginning of the content
	content []json.RawMessage
	reply   *message // a user message with the results of this message's calls, if no user message follows; nil: none
}

// A Call is one use of a server tool.
type Call struct {
	ID    string // as clients see it
	Name  string
	Input json.RawMessage
	At    int // number of its message, or thisTurn
}

// ThisTurn is used instead of a message's number for the answer of this turn.
const ThisTurn = -1

// ResultSuffix ends the type of every block that has the result of a server tool.
const ResultSuffix = "_tool_result"

// ourWords are strings of which every history with blocks of server tools has at least one.
var ourWords = []string{`"` + exectool.ToolBash + `"`, `"` + exectool.ToolEditor + `"`, `"` + exectool.ToolCode + `"`,
	`"container_upload"`}

// MayUseTools reports whether messages may have blocks of server tools. It only looks for words of theirs.
func MayUseTools(messages json.RawMessage) bool {
	return slices.ContainsFunc(ourWords, func(w string) bool { return bytes.Contains(messages, []byte(w)) })
}

// UsesTools reports whether messages have blocks of server tools. A request without the tool may continue a
// conversation that had it. Its history must then be translated.
func UsesTools(messages []Message) bool {
	h := &History{}
	for _, m := range messages {
		for _, b := range m.Blocks {
			if b.Kind == "container_upload" || b.Kind == "server_tool_use" && exectool.IsOwnTool(b.Text("name")) ||
				h.isResult(b) {
				return true
			}
		}
	}
	return false
}

// New translates the messages of a request.
func New(messages []Message, paths map[string]string) *History {
	h := &History{paths: paths, closed: map[string]int{}, where: map[string]int{}, foreign: map[string]bool{},
		hidden: map[string]bool{}, makers: map[string]int{}, ids: map[string]bool{}, asked: map[int][]string{},
		answered: map[string]int{}}
	for i, m := range messages {
		h.Survey(i, m.Blocks)
	}
	h.list = make([]message, 0, len(messages)+2)
	for i, m := range messages {
		h.addMessage(i, m)
	}
	return h
}

// Survey finds the calls that must not be translated. It runs before addMessage.
func (h *History) Survey(i int, blocks []Block) {
	for _, b := range blocks {
		switch {
		case strings.HasSuffix(b.Kind, ResultSuffix):
			content := b.Get("content")
			if strings.HasPrefix(rawjson.Text(rawjson.Member(content, "type")), "encrypted_") {
				h.foreign[b.Text("tool_use_id")] = true
			}
		case b.Kind == "server_tool_use":
			h.ids[exectool.UpstreamID(b.Text("id"))] = true
		case b.Kind == "tool_use":
			id := b.Text("id")
			h.ids[id] = true
			h.asked[i] = append(h.asked[i], id)
			if maker := makerOf(b); maker != "" {
				h.hidden[id] = true
				h.makers[maker] = i
			}
		case b.Kind == "tool_result":
			h.answered[b.Text("tool_use_id")] = i
		}
	}
}

// UniqueID returns the ID of a new call of the upstream, or another one if the ID is missing or was there before. Some
// upstreams number the calls of each answer from 0, and clients find results by the IDs of calls.
func (h *History) UniqueID(id string) string {
	if id == "" || h.ids[id] {
		id = proto.NewID(exectool.ClientPrefix)
	}
	h.ids[id] = true
	return id
}

// makerOf returns the ID of the call whose code made a call, or "" if the model made it.
func makerOf(b Block) string {
	caller := b.Get("caller")
	if !strings.HasPrefix(rawjson.Text(rawjson.Member(caller, "type")), exectool.CodeToolPrefix) {
		return ""
	}
	return rawjson.Text(rawjson.Member(caller, "tool_id"))
}

// CalledTools reports whether the code of a call has called client tools and waits for their answers. Some models use
// the same ID in each round. So code that called tools before this call belongs to another call.
func (h *History) CalledTools(c Call) bool {
	at, ok := h.makers[c.ID]
	return ok && c.At != ThisTurn && at >= c.At
}

// addMessage translates one message.
func (h *History) addMessage(i int, m Message) {
	// A user message must be merged into the last one if that was made of tool results.
	last := h.last()
	joins := m.Role == "user" && last != nil && last.role == m.Role && last.raw == nil
	if m.Blocks == nil {
		if joins {
			last.content = append(last.content, textBlock(rawjson.Text(rawjson.Member(m.Raw, "content")), nil))
			return
		}
		h.list = append(h.list, message{raw: m.Raw, role: m.Role})
		return
	}
	if !slices.ContainsFunc(m.Blocks, h.translated) && !joins {
		h.list = append(h.list, message{raw: m.Raw, role: m.Role, blocks: m.Blocks})
		return
	}
	fresh := !joins
	for _, b := range m.Blocks {
		fresh = h.AddBlock(i, m.Role, b, fresh)
	}
}

func (h *History) last() *message {
	if len(h.list) == 0 {
		return nil
	}
	return &h.list[len(h.list)-1]
}

// translated reports whether a block is sent to the upstream in another form, or not at all.
func (h *History) translated(b Block) bool {
	switch b.Kind {
	case "text":
		return false
	case "server_tool_use":
		return exectool.IsOwnTool(b.Text("name")) && (len(h.foreign) == 0 || !h.foreign[b.Text("id")])
	case "tool_use":
		return b.Get("caller") != nil
	case "tool_result":
		return len(h.hidden) > 0 && h.hidden[b.Text("tool_use_id")]
	case "container_upload":
		return true
	}
	return h.isResult(b)
}

// isResult reports whether a block is the result of a server tool.
func (h *History) isResult(b Block) bool {
	name, ok := strings.CutSuffix(b.Kind, ResultSuffix)
	return ok && exectool.IsOwnTool(name) && (len(h.foreign) == 0 || !h.foreign[b.Text("tool_use_id")])
}

// AddBlock adds a block of a message: to the last message if that has the same role, and to a new one otherwise. fresh
// means that no block of that message was added yet; addBlock returns its new value.
func (h *History) AddBlock(i int, role string, b Block, fresh bool) (still bool) {
	raw, upstreamID := b.Raw, ""
	switch {
	case !h.translated(b):
		// upstreams refuse empty texts, although they send them
		if role == "assistant" && b.Kind == "text" && isBlank(b.Get("text")) {
			return fresh
		}
	case b.Kind == "server_tool_use":
		id := b.Text("id")
		upstreamID = exectool.UpstreamID(id)
		h.open = append(h.open, Call{id, b.Text("name"), b.Get("input"), i})
		raw = rawjson.Rewrite(b.Raw, "caller", rawjson.Change{Name: "type", Value: toolUse}, rawjson.Change{Name: "id",
			Value: rawjson.Marshal(upstreamID)})
	case b.Kind == "tool_use" && h.hidden[b.Text("id")], b.Kind == "tool_result":
		return fresh
	case b.Kind == "tool_use":
		raw = rawjson.Rewrite(b.Raw, "caller")
	case b.Kind == "container_upload":
		raw = h.uploadText(b)
	default: // the result of a server tool
		id := b.Text("tool_use_id")
		h.closed[id] = len(h.open)
		h.answerCall(exectool.UpstreamID(id), toolResult(b.object()))
		return fresh
	}
	if last := h.last(); fresh || last == nil || last.role != role || last.raw != nil {
		h.list = append(h.list, newMessage(role))
	}
	last := h.last()
	last.content = append(last.content, raw)
	if upstreamID != "" {
		h.where[upstreamID] = len(h.list) - 1
	}
	return false
}

// isBlank reports whether a text in JSON has white space only.
func isBlank(raw json.RawMessage) bool {
	const blank = ` "\trnfvu0185a2` // what escapes of white space consist of, and quotes
	return len(raw) < 2 || bytes.IndexFunc(raw, func(r rune) bool {
		return !unicode.IsSpace(r) && !strings.ContainsRune(blank, r)
	}) < 0 && strings.TrimSpace(rawjson.Text(raw)) == ""
}

// Abandon adds an error as the result of a call that is not run, or whose result the client does not send.
func (h *History) Abandon(c Call) {
	id := exectool.UpstreamID(c.ID)
	h.answerCall(id, rawjson.Object{}.With("type", "tool_result").With("tool_use_id", id).With("content",
		"Error: this call was not run, or it was stopped before it had a result.").With("is_error", true).Raw())
}

// answerCall puts a tool_result where the upstream expects it: into the user message after the call. It does nothing
// if there is no such call.
func (h *History) answerCall(id string, result json.RawMessage) {
	at, ok := h.where[id]
	if !ok {
		return
	}
	m := h.messageBehind(at)
	m.open()
	if m.results == nil { // results come first, also those that the client sent
		n := slices.IndexFunc(m.content, func(raw json.RawMessage) bool { return BlockOf(raw).Kind != "tool_result" })
		if n < 0 {
			n = len(m.content)
		}
		m.results, m.content = slices.Clip(m.content[:n]), m.content[n:]
	}
	m.results = append(m.results, result)
}

// open prepares a message for changes: from then on it is built from its parts.
func (m *message) open() {
	if m.raw == nil {
		return
	}
	m.base, _ = rawjson.Known(m.raw)
	for _, b := range m.blocks {
		m.content = append(m.content, b.Raw)
	}
	if m.blocks == nil {
		m.content = []json.RawMessage{textBlock(m.base.Text("content"), nil)}
	}
	m.base = m.base.With("content", nil)
	m.raw, m.blocks = nil, nil
}

// messageBehind returns the user message after another one, and creates it if there is none. Between two assistant
// messages, the first holds it as its reply, so that the indexes of messages do not change.
func (h *History) messageBehind(at int) *message {
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

// bases are the members of messages that are built here, by role.
var bases = map[string]rawjson.Object{}

func init() {
	for _, role := range []string{"user", "assistant"} {
		bases[role] = rawjson.Object{}.With("role", role).With("content", nil)
	}
}

func newMessage(role string) message {
	base := bases[role]
	if base == nil {
		base = rawjson.Object{}.With("role", role).With("content", nil)
	}
	return message{role: role, base: base}
}

// toolUse is the type of a call as the upstream gets it.
var toolUse = json.RawMessage(`"tool_use"`)

// TakePending returns the calls that the last assistant message has deferred: it also calls tools of the client, whose
// results have come. last is the number of that message. All other calls without a result are abandoned: the client
// has stopped the answer, or the model has reached a limit, so nobody has decided that they should run.
func (h *History) TakePending(last int) (calls []Call) {
	from := last // first message with calls to run: code may have called tools over several messages
	open := h.TakeUnanswered()
	for _, c := range open {
		if at, ok := h.makers[c.ID]; ok && at == last {
			from = c.At
		}
	}
	deferred := len(h.asked[last]) > 0 && !slices.ContainsFunc(h.asked[last], func(id string) bool {
		at, ok := h.answered[id]
		return !ok || at < last
	})
	for _, c := range open {
		// code waits for its calls even if their results have not come
		if at, ok := h.makers[c.ID]; ok && at == last || deferred && (c.At == last || c.At == from) {
			calls = append(calls, c)
			continue
		}
		h.Abandon(c)
	}
	return calls
}

// TakeUnanswered returns the calls that have no result so far, and forgets them.
func (h *History) TakeUnanswered() (calls []Call) {
	for i, c := range h.open {
		if i >= h.closed[c.ID] {
			calls = append(calls, c)
		}
	}
	h.open, h.closed = nil, map[string]int{}
	return calls
}

// uploadText returns a text block that tells the model about a file in the container.
func (h *History) uploadText(o Block) json.RawMessage {
	id := o.Text("file_id")
	path := h.paths[id]
	text := "The user gave a file, " + path + " in the container ($INPUT_DIR)."
	if path == "" {
		text = "The user gave a file, " + id + ", which is not available any more."
	}
	return textBlock(text, o.Get("cache_control"))
}

// Size returns how many bytes AppendTo appends at most.
func (h *History) Size() int {
	size := 2
	for i := range h.list {
		size += h.list[i].size() + 1
		if reply := h.list[i].reply; reply != nil {
			size += reply.size() + 1
		}
	}
	return size
}

// AppendTo appends the history as JSON.
func (h *History) AppendTo(b []byte) []byte {
	b = append(b, '[')
	for i := range h.list {
		if i > 0 {
			b = append(b, ',')
		}
		b = h.list[i].appendTo(b)
		if reply := h.list[i].reply; reply != nil {
			b = reply.appendTo(append(b, ','))
		}
	}
	return append(b, ']')
}

// Raw returns the history as JSON.
func (h *History) Raw() json.RawMessage { return h.AppendTo(make([]byte, 0, h.Size())) }

func (m *message) size() int {
	if m.raw != nil {
		return len(m.raw)
	}
	size := 2
	for _, o := range m.base {
		size += len(o.Name) + len(o.Value) + 4
	}
	return size + contentOf(*m).Size()
}

func (m *message) appendTo(b []byte) []byte {
	if m.raw != nil {
		return append(b, m.raw...)
	}
	return m.base.AppendWith(b, "content", contentOf(*m))
}

// contentOf writes the content of a message that is built from its parts.
type contentOf message

// Size returns how many bytes AppendTo appends.
func (m contentOf) Size() int {
	size := 2
	for _, list := range [][]json.RawMessage{m.results, m.content} {
		for _, raw := range list {
			size += len(raw) + 1
		}
	}
	return size
}

// AppendTo appends the blocks.
func (m contentOf) AppendTo(b []byte) []byte {
	b = append(b, '[')
	begin := len(b)
	for _, list := range [][]json.RawMessage{m.results, m.content} {
		for _, raw := range list {
			if len(b) > begin {
				b = append(b, ',')
			}
			b = append(b, raw...)
		}
	}
	return append(b, ']')
}

// textBlock returns a text block with the cache_control of the block that it replaces.
func textBlock(text string, cache json.RawMessage) json.RawMessage {
	o := rawjson.Object{}.With("type", "text").With("text", text)
	if cache != nil {
		o = o.With("cache_control", cache)
	}
	return o.Raw()
}
