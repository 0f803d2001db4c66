package gateway

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
)

// A growing block is one of a stream that has not ended.
type growing struct {
	block     object
	at        int // among the round's blocks
	index     int // in the client's stream
	text      map[string]*strings.Builder
	citations []json.RawMessage
}

// A roundReader reads a streamed round.
type roundReader struct {
	t    *turn
	r    *round
	open map[string]*growing // by the upstream's index
}

// errUpstreamSaid is an error event of the upstream's.
type errUpstreamSaid struct{ body []byte }

func (errUpstreamSaid) Error() string { return "the upstream sent an error in its stream" }

// readStream reads a round event by event.
func (t *turn) readStream(body io.Reader) (*round, error) {
	in := &roundReader{t: t, r: &round{}, open: map[string]*growing{}}
	err := readEvents(body, in.take)
	switch {
	case err != nil && !errors.Is(err, errStop):
		return nil, err
	case !in.r.whole || len(in.open) > 0:
		return nil, brokenAnswer("its stream broke off")
	}
	return in.r, nil
}

// errStop ends the reading of a stream at message_stop.
var errStop = errors.New("message_stop")

// take takes the data of one event.
func (in *roundReader) take(data []byte) error {
	o, err := parseObject(data)
	if err != nil {
		return brokenAnswer("an event of it is no JSON object")
	}
	switch kind := o.text("type"); kind {
	case "message_start":
		return in.start(o)
	case "content_block_start":
		return in.begin(o)
	case "content_block_delta":
		return in.grow(o)
	case "content_block_stop":
		return in.end(o)
	case "message_delta":
		return in.change(o)
	case "message_stop":
		in.r.whole = true
		return errStop
	case "error":
		return errUpstreamSaid{data}
	case "ping":
		if in.t.out != nil {
			in.t.out.ping()
		}
		return nil
	default: // from a time after this was written
		if in.t.out == nil || o.get("index") != nil {
			return nil
		}
		return in.t.out.send(kind, data)
	}
}

func (in *roundReader) start(o object) error {
	message, err := parseObject(o.get("message"))
	if err != nil {
		return brokenAnswer("it begins with no message")
	}
	in.r.message, in.r.usage = message.without("content", "usage"), message.get("usage")
	return in.t.begin(message)
}

func (in *roundReader) begin(o object) error {
	block, err := parseObject(o.get("content_block"))
	if err != nil {
		return brokenAnswer("a block of it is no object")
	}
	g := &growing{block: in.t.q.tools.seen(block), text: map[string]*strings.Builder{}}
	g.at = len(in.r.blocks)
	in.r.blocks = append(in.r.blocks, nil)
	in.open[string(o.get("index"))] = g
	if in.t.out == nil {
		return nil
	}
	g.index, err = in.t.out.open(g.block.raw())
	return err
}

// grown are the members that deltas make longer, by the type of delta: the delta's member, and the block's.
var grown = map[string][2]string{
	"text_delta":       {"text", "text"},
	"input_json_delta": {"partial_json", "input"},
	"thinking_delta":   {"thinking", "thinking"},
	"signature_delta":  {"signature", "signature"},
}

func (in *roundReader) grow(o object) error {
	g := in.open[string(o.get("index"))]
	delta, err := parseObject(o.get("delta"))
	if g == nil || err != nil {
		return brokenAnswer("a delta of it belongs to no block")
	}
	kind := delta.text("type")
	switch member, ok := grown[kind]; {
	case ok:
		if g.text[member[1]] == nil {
			g.text[member[1]] = &strings.Builder{}
		}
		g.text[member[1]].WriteString(delta.text(member[0]))
	case kind == "citations_delta":
		g.citations = append(g.citations, delta.get("citation"))
	default: // it brings members whole, as that of a compaction does
		for _, m := range delta.without("type") {
			g.block = g.block.with(m.name, m.value)
		}
	}
	if in.t.out == nil {
		return nil
	}
	return in.t.out.delta(g.index, delta)
}

func (in *roundReader) end(o object) error {
	at := string(o.get("index"))
	g := in.open[at]
	if g == nil {
		return brokenAnswer("a block of it ends twice")
	}
	delete(in.open, at)
	in.r.blocks[g.at] = g.done().raw()
	if in.t.out == nil {
		return nil
	}
	return in.t.out.shut(g.index)
}

// done is the block as a whole.
func (g *growing) done() object {
	o := g.block
	for name, text := range g.text {
		switch input := json.RawMessage(text.String()); {
		case name != "input":
			o = o.with(name, o.text(name)+text.String())
		case json.Valid(input):
			o = o.with(name, input)
		case len(input) > 0: // it was cut off
			o = o.with(name, json.RawMessage("{}"))
		}
	}
	if len(g.citations) > 0 {
		o = o.with("citations", joined(g.citations))
	}
	return o
}

// change takes what is known at the end alone.
func (in *roundReader) change(o object) error {
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
