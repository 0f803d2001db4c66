// Package messages answers Messages requests that use the code execution tool. It translates between the dialect of
// the client and the turns of package gateway.
//
//	request       without the tool it is passed through to the upstream, and so is the answer
//	tools         the upstream gets plain tools in place of the code execution tool
//	deferred      calls that clients have got without a result
//	history       earlier calls and results, as the upstream gets them: tool_use and tool_result
//	embed         the content of stored files in place of their IDs
//	round         one answer of the upstream, in one piece or as a stream
//	conversation  the turn: it adds rounds and results to the history and to the client's answer
//	stream        a streamed answer; without one, the answer is one JSON body. Both have the same blocks
//
// Members of requests and answers that this package does not know are passed on unchanged: objects keep the order and
// the bytes of their members. The Anthropic edge calls Service.Answer.
package messages

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"

	"berth/gateway"
	"berth/gateway/messages/exectool"
	"berth/gateway/messages/history"
	"berth/gateway/messages/rawjson"
	"berth/gateway/upstream"
	"berth/proto"
)

// Config configures a Service. All fields must be set.
type Config struct {
	Turns     *gateway.Gateway
	Upstreams *upstream.Set
	Files     Files
	Check     Checker
}

// Files reads stored files.
type Files interface {
	Get(ctx context.Context, owner, id string) (proto.StoredFile, error)
	Open(ctx context.Context, owner, id string) (io.ReadSeekCloser, proto.StoredFile, error)
}

// A Checker refuses what no container of the daemon can do or be.
type Checker interface {
	// CheckTool refuses tools that code cannot call. field names the tool in the error.
	CheckTool(field string, t gateway.ClientTool) error
	CheckConfinement(proto.Confinement) error
}

// The gateway must accept as many tools as a request may have.
const _ = uint(gateway.MaxClientTools - exectool.MaxRemote)

// A Service answers Messages requests.
type Service struct {
	cfg      Config
	deferred callLog
}

// New returns a Service.
func New(cfg Config) *Service { return &Service{cfg: cfg} }

// A Request is a request as the client sent it.
type Request struct {
	Owner  string // owner of the API key
	KeyID  string // ID of the API key
	Path   string // "/v1/messages" or "/v1/messages/count_tokens"
	Query  url.Values
	Header http.Header
	Body   []byte

	// Draining is closed when the daemon is about to end. Running commands are then left to the next daemon. nil:
	// never closed.
	Draining <-chan struct{}
}

// A Told is an error that the client has already received in its stream.
type Told struct{ Err error }

func (t *Told) Error() string { return t.Err.Error() }

// Unwrap returns the error.
func (t *Told) Unwrap() error { return t.Err }

// Answer answers a request. If it fails before the answer has begun, it writes nothing. If it fails in the middle of
// a stream, it sends the event that fail makes of the error, and returns a *Told.
func (s *Service) Answer(ctx context.Context, w http.ResponseWriter, r Request, fail func(error) any) error {
	q, err := readQuery(r, s.cfg.Check)
	if err != nil {
		return err
	}
	up, err := s.cfg.Upstreams.For(q.model)
	if err != nil {
		return err
	}
	switch {
	case q.messages == nil:
		return s.passThrough(ctx, w, up, r.Owner, upstream.Request{Path: r.Path, Query: r.Query, Header: r.Header,
			Body: r.Body})
	case r.Path == upstream.PathCountTokens:
		return s.countTokens(ctx, w, up, q)
	}
	return s.answerTurn(ctx, w, up, q, fail)
}

// A query is a decoded request.
type query struct {
	Request
	body      rawjson.Object
	model     string
	stream    bool
	tools     exectool.Toolbox
	messages  []history.Message // nil: the request is passed through to the upstream
	last      int               // index of the last assistant message; -1: there is none
	container queryContainer
	files     []gateway.RequestFile // named by its container_upload blocks
}

// A queryContainer is the container member of a request.
type queryContainer struct {
	ID          string
	Confinement proto.Confinement // of a new container
	Skills      []proto.SkillRef
}

// readQuery decodes a request. It does not check what the upstream checks.
func readQuery(r Request, check Checker) (*query, error) {
	body, err := rawjson.Parse(r.Body)
	if err != nil {
		return nil, err
	}
	q := &query{Request: r, body: body, model: body.Text("model"), stream: string(body.Get("stream")) == "true",
		last: -1}
	if q.model == "" {
		return nil, proto.Invalid("model", "model: a request names the model that is to answer it")
	}
	checkTool := func(field string, tool rawjson.Object) error { return check.CheckTool(field, clientTool(tool)) }
	if q.tools, err = exectool.ReadTools(body.Get("tools"), checkTool); err != nil {
		return nil, err
	}
	if !q.tools.Declared {
		if !history.MayUseTools(body.Get("messages")) {
			return q, nil
		}
		if list, err := history.Read(body.Get("messages")); err != nil || !history.UsesTools(list) {
			return q, nil // the upstream reports the error
		}
	}
	return q, q.readMessages(check)
}

// readMessages reads the members that matter only for requests with the tool.
func (q *query) readMessages(check Checker) (err error) {
	if q.body.Has("thread") { // with this error code, SDKs send the whole history
		return &gateway.Refusal{Code: "thread_unsupported_request", Err: proto.Errorf(proto.InvalidArgument, "",
			"thread", "thread: code execution works without message threads; send the whole history")}
	}
	if q.messages, err = history.Read(q.body.Get("messages")); err != nil {
		return err
	}
	for i, m := range q.messages {
		if m.Role == "assistant" {
			q.last = i
		}
	}
	if err := q.tools.CheckChoice(q.body.Get("tool_choice")); err != nil {
		return err
	}
	if err := q.readContainer(check); err != nil {
		return err
	}
	q.files, err = q.readFiles()
	return err
}

// readContainer reads the container member of a request.
func (q *query) readContainer(check Checker) error {
	raw := q.body.Get("container")
	if !q.body.Has("container") {
		return nil
	}
	if json.Unmarshal(raw, &q.container.ID) == nil {
		if q.container.ID == "" {
			return proto.Invalid("container", "container is empty; leave it out to get a new one")
		}
		return nil
	}
	o, err := rawjson.Parse(raw)
	if err != nil {
		return proto.Invalid("container", "container must be an ID, or an object with id, skills, runtime_class "+
			"and limits")
	}
	if o.Has("id") {
		if q.container.ID = o.Text("id"); q.container.ID == "" {
			return proto.Invalid("container",
				"container.id must be the ID of a container; leave it out to get a new one")
		}
	}
	if err := q.container.readConfinement(o, check); err != nil {
		return err
	}
	if o.Has("skills") {
		if json.Unmarshal(o.Get("skills"), &q.container.Skills) != nil {
			return proto.Invalid("container",
				"container.skills must be an array of skills, each with type, skill_id and version")
		}
	}
	return nil
}

// readConfinement reads how a new container is to be confined.
func (c *queryContainer) readConfinement(o rawjson.Object, check Checker) error {
	if o.Has("runtime_class") {
		if c.Confinement.RuntimeClass = proto.RuntimeClass(o.Text("runtime_class")); c.Confinement.RuntimeClass == "" {
			return proto.Invalid("container.runtime_class", "container.runtime_class must be the name of a runtime "+
				"class; leave it out for the daemon's default")
		}
	}
	if o.Has("limits") {
		d := json.NewDecoder(bytes.NewReader(o.Get("limits")))
		d.DisallowUnknownFields()
		var err error
		if c.Confinement.Limits, err = proto.ReadLimits(d.Decode); err != nil {
			return proto.Invalid("container.limits", "container.limits must be an object with the numbers cpus, "+
				"memory_bytes, pids, disk_bytes and open_files, each of which may be left out")
		}
	}
	if c.ID != "" {
		return inContainer(c.Confinement.WithContainer())
	}
	return inContainer(check.CheckConfinement(c.Confinement))
}

// inContainer names the field of an error as a request has it, in its container member.
func inContainer(err error) error {
	if e := (*proto.Error)(nil); errors.As(err, &e) {
		named := *e
		named.Item, named.Message = "container."+e.Item, "container."+e.Message
		return &named
	}
	return err
}

// readFiles returns the files that a request names, in order. Those of its last messages are current.
func (q *query) readFiles() (list []gateway.RequestFile, err error) {
	at := map[string]int{}
	for i, m := range q.messages {
		for _, b := range m.Blocks {
			if b.Kind != "container_upload" {
				continue
			}
			id := b.Text("file_id")
			if id == "" {
				return nil, proto.Invalid("messages", "messages.%d: a container_upload block has the ID of a stored "+
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

// countTokens answers a request that counts the tokens of a turn's first round. It creates no container.
func (s *Service) countTokens(ctx context.Context, w http.ResponseWriter, up *upstream.Upstream, q *query) error {
	if q.container.ID != "" {
		if _, err := s.cfg.Turns.FindContainer(q.Owner, q.container.ID); err != nil {
			return err
		}
	}
	paths := map[string]string{}
	for _, file := range q.files {
		if f, err := s.cfg.Files.Get(ctx, q.Owner, file.ID); err == nil {
			paths[file.ID] = proto.InputDir + "/" + f.Filename
		}
	}
	h := history.New(q.messages, paths)
	skills, err := s.cfg.Turns.ResolveSkills(ctx, q.Owner, q.container.Skills)
	if err != nil {
		return err
	}
	q.tools.Describe(describeSkills(skills))
	for _, c := range h.TakePending(q.last) {
		h.Abandon(c)
	}
	res, err := s.send(ctx, up, q, h, true)
	if err != nil {
		return err
	}
	return CopyResponse(w, res)
}

// passThrough sends a request to the upstream and returns the answer to the client. It changes only references to the
// owner's stored files.
func (s *Service) passThrough(ctx context.Context, w http.ResponseWriter, up *upstream.Upstream, owner string,
	r upstream.Request) (err error) {
	if namesFiles(r.Body) {
		if r.Body, err = s.embed(ctx, owner, r.Body); err != nil {
			return err
		}
	}
	res, err := up.Do(ctx, r)
	if err != nil {
		return err
	}
	return CopyResponse(w, res)
}

// Models answers a request for the models of all upstreams, or for one of them. name is "" for all.
func (s *Service) Models(ctx context.Context, w http.ResponseWriter, r Request, name string) error {
	var res *http.Response
	var err error
	if name == "" {
		res, err = s.cfg.Upstreams.Models(ctx, r.Header, r.Query)
	} else {
		res, err = s.cfg.Upstreams.Model(ctx, r.Header, name)
	}
	if err != nil {
		return err
	}
	return CopyResponse(w, res)
}

// Batched returns a request of a message batch as the upstream gets it: with the content of stored files. It refuses
// code execution, which needs a request of its own. where names the request in the error.
func (s *Service) Batched(ctx context.Context, owner, where string, params []byte) ([]byte, error) {
	q, err := readQuery(Request{Owner: owner, Path: upstream.PathMessages, Header: http.Header{}, Body: params},
		s.cfg.Check)
	if err != nil {
		return nil, proto.Invalid(where, "%s: %s", where, proto.AsError(err).Message)
	}
	if q.messages != nil {
		return nil, proto.Invalid(where, "%s: code execution does not run in message batches; send the request to %s",
			where, upstream.PathMessages)
	}
	if !namesFiles(params) {
		return params, nil
	}
	return s.embed(ctx, owner, params)
}

// CopyResponse copies an upstream's answer to the client, each piece as it comes.
func CopyResponse(w http.ResponseWriter, res *http.Response) error {
	defer res.Body.Close()
	h := w.Header()
	for name, values := range res.Header {
		h[name] = values
	}
	w.WriteHeader(res.StatusCode)
	rc := http.NewResponseController(w)
	buf := make([]byte, 32<<10)
	for {
		n, err := res.Body.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
			if err := rc.Flush(); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// skillsDir is the directory of skills in a container.
const skillsDir = "/skills"

// describeSkills describes the container's skills to the model, or returns "" if there are none.
func describeSkills(list []gateway.Skill) string {
	if len(list) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n\nThe container has skills: directories with instructions, scripts and other files for certain " +
		"work. Before such work, read the skill's SKILL.md.\n")
	for _, s := range list {
		fmt.Fprintf(&b, "\n%s: %s", path.Join(skillsDir, s.Name, "SKILL.md"), s.Description)
	}
	return b.String()
}
