package messages

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"berth/gateway"
	"berth/gateway/messages/exectool"
	"berth/gateway/messages/history"
	"berth/gateway/messages/rawjson"
	"berth/gateway/upstream"
	"berth/proto"
	"berth/proto/sse"
)

// A conversation is a turn in the Messages dialect. It implements gateway.Conversation.
type conversation struct {
	s      *Service
	answer *gateway.Answer // shared with the turn

	// Of the current request.
	q      *query
	up     *upstream.Upstream
	client *client

	history *history.History // nil until Open
	asked   bool             // the upstream has answered in this turn
	last    struct {         // the last round
		message rawjson.Object // without content and usage
		delta   rawjson.Object // its message_delta; nil: the answer was not a stream
	}
}

// A client is the connection of one request.
type client struct {
	w      http.ResponseWriter
	stream *stream // nil: the answer is one JSON body
}

// Stop reasons of an answer that ends before the model has finished.
const (
	stopPause = "pause_turn"
	stopTools = "tool_use"
)

// Headers of clients that repeat a request. All requests with the same retryHeader and the same body are one turn.
// SDKs send no such header. They count in attemptHeader how many times they have sent the request before.
const (
	retryHeader   = "Idempotency-Key"
	attemptHeader = "X-Stainless-Retry-Count"
)

// liveHeader requests the output of running commands, as separate events in a streamed answer.
const liveHeader = "berth-live-output"

// answerTurn answers a request with the code execution tool.
func (s *Service) answerTurn(ctx context.Context, w http.ResponseWriter, up *upstream.Upstream, q *query,
	fail func(error) any) error {
	client := &client{w: w}
	r, err := q.turnRequest()
	if err != nil {
		return err
	}
	if q.stream {
		client.stream = &stream{w: sse.NewWriter(w)}
		r.Ping = client.stream.ping
		if q.Header.Get(liveHeader) == "1" {
			r.Output = client.stream.output
		}
	}
	err = s.cfg.Turns.Answer(ctx, r, func(earlier gateway.Conversation, a *gateway.Answer) (gateway.Conversation,
		func()) {
		c, ok := earlier.(*conversation)
		if !ok {
			c = &conversation{s: s, answer: a}
		}
		return c, c.attach(q, up, client)
	})
	var refused errUpstreamRefused
	switch {
	case errors.As(err, &refused):
		return CopyResponse(w, refused.res)
	case err == nil || ctx.Err() != nil || !client.stream.sent():
		return err
	}
	if client.stream.send("error", rawjson.Marshal(fail(err))) != nil {
		return err
	}
	return &Told{err}
}

// turnRequest returns the request in the gateway's form.
func (q *query) turnRequest() (r gateway.Request, err error) {
	key := q.Header.Get(retryHeader)
	if len(q.Header.Values(retryHeader)) > 1 || !proto.ValidRetryKey(key) {
		return r, proto.Invalid(retryHeader, "%s is one key of 1 to %d printable ASCII characters.", retryHeader,
			proto.MaxRetryKey)
	}
	attempt, err := strconv.Atoi(q.Header.Get(attemptHeader))
	if err != nil || attempt < 0 {
		attempt = 0
	}
	client := []string{q.KeyID, q.Query.Encode()}
	for _, name := range []string{"anthropic-version", "anthropic-beta"} { // what the answer depends on
		client = append(client, strings.Join(q.Header.Values(name), ","))
	}
	return gateway.Request{
		Owner: q.Owner, Key: hashRequest(q.Owner, key, q.Body), RetryKey: key,
		Client: sha256.Sum256([]byte(strings.Join(client, "\x00"))), Attempt: attempt, Size: len(q.Body),
		Container: q.container.ID, Confinement: q.container.Confinement,
		Skills: q.container.Skills, Files: q.files, Draining: q.Draining,
	}, nil
}

// hashRequest returns the hash of what identifies a turn. It does not copy the body.
func hashRequest(owner, key string, body []byte) (sum [sha256.Size]byte) {
	h := sha256.New()
	io.WriteString(h, owner+"\x00"+key+"\x00")
	h.Write(body)
	return [sha256.Size]byte(h.Sum(nil))
}

// attach connects the conversation to the client of a request. Streams are kept alive until detach.
func (c *conversation) attach(q *query, up *upstream.Upstream, cl *client) (detach func()) {
	if c.q != nil { // a repeated request: its tools are described already
		q.tools = c.q.tools
	}
	c.q, c.up, c.client = q, up, cl
	c.last.delta = nil
	stop := cl.stream.keepAlive()
	return func() {
		stop()
		c.client = nil
	}
}

// Open translates the history of the request.
func (c *conversation) Open(o gateway.Opening) (calls []gateway.Call, err error) {
	c.q.tools.Describe(describeSkills(o.Skills))
	c.history = history.New(c.q.messages, o.Paths)
	pending := slices.DeleteFunc(c.history.TakePending(c.q.last), func(p history.Call) bool {
		// a request without the tool runs nothing
		run := c.q.tools.Declared && c.s.deferred.mayRun(c.q.Owner, p)
		if !run {
			c.history.Abandon(p)
		}
		return !run
	})
	if calls, err = c.pendingCalls(pending); err != nil {
		return nil, err
	}
	if calls, err = c.restoreAnswer(calls); err != nil {
		return nil, err
	}
	if len(calls) > 0 && c.answer.Head == nil { // the answer begins with a result
		c.setHead(c.newHead())
	}
	return calls, nil
}

// pendingCalls returns calls of an earlier answer. Their keys are the same in every request that continues that
// answer.
func (c *conversation) pendingCalls(pending []history.Call) (calls []gateway.Call, err error) {
	if len(pending) == 0 {
		return nil, nil
	}
	var answers map[string]gateway.ClientAnswer
	sum := sha256.New() // the same in every request that continues that answer
	for _, m := range c.q.messages[:c.q.last+1] {
		sum.Write(m.Raw)
	}
	keyPrefix := "gateway/" + hex.EncodeToString(sum.Sum(nil)) + "/"
	for _, p := range pending {
		call := c.gatewayCall(p)
		call.Key = keyPrefix + p.ID
		if c.history.CalledTools(p) {
			if answers == nil {
				if answers, err = c.q.readAnswers(); err != nil {
					return nil, err
				}
			}
			if call.Tools != nil {
				call.Tools.Resumed, call.Tools.Answers = true, answers
			}
		}
		calls = append(calls, call)
	}
	return calls, nil
}

// gatewayCall converts a call to the gateway's form.
func (c *conversation) gatewayCall(p history.Call) gateway.Call {
	call := gateway.Call{ID: p.ID, Tool: gateway.Program, Input: p.Input}
	switch {
	case p.Name == exectool.ToolBash:
		call.Tool = gateway.Bash
	case p.Name == exectool.ToolEditor:
		call.Tool = gateway.Editor
	case c.q.tools.REPL:
		call.Tool = gateway.Python
	}
	if call.Tool == gateway.Python && (len(c.q.tools.Remote) > 0 || c.history.CalledTools(p)) {
		call.Tools = &gateway.ClientTools{NewID: func() string { return proto.NewID(exectool.ClientPrefix) }}
		for _, o := range c.q.tools.Remote {
			call.Tools.Tools = append(call.Tools.Tools, clientTool(o))
		}
	}
	return call
}

// clientTool returns a client tool in the gateway's form.
func clientTool(o rawjson.Object) gateway.ClientTool {
	return gateway.ClientTool{Name: o.Text("name"), Description: o.Text("description"),
		InputSchema: o.Get("input_schema")}
}

// restoreAnswer adds the answer of an earlier daemon to the history. It returns the calls without a result: those of
// pending, and those of that answer.
func (c *conversation) restoreAnswer(pending []gateway.Call) (calls []gateway.Call, err error) {
	if final, err := rawjson.Parse(c.answer.Final); err == nil {
		if c.answer.Content, err = rawjson.ParseArray(final.Get("content")); err != nil {
			return nil, err
		}
	}
	c.history.Survey(history.ThisTurn, history.BlocksOf(c.answer.Content))
	fresh, answered := true, map[string]bool{}
	for _, raw := range c.answer.Content {
		c.asked = c.asked || !strings.HasSuffix(history.BlockOf(raw).Kind, history.ResultSuffix)
		fresh = c.history.AddBlock(history.ThisTurn, "assistant", history.BlockOf(raw), fresh)
		if o, err := rawjson.Parse(raw); err == nil {
			answered[o.Text("tool_use_id")] = true
		}
	}
	calls = slices.DeleteFunc(pending, func(call gateway.Call) bool { return answered[call.ID] })
	for _, p := range c.history.TakeUnanswered() {
		calls = append(calls, c.gatewayCall(p))
	}
	return calls, nil
}

// errUpstreamRefused is the answer of an upstream that refuses the first round. It is passed on unchanged, once nothing
// is left of the turn.
type errUpstreamRefused struct{ res *http.Response }

func (errUpstreamRefused) Error() string { return "the upstream has refused the request" }

// Ask requests one answer from the upstream.
func (c *conversation) Ask(ctx context.Context) (gateway.Round, error) {
	// Opening: the upstream has not answered yet, neither in this turn nor in a turn that it continues.
	opening := !c.asked && c.q.last < len(c.q.messages)-1
	res, err := c.s.send(ctx, c.up, c.q, c.history, opening)
	if err != nil {
		return gateway.Round{}, err
	}
	refused := false
	defer func() {
		if !refused {
			_ = res.Body.Close()
		}
	}()
	sent := c.client.stream.sent()
	if res.StatusCode >= http.StatusBadRequest {
		if sent || len(c.answer.Content) > 0 { // a retry of the whole request would repeat work
			return gateway.Round{}, readFailure(res)
		}
		refused = true
		return gateway.Round{}, errUpstreamRefused{res}
	}
	if !sent {
		for name, values := range res.Header {
			if slices.ContainsFunc(accountHeaders, func(p string) bool { return strings.HasPrefix(name, p) }) {
				c.client.w.Header()[name] = values
			}
		}
	}
	r, err := c.readRound(res)
	var failed errUpstreamFailed
	if errors.As(err, &failed) {
		i := failureOf(failed.body)
		if !c.client.stream.sent() && len(c.answer.Content) == 0 { // as if it had refused
			return gateway.Round{}, errUpstreamRefused{upstream.Refusal(i.Kind, res.Header, failed.body)}
		}
		return gateway.Round{}, i
	}
	if err != nil {
		return gateway.Round{}, err
	}
	traceRound(res, r)
	return c.addRound(r), nil
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

// send sends the request of one round to the upstream.
func (s *Service) send(ctx context.Context, up *upstream.Upstream, q *query, h *history.History, first bool) (
	*http.Response, error) {
	r := upstream.Request{Path: q.Path, Query: q.Query, Header: q.upstreamHeader(),
		Pieces: q.upstreamBody(h, first, up.BodyName(q.model)), About: len(q.Body)}
	if namesFiles(q.Body) && r.Any(namesFiles) {
		body, err := s.embed(ctx, q.Owner, r.Whole())
		if err != nil {
			return nil, err
		}
		r.Body, r.Pieces = body, nil
	}
	return ask(ctx, up, q.model, r)
}

// upstreamBody returns the request body of one round in pieces: the history is written while it is sent.
func (q *query) upstreamBody(h *history.History, first bool, model string) iter.Seq[[]byte] {
	o := q.body.Without("container")
	if model != q.model {
		o = o.With("model", model)
	}
	if q.tools.Declared {
		o = o.With("tools", rawjson.Join(q.tools.Upstream))
	}
	if q.tools.Declared && o.Has("tool_choice") {
		o = o.With("tool_choice", q.tools.UpstreamChoice(o.Get("tool_choice"), first))
	}
	before, after := o.Around("messages")
	return func(yield func([]byte) bool) {
		if yield(before) && h.Pieces(yield) {
			yield(after)
		}
	}
}

// accountHeaders are prefixes of upstream headers that describe the client's account, or all rounds, rather than one
// round.
var accountHeaders = []string{"Anthropic-", "Retry-After", upstream.IgnoredHeader}

// addRound adds a round to the history and to the answer. A streaming client has received it already.
func (c *conversation) addRound(r *round) gateway.Round {
	c.asked = true
	c.history.Survey(history.ThisTurn, history.BlocksOf(r.blocks))
	fresh := true
	for _, raw := range r.blocks {
		c.answer.Content = append(c.answer.Content, raw)
		fresh = c.history.AddBlock(history.ThisTurn, "assistant", history.BlockOf(raw), fresh)
	}
	c.answer.Usage = addUsage(c.answer.Usage, r.usage)
	c.last.message, c.last.delta = r.message, r.delta
	if r.message.Text("stop_reason") != stopTools || len(r.calls) == 0 || r.mixed {
		for _, p := range r.calls {
			c.s.deferred.add(c.q.Owner, p.ID, loggedCall{r.message.Text("stop_reason") == stopTools, p.Input})
		}
		return gateway.Round{Done: true}
	}
	var next gateway.Round
	for _, p := range r.calls {
		next.Calls = append(next.Calls, c.gatewayCall(p))
	}
	return next
}

// Add adds the result of a call, or the client calls that its code waits for.
func (c *conversation) Add(call gateway.Call, res *gateway.Result) error {
	for _, w := range res.Waiting {
		caller := rawjson.Object{}.With("type", exectool.CallerType).With("tool_id", call.ID)
		block := rawjson.Object{}.With("type", "tool_use").With("id", w.ID).With("name", w.Tool).With(
			"input", w.Input).With(
			"caller", caller.Raw()).Raw()
		c.answer.Content = append(c.answer.Content, block)
		// a client that disconnected gets the whole answer when it repeats the request
		_ = c.client.stream.block(block)
	}
	if res.Waiting != nil {
		return nil
	}
	block := encodeResult(call, res)
	c.answer.Content = append(c.answer.Content, block)
	c.history.AddBlock(history.ThisTurn, "assistant", history.BlockOf(block), false)
	return c.client.stream.block(block)
}

// setHead sets the head of the answer from the first round's message.
func (c *conversation) setHead(message rawjson.Object) {
	// set to null, because some clients update only members that the head has
	head := message.Filled(c.newHead()).Filled(rawjson.Object{}.With("stop_details", nil).With("container", nil))
	c.answer.Head = head.Raw()
}

// begin sets the head of the answer, if there is none, and sends it to the client.
func (c *conversation) begin(message rawjson.Object) error {
	if c.answer.Head != nil {
		return nil
	}
	c.setHead(message)
	return c.client.stream.start(c.answer.Head)
}

// newHead returns the head of a message that does not begin with an upstream's answer.
func (c *conversation) newHead() rawjson.Object {
	return rawjson.Object{}.With("id", proto.NewID("msg_")).With("type", "message").With("role", "assistant").With(
		"model", c.q.model).With("content", json.RawMessage("[]")).
		With("stop_reason", nil).With("stop_sequence", nil).With("usage", noUsage)
}

// noUsage is the usage if no upstream was asked, or if the upstream reports none.
var noUsage = json.RawMessage(`{"input_tokens":0,"output_tokens":0}`)

// Finish completes the answer.
func (c *conversation) Finish(e gateway.Ending) {
	head, _ := rawjson.Parse(c.answer.Head) // cannot fail: the head was made here
	stop := c.last.message.Text("stop_reason")
	switch e.Reason {
	case gateway.Paused:
		stop, c.last.delta = stopPause, nil
	case gateway.ClientCalled:
		stop, c.last.delta = stopTools, nil
	}
	o := c.last.message
	if o == nil { // no upstream was asked in this process
		o = head.Without("usage")
	}
	if isEmpty(c.answer.Usage) {
		c.answer.Usage = noUsage
	}
	container := json.RawMessage("null")
	if e.Container != nil {
		container = rawjson.Object{}.With("id", e.Container.ID).With("expires_at", e.Container.ExpiresAt).
			With("skills", e.Skills).Raw()
	}
	o = o.With("id", head.Get("id")).With("model", head.Get("model")).With("stop_reason", stop)
	for _, name := range []string{"stop_sequence", "stop_details"} {
		if stop == stopPause || o.Get(name) == nil {
			o = o.With(name, nil)
		}
	}
	c.answer.Final = o.With("content", rawjson.Join(c.answer.Content)).With("usage", c.answer.Usage).
		With("container", container).Raw()
}

// bodyEnd is the end of an answer in one JSON body.
const bodyEnd = "}\n"

// Deliver sends the client the parts of the answer that it has not received, without the end. It sends an answer in
// one JSON body only when that is complete.
func (c *conversation) Deliver() error {
	out := c.client.stream
	if out == nil {
		if c.answer.Final == nil {
			return nil
		}
		body := bytes.TrimSuffix(c.answer.Final, []byte("}"))
		h := c.client.w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Content-Length", strconv.Itoa(len(body)+len(bodyEnd)))
		c.client.w.WriteHeader(http.StatusOK)
		return c.client.write(body)
	}
	if c.answer.Head != nil && !out.started() {
		if err := out.start(c.answer.Head); err != nil {
			return err
		}
		for _, raw := range c.answer.Content {
			if err := out.block(raw); err != nil {
				return err
			}
		}
	}
	return nil
}

// write sends a part of an answer in one JSON body.
func (c *client) write(part []byte) error {
	if _, err := c.w.Write(part); err != nil {
		return fmt.Errorf("%w: %w", gateway.ErrClientGone, err)
	}
	return nil
}

// End sends the end of the answer. The message_delta of a stream is that of the last round, with the members that the
// turn has changed.
func (c *conversation) End() error {
	if c.client.stream == nil {
		if err := c.client.write([]byte(bodyEnd)); err != nil {
			return err
		}
		if err := http.NewResponseController(c.client.w).Flush(); err != nil {
			return fmt.Errorf("%w: %w", gateway.ErrClientGone, err)
		}
		return nil
	}
	final, err := rawjson.Parse(c.answer.Final)
	if err != nil {
		return err
	}
	inner, err := rawjson.Parse(c.last.delta.Get("delta"))
	if err != nil {
		inner = rawjson.Object{}
	}
	for _, name := range []string{"stop_reason", "stop_sequence", "stop_details", "container"} {
		inner = inner.With(name, final.Get(name))
	}
	return c.client.stream.finish(c.last.delta.With("type", "message_delta").With("delta", inner.Raw()).With("usage",
		final.Get("usage")))
}
