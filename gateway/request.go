package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"berth/proto"
	"berth/tools/skills"
)

// A Request is what a client sent.
type Request struct {
	Owner  string // of its API key
	Path   string // "/v1/messages" or "/v1/messages/count_tokens"
	Query  url.Values
	Header http.Header
	Body   []byte

	// closed when the daemon is about to end: commands are then left to the next one. nil: never
	Draining <-chan struct{}
}

// leaving reports whether it is the daemon that goes, rather than the client.
func (r Request) leaving() bool {
	select {
	case <-r.Draining:
		return true
	default:
		return false
	}
}

// A query is a request that was read.
type query struct {
	Request
	body     object
	model    string
	stream   bool
	tools    toolbox
	messages []json.RawMessage
	last     int // number of the last assistant message; -1: there is none
	box      askedBox
}

// An askedBox is what a request says of its container.
type askedBox struct {
	ID     string
	Skills []skills.Ref
}

// readQuery reads a request. What the upstream is to judge is left to it.
func readQuery(r Request) (*query, error) {
	body, err := parseObject(r.Body)
	if err != nil {
		return nil, err
	}
	q := &query{Request: r, body: body, model: body.text("model"), stream: string(body.get("stream")) == "true",
		last: -1}
	if q.model == "" {
		return nil, invalid("model", "model: a request names the model that is to answer it")
	}
	if q.tools, err = readTools(body.get("tools")); err != nil {
		return nil, err
	}
	if !q.tools.declared && !q.speaksOfUs() {
		return q, nil
	}
	return q, q.readRest()
}

// plain reports whether a request is the upstream's alone.
func (q *query) plain() bool { return q.messages == nil }

// ourWords are in every history that has blocks of the server tools.
var ourWords = []string{`"` + toolBash + `"`, `"` + toolEditor + `"`, `"` + toolCode + `"`, `"container_upload"`}

// speaksOfUs reports whether a request without the tool goes on a conversation that had it: its history has to be
// translated.
func (q *query) speaksOfUs() bool {
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
			if b.text("type") == "container_upload" || b.text("type") == "server_tool_use" && ownTool(b.text("name")) ||
				h.isResult(b) {
				return true
			}
		}
	}
	return false
}

// readRest reads what matters with the tool alone.
func (q *query) readRest() (err error) {
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
	if q.body.has("thread") { // SDKs then send the whole history, as this code has them do
		return &Refusal{"thread_unsupported_request", proto.Errorf(proto.InvalidArgument, "", "thread",
			"thread: code execution works without message threads; send the whole history")}
	}
	if err := q.tools.checkChoice(q.body.get("tool_choice")); err != nil {
		return err
	}
	return q.readContainer()
}

// readContainer reads which container a request asks for.
func (q *query) readContainer() error {
	raw := q.body.get("container")
	if !q.body.has("container") {
		return nil
	}
	if json.Unmarshal(raw, &q.box.ID) == nil {
		if q.box.ID == "" {
			return invalid("container", "container is empty; leave it out to get a new one")
		}
		return nil
	}
	o, err := parseObject(raw)
	if err != nil {
		return invalid("container", "container must be an ID, or an object with id and skills")
	}
	if o.has("id") {
		if q.box.ID = o.text("id"); q.box.ID == "" {
			return invalid("container", "container.id must be the ID of a container; leave it out to get a new one")
		}
	}
	if o.has("skills") {
		if json.Unmarshal(o.get("skills"), &q.box.Skills) != nil {
			return invalid("container",
				"container.skills must be an array of skills, each with type, skill_id and version")
		}
	}
	return nil
}

// uploads are the IDs of the files that a request gives, in their order, and those of them that its last messages give.
func (q *query) uploads() (ids []string, now map[string]bool, err error) {
	now = map[string]bool{}
	for i, raw := range q.messages {
		o, err := parseObject(raw)
		if err != nil {
			return nil, nil, err
		}
		for _, b := range blocksOf(o) {
			if b.text("type") != "container_upload" {
				continue
			}
			id := b.text("file_id")
			if id == "" {
				return nil, nil, invalid("messages", "messages.%d: a container_upload block has the ID of a stored "+
					"file as file_id", i)
			}
			if _, known := now[id]; !known {
				ids = append(ids, id)
			}
			now[id] = now[id] || i > q.last
		}
	}
	return ids, now, nil
}

// ourBetas begin the beta values that are the gateway's to know.
var ourBetas = []string{"code-execution-", "skills-", "message-threads-"}

// header is what the upstream gets of the client's.
func (q *query) header() http.Header {
	h := q.Header.Clone()
	h.Del("Accept-Encoding") // answers are read here
	h.Del(liveHeader)
	h.Del(retryHeader) // each round is another request
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

// upstreamBody is the request of one round.
func (q *query) upstreamBody(h *history, first bool) []byte {
	o := q.body.without("container").with("messages", h.raw())
	if q.tools.declared {
		o = o.with("tools", joined(q.tools.upstream))
	}
	if q.tools.declared && o.has("tool_choice") {
		o = o.with("tool_choice", q.tools.choose(o.get("tool_choice"), first))
	}
	return o.raw()
}

// invalid is for what is wrong with a request and will stay wrong.
func invalid(field, format string, args ...any) error {
	return proto.Errorf(proto.InvalidArgument, "", field, "%s", fmt.Sprintf(format, args...))
}
