package upstream

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"berth/proto"
	"berth/test/scripted"
)

// play serves a script. It fails the test if requests differ from the script or if turns are left.
func play(t *testing.T, script string) (*scripted.Server, string) {
	t.Helper()
	s, err := scripted.Load(strings.NewReader(script))
	if err != nil {
		t.Fatal(err)
	}
	srv := scripted.New(s)
	web := httptest.NewServer(srv)
	t.Cleanup(func() {
		web.Close()
		if err := srv.Err(); err != nil || srv.Left() > 0 {
			t.Errorf("the script: %d turns left, %v", srv.Left(), err)
		}
	})
	return srv, web.URL
}

// only returns the single upstream of a configuration.
func only(t *testing.T, cfg Config) *Upstream {
	t.Helper()
	s, err := Open([]Config{cfg}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s.All()[0]
}

func head(pairs ...string) http.Header {
	h := http.Header{"Anthropic-Version": {"2023-06-01"}}
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}

const hello = `{"model": "m-1",  "max_tokens":9,"messages":[{"role":"user","content":"hello"}]}`

func do(t *testing.T, u *Upstream, h http.Header, body string) (*http.Response, string) {
	t.Helper()
	res, err := u.Do(t.Context(), Request{Path: PathMessages, Header: h, Body: []byte(body)})
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	return res, string(text)
}

func TestPassesOn(t *testing.T) {
	srv,
		addr := play(
		t,
		`{"turns": [{"expect": {"path": "/v1/messages", "query": {"beta": "true"}, "headers": {"anthropic-beta": "a, b", "anthropic-version": "2026-10-21", "user-agent": "X/1",
		"cookie": null, "origin": null, "x-forwarded-for": null, "accept-encoding": "identity", "x-berth-live": null, "x-hop": null, "x-mine": "1"}},
		"answer": {"content": [{"type": "text", "text": "hi"}], "headers": {"request-id": "req_1", "set-cookie": "a=b", "anthropic-organization-id": "o"}}}]}`)
	u := only(t, Config{URL: addr + "/v1/"})
	h := head("User-Agent", "X/1", "Accept-Encoding", "gzip", "Cookie", "a=b", "Origin", "https://a.example",
		"X-Forwarded-For", "10.0.0.1", "X-Berth-Live", "1", "Connection", "X-Hop", "X-Hop", "1", "X-Mine", "1")
	h.Set("Anthropic-Version", "2026-10-21")
	h["Anthropic-Beta"] = []string{"a", "b"}
	res, err := u.Do(t.Context(), Request{Path: PathMessages, Query: url.Values{"beta": {"true"}}, Header: h,
		Body: []byte(hello)})
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK || !strings.Contains(string(text), `"text":"hi"`) {
		t.Errorf("%d %v %s", res.StatusCode, err, text)
	}
	if res.Header.Get("Request-Id") != "req_1" || res.Header.Get("Anthropic-Organization-Id") != "o" ||
		res.Header.Get("Set-Cookie") != "" {
		t.Errorf("head %v", res.Header)
	}
	if got := string(srv.Requests()[0]); got != hello {
		t.Errorf("the body became %s", got)
	}
}

func TestKeys(t *testing.T) {
	for name, c := range map[string]struct {
		key            string
		client         []string
		apiKey, bearer string // "" stands for null
	}{
		"configured":         {"sk-c", []string{"X-Api-Key", "berth_1"}, "sk-c", ""},
		"configured, bearer": {"sk-c", []string{"Authorization", "Bearer berth_1"}, "", "Bearer sk-c"},
		"configured, both": {"sk-c", []string{"X-Api-Key", "berth_1", "Authorization", "Bearer sk-x"}, "sk-c",
			""},
		"passed on": {"", []string{"X-Api-Key", "sk-x"}, "sk-x", ""},
		"passed on beside berth's": {"", []string{"X-Api-Key", "berth_1", "Authorization", "Bearer sk-x"}, "",
			"Bearer sk-x"},
		"passed on, the other way": {"", []string{"X-Api-Key", "sk-x", "Authorization", "bearer  berth_1"}, "sk-x",
			""},
		"berth's own stays":         {"", []string{"X-Api-Key", "berth_1"}, "", ""},
		"the operator's own stays":  {"", []string{"X-Api-Key", "the-operators-own"}, "", ""},
		"configured, none is given": {"sk-c", nil, "sk-c", ""},
	} {
		t.Run(name, func(t *testing.T) {
			want := func(s string) string {
				if s == "" {
					return "null"
				}
				return `"` + s + `"`
			}
			_, addr := play(t, `{"turns": [{"expect": {"headers": {"x-api-key": `+want(c.apiKey)+`, "authorization": `+
				want(c.bearer)+`}}, "answer": {"content": []}}]}`)
			u := only(t, Config{URL: addr, Key: c.key, Own: func(key string) bool {
				return strings.HasPrefix(
					key, "berth_") || key == "the-operators-own"
			}})
			do(t, u, head(c.client...), hello)
		})
	}
}

func TestRouting(t *testing.T) {
	s, err := Open([]Config{
		{Name: "a", URL: "http://a", Prefixes: []string{"claude-"}}, {Name: "b", URL: "http://b", Prefixes: []string{
			"claude-small-", "local/"}}, {Name: "c", URL: "http://c", Prefixes: []string{"claude-s"}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for model, want := range map[string]string{"claude-x": "a", "claude-small-1": "b", "claude-s": "c",
		"local/x": "b"} {
		if u, err := s.For(model); err != nil || u.cfg.Name != want {
			t.Errorf("%s: %v %v", model, u, err)
		}
	}
	_, err = s.For("gpt-x")
	if proto.CodeOf(err) != proto.NotFound ||
		!strings.Contains(err.Error(), `"gpt-x"; there are claude-*, claude-s*, claude-small-*, local/*`) {
		t.Error(err)
	}
	none, _ := Open(nil, nil)
	if _, err := none.For("x"); proto.CodeOf(err) != proto.NotFound || !strings.Contains(err.Error(), "--upstream") {
		t.Error(err)
	}
}

func TestOpenRefuses(t *testing.T) {
	for want, list := range map[string][]Config{
		"must be like":          {{URL: "ftp://a"}},
		"keys go into the file": {{URL: "https://sk-secret@a"}},
		`kind "x"`:              {{URL: "https://a", Kind: "x"}},
		"the models claude-*;": {{URL: "https://a", Prefixes: []string{"claude-"}},
			{URL: "https://b", Prefixes: []string{"claude-"}}},
		"the models *;": {{URL: "https://a"}, {URL: "https://b"}},
	} {
		if _, err := Open(list, nil); proto.CodeOf(err) != proto.InvalidArgument ||
			!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]Config{
		"https://api.example.com": {Kind: KindMessages, URL: "https://api.example.com",
			Prefixes: []string{""}},
		"claude-=https://api.example.com/x": {Kind: KindMessages, URL: "https://api.example.com/x",
			Prefixes: []string{"claude-"}},
		"local/=openai+http://127.0.0.1:8080/v1": {Kind: KindOpenAI, URL: "http://127.0.0.1:8080/v1",
			Prefixes: []string{"local/"}},
		"openai+http://127.0.0.1:8080": {Kind: KindOpenAI, URL: "http://127.0.0.1:8080", Prefixes: []string{
			""}},
	} {
		got, err := Parse(text)
		if err != nil || got.Kind != want.Kind || got.URL != want.URL || got.Prefixes[0] != want.Prefixes[0] {
			t.Errorf("%s: %+v %v", text, got, err)
		}
	}
	for _, text := range []string{"", "api.example.com", "sk-secret@api.example.com", "a=ftp://b",
		"https://sk-secret@api.example.com"} {
		if _, err := Parse(text); proto.CodeOf(err) != proto.InvalidArgument ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestKeysOfUpstreams(t *testing.T) {
	list := []Config{{URL: "http://a", Prefixes: []string{""}}, {URL: "http://b", Prefixes: []string{"b-"}},
		{URL: "http://c", Prefixes: []string{"c-"}}}
	got := WithKeys(list, map[string]string{"*": "sk-a", "c-": "sk-c"})
	if got[0].Key != "sk-a" || got[1].Key != "" || got[2].Key != "sk-c" || list[0].Key != "" {
		t.Errorf("%+v", got)
	}
	check := CheckKey(list)
	if check("*", "x") != nil || check("b-", "x") != nil {
		t.Error("a key of an upstream is refused")
	}
	if err := check("d-", "sk-secret"); err == nil || !strings.Contains(err.Error(), `["*" "b-" "c-"]`) ||
		strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}

// TestProxy uses an upstream that is only reachable through a proxy.
func TestProxy(t *testing.T) {
	_, addr := play(t, `{"turns": [{"answer": {"content": []}}]}`)
	to, err := url.Parse(addr)
	if err != nil {
		t.Fatal(err)
	}
	u := only(t, Config{URL: "http://nowhere.invalid", Proxy: func(*http.Request) (*url.URL, error) { return to, nil }})
	if res, text := do(t, u, head(), hello); res.StatusCode != http.StatusOK {
		t.Errorf("%d %s", res.StatusCode, text)
	}
}

func TestNamesOfUpstreams(t *testing.T) {
	for text, want := range map[string]string{"http://10.0.0.1:1": "of all models", "a-=http://10.0.0.1:1": "of a-*"} {
		if cfg, err := Parse(text); err != nil || cfg.Name != want {
			t.Errorf("%s: %q %v", text, cfg.Name, err)
		}
	}
}

func TestCutModel(t *testing.T) {
	u := only(t, Config{URL: "http://a", Prefixes: []string{"local/", "x-"}})
	for body, want := range map[string]string{
		`{"a": {"model": "local/b"} , "model" :  "local/qwen" ,"z":1}`: `{"a": {"model": "local/b"} , "model" :  "qwen" ,"z":1}`,
		`{"model":"x-1"}`: `{"model":"x-1"}`, `{"model":7}`: `{"model":7}`, `{"a"`: `{"a"`, `[]`: `[]`, `{}`: `{}`,
	} {
		if got := string(u.cutModel([]byte(body))); got != want {
			t.Errorf("%s became %s", body, got)
		}
	}
}

func TestErrorsOfUpstreams(t *testing.T) {
	_, addr := play(t, `{"turns": [
		{"answer": {"error": {"status": 529, "type": "overloaded_error", "message": "busy"}, "headers": {"retry-after": "3", "x-should-retry": "true"}}},
		{"answer": {"raw": {"status": 502, "body": "<html>\n <b>bad\tgateway</b>"}, "headers": {"content-type": "text/html"}}},
		{"answer": {"raw": {"status": 307}, "headers": {"location": "https://elsewhere.example/"}}}]}`)
	u := only(t, Config{Name: "up", URL: addr})
	res, text := do(t, u, head(), hello)
	if res.StatusCode != 529 || res.Header.Get("Retry-After") != "3" || res.Header.Get("X-Should-Retry") != "true" ||
		text != `{"error":{"message":"busy","type":"overloaded_error"},"request_id":"req_scripted","type":"error"}` {
		t.Errorf("%d %v %s", res.StatusCode, res.Header, text)
	}
	res, text = do(t, u, head(), hello)
	if res.StatusCode != 502 || res.Header.Get("Content-Type") != "application/json" ||
		text != `{"type":"error","error":{"type":"api_error","message":"The upstream up answered 502: \u003chtml\u003e \u003cb\u003ebad gateway\u003c/b\u003e"}}` {
		t.Errorf("%d %v %s", res.StatusCode, res.Header, text)
	}
	if _, err := u.Do(t.Context(), Request{Path: PathMessages, Header: head(), Body: []byte(hello)}); proto.CodeOf(
		err) != proto.Unavailable || !strings.Contains(err.Error(), "redirect (307)") {
		t.Error(err)
	}
}

const stream = `{"model":"m","stream":true,"max_tokens":9,"messages":[{"role":"user","content":"hello"}]}`

// TestStreamIsNotBuffered lets the upstream wait in the middle of its answer until the first half has arrived.
func TestStreamIsNotBuffered(t *testing.T) {
	srv,
		addr := play(
		t,
		`{"turns": [{"answer": {"content": [{"type": "text", "text": "hi"}], "pauses": [{"before_event": 2, "until": "read"}]}}]}`)
	res, err := only(t, Config{URL: addr}).Do(t.Context(), Request{Path: PathMessages, Header: head(),
		Body: []byte(stream)})
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	r := bufio.NewReader(res.Body)
	if line, err := r.ReadString('\n'); err != nil || line != "event: message_start\n" {
		t.Fatal(line, err)
	}
	srv.Release("read")
	if rest, err := io.ReadAll(r); err != nil ||
		!strings.HasSuffix(string(rest), "data: {\"type\":\"message_stop\"}\n\n") {
		t.Error(err, string(rest))
	}
}

func TestSilence(t *testing.T) {
	_,
		addr := play(
		t,
		`{"turns": [{"answer": {"content": [], "pauses": [{"until": "never"}]}}, {"answer": {"content": [], "cut": {"by": "hang", "after_events": 1}}}]}`)
	u := only(t, Config{URL: addr, Timeout: 100 * time.Millisecond, IdleTimeout: 100 * time.Millisecond})
	if _, err := u.Do(t.Context(), Request{Path: PathMessages, Header: head(), Body: []byte(stream)}); proto.CodeOf(
		err) != proto.TimedOut || !strings.Contains(err.Error(), "did not begin to answer within 100ms") {
		t.Error(err)
	}
	u = only(t, Config{URL: addr, IdleTimeout: 100 * time.Millisecond})
	res, err := u.Do(t.Context(), Request{Path: PathMessages, Header: head(), Body: []byte(stream)})
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if text, err := io.ReadAll(res.Body); proto.CodeOf(err) != proto.TimedOut ||
		!strings.Contains(err.Error(), "nothing came for 100ms") || !strings.Contains(string(text), "message_start") {
		t.Error(err, string(text))
	}
}

func TestBrokenAndCanceled(t *testing.T) {
	srv,
		addr := play(
		t,
		`{"turns": [{"answer": {"content": [], "cut": {"by": "break", "after_events": 1}}}, {"answer": {"content": [], "pauses": [{"until": "asked"}]}}]}`)
	u := only(t, Config{Name: "up", URL: addr})
	res, err := u.Do(t.Context(), Request{Path: PathMessages, Header: head(), Body: []byte(stream)})
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.ReadAll(res.Body); proto.CodeOf(err) != proto.Unavailable ||
		err.Error() != "The upstream up broke off its answer: the connection broke." {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-srv.Reached("asked"); cancel() }()
	if _, err := u.Do(ctx, Request{Path: PathMessages, Header: head(), Body: []byte(stream)}); proto.CodeOf(
		err) != proto.Canceled {
		t.Error(err)
	}
}

func TestUnreachable(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	_, err = only(t, Config{Name: "up", URL: "http://" + ln.Addr().String()}).Do(t.Context(),
		Request{Path: PathMessages, Header: head(), Body: []byte(hello)})
	if proto.CodeOf(err) != proto.Unavailable ||
		err.Error() != "The upstream up gave no answer: the connection was refused." {
		t.Error(err)
	}
	web := httptest.NewTLSServer(http.NotFoundHandler())
	defer web.Close()
	if _, err = only(t, Config{Name: "up", URL: web.URL}).Do(t.Context(), Request{Path: PathMessages, Header: head(),
		Body: []byte(hello)}); err == nil || !strings.Contains(err.Error(), "certificate is not trusted") {
		t.Error(err)
	}
}

// TestNothingIsSentTwice uses an upstream that accepts a request on a kept connection and dies. If the request had an
// idempotency key, net/http would repeat it.
func TestNothingIsSentTwice(t *testing.T) {
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		var requests atomic.Int64
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if requests.Add(1) > 1 {
				panic(http.ErrAbortHandler)
			}
			if r.Header.Get(name) != "once" {
				t.Errorf("head %v", r.Header)
			}
		}))
		defer web.Close()
		u := only(t, Config{URL: web.URL})
		do(t, u, head(name, "once"), hello)
		_, err := u.Do(t.Context(), Request{Path: PathMessages, Header: head(name, "once"), Body: []byte(hello)})
		var e *proto.Error
		if n := requests.Load(); !errors.As(err, &e) || e.Code != proto.Unavailable || n != 2 {
			t.Errorf("%s: %v, %d requests", name, err, n)
		}
	}
}

// counting returns an upstream that answers with a handler, and the number of connections that were opened to it.
func counting(t *testing.T, answer http.HandlerFunc) (*Upstream, *atomic.Int64) {
	t.Helper()
	opened := &atomic.Int64{}
	web := httptest.NewUnstartedServer(answer)
	web.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			opened.Add(1)
		}
	}
	web.Start()
	t.Cleanup(web.Close)
	return only(t, Config{URL: web.URL}), opened
}

func TestConnectionsAreKept(t *testing.T) {
	u, opened := counting(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "{}") })
	for range 5 {
		do(t, u, head(), hello)
	}
	if n := opened.Load(); n != 1 {
		t.Errorf("%d connections for 5 requests", n)
	}
}

// TestConnectionsOfStreamsAreKept reads streams up to their last event; their end comes a moment later.
func TestConnectionsOfStreamsAreKept(t *testing.T) {
	read := make(chan bool)
	u, opened := counting(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "data: {}\n\n")
		_ = http.NewResponseController(w).Flush()
		if last := <-read; last {
			<-r.Context().Done() // an answer without an end
		}
	})
	const n = 20
	for i := range n {
		res, err := u.Do(t.Context(), Request{Path: PathMessages, Header: head(), Body: []byte(hello)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(res.Body, make([]byte, len("data: {}\n\n"))); err != nil {
			t.Fatal(err)
		}
		read <- i == n-1
		if err := res.Body.Close(); err != nil {
			t.Error(err)
		}
	}
	if got := opened.Load(); got > n/4 { // normally one; more if the machine stalls
		t.Errorf("%d connections for %d streams", got, n)
	}
}
