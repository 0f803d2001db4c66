// Package history translates the messages of a request to the form that the upstream gets. Calls of server tools
// become calls of plain tools, and their results become part of the user message that follows. It also finds the calls
// that have no result yet.
package history

import (
	"encoding/json"
	"slices"
	"strings"

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

// UsesTools reports whether messages have blocks of server tools. A request without the tool may continue a
// conversation that had it. Its history must then be translated.
func UsesTools(messages json.RawMessage) bool {
	if !slices.ContainsFunc(ourWords, func(w string) bool { return strings.Contains(string(messages), w) }) {
		return false
	}
	list, err := rawjson.ParseArray(messages)
	if err != nil {
		return false
	}
	h := &History{}
	for _, raw := range list {
		o, err := rawjson.Parse(raw)
		if err != nil {
			return false
		}
		for _, b := range Blocks(o) {
			if b.Text("type") == "container_upload" || b.Text("type") == "server_tool_use" &&
				exectool.IsOwnTool(b.Text("name")) ||
				h.isResult(b) {
				return true
			}
		}
	}
	return false
}

// New translates the messages of a request.
func New(messages []json.RawMessage, paths map[string]string) (*History, error) {
	h := &History{paths: paths, closed: map[string]int{}, where: map[string]int{}, foreign: map[string]bool{},
		hidden: map[string]bool{}, makers: map[string]int{}, ids: map[string]bool{}, asked: map[int][]string{},
		answered: map[string]int{}}
	all := make([]rawjson.Object, len(messages))
	for i, raw := range messages {
		o, err := rawjson.Parse(raw)
		if err != nil {
			return nil, proto.Invalid("messages", "messages.%d must be an object", i)
		}
		all[i] = o
		h.Survey(i, o)
	}
	for i, o := range all {
		if err := h.addMessage(i, o, messages[i]); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// Survey finds the calls that must not be translated. It runs before addMessage.
func (h *History) Survey(i int, o rawjson.Object) {
	for _, b := range Blocks(o) {
		switch kind := b.Text("type"); {
		case strings.HasSuffix(kind, ResultSuffix):
			content, err := rawjson.Parse(b.Get("content"))
			if err == nil && strings.HasPrefix(content.Text("type"), "encrypted_") {
				h.foreign[b.Text("tool_use_id")] = true
			}
		case kind == "server_tool_use":
			h.ids[exectool.UpstreamID(b.Text("id"))] = true
		case kind == "tool_use":
			h.ids[b.Text("id")] = true
			h.asked[i] = append(h.asked[i], b.Text("id"))
			if makerOf(b) != "" {
				h.hidden[b.Text("id")] = true
				h.makers[makerOf(b)] = i
			}
		case kind == "tool_result":
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
func makerOf(b rawjson.Object) string {
	caller, err := rawjson.Parse(b.Get("caller"))
	if err != nil || !strings.HasPrefix(caller.Text("type"), exectool.CodeToolPrefix) {
		return ""
	}
	return caller.Text("tool_id")
}

// CalledTools reports whether the code of a call has called client tools and waits for their answers. Some models use
// the same ID in each round. So code that called tools before this call belongs to another call.
func (h *History) CalledTools(c Call) bool {
	at, ok := h.makers[c.ID]
	return ok && c.At != ThisTurn && at >= c.At
}

// Blocks returns the blocks of a message that are objects.
func Blocks(o rawjson.Object) (list []rawjson.Object) {
	raw := o.Get("content")
	if len(raw) == 0 || raw[0] != '[' {
		return nil
	}
	blocks, err := rawjson.ParseArray(raw)
	if err != nil {
		return nil
	}
	for _, b := range blocks {
		if o, err := rawjson.Parse(b); err == nil {
			list = append(list, o)
		}
	}
	return list
}

// addMessage translates one message.
func (h *History) addMessage(i int, o rawjson.Object, raw json.RawMessage) error {
	role, content := o.Text("role"), o.Get("content")
	// A user message must be merged into the last one if that was made of tool results.
	last := h.last()
	joins := role == "user" && last != nil && last.role == role && last.raw == nil
	if len(content) == 0 || content[0] != '[' {
		if joins {
			last.content = append(last.content, textBlock(o.Text("content"), nil))
			return nil
		}
		h.list = append(h.list, message{raw: raw, base: o, role: role})
		return nil
	}
	blocks, err := rawjson.ParseArray(content)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(blocks, h.translated) && !joins {
		h.list = append(h.list, message{raw: raw, base: o, role: role, content: blocks})
		return nil
	}
	fresh := !joins
	for _, b := range blocks {
		fresh = h.AddBlock(i, role, b, fresh)
	}
	return nil
}

func (h *History) last() *message {
	if len(h.list) == 0 {
		return nil
	}
	return &h.list[len(h.list)-1]
}

// translated reports whether a block is sent to the upstream in another form, or not at all.
func (h *History) translated(raw json.RawMessage) bool {
	o, err := rawjson.Parse(raw)
	if err != nil {
		return false
	}
	switch o.Text("type") {
	case "server_tool_use":
		return exectool.IsOwnTool(o.Text("name")) && !h.foreign[o.Text("id")]
	case "tool_use":
		return o.Get("caller") != nil
	case "tool_result":
		return h.hidden[o.Text("tool_use_id")]
	case "container_upload":
		return true
	}
	return h.isResult(o)
}

// isResult reports whether a block is the result of a server tool.
func (h *History) isResult(o rawjson.Object) bool {
	name, ok := strings.CutSuffix(o.Text("type"), ResultSuffix)
	return ok && exectool.IsOwnTool(name) && !h.foreign[o.Text("tool_use_id")]
}

// AddBlock adds a block of a message: to the last message if that has the same role, and to a new one otherwise. fresh
// means that no block of that message was added yet; addBlock returns its new value.
func (h *History) AddBlock(i int, role string, raw json.RawMessage, fresh bool) (still bool) {
	o, err := rawjson.Parse(raw)
	kind := o.Text("type")
	switch {
	case err != nil || !h.translated(raw):
		// upstreams refuse empty texts, although they send them
		if role == "assistant" && kind == "text" && strings.TrimSpace(o.Text("text")) == "" {
			return fresh
		}
	case kind == "server_tool_use":
		h.open = append(h.open, Call{o.Text("id"), o.Text("name"), o.Get("input"), i})
		raw = o.Without("caller").With("type", "tool_use").With("id", exectool.UpstreamID(o.Text("id"))).Raw()
	case kind == "tool_use" && h.hidden[o.Text("id")], kind == "tool_result":
		return fresh
	case kind == "tool_use":
		raw = o.Without("caller").Raw()
	case kind == "container_upload":
		raw = h.uploadText(o)
	default: // the result of a server tool
		id := o.Text("tool_use_id")
		h.closed[id] = len(h.open)
		h.answerCall(exectool.UpstreamID(id), toolResult(o))
		return fresh
	}
	if last := h.last(); fresh || last == nil || last.role != role || last.raw != nil {
		h.list = append(h.list, newMessage(role))
	}
	last := h.last()
	last.content = append(last.content, raw)
	if kind == "server_tool_use" {
		h.where[exectool.UpstreamID(o.Text("id"))] = len(h.list) - 1
	}
	return false
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
	if m.raw != nil && m.content == nil {
		m.content = []json.RawMessage{textBlock(m.base.Text("content"), nil)}
	}
	if m.raw = nil; m.results == nil { // results come first, also those that the client sent
		n := slices.IndexFunc(m.content, func(raw json.RawMessage) bool { return KindOf(raw) != "tool_result" })
		if n < 0 {
			n = len(m.content)
		}
		m.results, m.content = slices.Clip(m.content[:n]), m.content[n:]
	}
	m.results = append(m.results, result)
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

func newMessage(role string) message {
	return message{role: role, base: rawjson.Object{}.With("role", role)}
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
func (h *History) uploadText(o rawjson.Object) json.RawMessage {
	id := o.Text("file_id")
	path := h.paths[id]
	text := "The user gave a file, " + path + " in the container ($INPUT_DIR)."
	if path == "" {
		text = "The user gave a file, " + id + ", which is not available any more."
	}
	return textBlock(text, o.Get("cache_control"))
}

// Raw returns the history as JSON.
func (h *History) Raw() json.RawMessage {
	list := make([]json.RawMessage, 0, len(h.list))
	for _, m := range h.list {
		list = append(list, m.asJSON())
		if m.reply != nil {
			list = append(list, m.reply.asJSON())
		}
	}
	return rawjson.Join(list)
}

// asJSON returns the message as JSON.
func (m message) asJSON() json.RawMessage {
	if m.raw != nil {
		return m.raw
	}
	return m.base.With("content", rawjson.Join(slices.Concat(m.results, m.content))).Raw()
}

// KindOf returns the type of a block, or "" if there is none.
func KindOf(raw json.RawMessage) string {
	o, err := rawjson.Parse(raw)
	if err != nil {
		return ""
	}
	return o.Text("type")
}

// textBlock returns a text block with the cache_control of the block that it replaces.
func textBlock(text string, cache json.RawMessage) json.RawMessage {
	o := rawjson.Object{}.With("type", "text").With("text", text)
	if cache != nil {
		o = o.With("cache_control", cache)
	}
	return o.Raw()
}
