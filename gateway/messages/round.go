package messages

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"berth/gateway"
	"berth/proto"
	"berth/proto/sse"
)

// Limits for an event and for an answer of an upstream, in bytes.
const (
	maxEvent  = 32 << 20
	maxAnswer = 64 << 20
)

// A round is one answer of the upstream.
type round struct {
	message  object // without content and usage
	blocks   []json.RawMessage
	usage    json.RawMessage
	calls    []call // of server tools, in order
	delta    object // message_delta of a stream; nil: the answer was not a stream
	mixed    bool   // the model also called client tools
	complete bool   // the answer was read to its end
}

// readRound reads an answer. It forwards a stream to the client while it comes.
func (c *conversation) readRound(res *http.Response) (r *round, err error) {
	if kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); kind == sse.ContentType {
		r, err = c.readStream(res.Body)
	} else {
		r, err = c.readMessage(res.Body)
	}
	if err == nil {
		r.collectCalls()
	}
	return r, err
}

// readMessage reads an answer that is one JSON message.
func (c *conversation) readMessage(body io.Reader) (*round, error) {
	raw, err := io.ReadAll(io.LimitReader(body, maxAnswer+1))
	if err != nil {
		return nil, err
	}
	if len(raw) > maxAnswer {
		return nil, longAnswer()
	}
	o, err := parseObject(raw)
	if err != nil {
		return nil, brokenAnswer("it is no JSON object")
	}
	blocks, err := parseArray(o.get("content"))
	if err != nil {
		return nil, brokenAnswer("it has no content")
	}
	r := &round{message: o.without("content", "usage"), usage: o.get("usage"), complete: true}
	if err := c.begin(o.with("content", json.RawMessage("[]")).with("stop_reason", nil).with("stop_sequence",
		nil)); err != nil {
		return nil, err
	}
	for _, raw := range blocks {
		b, err := parseObject(raw)
		if err != nil {
			return nil, brokenAnswer("a block of it is no object")
		}
		raw := c.q.tools.clientBlock(b).raw()
		r.blocks = append(r.blocks, raw)
		if c.client.stream != nil {
			if err := c.client.stream.block(raw); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}

// A roundReader reads a streamed round and forwards its events to the client.
type roundReader struct {
	c    *conversation
	r    *round
	out  *stream               // to the client; nil: the answer is one JSON body
	open map[string]*openBlock // by index in the upstream's stream
}

// An openBlock is a block that has not ended.
type openBlock struct {
	block     object
	at        int // index among the round's blocks
	index     int // index in the client's stream
	text      map[string]*strings.Builder
	citations []json.RawMessage
}

// errUpstreamFailed is an error event that the upstream sent.
type errUpstreamFailed struct{ body []byte }

func (errUpstreamFailed) Error() string { return "the upstream sent an error in its stream" }

// readStream reads a round event by event.
func (c *conversation) readStream(body io.Reader) (*round, error) {
	in := &roundReader{c: c, r: &round{}, out: c.client.stream, open: map[string]*openBlock{}}
	events := sse.NewReader(body, sse.Options{MaxEvent: maxEvent, MaxStream: maxAnswer})
	for !in.r.complete {
		e, err := events.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil, brokenAnswer("its stream broke off")
		case errors.Is(err, sse.ErrStreamTooLong):
			return nil, longAnswer()
		case errors.Is(err, sse.ErrEventTooLong):
			return nil, proto.Errorf(proto.Internal, "", "", "the upstream sent more than %d bytes at once", maxEvent)
		case err != nil:
			return nil, err
		}
		if err := in.readEvent(e.Data); err != nil {
			return nil, err
		}
	}
	if len(in.open) > 0 {
		return nil, brokenAnswer("its stream broke off")
	}
	return in.r, nil
}

// readEvent handles the data of one event.
func (in *roundReader) readEvent(data []byte) error {
	o, err := parseObject(data)
	if err != nil {
		return brokenAnswer("an event of it is no JSON object")
	}
	switch kind := o.text("type"); kind {
	case "message_start":
		message, err := parseObject(o.get("message"))
		if err != nil {
			return brokenAnswer("it begins with no message")
		}
		in.r.message, in.r.usage = message.without("content", "usage"), message.get("usage")
		return in.c.begin(message)
	case "content_block_start":
		return in.startBlock(o)
	case "content_block_delta":
		return in.extendBlock(o)
	case "content_block_stop":
		return in.endBlock(o)
	case "message_delta":
		return in.changeMessage(o)
	case "message_stop":
		in.r.complete = true
	case "error":
		return errUpstreamFailed{data}
	case "ping":
		if in.out != nil {
			in.out.ping()
		}
	default: // an event of a later version of the dialect
		if in.out != nil && o.get("index") == nil {
			return in.out.send(kind, data)
		}
	}
	return nil
}

func (in *roundReader) startBlock(o object) error {
	block, err := parseObject(o.get("content_block"))
	if err != nil {
		return brokenAnswer("a block of it is no object")
	}
	b := &openBlock{block: in.c.q.tools.clientBlock(block), text: map[string]*strings.Builder{}, at: len(in.r.blocks)}
	in.r.blocks = append(in.r.blocks, nil)
	in.open[string(o.get("index"))] = b
	if in.out == nil {
		return nil
	}
	b.index, err = in.out.startBlock(b.block.raw())
	return err
}

// extendedMembers maps the type of a delta to two members: that of the delta, and that of the block which it extends.
var extendedMembers = map[string][2]string{
	"text_delta":       {"text", "text"},
	"input_json_delta": {"partial_json", "input"},
	"thinking_delta":   {"thinking", "thinking"},
	"signature_delta":  {"signature", "signature"},
}

func (in *roundReader) extendBlock(o object) error {
	b := in.open[string(o.get("index"))]
	delta, err := parseObject(o.get("delta"))
	if b == nil || err != nil {
		return brokenAnswer("a delta of it belongs to no block")
	}
	kind := delta.text("type")
	switch member, ok := extendedMembers[kind]; {
	case ok:
		if b.text[member[1]] == nil {
			b.text[member[1]] = &strings.Builder{}
		}
		b.text[member[1]].WriteString(delta.text(member[0]))
	case kind == "citations_delta":
		b.citations = append(b.citations, delta.get("citation"))
	default: // it replaces whole members, as the delta of a compaction does
		for _, m := range delta.without("type") {
			b.block = b.block.with(m.name, m.value)
		}
	}
	if in.out == nil {
		return nil
	}
	return in.out.delta(b.index, delta)
}

func (in *roundReader) endBlock(o object) error {
	index := string(o.get("index"))
	b := in.open[index]
	if b == nil {
		return brokenAnswer("a block of it ends twice")
	}
	delete(in.open, index)
	in.r.blocks[b.at] = b.whole().raw()
	if in.out == nil {
		return nil
	}
	return in.out.endBlock(b.index)
}

// whole returns the block with all its deltas applied.
func (b *openBlock) whole() object {
	o := b.block
	for name, text := range b.text {
		switch input := json.RawMessage(text.String()); {
		case name != "input":
			o = o.with(name, o.text(name)+text.String())
		case json.Valid(input):
			o = o.with(name, input)
		case len(input) > 0: // the input was cut off
			o = o.with(name, json.RawMessage("{}"))
		}
	}
	if len(b.citations) > 0 {
		o = o.with("citations", joined(b.citations))
	}
	return o
}

// changeMessage applies the members that a stream sends at the end of a message.
func (in *roundReader) changeMessage(o object) error {
	delta, err := parseObject(o.get("delta"))
	if err != nil {
		return brokenAnswer("its message_delta has no delta")
	}
	for _, m := range append(delta, o.without("type", "delta", "usage")...) {
		in.r.message = in.r.message.with(m.name, m.value)
	}
	in.r.usage = updateUsage(in.r.usage, o.get("usage"))
	in.r.delta = o
	return nil
}

// asMessage returns the round as a message.
func (r *round) asMessage() object { return object{}.with("content", joined(r.blocks)) }

// collectCalls finds the calls of server tools among the blocks. It skips a call that already has its result: the
// upstream has run it. It also corrects the stop reason, since some upstreams do not report that a model stopped to
// call tools.
func (r *round) collectCalls() {
	for _, o := range blocksOf(r.asMessage()) {
		switch name, kind := o.text("name"), o.text("type"); {
		case kind == "server_tool_use" && isOwnTool(name):
			r.calls = append(r.calls, call{id: o.text("id"), name: name, input: o.get("input"), at: thisTurn})
		case kind == "tool_use":
			r.mixed = true
		case strings.HasSuffix(kind, resultSuffix):
			r.calls = slices.DeleteFunc(r.calls, func(c call) bool { return c.id == o.text("tool_use_id") })
		}
	}
	switch stop := r.message.text("stop_reason"); {
	case (stop == "" || stop == "end_turn") && (r.mixed || len(r.calls) > 0):
		r.message = r.message.with("stop_reason", stopTools)
	case stop == "":
		r.message = r.message.with("stop_reason", "end_turn")
	}
}

func longAnswer() error { return brokenAnswer(fmt.Sprintf("it has more than %d bytes", maxAnswer)) }

// brokenAnswer returns the error for an invalid answer of an upstream.
func brokenAnswer(why string) error {
	return proto.Errorf(proto.Internal, "", "upstream", "the upstream's answer cannot be read: %s", why)
}

// maxFailure is how many bytes of an upstream's error body are read.
const maxFailure = 1 << 20

// readFailure reads an error answer of an upstream.
func readFailure(res *http.Response) *gateway.Interruption {
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxFailure)) // an incomplete body just has no text
	i := failureOf(body)
	i.Status = res.StatusCode
	return i
}

// failureOf decodes the body of an upstream's error.
func failureOf(body []byte) *gateway.Interruption {
	i := &gateway.Interruption{Err: proto.Errorf(proto.Internal, "", "upstream",
		"the upstream failed in the middle of the turn")}
	o, err := parseObject(body)
	if err != nil {
		return i
	}
	if o, err = parseObject(o.get("error")); err != nil {
		return i
	}
	i.Kind = o.text("type")
	if m := o.text("message"); m != "" {
		i.Err.Message = m
	}
	if details, err := parseObject(o.get("details")); err == nil {
		i.Code = details.text("error_code")
	}
	return i
}

// addUsage sums the usage of two rounds. It adds numbers, sums objects member by member, and takes other values from
// b.
func addUsage(a, b json.RawMessage) json.RawMessage { return fold(a, b, addNumbers) }

// updateUsage merges two usage reports of one streamed round. The later value of a member wins if it is not null.
func updateUsage(a, b json.RawMessage) json.RawMessage {
	return fold(a, b, func(_, b json.RawMessage) json.RawMessage { return b })
}

func fold(a, b json.RawMessage, numbers func(a, b json.RawMessage) json.RawMessage) json.RawMessage {
	switch {
	case isEmpty(a):
		return b
	case isEmpty(b):
		return a
	}
	x, errA := parseObject(a)
	y, errB := parseObject(b)
	if errA != nil || errB != nil {
		return numbers(a, b)
	}
	for _, m := range y {
		x = x.with(m.name, fold(x.get(m.name), m.value, numbers))
	}
	return x.raw()
}

func isEmpty(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// addNumbers returns the sum, or b if one of the values is not a number.
func addNumbers(a, b json.RawMessage) json.RawMessage {
	if n, err := strconv.ParseInt(string(a), 10, 64); err == nil {
		if m, err := strconv.ParseInt(string(b), 10, 64); err == nil {
			return mustJSON(n + m)
		}
	}
	var x, y float64
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return b
	}
	return mustJSON(x + y)
}
