package messages

import (
	"encoding/json"
	"errors"
	"io"
	"strings"

	"berth/proto"
	"berth/proto/sse"
)

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
		return in.startMessage(o)
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

func (in *roundReader) startMessage(o object) error {
	message, err := parseObject(o.get("message"))
	if err != nil {
		return brokenAnswer("it begins with no message")
	}
	in.r.message, in.r.usage = message.without("content", "usage"), message.get("usage")
	return in.c.begin(message)
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
