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
	sent  []Message // as the client sent them
	list  []message
	paths map[string]string // of the uploaded files in the container, by file ID; a deleted file has none

	open    []Call          // calls of server tools; closed tells which of them have a result
	closed  map[string]int  // length of open when the last result came, by the ID of its call
	where   map[string]int  // index in list of the message with each call, by the upstream's ID; client's tools: -1
	foreign map[string]bool // IDs of calls whose results only another server can decrypt
	hidden  map[string]bool // IDs of calls by code, which are not sent to the upstream
	makers  map[string]int  // the last message with client calls made by a piece of code, by the ID of the code's call
}

// A message is one message for the upstream.
type message struct {
	sent    *Message // as the client sent it; nil: it was made here
	role    string
	built   bool    // its content is results and content, and not that of sent
	results []entry // tool results at the beginning of the content
	content []entry
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
	h := &History{sent: messages, paths: paths, closed: map[string]int{}, where: map[string]int{},
		foreign: map[string]bool{}, hidden: map[string]bool{}, makers: map[string]int{}}
	for i, m := range messages {
		h.Survey(i, m.Blocks)
	}
	h.list = make([]message, 0, len(messages)+2)
	for i := range messages {
		h.addMessage(i, &messages[i])
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
			h.note(exectool.UpstreamID(b.Text("id")))
		case b.Kind == "tool_use":
			id := b.Text("id")
			h.note(id)
			if maker := makerOf(b); maker != "" {
				h.hidden[id] = true
				h.makers[maker] = i
			}
		}
	}
}

// note records the ID of a call as known.
func (h *History) note(id string) {
	if _, known := h.where[id]; !known {
		h.where[id] = -1
	}
}

// UniqueID returns the ID of a new call of the upstream, or another one if the ID is missing or was there before. Some
// upstreams number the calls of each answer from 0, and clients find results by the IDs of calls.
func (h *History) UniqueID(id string) string {
	if _, known := h.where[id]; known || id == "" {
		id = proto.NewID(exectool.ClientPrefix)
	}
	h.note(id)
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
func (h *History) addMessage(i int, m *Message) {
	// A user message must be merged into the last one if that was made of tool results.
	last := h.last()
	joins := m.Role == "user" && last != nil && last.role == m.Role && last.built
	switch {
	case m.Blocks == nil && joins:
		last.content = append(last.content, asIs(textBlock(rawjson.Text(rawjson.Member(m.Raw, "content")), nil)))
	case !joins && !slices.ContainsFunc(m.Blocks, h.translated):
		h.list = append(h.list, message{sent: m, role: m.Role})
	default:
		fresh := !joins
		for _, b := range m.Blocks {
			fresh = h.AddBlock(i, m.Role, b, fresh)
		}
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
	e, upstreamID := asIs(b.Raw), ""
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
		e.form = formCall
	case b.Kind == "tool_use" && h.hidden[b.Text("id")], b.Kind == "tool_result":
		return fresh
	case b.Kind == "tool_use":
		e.form = formClientCall
	case b.Kind == "container_upload":
		e.raw = h.uploadText(b)
	default: // the result of a server tool
		id := b.Text("tool_use_id")
		h.closed[id] = len(h.open)
		h.answerCall(exectool.UpstreamID(id), entry{b.Raw, formResult})
		return fresh
	}
	if last := h.last(); fresh || last == nil || last.role != role || !last.built {
		h.list = append(h.list, message{role: role, built: true})
	}
	last := h.last()
	last.content = append(last.content, e)
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
	h.answerCall(id, asIs(rawjson.Object{}.With("type", "tool_result").With("tool_use_id", id).With("content",
		"Error: this call was not run, or it was stopped before it had a result.").With("is_error", true).Raw()))
}

// answerCall puts a tool_result where the upstream expects it: into the user message after the call. It does nothing
// if there is no such call.
func (h *History) answerCall(id string, result entry) {
	at, ok := h.where[id]
	if !ok || at < 0 {
		return
	}
	m := h.messageBehind(at)
	m.open()
	if m.results == nil { // results come first, also those that the client sent
		n := slices.IndexFunc(m.content, func(e entry) bool { return BlockOf(e.raw).Kind != "tool_result" })
		if n < 0 {
			n = len(m.content)
		}
		m.results, m.content = slices.Clip(m.content[:n]), m.content[n:]
	}
	m.results = append(m.results, result)
}

// open prepares a message for changes: from then on it is built from its parts.
func (m *message) open() {
	if m.built {
		return
	}
	m.built = true
	if m.sent.Blocks == nil {
		m.content = []entry{asIs(textBlock(rawjson.Text(rawjson.Member(m.sent.Raw, "content")), nil))}
		return
	}
	m.content = make([]entry, len(m.sent.Blocks))
	for i, b := range m.sent.Blocks {
		m.content[i] = asIs(b.Raw)
	}
}

// messageBehind returns the user message after another one, and creates it if there is none. Between two assistant
// messages, the first holds it as its reply, so that the indexes of messages do not change.
func (h *History) messageBehind(at int) *message {
	if at+1 == len(h.list) {
		h.list = append(h.list, message{role: "user", built: true})
	}
	if next := &h.list[at+1]; next.role == "user" {
		return next
	}
	m := &h.list[at]
	if m.reply == nil {
		m.reply = &message{role: "user", built: true}
	}
	return m.reply
}

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
	deferred := len(open) > 0 && h.answered(last)
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

// answered reports whether a message calls tools of the client and all those calls have a tool_result.
func (h *History) answered(last int) bool {
	if last < 0 {
		return false
	}
	var asked []string
	results := map[string]bool{}
	for i, m := range h.sent[last:] {
		for _, b := range m.Blocks {
			switch {
			case b.Kind == "tool_use" && i == 0:
				asked = append(asked, b.Text("id"))
			case b.Kind == "tool_result":
				results[b.Text("tool_use_id")] = true
			}
		}
	}
	return len(asked) > 0 && !slices.ContainsFunc(asked, func(id string) bool { return !results[id] })
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

// textBlock returns a text block with the cache_control of the block that it replaces.
func textBlock(text string, cache json.RawMessage) json.RawMessage {
	o := rawjson.Object{}.With("type", "text").With("text", text)
	if cache != nil {
		o = o.With("cache_control", cache)
	}
	return o.Raw()
}
