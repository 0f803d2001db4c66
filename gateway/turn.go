package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"berth/gateway/upstream"
	"berth/proto"
)

// A turn is one request with the tool: rounds with the upstream, and what is done between them. One goroutine at a
// time goes on with it; what it has done stays done when it fails, and another request that is the same may go on
// from there.
type turn struct {
	g  *Gateway
	id string // part of the keys of its commands

	key   string      // of its request, in the ledger
	rec   *turnRecord // of an earlier daemon, to go on from; nil: there is none
	noted bool        // it is in the ledger

	q     *query
	up    *upstream.Upstream
	out   *stream // nil: the answer is one JSON body
	w     http.ResponseWriter
	began time.Time // this try of it

	ready   bool // it is prepared
	h       *history
	box     box
	keys    map[string]string   // idempotency keys of commands that an earlier turn called, by call
	answers map[string]answered // of the client, to calls that code has made
	head    object              // of the message; nil: it has not begun
	content []json.RawMessage   // of the answer so far
	usage   json.RawMessage
	todo    []call // to be run next
	rounds  int
	asked   bool   // the upstream has said something
	final   object // the answer, once it is whole
	heard   bool   // somebody was told of its container
}

// stopPause and stopTools are reasons that an answer ends before the model has.
const (
	stopPause = "pause_turn"
	stopTools = "tool_use"
)

// errAnswered says that the client has its answer: the upstream's own.
var errAnswered = errors.New("answered by the upstream")

// run goes on with the turn until there is an answer.
func (t *turn) run(ctx context.Context) error {
	for {
		if err := t.work(ctx); errors.Is(err, errHeld) {
			return t.finish(object{}, stopTools)
		} else if err != nil {
			return err
		}
		if t.rounds > 0 && t.tired() {
			return t.finish(object{}, stopPause)
		}
		r, err := t.ask(ctx)
		if err != nil {
			return err
		}
		t.rounds++
		t.take(r)
		if r.stop() != stopTools || len(r.calls) == 0 || r.mixed {
			return t.finish(r.delta, r.stop())
		}
		t.todo = r.calls
	}
}

// tired reports whether the turn should be gone on with in another request.
func (t *turn) tired() bool {
	return t.rounds >= t.g.cfg.MaxRounds || time.Since(t.began) >= t.g.cfg.MaxTurn
}

// prepare has the container there that the request needs from the beginning, and the history translated.
func (t *turn) prepare(ctx context.Context) error {
	if t.ready {
		return nil
	}
	if err := t.house(); err != nil {
		return err
	}
	if err := t.g.describe(ctx, t.q); err != nil {
		return err
	}
	if err := t.mount(ctx); err != nil {
		return err
	}
	names, err := t.furnish(ctx)
	if err != nil {
		return err
	}
	if t.h, err = newHistory(t.q.messages, names); err != nil {
		return err
	}
	if t.todo = t.h.pending(t.q.last); !t.q.tools.declared {
		for _, c := range t.todo { // nothing is run for a request without the tool
			t.h.answer(upstreamID(c.id), abandoned(upstreamID(c.id)))
		}
		t.todo = nil
	}
	for _, c := range t.todo {
		if t.answers == nil && t.h.called(c) {
			if t.answers, err = t.q.readAnswers(); err != nil {
				return err
			}
		}
	}
	t.keys = t.q.keysOf(t.todo)
	if t.ready = true; t.rec == nil {
		return nil
	}
	return t.restore(t.rec)
}

// keysOf gives calls of an earlier answer keys that are the same in every request that goes on with that answer.
func (q *query) keysOf(calls []call) map[string]string {
	keys := map[string]string{}
	if len(calls) == 0 {
		return keys
	}
	sum := sha256.New()
	for _, raw := range q.messages[:q.last+1] {
		sum.Write(raw)
	}
	for _, c := range calls {
		keys[c.id] = "gateway/" + hex.EncodeToString(sum.Sum(nil)) + "/" + c.id
	}
	return keys
}

// work runs what is to be run, each call once, and has the results.
func (t *turn) work(ctx context.Context) error {
	if len(t.todo) > 0 && t.head == nil { // the answer begins with a result
		if err := t.begin(t.ownHead()); err != nil {
			return err
		}
	}
	if len(t.todo) == 0 {
		return ctx.Err()
	}
	for len(t.todo) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		c := t.todo[0]
		if t.out != nil {
			t.out.ping()
		}
		block, err := t.do(ctx, c)
		if err != nil && block == nil {
			return err
		}
		t.todo = t.todo[1:]
		if err := t.give(block); err != nil {
			return err
		}
	}
	t.note("")
	return ctx.Err()
}

// ownHead is the head of a message that no upstream began.
func (t *turn) ownHead() object {
	return object{}.with("id", proto.NewID("msg_")).with("type", "message").with("role", "assistant").with(
		"model", t.q.model).with("content", json.RawMessage("[]")).
		with("stop_reason", nil).with("stop_sequence", nil).with("usage", noUsage)
}

// noUsage is that of an upstream that was not asked, or does not say.
var noUsage = json.RawMessage(`{"input_tokens":0,"output_tokens":0}`)

// give adds a result to the answer and to the history.
func (t *turn) give(block object) error {
	raw := block.raw()
	t.content = append(t.content, raw)
	t.h.block(thisTurn, "assistant", raw, false)
	if t.out == nil {
		return nil
	}
	return t.out.block(raw)
}

// take adds a round to the answer and to the history. A stream has it already.
func (t *turn) take(r *round) {
	fresh := true
	t.asked = true
	t.h.survey(thisTurn, r.said())
	for _, raw := range r.blocks {
		t.content = append(t.content, raw)
		fresh = t.h.block(thisTurn, "assistant", raw, fresh)
	}
	t.usage = addUsage(t.usage, r.usage)
	t.final = r.message
}

// ask has the upstream answer once.
func (t *turn) ask(ctx context.Context) (*round, error) {
	body, err := t.g.embed(ctx, t.q.Owner, t.q.upstreamBody(t.h, t.opening()))
	if err != nil {
		return nil, t.interrupted(ctx, err)
	}
	res, err := t.up.Do(ctx, upstream.Request{Path: t.q.Path, Query: t.q.Query, Header: t.q.header(), Body: body})
	if err != nil {
		return nil, t.interrupted(ctx, err)
	}
	defer res.Body.Close()
	if res.StatusCode >= 400 && !t.touched() {
		if err := relay(t.w, res); err != nil {
			return nil, err
		}
		return nil, errAnswered
	}
	if res.StatusCode >= 400 {
		return nil, answeredBy(res, t.box.ref())
	}
	if t.out == nil || !t.out.sent() {
		account(t.w, res)
	}
	r, err := t.read(res)
	if err != nil {
		return nil, t.interrupted(ctx, err)
	}
	return r, nil
}

// opening reports whether the upstream has said nothing so far, neither in this turn nor in one that it goes on with.
func (t *turn) opening() bool { return !t.asked && t.q.last < len(t.q.messages)-1 }

// touched reports whether something was done, or said to the client, that the same request again would do and say
// again.
func (t *turn) touched() bool {
	return len(t.content) > 0 || t.out != nil && t.out.sent()
}

// interrupted is the error of a round, which names the container once there is work in it.
func (t *turn) interrupted(ctx context.Context, err error) error {
	var said errUpstreamSaid
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &said):
		return saidBy(said.body, t.box.ref())
	case len(t.content) == 0:
		return err
	}
	return &Interruption{Container: t.box.ref(), Err: proto.AsError(err)}
}

// finish makes the answer whole. delta is the message_delta of its last round; nil: that came whole.
func (t *turn) finish(delta object, stop string) error {
	if t.final == nil { // no upstream was asked, or by an earlier daemon alone
		t.final = t.head.without("usage")
	}
	if empty(t.usage) {
		t.usage = noUsage
	}
	o := t.final.with("id", t.head.get("id")).with("model", t.head.get("model")).with("stop_reason", stop)
	for _, name := range []string{"stop_sequence", "stop_details"} {
		if stop == stopPause || o.get(name) == nil {
			o = o.with(name, nil)
		}
	}
	o = o.with("content", joined(t.content)).with("usage", t.usage).with("container", t.box.raw())
	t.final, t.heard = o, true
	if t.noted {
		t.note("")
	}
	return t.deliver(delta)
}

// deliver gives the client the answer, or of a stream the rest of it.
func (t *turn) deliver(delta object) error {
	if t.out == nil {
		h := t.w.Header()
		h.Set("Content-Type", "application/json")
		t.w.WriteHeader(http.StatusOK)
		_, err := t.w.Write(append(t.final.raw(), '\n'))
		return err
	}
	inner := object{}
	if d, err := parseObject(delta.get("delta")); err == nil {
		inner = d
	}
	for _, name := range []string{"stop_reason", "stop_sequence", "stop_details", "container"} {
		inner = inner.with(name, t.final.get(name))
	}
	if delta == nil {
		delta = object{}
	}
	return t.out.finish(delta.with("type", "message_delta").with("delta", inner.raw()).with(
		"usage", t.final.get("usage")))
}

// repeat tells a new client what an earlier one has had.
func (t *turn) repeat() error {
	if t.out == nil || t.head == nil {
		return nil
	}
	if err := t.out.start(t.head); err != nil {
		return err
	}
	for _, raw := range t.content {
		if err := t.out.block(raw); err != nil {
			return err
		}
	}
	return nil
}
