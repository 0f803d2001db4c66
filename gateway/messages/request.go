package messages

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"berth/gateway"
	"berth/proto"
)

// A query is a decoded request.
type query struct {
	Request
	body      object
	model     string
	stream    bool
	tools     toolbox
	messages  []json.RawMessage // nil: the request is passed through to the upstream
	last      int               // index of the last assistant message; -1: there is none
	container queryContainer
	files     []gateway.RequestFile // named by its container_upload blocks
}

// A queryContainer is the container member of a request.
type queryContainer struct {
	ID     string
	Skills []proto.SkillRef
}

// readQuery decodes a request. It does not check what the upstream checks.
func readQuery(r Request, check ToolChecker) (*query, error) {
	body, err := parseObject(r.Body)
	if err != nil {
		return nil, err
	}
	q := &query{Request: r, body: body, model: body.text("model"), stream: string(body.get("stream")) == "true",
		last: -1}
	if q.model == "" {
		return nil, invalid("model", "model: a request names the model that is to answer it")
	}
	if q.tools, err = readTools(body.get("tools"), check); err != nil {
		return nil, err
	}
	if !q.tools.declared && !q.hasOurBlocks() {
		return q, nil
	}
	return q, q.readMessages()
}

// isPlain reports whether a request is passed through to the upstream.
func (q *query) isPlain() bool { return q.messages == nil }

// ourWords are strings of which every history with blocks of server tools has at least one.
var ourWords = []string{`"` + toolBash + `"`, `"` + toolEditor + `"`, `"` + toolCode + `"`, `"container_upload"`}

// hasOurBlocks reports whether a request without the tool continues a conversation that had it. Its history must then
// be translated.
func (q *query) hasOurBlocks() bool {
	raw := string(q.body.get("messages"))
	if !slices.ContainsFunc(ourWords, func(w string) bool { return strings.Contains(raw, w) }) {
		return false
	}
	list, err := parseArray(q.body.get("messages"))
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

// readMessages reads the members that matter only for requests with the tool.
func (q *query) readMessages() (err error) {
	if q.messages, err = parseArray(q.body.get("messages")); err != nil || len(q.messages) == 0 {
		return invalid("messages", "messages must be an array with at least one message")
	}
	for i, raw := range q.messages {
		o, err := parseObject(raw)
		if err != nil {
			return invalid("messages", "messages.%d must be an object", i)
		}
		if o.text("role") == "assistant" {
			q.last = i
		}
	}
	if q.body.has("thread") { // with this error code, SDKs send the whole history
		return &gateway.Refusal{Code: "thread_unsupported_request", Err: proto.Errorf(proto.InvalidArgument, "",
			"thread",
			"thread: code execution works without message threads; send the whole history")}
	}
	if err := q.tools.checkChoice(q.body.get("tool_choice")); err != nil {
		return err
	}
	if err := q.readContainer(); err != nil {
		return err
	}
	q.files, err = q.readFiles()
	return err
}

// readContainer reads the container member of a request.
func (q *query) readContainer() error {
	raw := q.body.get("container")
	if !q.body.has("container") {
		return nil
	}
	if json.Unmarshal(raw, &q.container.ID) == nil {
		if q.container.ID == "" {
			return invalid("container", "container is empty; leave it out to get a new one")
		}
		return nil
	}
	o, err := parseObject(raw)
	if err != nil {
		return invalid("container", "container must be an ID, or an object with id and skills")
	}
	if o.has("id") {
		if q.container.ID = o.text("id"); q.container.ID == "" {
			return invalid("container", "container.id must be the ID of a container; leave it out to get a new one")
		}
	}
	if o.has("skills") {
		if json.Unmarshal(o.get("skills"), &q.container.Skills) != nil {
			return invalid("container",
				"container.skills must be an array of skills, each with type, skill_id and version")
		}
	}
	return nil
}

// readFiles returns the files that a request names, in order. Those of its last messages are current.
func (q *query) readFiles() (list []gateway.RequestFile, err error) {
	at := map[string]int{}
	for i, raw := range q.messages {
		o, err := parseObject(raw)
		if err != nil {
			return nil, err
		}
		for _, b := range blocksOf(o) {
			if b.text("type") != "container_upload" {
				continue
			}
			id := b.text("file_id")
			if id == "" {
				return nil, invalid("messages", "messages.%d: a container_upload block has the ID of a stored "+
					"file as file_id", i)
			}
			if _, known := at[id]; !known {
				at[id], list = len(list), append(list, gateway.RequestFile{ID: id})
			}
			list[at[id]].Current = list[at[id]].Current || i > q.last
		}
	}
	return list, nil
}

// keyPrefix returns the prefix of the idempotency keys of calls that an earlier answer made. It is the same in every
// request that continues that answer.
func (q *query) keyPrefix() string {
	sum := sha256.New()
	for _, raw := range q.messages[:q.last+1] {
		sum.Write(raw)
	}
	return "gateway/" + hex.EncodeToString(sum.Sum(nil)) + "/"
}

// ourBetas are prefixes of beta values that concern the gateway and not the upstream.
var ourBetas = []string{"code-execution-", "skills-", "message-threads-"}

// upstreamHeader returns the client's headers that are sent to the upstream.
func (q *query) upstreamHeader() http.Header {
	h := q.Header.Clone()
	h.Del("Accept-Encoding") // answers must be readable here
	h.Del(liveHeader)
	h.Del(retryHeader) // each round is a different request
	h.Del("X-" + retryHeader)
	var betas []string
	for _, list := range h.Values("anthropic-beta") {
		for beta := range strings.SplitSeq(list, ",") {
			beta = strings.TrimSpace(beta)
			if beta != "" && !slices.ContainsFunc(ourBetas, func(p string) bool { return strings.HasPrefix(beta, p) }) {
				betas = append(betas, beta)
			}
		}
	}
	h.Del("anthropic-beta")
	if len(betas) > 0 {
		h.Set("anthropic-beta", strings.Join(betas, ","))
	}
	return h
}

// upstreamBody returns the request body of one round.
func (q *query) upstreamBody(h *history, first bool) []byte {
	o := q.body.without("container").with("messages", h.raw())
	if q.tools.declared {
		o = o.with("tools", joined(q.tools.upstream))
	}
	if q.tools.declared && o.has("tool_choice") {
		o = o.with("tool_choice", q.tools.upstreamChoice(o.get("tool_choice"), first))
	}
	return o.raw()
}

// invalid returns the error for a request that is wrong and would fail again.
func invalid(field, format string, args ...any) error {
	return proto.Errorf(proto.InvalidArgument, "", field, "%s", fmt.Sprintf(format, args...))
}

// readAnswers returns the client's answers to calls by code, by call ID. A request with such answers may contain
// nothing else.
func (q *query) readAnswers() (map[string]gateway.ClientAnswer, error) {
	if q.container.ID == "" {
		return nil, invalid("container", "container_id is required when there are pending tool uses generated by "+
			"code execution with tools.")
	}
	asked, err := q.clientCalls()
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, id := range asked {
		known[id] = true
	}
	all := map[string]gateway.ClientAnswer{}
	for i, raw := range q.messages[q.last+1:] {
		o, err := parseObject(raw)
		if err != nil {
			return nil, err
		}
		blocks := blocksOf(o)
		if len(blocks) == 0 {
			return nil, onlyResults(q.last + 1 + i)
		}
		for _, b := range blocks {
			text, ok := textOf(b.get("content"))
			if b.text("type") != "tool_result" || !ok {
				return nil, onlyResults(q.last + 1 + i)
			}
			id := b.text("tool_use_id")
			if !known[id] {
				return nil, invalid("messages", "messages.%d: there is no tool_use block %.80q in the message "+
					"before this tool_result", q.last+1+i, id)
			}
			all[id] = gateway.ClientAnswer{Text: text, Failed: string(b.get("is_error")) == "true"}
		}
	}
	for _, id := range asked {
		if _, ok := all[id]; !ok {
			return nil, invalid("messages", "messages.%d: the tool_use block %.80q has no tool_result; answer it, "+
				"with is_error if there is no result", q.last+1, id)
		}
	}
	return all, nil
}

// clientCalls returns the IDs of the calls in the last assistant message that the client must answer.
func (q *query) clientCalls() (ids []string, err error) {
	o, err := parseObject(q.messages[q.last])
	if err != nil {
		return nil, err
	}
	for _, b := range blocksOf(o) {
		if b.text("type") == "tool_use" {
			ids = append(ids, b.text("id"))
		}
	}
	return ids, nil
}

func onlyResults(i int) error {
	return invalid("messages", "messages.%d: while code waits for tools that it has called, a user message must hold "+
		"only tool_result blocks with text; send other content once the code has ended", i)
}

// textOf returns the content of a tool_result if that is text only.
func textOf(raw json.RawMessage) (text string, ok bool) {
	if isEmpty(raw) {
		return "", true
	}
	if json.Unmarshal(raw, &text) == nil {
		return text, true
	}
	list, err := parseArray(raw)
	if err != nil {
		return "", false
	}
	var all strings.Builder
	for _, b := range list {
		o, err := parseObject(b)
		if err != nil || o.text("type") != "text" {
			return "", false
		}
		all.WriteString(o.text("text"))
	}
	return all.String(), true
}
