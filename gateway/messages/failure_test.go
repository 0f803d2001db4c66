package messages_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"berth/proto"
	"berth/session"
	"berth/test/sessiontest"
)

// If the upstream refuses the first round, its answer is passed on unchanged.
func TestUpstreamErrorsBeforeAnythingIsDone(t *testing.T) {
	both(t, func(t *testing.T, stream bool) {
		s := newSite(
			t,
			`{"turns": [{"answer": {"error": {"status": 429, "type": "rate_limit_error", "message": "slow down"}, "headers": {"retry-after": "17", "x-should-retry": "true", "request-id": "req_up"}}}]}`)
		r := s.send(encode(t, body(bash, "go", "stream", stream)))
		if r.status != 429 || r.msg.Error == nil || r.msg.Error.Message != "slow down" ||
			r.header.Get("retry-after") != "17" || r.header.Get("x-should-retry") != "true" ||
			r.header.Get("request-id") != "req_up" {
			t.Errorf("%d %v %s", r.status, r.header, r.body)
		}
	})
}

// In a later round, the error tells the client which container has the work, and that a retry repeats work.
func TestUpstreamErrorsInTheMiddle(t *testing.T) {
	both(t, func(t *testing.T, stream bool) {
		s := newSite(t, `{"turns": [
			{"answer": {"content": [{"type": "tool_use", "name": "bash_code_execution", "input": {"command": "echo x >/workspace/n"}}]}},
			{"answer": {"error": {"status": 529, "type": "overloaded_error", "message": "too busy"}}}]}`)
		r := s.send(encode(t, body(bash, "go", "stream", stream)))
		s.played()
		e := r.msg.Error
		if e == nil || e.Type != "overloaded_error" || e.Message != "too busy" || e.Details.Container == nil {
			t.Fatalf("%d %s", r.status, r.body)
		}
		if stream && r.status != 200 || !stream && (r.status != 529 || r.header.Get("x-should-retry") != "false") {
			t.Errorf("%d %v", r.status, r.header)
		}
		c, err := s.Sessions.Get(sessiontest.Owner, e.Details.Container.ID)
		if err != nil {
			t.Fatal(err)
		}
		if out := sessiontest.Bash(t, c, "cat /workspace/n"); out.Stdout != "x\n" {
			t.Errorf("%+v", out)
		}
	})
}

// A stream that breaks off is an error, never the end of a message.
func TestUpstreamBreaksOff(t *testing.T) {
	for by, kind := range map[string]string{"break": "", "end": "", "error": "overloaded_error"} {
		s := newSite(
			t,
			`{"turns": [{"answer": {"content": [{"type": "text", "text": "one two three four"}], "cut": {"after_events": 5, "by": "`+by+`", "error": {"status": 529, "type": "overloaded_error", "message": "busy"}}}}]}`)
		r := s.send(encode(t, body(bash, "go", "stream", true)))
		if r.msg.Error == nil || kind != "" && r.msg.Error.Type != kind {
			t.Errorf("%s: %s", by, r.body)
		}
	}
	s := newSite(
		t,
		`{"turns": [{"answer": {"content": [{"type": "text", "text": "one two three four"}], "cut": {"by": "break"}}}]}`)
	if r := s.send(encode(t, body(bash, "go"))); r.status < 500 || r.msg.Error == nil {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// An answer that breaks off or fails before anything was done, and before the client has got any of it, is an error
// after which an SDK sends the request again.
func TestUpstreamBreaksOffAtOnce(t *testing.T) {
	both(t, func(t *testing.T, stream bool) {
		for by, status := range map[string]int{"break": 529, "end": 529, "error": 429} {
			if by == "error" && !stream {
				continue // only streams have error events
			}
			s := newSite(t, fmt.Sprintf(oneCommand, `{"answer": {"content": [{"type": "text", "text": "one two"}],
				"cut": {"by": "`+by+`", "error": {"status": 429, "type": "rate_limit_error", "message": "busy"}}}},`))
			sent := encode(t, body(bash, "go", "stream", stream))
			r := s.send(sent)
			if r.status != status || r.msg.Error == nil || r.header.Get("x-should-retry") == "false" {
				t.Errorf("%s: %d %v %s", by, r.status, r.header, r.body)
			}
			apart(t, s.send(sent, "X-Stainless-Retry-Count", "1"))
		}
	})
}

// slow is a script whose first command runs until it is told to end.
const slow = `{"plain": true, "turns": [
	{"answer": {"content": [{"type": "tool_use", "name": "bash_code_execution", "input": {"command": "echo begun >>/workspace/n; echo begun; sleep 1000"}}]}},
	{"expect": {"last": [{"is_error": true, "content": {"$contains": "unavailable"}}]}, "answer": {"content": [{"type": "text", "text": "done"}]}}]}`

// only waits for the only container and returns it.
func (s *site) only() *session.Session {
	s.t.Helper()
	var id string
	within(s.t, 20*time.Second, "a container", func() bool {
		list, _, err := s.Sessions.List(sessiontest.Owner, session.Filter{})
		if err == nil && len(list) == 1 {
			id = list[0].ID
		}
		return id != ""
	})
	c, err := s.Sessions.Get(sessiontest.Owner, id)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// none fails the test if there is a container.
func (s *site) none() {
	s.t.Helper()
	if list, _, err := s.Sessions.List(sessiontest.Owner, session.Filter{}); err != nil || len(list) > 0 {
		s.t.Fatalf("there are containers: %+v, %v", list, err)
	}
}

// If a container is deleted while it works, the model gets a result that says so, and the answer does not name it.
func TestContainerGoesInTheMiddle(t *testing.T) {
	for name, end := range map[string]func(s *site, c *session.Session) error{
		"stopped": func(s *site, c *session.Session) error { return c.Stop(s.t.Context()) },
		"deleted": func(s *site, c *session.Session) error {
			return s.Sessions.Delete(s.t.Context(), sessiontest.Owner, c.ID(), false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, stream bool) {
				s := newSite(t, slow)
				ended := make(chan error, 1)
				go func() {
					c := s.only()
					within(s.t, 20*time.Second, "a command", func() bool { return c.Info().RunningExecs == 1 })
					ended <- end(s, c)
				}()
				m := s.ask(body(bash, "go", "stream", stream)).msg
				if err := <-ended; err != nil {
					t.Fatal(err)
				}
				s.played()
				if m.types() != "server_tool_use bash_code_execution_tool_result text" ||
					m.result(t, 1)["error_code"] != "unavailable" || (m.Container == nil) != (name == "deleted") {
					t.Errorf("%+v", m)
				}
			})
		})
	}
}

// When a client disconnects, nothing keeps running. When it retries, as SDKs do, the turn continues, and nothing runs
// twice.
func TestClientGoesAndComesAgain(t *testing.T) {
	both(t, func(t *testing.T, stream bool) {
		s := newSite(t, slow)
		sent := encode(t, body(bash, "go", "stream", stream))
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			res, err := http.DefaultClient.Do(s.request("/v1/messages", sent, "X-Stainless-Retry-Count",
				"0").WithContext(ctx))
			if err == nil {
				_, _ = res.Body.Read(make([]byte, 1<<16))
				<-ctx.Done()
				res.Body.Close()
			}
		}()
		c := s.only()
		within(t, 20*time.Second, "a command at work", func() bool {
			fi, err := c.Stat(t.Context(), proto.UserDefault, "/workspace/n")
			return err == nil && fi.SizeBytes > 0
		})
		cancel()
		within(t, 20*time.Second, "the end of the command", func() bool { return c.Info().RunningExecs == 0 })
		m := s.read(must(http.DefaultClient.Do(s.request("/v1/messages", sent, "X-Stainless-Retry-Count", "1")))).msg
		s.played()
		if m.types() != "server_tool_use bash_code_execution_tool_result text" || m.Container == nil ||
			m.Container.ID != c.ID() {
			t.Fatalf("%+v", m)
		}
		if out := sessiontest.Bash(t, c, "cat /workspace/n"); out.Stdout != "begun\n" {
			t.Errorf("it ran more than once: %q", out.Stdout)
		}
	})
}

func must(res *http.Response, err error) *http.Response {
	if err != nil {
		panic(err)
	}
	return res
}

// Two concurrent requests with one idempotency key are one turn.
func TestTwoTriesAtOnce(t *testing.T) {
	s := newSite(t, `{"plain": true, "turns": [
		{"answer": {"content": [{"type": "tool_use", "name": "bash_code_execution", "input": {"command": "echo x >>/workspace/n; while ! test -e /workspace/go; do sleep 0.05; done; cat /workspace/n"}}]}},
		{"answer": {"content": [{"type": "text", "text": "done"}]}}]}`)
	sent := encode(t, body(bash, "go"))
	answers := make(chan reply, 2)
	try := func(count string) {
		answers <- s.read(must(http.DefaultClient.Do(s.request("/v1/messages", sent, "X-Stainless-Retry-Count",
			count, "Idempotency-Key", "k"))))
	}
	go try("0")
	c := s.only()
	within(t, 20*time.Second, "a command", func() bool { return c.Info().RunningExecs == 1 })
	go try("1")
	time.Sleep(50 * time.Millisecond) // the order does not affect the outcome
	sessiontest.Bash(t, c, "touch /workspace/go")
	a, b := <-answers, <-answers
	s.played()
	if a.msg.ID != b.msg.ID || a.msg.result(t, 1)["stdout"] != "x\n" || b.msg.result(t, 1)["stdout"] != "x\n" {
		t.Errorf("%s\n%s", a.body, b.body)
	}
}

// The same request again is a new turn, unless it has the same key.
func TestTheSameAgainIsRunAgain(t *testing.T) {
	s := newSite(t, `{"plain": true, "loop": true, "turns": [
		{"expect": {"headers": {"idempotency-key": null, "x-idempotency-key": null}}, "answer": {"content": [{"type": "tool_use", "id": "toolu_same", "name": "bash_code_execution", "input": {"command": "echo x >>/workspace/n; wc -l </workspace/n"}}]}},
		{"answer": {"content": [{"type": "text", "text": "done"}]}}]}`)
	req := body(bash, "go", "container", s.Create(t, proto.CreateContainer{}).ID())
	for i, c := range []struct{ key, lines string }{{"", "1"}, {"", "2"}, {"a", "3"}, {"a", "3"}, {"b", "4"},
		{"a", "3"}, {"", "5"}} {
		var header []string
		if c.key != "" {
			header = []string{"Idempotency-Key", c.key, "X-Idempotency-Key", c.key}
		}
		if m := s.ask(req, header...).msg; m.result(t, 1)["stdout"] != c.lines+"\n" {
			t.Errorf("%d: %v, want %s", i, m.result(t, 1)["stdout"], c.lines)
		}
	}
	if err := s.model.Err(); err != nil {
		t.Error(err)
	}
}

// While a command runs, a stream is never silent for long.
func TestPings(t *testing.T) {
	s := newSite(t, `{"plain": true, "turns": [
		{"answer": {"content": [{"type": "tool_use", "name": "bash_code_execution", "input": {"command": "sleep 11"}}]}},
		{"answer": {"content": [{"type": "text", "text": "done"}]}}]}`)
	pings, began, running := 0, false, true
	for _, e := range s.ask(body(bash, "go", "stream", true)).events {
		switch {
		case e.name == "content_block_start" && began: // the result's block
			running = false
		case e.name == "content_block_start":
			began = true
		case e.name == "ping" && began && running:
			pings++
		}
	}
	s.played()
	if pings < 2 {
		t.Errorf("%d pings in 11 s", pings)
	}
}

// A container is deleted if it was created for a turn whose client disconnected before the end and did not retry.
func TestNothingIsLeftOfATurnThatWasGivenUp(t *testing.T) {
	s := newSite(t, slow)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if res, err := http.DefaultClient.Do(s.request("/v1/messages", encode(t, body(bash, "go"))).WithContext(
			ctx)); err == nil {
			res.Body.Close()
		}
	}()
	c := s.only()
	within(t, 20*time.Second, "a command", func() bool { return c.Info().RunningExecs == 1 })
	cancel()
	within(t, 20*time.Second, "the end of the command", func() bool { return c.Info().RunningExecs == 0 })
	within(t, 20*time.Second, "the container is gone", func() bool {
		s.forget()
		_, err := s.Sessions.Get(sessiontest.Owner, c.ID())
		return proto.CodeOf(err) == proto.NotFound
	})
}

// meter returns the secret of a key that can create containers but run nothing in them until allow permits it.
func (s *site) meter() (secret string, allow func(bool)) {
	s.t.Helper()
	k, err := s.Keys.Create(proto.Caller{Owner: sessiontest.Owner}, proto.CreateKey{
		Quota: proto.Quota{CPUSecondsPerDay: 1}})
	if err != nil {
		s.t.Fatal(err)
	}
	s.Keys.Ran(k.ID, 1)
	return k.Secret, func(ok bool) {
		s.t.Helper()
		most := map[bool]float64{true: 0, false: 1}[ok]
		if _, err := s.Keys.Change(k.ID, proto.ChangeKey{Quota: &proto.QuotaChange{
			CPUSecondsPerDay: &most}}); err != nil {
			s.t.Fatal(err)
		}
	}
}

// withUpload returns a request whose container must first receive a file.
func (s *site) withUpload() []byte {
	req := body(bash, "")
	req["messages"] = []any{map[string]any{"role": "user", "content": []any{map[string]any{"type": "container_upload",
		"file_id": s.upload("a.csv", "1\n")}}}}
	return encode(s.t, req)
}

// A turn that cannot begin yet leaves no container, no matter how often it is sent, and then begins in one.
func TestTriesToBeginHaveOneContainer(t *testing.T) {
	s := newSite(t, `{"plain": true, "turns": [
		{"answer": {"content": [{"type": "tool_use", "name": "bash_code_execution", "input": {"command": "cat \"$INPUT_DIR/a.csv\""}}]}},
		{"expect": {"last": [{"content": "1\n"}]}, "answer": {"content": [{"type": "text", "text": "done"}]}}]}`)
	key, allow := s.meter()
	sent := s.withUpload()
	for _, count := range []string{"0", "1", "2"} {
		if r := s.send(sent, "X-Api-Key", key, "X-Stainless-Retry-Count", count); r.status != 429 {
			t.Fatalf("%d %s", r.status, r.body)
		}
		s.none()
	}
	allow(true)
	m := s.send(sent, "X-Api-Key", key, "X-Stainless-Retry-Count", "3").msg
	s.played()
	if m.types() != "server_tool_use bash_code_execution_tool_result text" || m.Container == nil ||
		m.Container.ID != s.only().ID() {
		t.Errorf("%+v", m)
	}
}

// begunBefore prepares a turn that an earlier daemon began, and whose container the client knows. The turn is sent
// twice, with its idempotency key, while it cannot continue. The third answer of the script would end it.
func begunBefore(t *testing.T) (s *site, c *session.Session, sent []byte, key string, allow func(bool)) {
	t.Helper()
	s = newSite(t, `{"plain": true, "turns": [
		{"answer": {"content": [{"type": "tool_use", "name": "bash_code_execution", "input": {"command": "echo x >>/workspace/n; cat /workspace/n"}}]}},
		{"answer": {"error": {"status": 529, "type": "overloaded_error", "message": "too busy"}}},
		{"expect": {"last": [{"content": "x\n"}]}, "answer": {"content": [{"type": "text", "text": "done"}]}}]}`)
	key, allow = s.meter()
	allow(true)
	sent = s.withUpload()
	if r := s.send(sent, "X-Api-Key", key, "Idempotency-Key", "k"); r.status != 529 ||
		r.msg.Error.Details.Container == nil {
		t.Fatalf("%d %s", r.status, r.body)
	}
	c = s.only()
	s.restart()
	allow(false)
	for range 2 {
		if r := s.send(sent, "X-Api-Key", key, "Idempotency-Key", "k"); r.status != 429 {
			t.Fatalf("%d %s", r.status, r.body)
		}
	}
	return s, c, sent, key, allow
}

// A turn of an earlier daemon that cannot continue now continues later, and does not begin again.
func TestTurnOfTheDaemonBeforeGoesOnLater(t *testing.T) {
	s, c, sent, key, allow := begunBefore(t)
	allow(true)
	m := s.send(sent, "X-Api-Key", key, "Idempotency-Key", "k").msg
	s.played()
	if m.types() != "server_tool_use bash_code_execution_tool_result text" || m.Container == nil ||
		m.Container.ID != c.ID() {
		t.Errorf("%+v", m)
	}
}

// The container of such a turn stays, since the client knows it, even if the client does not retry.
func TestContainerThatTheDaemonBeforeToldOfStays(t *testing.T) {
	s, c, _, _, _ := begunBefore(t)
	s.forget()
	s.restart() // waits for running deletions
	if _, err := s.Sessions.Get(sessiontest.Owner, c.ID()); err != nil {
		t.Error(err)
	}
}

func TestLimitsOfARequest(t *testing.T) {
	s := newSite(t, `{"turns": [{"answer": {"content": [{"type": "text", "text": "never"}]}}]}`)
	big := append([]byte(`{"model":"m","messages":[{"role":"user","content":"`), make([]byte, 33<<20)...)
	for _, c := range []struct {
		status int
		text   string
		body   []byte
	}{
		{413, "larger", big},
		{400, "JSON", []byte(`{`)},
		{400, "JSON", []byte(`[]`)},
		{400, "model", []byte(`{"messages":[]}`)},
		{400, "code_execution_20990101", encode(t, body("code_execution_20990101", "x"))},
		{400, "container", encode(t, body(bash, "x", "container", 5))},
		{400, "container", encode(t, body(bash, "x", "container", ""))},
		{400, "messages", encode(t, body(bash, "x", "messages", 5))},
		{400, "messages", encode(t, body(bash, "x", "messages", []any{}))},
		{400, "tools.0", encode(t, body(bash, "x", "tools", []any{map[string]any{"type": bash, "name": "bash"}}))},
		{400, "tools.1", encode(t, body(bash, "x", "tools",
			[]any{map[string]any{"type": bash, "name": "code_execution"}, map[string]any{"type": bash,
				"name": "code_execution"}}))},
		{400, "belongs", encode(t, body(bash, "x", "tools",
			[]any{map[string]any{"type": bash, "name": "code_execution"},
				map[string]any{"name": "bash_code_execution"}}))},
	} {
		r := s.send(c.body)
		if r.status != c.status || r.msg.Error == nil || !strings.Contains(r.msg.Error.Message, c.text) {
			t.Errorf("%.100s: %d %s", c.body, r.status, r.body)
		}
	}
	if len(s.model.Requests()) > 0 {
		t.Error("the upstream was asked")
	}
}
