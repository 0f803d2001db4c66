package messages

import (
	"bytes"
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
	"berth/gateway/messages/exectool"
	"berth/gateway/messages/history"
	"berth/gateway/messages/rawjson"
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
	message  rawjson.Object // without content and usage
	blocks   []json.RawMessage
	usage    json.RawMessage
	calls    []history.Call // of server tools, in order
	delta    rawjson.Object // message_delta of a stream; nil: the answer was not a stream
	mixed    bool           // the model also called client tools
	complete bool           // the answer was read to its end
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

// forgo records that the calls of a stream which broke off are not to be run. The client has received parts of them.
func (in *roundReader) forgo() {
	for _, raw := range in.r.blocks {
		if b, err := rawjson.Parse(raw); err == nil && b.Text("type") == "server_tool_use" {
			in.c.s.deferred.add(in.c.q.Owner, b.Text("id"), loggedCall{})
		}
	}
	for _, b := range in.open {
		if b.block.Text("type") == "server_tool_use" {
			in.c.s.deferred.add(in.c.q.Owner, b.block.Text("id"), loggedCall{})
		}
	}
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
	o, err := rawjson.Parse(raw)
	switch {
	case err != nil && isCutOff(raw):
		return nil, cutAnswer()
	case err != nil:
		return nil, brokenAnswer("it is not a JSON object")
	case o.Text("type") == "error":
		return nil, errUpstreamFailed{raw}
	}
	blocks, err := rawjson.ParseArray(o.Get("content"))
	if err != nil {
		return nil, brokenAnswer("it has no content")
	}
	r := &round{message: o.Without("content", "usage"), usage: o.Get("usage"), complete: true}
	if err := c.begin(o.With("content", json.RawMessage("[]")).With("stop_reason", nil).With("stop_sequence",
		nil)); err != nil {
		return nil, err
	}
	for _, raw := range blocks {
		b, err := rawjson.Parse(raw)
		if err != nil {
			return nil, brokenAnswer("one of its blocks is not an object")
		}
		raw := c.clientBlock(b).Raw()
		r.blocks = append(r.blocks, raw)
		if err := c.client.stream.block(raw); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// clientBlock converts a block of the upstream to what the client sees.
func (c *conversation) clientBlock(o rawjson.Object) rawjson.Object {
	if o.Text("type") == "tool_use" {
		o = o.With("id", c.history.UniqueID(o.Text("id")))
	}
	return c.q.tools.ClientBlock(o)
}

// A roundReader reads a streamed round and forwards its events to the client.
type roundReader struct {
	c    *conversation
	r    *round
	out  *stream               // to the client
	open map[string]*openBlock // by index in the upstream's stream
}

// An openBlock is a block that has not ended.
type openBlock struct {
	block     rawjson.Object
	at        int // index among the round's blocks
	index     int // index in the client's stream
	text      map[string]*strings.Builder
	citations []json.RawMessage
}

// errUpstreamFailed is an error event that the upstream sent.
type errUpstreamFailed struct{ body []byte }

func (errUpstreamFailed) Error() string { return "the upstream sent an error in its stream" }

// readStream reads a round event by event.
func (c *conversation) readStream(body io.Reader) (r *round, err error) {
	in := &roundReader{c: c, r: &round{}, out: c.client.stream, open: map[string]*openBlock{}}
	defer func() {
		if err != nil {
			in.forgo()
		}
	}()
	events := sse.NewReader(body, sse.Options{MaxEvent: maxEvent, MaxStream: maxAnswer})
	for !in.r.complete {
		e, err := events.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil, cutAnswer()
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
		return nil, cutAnswer()
	}
	return in.r, nil
}

// readEvent handles the data of one event.
func (in *roundReader) readEvent(data []byte) error {
	o, err := rawjson.Parse(data)
	if err != nil {
		return brokenAnswer("one of its events is not a JSON object")
	}
	switch kind := o.Text("type"); kind {
	case "message_start":
		message, err := rawjson.Parse(o.Get("message"))
		if err != nil {
			return brokenAnswer("it does not begin with a message")
		}
		in.r.message, in.r.usage = message.Without("content", "usage"), message.Get("usage")
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
		in.out.ping()
	default: // an event of a later version of the dialect
		if o.Get("index") == nil {
			return in.out.send(kind, data)
		}
	}
	return nil
}

func (in *roundReader) startBlock(o rawjson.Object) error {
	block, err := rawjson.Parse(o.Get("content_block"))
	if err != nil {
		return brokenAnswer("one of its blocks is not an object")
	}
	b := &openBlock{block: in.c.clientBlock(block), text: map[string]*strings.Builder{}, at: len(in.r.blocks)}
	in.r.blocks = append(in.r.blocks, nil)
	in.open[string(o.Get("index"))] = b
	b.index, err = in.out.startBlock(b.block.Raw())
	return err
}

// extendedMembers maps the type of a delta to two members: that of the delta, and that of the block which it extends.
var extendedMembers = map[string][2]string{
	"text_delta":       {"text", "text"},
	"input_json_delta": {"partial_json", "input"},
	"thinking_delta":   {"thinking", "thinking"},
	"signature_delta":  {"signature", "signature"},
}

func (in *roundReader) extendBlock(o rawjson.Object) error {
	b := in.open[string(o.Get("index"))]
	delta, err := rawjson.Parse(o.Get("delta"))
	if b == nil || err != nil {
		return brokenAnswer("one of its deltas belongs to no block")
	}
	kind := delta.Text("type")
	switch member, ok := extendedMembers[kind]; {
	case ok:
		if b.text[member[1]] == nil {
			b.text[member[1]] = &strings.Builder{}
		}
		b.text[member[1]].WriteString(delta.Text(member[0]))
	case kind == "citations_delta":
		b.citations = append(b.citations, delta.Get("citation"))
	default: // it replaces whole members, as the delta of a compaction does
		for _, m := range delta.Without("type") {
			b.block = b.block.With(m.Name, m.Value)
		}
	}
	return in.out.delta(b.index, delta)
}

func (in *roundReader) endBlock(o rawjson.Object) error {
	index := string(o.Get("index"))
	b := in.open[index]
	if b == nil {
		return brokenAnswer("one of its blocks ends twice")
	}
	delete(in.open, index)
	in.r.blocks[b.at] = b.whole().Raw()
	return in.out.endBlock(b.index)
}

// whole returns the block with all its deltas applied.
func (b *openBlock) whole() rawjson.Object {
	o := b.block
	for name, text := range b.text {
		switch input := json.RawMessage(text.String()); {
		case name != "input":
			o = o.With(name, o.Text(name)+text.String())
		case json.Valid(input):
			o = o.With(name, input)
		case len(input) > 0: // the input was cut off
			o = o.With(name, json.RawMessage("{}"))
		}
	}
	if len(b.citations) > 0 {
		o = o.With("citations", rawjson.Join(b.citations))
	}
	return o
}

// changeMessage applies the members that a stream sends at the end of a message.
func (in *roundReader) changeMessage(o rawjson.Object) error {
	delta, err := rawjson.Parse(o.Get("delta"))
	if err != nil {
		return brokenAnswer("its message_delta has no delta")
	}
	for _, m := range append(delta, o.Without("type", "delta", "usage")...) {
		in.r.message = in.r.message.With(m.Name, m.Value)
	}
	in.r.usage = updateUsage(in.r.usage, o.Get("usage"))
	in.r.delta = o
	return nil
}

// collectCalls finds the calls of server tools among the blocks. It skips a call that already has its result: the
// upstream has run it. It also corrects the stop reason, since some upstreams do not report that a model stopped to
// call tools.
func (r *round) collectCalls() {
	for _, o := range history.BlocksOf(r.blocks) {
		switch name := o.Text("name"); {
		case o.Kind == "server_tool_use" && exectool.IsOwnTool(name):
			r.calls = append(r.calls, history.Call{ID: o.Text("id"), Name: name, Input: o.Get("input"),
				At: history.ThisTurn})
		case o.Kind == "tool_use":
			r.mixed = true
		case strings.HasSuffix(o.Kind, history.ResultSuffix):
			r.calls = slices.DeleteFunc(r.calls, func(c history.Call) bool { return c.ID == o.Text("tool_use_id") })
		}
	}
	switch stop := r.message.Text("stop_reason"); {
	case (stop == "" || stop == "end_turn") && (r.mixed || len(r.calls) > 0):
		r.message = r.message.With("stop_reason", stopTools)
	case stop == "":
		r.message = r.message.With("stop_reason", "end_turn")
	}
}

// isCutOff reports whether text is the beginning of a JSON value, without its end.
func isCutOff(text []byte) bool {
	err := json.NewDecoder(bytes.NewReader(text)).Decode(&json.RawMessage{})
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// cutAnswer returns the error for an answer of an upstream without its end. The next one may be whole.
func cutAnswer() error {
	return proto.Errorf(proto.Unavailable, "", "upstream", "The upstream broke off its answer.")
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
	o, err := rawjson.Parse(body)
	if err != nil {
		return i
	}
	if o, err = rawjson.Parse(o.Get("error")); err != nil {
		return i
	}
	i.Kind = o.Text("type")
	if m := o.Text("message"); m != "" {
		i.Err.Message = m
	}
	if details, err := rawjson.Parse(o.Get("details")); err == nil {
		i.Code = details.Text("error_code")
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
	x, errA := rawjson.Parse(a)
	y, errB := rawjson.Parse(b)
	if errA != nil || errB != nil {
		return numbers(a, b)
	}
	for _, m := range y {
		x = x.With(m.Name, fold(x.Get(m.Name), m.Value, numbers))
	}
	return x.Raw()
}

func isEmpty(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// addNumbers returns the sum, or b if one of the values is not a number.
func addNumbers(a, b json.RawMessage) json.RawMessage {
	if n, err := strconv.ParseInt(string(a), 10, 64); err == nil {
		if m, err := strconv.ParseInt(string(b), 10, 64); err == nil {
			return rawjson.Marshal(n + m)
		}
	}
	var x, y float64
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return b
	}
	return rawjson.Marshal(x + y)
}
