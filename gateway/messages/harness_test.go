package messages_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"berth/api"
	"berth/api/anthropic"
	"berth/code"
	"berth/files"
	"berth/gateway"
	"berth/gateway/containers"
	"berth/gateway/messages"
	"berth/gateway/upstream"
	"berth/proto"
	"berth/session"
	"berth/state/ledger"
	"berth/test/scripted"
	"berth/test/sessiontest"
	"berth/tools/bridge"
	"berth/tools/skills"
)

// A site is the gateway behind its real edge, with real sessions and an upstream that plays a script.
type site struct {
	*sessiontest.Stack
	t        *testing.T
	url      string
	model    *scripted.Server
	service  *messages.Service
	turns    *gateway.Gateway
	host     *containers.Host
	provided string // directory of provided skills

	cfg     config
	hostCfg containers.Config
	close   func() // stops serving
}

// A config holds the options that tests may change.
type config struct {
	Upstreams *upstream.Set
	Files     messages.Files
	Ledger    *ledger.DB // must not be changed
	MaxRounds int
}

// newSite serves a script; change may alter the gateway's limits.
func newSite(t *testing.T, script string, change ...func(*config)) *site {
	t.Helper()
	return newSiteOver(t, session.Config{}, script, change...)
}

// newSiteOver is newSite with limits for sessions.
func newSiteOver(t *testing.T, limits session.Config, script string, change ...func(*config)) *site {
	t.Helper()
	var tools *bridge.Bridge
	var shelf *skills.Store
	var err error
	provided := t.TempDir()
	st := sessiontest.OverWith(t, sessiontest.NewRuntime(t), sessiontest.Images{}, limits, func(st *sessiontest.Stack,
		sc *session.Config) {
		tools = bridge.Open(bridge.Config{Ledger: st.Ledger})
		sc.Tools = tools
		if shelf, err = skills.Open(skills.Config{Dir: t.TempDir(), Ledger: st.Ledger,
			Provided: provided}); err != nil {
			t.Fatal(err)
		}
		sc.Mounts = shelf
	})
	tools.Attach(st.Sessions)
	t.Cleanup(func() { tools.Close() })
	s := &site{Stack: st, t: t, provided: provided}
	run := code.Open(code.Config{Sessions: st.Sessions})
	t.Cleanup(func() { run.Close() })
	read, err := scripted.Load(strings.NewReader(script))
	if err != nil {
		t.Fatal(err)
	}
	s.model = scripted.New(read)
	model := httptest.NewServer(s.model)
	t.Cleanup(model.Close)
	set, err := upstream.Open([]upstream.Config{{URL: model.URL}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { set.Close() })
	s.cfg = config{Upstreams: set, Files: st.Files, Ledger: st.Ledger}
	s.hostCfg = containers.Config{Sessions: st.Sessions, Code: run, Files: st.Files, Jobs: st.Jobs, Bridge: tools,
		Skills: shelf}
	for _, f := range change {
		f(&s.cfg)
	}
	s.serve()
	t.Cleanup(func() { s.close() })
	return s
}

// serve starts a gateway that answers requests.
func (s *site) serve() {
	s.t.Helper()
	s.host = containers.New(s.hostCfg)
	s.turns = gateway.New(gateway.Config{Containers: s.host, Files: s.cfg.Files, Ledger: s.Ledger,
		MaxRounds: s.cfg.MaxRounds})
	s.service = messages.New(messages.Config{Turns: s.turns, Upstreams: s.cfg.Upstreams, Files: s.cfg.Files,
		Check: s.host})
	srv, err := api.New(api.Config{Auth: s.Keys, Edges: []api.Edge{
		anthropic.New(anthropic.Config{Files: s.Files, MaxFileBytes: s.Files.MaxFileBytes(),
			Messages: s.service})}})
	if err != nil {
		s.t.Fatal(err)
	}
	web := httptest.NewServer(srv)
	s.url, s.close = web.URL, func() {
		web.Close()
		s.turns.Close()
		s.host.Close()
	}
}

// restart restarts the gateway. Only what it has stored remains.
func (s *site) restart() {
	s.t.Helper()
	s.close()
	s.serve()
}

// played fails the test unless the upstream has played the whole script.
func (s *site) played() {
	s.t.Helper()
	if err := s.model.Err(); err != nil {
		s.t.Error(err)
	}
	if n := s.model.Left(); n > 0 {
		s.t.Errorf("%d turns of the script were not played", n)
	}
}

// A reply is an answer to a Messages request.
type reply struct {
	status int
	header http.Header
	body   []byte
	events []event
	msg    message
}

type event struct {
	name string
	data json.RawMessage
}

// A message has the members of a message that the tests check.
type message struct {
	ID           string           `json:"id"`
	Model        string           `json:"model"`
	Content      []map[string]any `json:"content"`
	StopReason   string           `json:"stop_reason"`
	StopSequence *string          `json:"stop_sequence"`
	Usage        map[string]any   `json:"usage"`
	Container    *struct {
		ID        string     `json:"id"`
		ExpiresAt proto.Time `json:"expires_at"`
		Skills    any        `json:"skills"`
	} `json:"container"`
	Error *struct {
		Type    string `json:"type"`
		Message string `json:"message"`
		Details struct {
			ErrorCode string              `json:"error_code"`
			Container *proto.ContainerRef `json:"container"`
		} `json:"details"`
	} `json:"error"`
}

// request returns a request; header overrides the defaults.
func (s *site) request(path string, body []byte, header ...string) *http.Request {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), "POST", s.url+path, bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("X-Api-Key", sessiontest.Secret)
	r.Header.Set("anthropic-version", "2023-06-01")
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

// send sends a body unchanged.
func (s *site) send(body []byte, header ...string) reply {
	s.t.Helper()
	res, err := http.DefaultClient.Do(s.request("/v1/messages", body, header...))
	if err != nil {
		s.t.Fatal(err)
	}
	return s.read(res)
}

func (s *site) read(res *http.Response) reply {
	s.t.Helper()
	defer res.Body.Close()
	r := reply{status: res.StatusCode, header: res.Header}
	var err error
	if r.body, err = io.ReadAll(res.Body); err != nil {
		s.t.Fatal(err)
	}
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		r.events = eventsOf(s.t, r.body)
		r.msg = accumulate(s.t, r.events)
	} else if json.Unmarshal(r.body, &r.msg) != nil {
		s.t.Fatalf("%d %s", r.status, r.body)
	}
	return r
}

// ask sends a request that is given as an object, and expects a message.
func (s *site) ask(body map[string]any, header ...string) reply {
	s.t.Helper()
	r := s.send(encode(s.t, body), header...)
	if r.status != 200 || r.msg.Error != nil {
		s.t.Fatalf("%d %s", r.status, r.body)
	}
	return r
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// body returns a request with a code execution tool and one user message.
func body(tool, text string, more ...any) map[string]any {
	b := map[string]any{
		"model": "m", "max_tokens": 100, "tools": []any{map[string]any{"type": tool, "name": "code_execution"}},
		"messages": []any{map[string]any{"role": "user", "content": text}},
	}
	for i := 0; i < len(more); i += 2 {
		b[more[i].(string)] = more[i+1]
	}
	return b
}

func eventsOf(t *testing.T, data []byte) (list []event) {
	t.Helper()
	var e event
	sc := bufio.NewScanner(bytes.NewReader(data))
	sc.Buffer(nil, 1<<24)
	for sc.Scan() {
		switch line := sc.Text(); {
		case line == "" && e.data != nil:
			list = append(list, e)
			e = event{}
		case strings.HasPrefix(line, "event: "):
			e.name = line[7:]
		case strings.HasPrefix(line, "data: "):
			e.data = json.RawMessage(line[6:])
		}
	}
	return list
}

// accumulate builds the message of a stream, as SDKs do. It fails if the order of events is wrong.
func accumulate(t *testing.T, events []event) (m message) {
	t.Helper()
	var whole map[string]any
	content, partial, open := []any{}, "", -1
	for i, e := range events {
		var ev struct {
			Type    string         `json:"type"`
			Index   int            `json:"index"`
			Message map[string]any `json:"message"`
			Block   map[string]any `json:"content_block"`
			Delta   map[string]any `json:"delta"`
			Usage   map[string]any `json:"usage"`
		}
		if err := json.Unmarshal(e.data, &ev); err != nil || ev.Type != e.name {
			t.Fatalf("event %d: %s %s: %v", i, e.name, e.data, err)
		}
		switch e.name {
		case "message_start":
			if whole != nil {
				t.Fatal("two messages begin")
			}
			whole = ev.Message
		case "content_block_start":
			if ev.Index != len(content) || open >= 0 {
				t.Fatalf("event %d: block %d begins at %d with %d open", i, ev.Index, len(content), open)
			}
			content, partial, open = append(content, ev.Block), "", ev.Index
		case "content_block_delta":
			b := content[open].(map[string]any)
			switch ev.Delta["type"] {
			case "text_delta":
				b["text"] = b["text"].(string) + ev.Delta["text"].(string)
			case "thinking_delta":
				b["thinking"] = b["thinking"].(string) + ev.Delta["thinking"].(string)
			case "signature_delta":
				b["signature"] = ev.Delta["signature"]
			case "input_json_delta":
				partial += ev.Delta["partial_json"].(string)
			}
		case "content_block_stop":
			if ev.Index != open {
				t.Fatalf("event %d: block %d ends, %d is open", i, ev.Index, open)
			}
			if partial != "" {
				var input any
				if err := json.Unmarshal([]byte(partial), &input); err != nil {
					t.Fatalf("input %q: %v", partial, err)
				}
				content[open].(map[string]any)["input"] = input
			}
			open = -1
		case "message_delta":
			for k, v := range ev.Delta {
				whole[k] = v
			}
			for k, v := range ev.Usage {
				whole["usage"].(map[string]any)[k] = v
			}
		case "error":
			whole = map[string]any{}
			if err := json.Unmarshal(e.data, &whole); err != nil {
				t.Fatal(err)
			}
		}
	}
	if last := events[len(events)-1].name; last != "message_stop" && last != "error" {
		t.Fatalf("the last event is %s", last)
	}
	if whole["error"] == nil {
		whole["content"] = content
	}
	if err := json.Unmarshal(encode(t, whole), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// types returns the types of the blocks, in order.
func (m message) types() string {
	list := []string{}
	for _, b := range m.Content {
		list = append(list, b["type"].(string))
	}
	return strings.Join(list, " ")
}

// result returns the content of a block.
func (m message) result(t *testing.T, i int) map[string]any {
	t.Helper()
	if i >= len(m.Content) {
		t.Fatalf("there are %d blocks: %v", len(m.Content), m.Content)
	}
	c, ok := m.Content[i]["content"].(map[string]any)
	if !ok {
		t.Fatalf("block %d has no content: %v", i, m.Content[i])
	}
	return c
}

// upload stores a file.
func (s *site) upload(name, content string) string {
	s.t.Helper()
	f, err := s.Files.Put(s.t.Context(), files.Upload{Owner: sessiontest.Owner, Filename: name}, strings.NewReader(
		content))
	if err != nil {
		s.t.Fatal(err)
	}
	return f.ID
}

// within waits for a condition that other goroutines bring about.
func within(t *testing.T, limit time.Duration, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !is(); {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", limit, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// forget makes the gateway forget everything that waits for clients.
func (s *site) forget() {
	s.turns.Forget(0)
	s.host.Forget(0)
}
