package chat

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"time"

	"berth/gateway/upstream/answer"
	"berth/proto/sse"

	"github.com/openai/openai-go/v3"
)

// maxAnswer is the maximum size in bytes of an answer that comes in one piece. maxEvent is that of one event.
const (
	maxAnswer = 64 << 20
	maxEvent  = 16 << 20
)

// Translate converts the answer of a chat completions upstream to the answer of the request. upstream is its name in
// messages. If the client wants a stream and the answer comes in one piece, translate makes a stream: some servers
// cannot stream tool calls.
func (r *Request) Translate(upstream string, res *http.Response) (*http.Response, error) {
	if kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); r.Stream && kind == sse.ContentType {
		res.Body = &translation{upstream: upstream, msg: answer.NewMessage(r.Model), asked: r, closer: res.Body,
			src: sse.NewReader(res.Body, sse.Options{MaxEvent: maxEvent, Lenient: true})}
		res.ContentLength = -1
		return res, nil
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	_ = res.Body.Close()
	if err != nil {
		return nil, err
	}
	msg, err := r.readCompletion(text)
	if err != nil {
		return answer.NewFault(http.StatusBadGateway, "The upstream %s %v.", upstream, err).Response(
			http.StatusBadGateway), nil
	}
	if !r.Stream {
		return answer.JSONResponse(http.StatusOK, res.Header, msg.JSON()), nil
	}
	out := &answer.Events{}
	out.Message(msg)
	res.Header.Set("Content-Type", sse.ContentType)
	res.Body, res.ContentLength = io.NopCloser(out), -1
	return res, nil
}

// readCompletion decodes and checks an answer that comes in one piece.
func (r *Request) readCompletion(text []byte) (answer.Message, error) {
	if len(text) > maxAnswer {
		return answer.Message{}, errors.New("gave an answer of more than 64 MiB")
	}
	var c openai.ChatCompletion
	if err := json.Unmarshal(text, &c); err != nil {
		return answer.Message{}, errors.New("gave an answer that is no JSON: " + answer.OneLine(text))
	}
	if len(c.Choices) == 0 {
		return answer.Message{}, errors.New("gave an answer without choices: " + answer.OneLine(text))
	}
	return r.decode(c)
}

// A translation reads a stream of chat completions and returns a Messages stream. It forwards text and thoughts as
// they come. It buffers tool calls until the answer ends, for two reasons: their pieces may be interleaved, and
// arguments that turn out to be invalid JSON could not be taken back.
type translation struct {
	upstream string
	src      *sse.Reader
	closer   io.Closer
	asked    *Request

	out       answer.Events
	err       error // Read returns it once out is empty
	msg       answer.Message
	started   bool
	calls     calls
	end       ending
	lastWrite time.Time // when the client last received something
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
		t.fail(answer.NewFault(http.StatusBadGateway, "The upstream %s ended its answer in the middle.", t.upstream))
	case err == sse.ErrEventTooLong:
		t.fail(answer.NewFault(http.StatusBadGateway, "The upstream %s sent an event that is longer than %d bytes.",
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
		t.fail(answer.NewFault(http.StatusBadGateway, "The upstream %s sent an event that is no JSON: %s", t.upstream,
			answer.OneLine(data)))
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
		t.out.Start(t.msg)
	}
}

// quiet is how long a client receives nothing before it gets a ping, while only pieces of calls come.
const quiet = 5 * time.Second

func (t *translation) readChoice(c openai.ChatCompletionChunkChoice) {
	if text := decodeThoughts(c.Delta.JSON.ExtraFields); text != "" {
		t.out.Thinking(text)
	}
	if text := decodeText(c.Delta.JSON.Content); text != "" {
		t.out.Text(text)
	}
	if c.Delta.Refusal != "" {
		t.end.refused = true
		t.out.Text(c.Delta.Refusal)
	}
	for _, d := range c.Delta.ToolCalls {
		if err := t.calls.add(d); err != nil {
			t.fail(answer.NewFault(http.StatusBadGateway, "The upstream %s %v.", t.upstream, err))
			return
		}
	}
	if t.out.Len() == 0 && time.Since(t.lastWrite) > quiet {
		t.out.Ping()
	}
	t.end.finish = cmp.Or(c.FinishReason, t.end.finish)
	t.end.stopped = cmp.Or(decodeStop(c.JSON.ExtraFields, t.asked.StopSequences), t.end.stopped)
}

// finish writes the buffered calls and ends the message.
func (t *translation) finish() {
	uses, err := t.calls.blocks(t.asked.callIDs)
	if err != nil {
		t.fail(answer.NewFault(http.StatusBadGateway, "The upstream %s %v.", t.upstream, err))
		return
	}
	t.start()
	for _, b := range uses {
		t.out.ToolUse(b)
	}
	t.end.calls = len(uses) > 0
	t.end.setStop(&t.msg)
	t.out.End(t.msg)
	t.err = io.EOF
}

// fail ends the stream with an error event. The answer has begun, so its status cannot change.
func (t *translation) fail(f answer.Fault) {
	t.start()
	t.out.Fault(f)
	t.err = io.EOF
}

// streamFault decodes an error that comes in the place of a chunk.
func streamFault(data []byte) (answer.Fault, bool) {
	var e map[string]json.RawMessage
	if json.Unmarshal(data, &e) != nil || e["choices"] != nil {
		return answer.Fault{}, false
	}
	if e["error"] == nil && string(e["object"]) != `"error"` && (e["message"] == nil || e["code"] == nil) {
		return answer.Fault{}, false
	}
	message := chatMessage(e)
	return answer.NewFault(statusIn(e), "%s", cmp.Or(message, "the upstream ended its answer with an error")), true
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

// ReadError returns a function that reads error bodies of chat completions. It knows the official form and those of
// servers that send a string, a bare message or a detail.
func ReadError(status int) func([]byte) ([]byte, bool) {
	return func(text []byte) ([]byte, bool) {
		var e map[string]json.RawMessage
		if json.Unmarshal(text, &e) != nil {
			return nil, false
		}
		message := chatMessage(e)
		return answer.NewFault(status, "%s", message).Envelope(), message != ""
	}
}

func chatMessage(e map[string]json.RawMessage) string {
	for _, name := range []string{"error", "message", "detail"} {
		var inner map[string]json.RawMessage
		var text string
		switch raw := e[name]; {
		case raw == nil, string(raw) == "null":
		case json.Unmarshal(raw, &text) == nil:
			return text
		case json.Unmarshal(raw, &inner) == nil && inner["message"] != nil:
			return chatMessage(map[string]json.RawMessage{"message": inner["message"]})
		default:
			return answer.OneLine(raw)
		}
	}
	return ""
}
