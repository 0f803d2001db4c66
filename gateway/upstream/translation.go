package upstream

import (
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"berth/proto/sse"

	"github.com/openai/openai-go/v3"
)

// maxEvent is the limit for one event, in bytes.
const maxEvent = 16 << 20

// newReader reads the events of chat completions.
func newReader(r io.Reader) *sse.Reader {
	return sse.NewReader(r, sse.Options{MaxEvent: maxEvent, Lenient: true})
}

// A translation reads an answer that is a stream of chat completions, and is read as one of Messages. Text and
// thoughts pass as they come; calls are gathered and come whole at the end, since their pieces may be mixed, and
// because one that turns out to be no JSON could not be taken back.
type translation struct {
	upstream string
	src      *sse.Reader
	closer   io.Closer
	stops    []string

	out       events
	err       error // of the reads after out is empty
	msg       message
	started   bool
	calls     calls
	end       ending
	lastWrite time.Time // when the client last heard something
}

func newTranslation(upstream, model string, stops []string) *translation {
	return &translation{upstream: upstream, msg: newMessage(model), stops: stops}
}

// Read fails with a *proto.Error where the upstream's answer breaks off.
func (t *translation) Read(p []byte) (int, error) {
	for t.out.Len() == 0 {
		if t.err != nil {
			return 0, t.err
		}
		t.readEvent()
	}
	t.lastWrite = time.Now()
	return t.out.Read(p)
}

// Close ends the upstream's answer.
func (t *translation) Close() error { return t.closer.Close() }

// readEvent takes in one event.
func (t *translation) readEvent() {
	event, err := t.src.Next()
	data := event.Data
	switch {
	case err != nil && t.end.finish != "": // the rest would have been usage, which not all servers send
		t.finish()
	case err == io.EOF:
		t.fail(newFault(http.StatusBadGateway, "The upstream %s ended its answer in the middle.", t.upstream))
	case err == sse.ErrEventTooLong:
		t.fail(newFault(http.StatusBadGateway, "The upstream %s sent an event that is longer than %d bytes.",
			t.upstream, maxEvent))
	case err != nil:
		t.err = err
	case string(data) == "[DONE]":
		t.finish()
	default:
		t.readChunk(data)
	}
}

// readChunk takes in a chunk.
func (t *translation) readChunk(data []byte) {
	if f, ok := streamFault(data); ok {
		t.fail(f)
		return
	}
	var c openai.ChatCompletionChunk
	if err := json.Unmarshal(data, &c); err != nil {
		t.fail(newFault(http.StatusBadGateway, "The upstream %s sent an event that is no JSON: %s", t.upstream,
			plain(data)))
		return
	}
	if c.JSON.Usage.Valid() {
		t.msg.Usage = decodeUsage(c.Usage)
	}
	t.start()
	for _, choice := range c.Choices {
		if choice.Index == 0 && t.err == nil {
			t.readChoice(choice)
		}
	}
}

func (t *translation) start() {
	if !t.started {
		t.started = true
		t.out.start(t.msg)
	}
}

// quiet is after how long a client is told that the answer goes on, while only calls come.
const quiet = 5 * time.Second

func (t *translation) readChoice(c openai.ChatCompletionChunkChoice) {
	if text := decodeThoughts(c.Delta.JSON.ExtraFields); text != "" {
		t.out.thinking(text)
	}
	if text := decodeText(c.Delta.JSON.Content); text != "" {
		t.out.text(text)
	}
	if c.Delta.Refusal != "" {
		t.end.refused = true
		t.out.text(c.Delta.Refusal)
	}
	for _, d := range c.Delta.ToolCalls {
		if err := t.calls.add(d); err != nil {
			t.fail(newFault(http.StatusBadGateway, "The upstream %s %v.", t.upstream, err))
			return
		}
	}
	if t.out.Len() == 0 && time.Since(t.lastWrite) > quiet {
		t.out.ping()
	}
	t.end.finish = cmp.Or(c.FinishReason, t.end.finish)
	t.end.stopped = cmp.Or(decodeStop(c.JSON.ExtraFields, t.stops), t.end.stopped)
}

// finish writes all that was kept until the end.
func (t *translation) finish() {
	uses, err := t.calls.blocks()
	if err != nil {
		t.fail(newFault(http.StatusBadGateway, "The upstream %s %v.", t.upstream, err))
		return
	}
	t.start()
	for _, b := range uses {
		t.out.toolUse(b)
	}
	t.end.calls = len(uses) > 0
	t.end.setStop(&t.msg)
	t.out.end(t.msg)
	t.err = io.EOF
}

// fail ends the stream with an error event: the answer has begun, so it cannot have another status.
func (t *translation) fail(f fault) {
	t.start()
	t.out.fault(f)
	t.err = io.EOF
}

// streamFault reads an error that comes as a chunk.
func streamFault(data []byte) (fault, bool) {
	var e map[string]json.RawMessage
	if json.Unmarshal(data, &e) != nil || e["choices"] != nil {
		return fault{}, false
	}
	if e["error"] == nil && string(e["object"]) != `"error"` && (e["message"] == nil || e["code"] == nil) {
		return fault{}, false
	}
	message := chatMessage(e)
	return newFault(statusIn(e), "%s", cmp.Or(message, "the upstream ended its answer with an error")), true
}

// statusIn is the status that an error in a stream carries, if it does.
func statusIn(e map[string]json.RawMessage) int {
	var outer, inner struct{ Code json.Number }
	_ = json.Unmarshal(e["error"], &inner) // what cannot be read says nothing
	_ = json.Unmarshal(e["code"], &outer.Code)
	for _, code := range []json.Number{inner.Code, outer.Code} {
		if n, err := code.Int64(); err == nil && n >= 400 && n < 600 {
			return int(n)
		}
	}
	return http.StatusInternalServerError
}
