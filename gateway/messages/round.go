package messages

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
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

// stopReason returns why the model stopped.
func (r *round) stopReason() string { return r.message.text("stop_reason") }

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
	switch stop := r.stopReason(); {
	case (stop == "" || stop == "end_turn") && (r.mixed || len(r.calls) > 0):
		r.message = r.message.with("stop_reason", stopTools)
	case stop == "":
		r.message = r.message.with("stop_reason", "end_turn")
	}
}

// asMessage returns the round as a message.
func (r *round) asMessage() object { return object{}.with("content", joined(r.blocks)) }

// clientBlock converts an upstream's block to what the client sees: calls of plain tools become calls of server
// tools.
func (b *toolbox) clientBlock(o object) object {
	if o.text("type") != "tool_use" || !slices.Contains(b.tools, o.text("name")) {
		return o
	}
	caller := object{}.with("type", direct)
	return o.with("type", "server_tool_use").with("id", serverID(o.text("id"))).with("caller", caller.raw())
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
