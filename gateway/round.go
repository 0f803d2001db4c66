package gateway

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	"berth/proto"
)

// A round is one answer of the upstream.
type round struct {
	message object // all of it but content and usage
	blocks  []json.RawMessage
	usage   json.RawMessage
	calls   []call // of the server tools, in their order
	delta   object // message_delta of one that was streamed; nil: it came whole
	mixed   bool   // the model called the client's tools too
	whole   bool   // it was read to its end
}

// stop is why the model stopped.
func (r *round) stop() string { return r.message.text("stop_reason") }

// tally notes what the blocks call. A call that has its result is one of a server tool that the upstream has itself.
// Some upstreams do not say that a model stopped to call tools.
func (r *round) tally() {
	for _, o := range blocksOf(r.said()) {
		switch name, kind := o.text("name"), o.text("type"); {
		case kind == "server_tool_use" && ownTool(name):
			r.calls = append(r.calls, call{id: o.text("id"), name: name, input: o.get("input"), turn: thisTurn})
		case kind == "tool_use":
			r.mixed = true
		case strings.HasSuffix(kind, resultSuffix):
			r.calls = slices.DeleteFunc(r.calls, func(c call) bool { return c.id == o.text("tool_use_id") })
		}
	}
	switch stop := r.stop(); {
	case (stop == "" || stop == "end_turn") && (r.mixed || len(r.calls) > 0):
		r.message = r.message.with("stop_reason", stopTools)
	case stop == "":
		r.message = r.message.with("stop_reason", "end_turn")
	}
}

// said is the round as a message.
func (r *round) said() object { return object{}.with("content", joined(r.blocks)) }

// seen is an upstream's block as clients see it: calls of the server's tools are the server's.
func (b *toolbox) seen(o object) object {
	if o.text("type") != "tool_use" || !slices.Contains(b.tools, o.text("name")) {
		return o
	}
	caller := object{}.with("type", direct)
	return o.with("type", "server_tool_use").with("id", serverID(o.text("id"))).with("caller", caller.raw())
}

// read reads an answer, and passes a stream on while it comes.
func (t *turn) read(res *http.Response) (r *round, err error) {
	if kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); kind == "text/event-stream" {
		r, err = t.readStream(res.Body)
	} else {
		r, err = t.readWhole(res.Body)
	}
	if err == nil {
		r.tally()
	}
	return r, err
}

// readWhole reads an answer that is one message.
func (t *turn) readWhole(body io.Reader) (*round, error) {
	raw, err := readAll(body)
	if err != nil {
		return nil, err
	}
	o, err := parseObject(raw)
	if err != nil {
		return nil, brokenAnswer("it is no JSON object")
	}
	blocks, err := parseArray(o.get("content"))
	if err != nil {
		return nil, brokenAnswer("it has no content")
	}
	r := &round{message: o.without("content", "usage"), usage: o.get("usage"), whole: true}
	if err := t.begin(o.with("content", json.RawMessage("[]")).with("stop_reason", nil).with("stop_sequence",
		nil)); err != nil {
		return nil, err
	}
	for _, raw := range blocks {
		b, err := parseObject(raw)
		if err != nil {
			return nil, brokenAnswer("a block of it is no object")
		}
		b = t.q.tools.seen(b)
		r.blocks = append(r.blocks, b.raw())
		if t.out != nil {
			if err := t.out.block(b.raw()); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}

func readAll(body io.Reader) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(body, maxAnswer+1))
	if err != nil {
		return nil, err
	}
	if len(raw) > maxAnswer {
		return nil, longAnswer()
	}
	return raw, nil
}

func longAnswer() error { return brokenAnswer(fmt.Sprintf("it has more than %d bytes", maxAnswer)) }

// brokenAnswer is for what an upstream should not have sent.
func brokenAnswer(why string) error {
	return proto.Errorf(proto.Internal, "", "upstream", "the upstream's answer cannot be read: %s", why)
}

// begin makes the head of the message known: it is that of the first round.
func (t *turn) begin(message object) error {
	if t.head != nil {
		return nil
	}
	// some accumulators add no null that was not there
	t.head = message.filled(t.ownHead()).filled(object{}.with("stop_details", nil).with("container", nil))
	if t.out == nil {
		return nil
	}
	return t.out.start(t.head)
}
