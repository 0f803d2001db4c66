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

// maxEvent is the maximum size of one event, in bytes.
const maxEvent = 16 << 20

// newReader returns a reader for events of chat completions.
func newReader(r io.Reader) *sse.Reader {
	return sse.NewReader(r, sse.Options{MaxEvent: maxEvent, Lenient: true})
}

// A translation reads a stream of chat completions and returns a Messages stream. It forwards text and thoughts as
// they come. It buffers tool calls until the answer ends, for two reasons: their pieces may be interleaved, and
// arguments that turn out to be invalid JSON could not be taken back.
type translation struct {
	upstream string
	src      *sse.Reader
	closer   io.Closer
	stops    []string

	out       events
	err       error // Read returns it once out is empty
	msg       message
	started   bool
	calls     calls
	end       ending
	lastWrite time.Time // when the client last received something
}

func newTranslation(upstream, model string, stops []string) *translation {
	return &translation{upstream: upstream, msg: newMessage(model), stops: stops}
}

// Read returns a *proto.Error if the upstream's answer breaks off.
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

// Close closes the upstream's answer.
func (t *translation) Close() error { return t.closer.Close() }

// readEvent reads and handles one event.
func (t *translation) readEvent() {
	event, err := t.src.Next()
	data := event.Data
	switch {
	case err != nil && t.end.finish != "": // only the usage is missing, which not all servers send
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

// readChunk handles the data of one event.
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

// quiet is how long a client receives nothing before it gets a ping, while only pieces of calls come.
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

// finish writes the buffered calls and ends the message.
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

// fail ends the stream with an error event. The answer has begun, so its status cannot change.
func (t *translation) fail(f fault) {
	t.start()
	t.out.fault(f)
	t.err = io.EOF
}

// streamFault decodes an error that comes in the place of a chunk.
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

// statusIn returns the status in a stream's error, or 500 if the error has none.
func statusIn(e map[string]json.RawMessage) int {
	var outer, inner struct{ Code json.Number }
	_ = json.Unmarshal(e["error"], &inner) // an unreadable code is ignored
	_ = json.Unmarshal(e["code"], &outer.Code)
	for _, code := range []json.Number{inner.Code, outer.Code} {
		if n, err := code.Int64(); err == nil && n >= 400 && n < 600 {
			return int(n)
		}
	}
	return http.StatusInternalServerError
}
