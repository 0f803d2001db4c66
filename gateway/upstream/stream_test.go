package upstream

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"berth/gateway/upstream/answer"
	"berth/gateway/upstream/chat"
	"berth/proto"
	"berth/proto/sse"
)

// chunks returns events of chat completions, one for each delta.
func chunks(finish string, deltas ...string) string {
	var b strings.Builder
	for _, d := range deltas {
		b.WriteString(`data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":` + d +
			`,"finish_reason":null}]}` + "\n\n")
	}
	if finish != "" {
		b.WriteString(`data: {"choices":[{"index":0,"delta":{},"finish_reason":"` + finish + `"}]}` + "\n\n")
	}
	return b.String()
}

func calling(parts ...string) string { return `{"tool_calls":[` + strings.Join(parts, ",") + `]}` }

const done = "data: [DONE]\n\n"

// TestStreamsOfServers has streams of real servers.
func TestStreamsOfServers(t *testing.T) {
	two := `[{"type":"tool_use","id":"a","name":"f","input":{"x":1}},{"type":"tool_use","id":"b","name":"g","input":{"y":2}}]`
	for name, c := range map[string]struct{ stream, content, stop string }{
		"text": {chunks("stop", `{"role":"assistant","content":""}`, `{"content":"h"}`,
			`{"content":"i"}`) + done, `[{"type":"text","text":"hi"}]`, "end_turn"},
		"no DONE": {chunks("stop", `{"content":"hi"}`), `[{"type":"text","text":"hi"}]`, "end_turn"},
		"no finish reason": {chunks("", `{"content":"hi"}`) + done, `[{"type":"text","text":"hi"}]`,
			"end_turn"},
		"no last empty line": {chunks("", `{"content":"hi"}`) + "data: [DONE]", `[{"type":"text","text":"hi"}]`,
			"end_turn"},
		"CRLF and comments": {": hello\r\n\r\n" + strings.ReplaceAll(chunks("stop", `{"content":"hi"}`)+done,
			"\n", "\r\n"), `[{"type":"text","text":"hi"}]`, "end_turn"},
		"no space behind the colon": {strings.ReplaceAll(chunks("stop", `{"content":"hi"}`)+done, "data: ", "data:"),
			`[{"type":"text","text":"hi"}]`, "end_turn"},
		"nothing": {done, `[]`, "end_turn"},
		"nulls": {chunks(
			"stop", `{"role":"assistant","content":null,"tool_calls":null,"reasoning_content":null}`,
			`{"content":"hi"}`) + done, `[{"type":"text","text":"hi"}]`, "end_turn"},
		"thoughts first": {chunks("stop", `{"reasoning_content":"h"}`, `{"reasoning_content":"m"}`,
			`{"content":"hi"}`) + done,
			`[{"type":"thinking","thinking":"hm","signature":""},{"type":"text","text":"hi"}]`, "end_turn"},
		"refused": {chunks("stop", `{"refusal":"n"}`, `{"refusal":"o"}`) + done,
			`[{"type":"text","text":"no"}]`, "refusal"},
		"another choice": {`data: {"choices":[{"index":1,"delta":{"content":"other"}}]}` + "\n\n" +
			chunks("stop", `{"content":"hi"}`) + done, `[{"type":"text","text":"hi"}]`, "end_turn"},
		"a stop sequence": {
			`data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop","stop_reason":"END"}]}` +
				"\n\n" + done, `[{"type":"text","text":"hi"}]`, "stop_sequence"},
		"calls one after the other": {chunks("tool_calls", `{"content":"so"}`,
			calling(`{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}}`),
			calling(`{"index":0,"function":{"arguments":"{\"x\""}}`),
			calling(`{"index":0,"function":{"arguments":":1}"}}`),
			calling(`{"index":1,"id":"b","function":{"name":"g","arguments":"{\"y\":2}"}}`)) + done,
			`[{"type":"text","text":"so"},` + two[1:], "tool_use"},
		"calls mixed": {
			chunks("tool_calls", calling(`{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x"}}`,
				`{"index":1,"id":"b","function":{"name":"g","arguments":"{"}}`),
				calling(`{"index":1,"function":{"arguments":"\"y\":2}"}}`,
					`{"index":0,"function":{"arguments":"\":1}"}}`)) + done, two, "tool_use"},
		"text behind calls": {
			chunks("stop", calling(`{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}}`),
				`{"content":"so"}`) + done,
			`[{"type":"text","text":"so"},{"type":"tool_use","id":"a","name":"f","input":{"x":1}}]`, "tool_use"},
		"whole calls in one chunk": {
			chunks("stop", calling(`{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}}`,
				`{"index":1,"id":"b","function":{"name":"g","arguments":"{\"y\":2}"}}`)) + done, two, "tool_use"},
		"whole calls with one index": {
			chunks("stop", calling(`{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}}`),
				calling(`{"index":0,"id":"b","function":{"name":"g","arguments":"{\"y\":2}"}}`)) + done, two,
			"tool_use"},
		"whole calls without index": {
			chunks("stop", calling(`{"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}}`,
				`{"id":"b","function":{"name":"g","arguments":"{\"y\":2}"}}`)) + done, two, "tool_use"},
		"the ID and name in each piece": {
			chunks("stop", calling(`{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\""}}`),
				calling(`{"index":0,"id":"a","function":{"name":"f","arguments":":1}"}}`),
				calling(`{"index":1,"id":"b","function":{"name":"g","arguments":"{\"y\":2}"}}`)) + done, two,
			"tool_use"},
		"arguments that are an object": {
			chunks("stop", calling(`{"index":0,"id":"a","function":{"name":"f","arguments":{"x":1}}}`,
				`{"index":1,"id":"b","function":{"name":"g","arguments":{"y":2}}}`)) + done, two, "tool_use"},
		"arguments that are cut": {
			chunks("length", calling(`{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":"}}`)) + done,
			`[{"type":"tool_use","id":"a","name":"f","input":{"INVALID_JSON":"{\"x\":"}}]`, "max_tokens"},
	} {
		t.Run(name, func(t *testing.T) {
			u := serve(t, 200, "text/event-stream; charset=utf-8", c.stream)
			msg := answered(t, u, strings.Replace(askedStops, `"model"`, `"stream":true,"model"`, 1))
			sameJSON(t, string(answer.Encode(msg.Content)), c.content)
			if *msg.StopReason != c.stop {
				t.Errorf("stop reason %s", *msg.StopReason)
			}
		})
	}
}

// TestCallsWithoutIDs has two whole calls without distinct IDs or indexes.
func TestCallsWithoutIDs(t *testing.T) {
	for _, index := range []string{`"index":0,`, ""} {
		u := serve(t, 200, "text/event-stream",
			chunks("stop", calling(`{`+index+`"function":{"name":"f","arguments":"{\"x\":1}"}}`),
				calling(`{`+index+`"function":{"name":"f","arguments":"{\"x\":2}"}}`))+done)
		list := answered(t, u, strings.Replace(askedStops, `"model"`, `"stream":true,"model"`, 1)).Content
		if len(list) != 2 || list[0].(map[string]any)["id"] == list[1].(map[string]any)["id"] ||
			!validID.MatchString(list[0].(map[string]any)["id"].(string)) {
			t.Errorf("%s%+v", index, list)
		}
	}
}

func TestUsageOfStreams(t *testing.T) {
	last := `data: {"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":7}}}` + "\n\n"
	u := serve(t, 200, "text/event-stream",
		`data: {"choices":[{"index":0,"delta":{"content":"hi"}}],"usage":{"prompt_tokens":10,"completion_tokens":1}}`+
			"\n\n"+chunks("stop")+last+done)
	if got := answered(t, u, strings.Replace(askedStops, `"model"`, `"stream":true,"model"`, 1)).Usage; got != (answer.Usage{Input: 3, CacheRead: 7, Output: 4}) {
		t.Errorf("%+v", got)
	}
}

func TestStreamsThatFail(t *testing.T) {
	for name, c := range map[string]struct{ stream, kind, message string }{
		"ended in the middle": {chunks("", `{"content":"hi"}`), "api_error", "The upstream up ended its answer in " +
			"the middle."},
		"nothing at all": {"", "api_error", "The upstream up ended its answer in the middle."},
		"no JSON": {"data: {\"choices\n\n", "api_error", "The upstream up sent an event that is no " +
			"JSON: {\"choices"},
		"an error": {chunks("", `{"content":"hi"}`) +
			`data: {"error":{"message":"out of memory","type":"x","code":500}}` + "\n\n", "api_error", "out of memory"},
		"an overload": {`data: {"error":{"message":"busy","code":"429"}}` + "\n\n", "rate_limit_error", "busy"},
		"an error as object": {`data: {"object":"error","message":"too long","code":400}` + "\n\n",
			"invalid_request_error", "too long"},
		"a field of its own": {`error: {"code":500,"message":"no slot","type":"server_error"}` + "\n\n", "api_error",
			"no slot"},
		"a bare line": {`{"error":"crashed"}` + "\n", "api_error", "crashed"},
		"a call without name": {chunks("tool_calls", calling(`{"index":0,"id":"a","function":{"arguments":"{}"}}`)) +
			done, "api_error", "The upstream up called a tool without a name."},
	} {
		t.Run(name, func(t *testing.T) {
			_, text := do(t, serve(t, 200, "text/event-stream", c.stream), head(), stream)
			if _, f := assemble(t, text); f == nil || *f != (answer.Fault{Type: c.kind, Message: c.message}) {
				t.Errorf("%+v in %s", f, text)
			}
		})
	}
}

// TestBrokenStream breaks the connection. Before the end that is an error; after it only the usage is missing.
func TestBrokenStream(t *testing.T) {
	_,
		addr := play(
		t,
		`{"turns": [{"answer": {"content": [{"type": "text", "text": "hi"}], "cut": {"by": "break", "after_events": 2}}}, {"answer": {"content": [{"type": "text", "text": "hi"}], "cut": {"by": "break", "after_events": 3}}}]}`)
	u := only(t, Config{Name: "up", URL: addr, Kind: KindOpenAI})
	res, err := u.Do(t.Context(), Request{Path: PathMessages, Header: head(), Body: []byte(stream)})
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if text, err := io.ReadAll(res.Body); proto.CodeOf(err) != proto.Unavailable ||
		!strings.Contains(string(text), `"text":"hi"`) {
		t.Errorf("%v %s", err, text)
	}
	if msg := answered(t, u, stream); *msg.StopReason != "end_turn" {
		t.Errorf("%+v", msg)
	}
}

func TestTooMuchIsCalled(t *testing.T) {
	many := strings.TrimSuffix(strings.Repeat(`{"function":{"name":"f","arguments":"{}"}},`, 1001), ",")
	_, text := do(t, serve(t, 200, "text/event-stream", chunks("", calling(many))), head(), stream)
	if _, f := assemble(t, text); f == nil || !strings.Contains(f.Message, "1000 calls") {
		t.Errorf("%+v", f)
	}
}

// newReader returns a reader for events, as translations have it.
func newReader(r io.Reader) *sse.Reader {
	return sse.NewReader(r, sse.Options{MaxEvent: eventLimit, Lenient: true})
}

const eventLimit = 16 << 20

func TestEventsThatAreTooLong(t *testing.T) {
	r := newReader(io.MultiReader(strings.NewReader("data: "), io.LimitReader(endless{}, eventLimit+1)))
	if _, err := r.Next(); err != sse.ErrEventTooLong {
		t.Error(err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	return len(p), nil
}

func TestEventReader(t *testing.T) {
	text := "\ufeff: hi\n\nevent: x\nid: 1\ndata: a\ndata: b\r\n\r\n\n\ndata\n\ndata:c"
	for name, r := range map[string]io.Reader{"at once": strings.NewReader(text), "byte by byte": iotest.OneByteReader(
		strings.NewReader(text))} {
		var got []string
		er := newReader(r)
		for {
			e, err := er.Next()
			if err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(e.Data))
		}
		if strings.Join(got, "|") != "a\nb||c" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// FuzzEventReader checks that no input makes the reader fail, hang, or return data that was not sent.
func FuzzEventReader(f *testing.F) {
	for _, seed := range []string{"data: a\n\n", "data:a\r\ndata: b\r\n\r\n", ": c\n\nerror: {\"x\":1}\n\n",
		"{\"error\":1}\n", "event: x\n\ndata", "\ufeffdata: x"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		whole, split := drain(t, bytes.NewReader(text)), drain(t, iotest.OneByteReader(bytes.NewReader(text)))
		if strings.Join(whole, "\x00") != strings.Join(split, "\x00") {
			t.Errorf("%q and, byte by byte, %q", whole, split)
		}
	})
}

func drain(t *testing.T, r io.Reader) (out []string) {
	er := newReader(r)
	for {
		e, err := er.Next()
		if err == io.EOF {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(e.Data))
	}
}

// translatedBody returns the translated body of an answer.
func translatedBody(t *testing.T, stream bool, kind, text string) string {
	t.Helper()
	asked := &chat.Request{Model: "m", StopSequences: []string{"END"}, Stream: stream}
	res, err := asked.Translate("up", &http.Response{StatusCode: http.StatusOK, Header: http.Header{
		"Content-Type": {kind}},
		Body: io.NopCloser(strings.NewReader(text))})
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// FuzzTranslation checks that any server stream becomes a stream in the right order with an end.
func FuzzTranslation(f *testing.F) {
	for _, seed := range []string{
		chunks("stop", `{"content":"hi"}`) + done,
		chunks("tool_calls", calling(`{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x"}}`,
			`{"index":1,"id":"b","function":{"name":"g","arguments":"{"}}`)) + done,
		chunks("", `{"reasoning":"x","content":[{"type":"text","text":"a"}],"refusal":"r"}`),
		`data: {"error":{"message":"m","code":"429"}}` + "\n\n",
		`data: {"choices":[{"index":0,"delta":{"tool_calls":[{"function":{"name":"f","arguments":{}}}]}}],"usage":{"prompt_tokens":-1}}` + "\n\n" + done,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		assemble(t, translatedBody(t, true, sse.ContentType, text))
	})
}

// FuzzCompletion checks that any answer becomes a message or an error, and the same as a stream.
func FuzzCompletion(f *testing.F) {
	for _, seed := range []string{
		`{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}`,
		`{"choices":[{"message":{"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{"}}],"refusal":"r"},"stop_reason":"END"}],"usage":{"prompt_tokens":1e9}}`, `{"choices":[{}]}`, `[]`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var msg struct {
			Type    string
			Content []any
		}
		if err := json.Unmarshal([]byte(translatedBody(t, false, "application/json", text)), &msg); err != nil {
			t.Fatal(err)
		}
		if msg.Type != "message" {
			return
		}
		streamed, failed := assemble(t, translatedBody(t, true, "application/json", text))
		if failed != nil {
			t.Fatal(failed)
		}
		sameJSON(t, string(answer.Encode(streamed.Content)), string(answer.Encode(msg.Content)))
	})
}

// FuzzRequest checks that any request is refused, or becomes JSON with the same number of tools.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		hello, stream,
		`{"model":"m","max_tokens":9,"system":"s","tools":[{"name":"f","input_schema":{"type":"object"}}],"tool_choice":{"type":"tool","name":"f"},"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64"}}]}]}`,
		`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"x"}]}]}]}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		r, err := chat.ReadRequest([]byte(body))
		if err != nil {
			return
		}
		text, err := r.Encode(r.Model, false)
		if err != nil {
			return
		}
		checkSaid(t, r, text)
	})
}

func checkSaid(t *testing.T, r *chat.Request, text []byte) {
	t.Helper()
	var said struct {
		Model    string
		Stream   bool
		Tools    []any
		Messages []any
	}
	if err := json.Unmarshal(text, &said); err != nil || said.Model != r.Model || said.Stream != r.Stream ||
		len(said.Tools) != len(r.Tools) || len(said.Messages) == 0 {
		t.Errorf("%v: %s", err, text)
	}
}
