package messages_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"berth/gateway/messages"
	"berth/proto"
	"berth/session"
	"berth/test/sessiontest"
)

// oneCommand is a script of a model that runs one command, any number of times. The command shows how often it ran in
// its container.
const oneCommand = `{"conversations": [
	{"when": {"body": {"/messages/1": {"$any": true}}}, "loop": true, "turns": [{"answer": {"content": [{"type": "text", "text": "done"}]}}]},
	{"loop": true, "turns": [%s{"answer": {"content": [{"type": "tool_use", "name": "bash_code_execution", "input": {"command": "echo x >>/workspace/n; cat /workspace/n"}}]}}]}]}`

// slowCommand is like oneCommand. Its command waits until /workspace/go exists.
const slowCommand = `{"conversations": [
	{"when": {"body": {"/messages/1": {"$any": true}}}, "loop": true, "turns": [{"answer": {"content": [{"type": "text", "text": "done"}]}}]},
	{"loop": true, "turns": [{"answer": {"content": [{"type": "tool_use", "name": "bash_code_execution", "input": {"command": "echo x >>/workspace/n; until test -e /workspace/go; do sleep 0.02; done; cat /workspace/n"}}]}}]}]}`

// asSDK sends a request as an SDK does: after 429 and 5xx, it sends the request again and counts.
func (s *site) asSDK(sent []byte, header ...string) reply {
	s.t.Helper()
	for n := 0; ; n++ {
		r := s.send(sent, append(header, "X-Stainless-Retry-Count", strconv.Itoa(n))...)
		if again := r.status == 429 || r.status >= 500; !again || n == 5 {
			return r
		}
	}
}

// containers returns the IDs of all containers.
func (s *site) containers() (ids []string) {
	s.t.Helper()
	list, _, err := s.Sessions.List(sessiontest.Owner, session.Filter{})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, c := range list {
		ids = append(ids, c.ID)
	}
	return ids
}

// apart fails the test unless the answers are those of different turns, each with its own container, in which the
// command of oneCommand ran once.
func apart(t *testing.T, answers ...reply) {
	t.Helper()
	seen := map[string]bool{}
	for _, r := range answers {
		m := r.msg
		if r.status != 200 || m.Container == nil || m.types() != "server_tool_use bash_code_execution_tool_result text" {
			t.Fatalf("%d %s", r.status, r.body)
		}
		if out := m.result(t, 1)["stdout"]; out != "x\n" {
			t.Errorf("the command printed %q", out)
		}
		if seen[m.ID] || seen[m.Container.ID] {
			t.Errorf("two questions have the answer %s, with %s", m.ID, m.Container.ID)
		}
		seen[m.ID], seen[m.Container.ID] = true, true
	}
}

// Equal questions have an answer and a container each, also if the upstream refuses some of them for a while.
func TestEqualQuestionsAtOnce(t *testing.T) {
	for status, kind := range map[int]string{429: "rate_limit_error", 529: "overloaded_error", 500: "api_error"} {
		both(t, func(t *testing.T, stream bool) {
			s := newSite(t, fmt.Sprintf(oneCommand, fmt.Sprintf(
				`{"answer": {"error": {"status": %d, "type": "%s", "message": "later"}}},`, status, kind)))
			sent := encode(t, body(bash, "go", "stream", stream))
			answers := make([]reply, 8)
			var all sync.WaitGroup
			for i := range answers {
				all.Go(func() { answers[i] = s.asSDK(sent) })
			}
			all.Wait()
			apart(t, answers...)
			if n := len(s.containers()); n != len(answers) {
				t.Errorf("there are %d containers", n)
			}
		})
	}
}

// A retry does not get the answer of another request, whether that was answered or is in use, and whatever the retry
// counts.
func TestRetryOfAnotherQuestion(t *testing.T) {
	both(t, func(t *testing.T, stream bool) {
		s := newSite(t, slowCommand)
		sent := encode(t, body(bash, "go", "stream", stream))
		answers := make(chan reply, 2)
		go func() { answers <- s.send(sent, "X-Stainless-Retry-Count", "0") }()
		c := s.only()
		within(t, 20*time.Second, "a command", func() bool { return c.Info().RunningExecs == 1 })
		go func() { answers <- s.send(sent, "X-Stainless-Retry-Count", "1") }()
		within(t, 20*time.Second, "another container", func() bool { return len(s.containers()) == 2 })
		all := []reply{}
		for range 2 {
			s.release()
			all = append(all, <-answers)
		}
		for _, count := range []string{"1", "2", "3", "99999999999999999999", "-1", "x", ""} {
			go func() { answers <- s.send(sent, "X-Stainless-Retry-Count", count) }()
			within(t, 20*time.Second, "another container", func() bool { return len(s.containers()) == len(all)+1 })
			s.release()
			all = append(all, <-answers)
		}
		apart(t, all...)
	})
}

// release lets the commands of slowCommand end in all containers.
func (s *site) release() {
	s.t.Helper()
	for _, id := range s.containers() {
		c, err := s.Sessions.Get(sessiontest.Owner, id)
		if err != nil {
			s.t.Fatal(err)
		}
		sessiontest.Bash(s.t, c, "touch /workspace/go")
	}
}

// leave sends a request and disconnects while its command runs. It returns the container.
func (s *site) leave(sent []byte, header ...string) *session.Session {
	s.t.Helper()
	return s.leaveWhen(sent, func(c *session.Session) {
		within(s.t, 20*time.Second, "a command", func() bool {
			fi, err := c.Stat(s.t.Context(), proto.UserDefault, "/workspace/n")
			return err == nil && fi.SizeBytes > 0
		})
	}, header...)
}

// leaveWhen sends a request and disconnects when wait returns. It returns the container.
func (s *site) leaveWhen(sent []byte, wait func(*session.Session), header ...string) *session.Session {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if res, err := http.DefaultClient.Do(s.request("/v1/messages", sent, header...).WithContext(ctx)); err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
	}()
	c := s.only()
	wait(c)
	cancel()
	<-gone
	return c
}

// Of many retries, one continues the turn that a client has left. The others are questions of their own.
func TestOneRetryTakesATurnOver(t *testing.T) {
	both(t, func(t *testing.T, stream bool) {
		s := newSite(t, slowCommand)
		sent := encode(t, body(bash, "go", "stream", stream))
		left := s.leave(sent)
		const many = 4
		answers := make(chan reply, many)
		for range many {
			go func() { answers <- s.send(sent, "X-Stainless-Retry-Count", "1") }()
		}
		within(t, 20*time.Second, "a container for each", func() bool {
			s.release()
			return len(answers) == many
		})
		ran := map[string]int{}
		for range many {
			m := (<-answers).msg
			if m.Container == nil || ran[m.ID] > 0 || ran[m.Container.ID] > 0 {
				t.Fatalf("%+v", m)
			}
			ran[m.ID]++
			ran[m.Container.ID]++
		}
		if ran[left.ID()] != 1 || len(s.containers()) != many {
			t.Errorf("the turn was continued %d times; there are %d containers", ran[left.ID()], len(s.containers()))
		}
		if out := sessiontest.Bash(t, left, "cat /workspace/n"); out.Stdout != "x\n" {
			t.Errorf("the command of the turn printed %q", out.Stdout)
		}
	})
}

// A turn that a client has left is not continued by an earlier attempt, by the holder of another key, nor by a request
// with other headers that matter.
func TestWhoDoesNotTakeATurnOver(t *testing.T) {
	k := func(s *site) string {
		key, err := s.Keys.Create(proto.Caller{Owner: sessiontest.Owner}, proto.CreateKey{})
		if err != nil {
			s.t.Fatal(err)
		}
		return key.Secret
	}
	for name, c := range map[string]func(s *site) []string{
		"a new request":          func(*site) []string { return nil },
		"the same attempt":       func(*site) []string { return []string{"X-Stainless-Retry-Count", "2"} },
		"an earlier attempt":     func(*site) []string { return []string{"X-Stainless-Retry-Count", "1"} },
		"another API key":        func(s *site) []string { return []string{"X-Stainless-Retry-Count", "3", "X-Api-Key", k(s)} },
		"another beta":           func(*site) []string { return []string{"X-Stainless-Retry-Count", "3", "anthropic-beta", "x"} },
		"with a key of its own":  func(*site) []string { return []string{"X-Stainless-Retry-Count", "3", "Idempotency-Key", "a"} },
		"its own next attempt":   nil,
		"its own attempt but 10": func(*site) []string { return []string{"X-Stainless-Retry-Count", "12"} },
	} {
		s := newSite(t, slowCommand)
		sent := encode(t, body(bash, "go"))
		left := s.leave(sent, "X-Stainless-Retry-Count", "2")
		header, continues := []string{"X-Stainless-Retry-Count", "3"}, c == nil || name == "its own attempt but 10"
		if c != nil {
			header = c(s)
		}
		answer := make(chan reply, 1)
		go func() { answer <- s.send(sent, header...) }()
		within(t, 20*time.Second, name, func() bool {
			s.release()
			return len(answer) == 1
		})
		if r := <-answer; r.msg.Container == nil || (r.msg.Container.ID == left.ID()) != continues {
			t.Errorf("%s: %s", name, r.body)
		}
	}
}

// A turn that is left again is continued again, by the next attempt.
func TestTurnIsLeftTwice(t *testing.T) {
	both(t, func(t *testing.T, stream bool) {
		s := newSite(t, `{"plain": true, "turns": [
			{"answer": {"content": [{"type": "tool_use", "name": "bash_code_execution", "input": {"command": "echo x >>/workspace/n; sleep 1000"}}]}},
			{"answer": {"pauses": [{"until": "never"}], "content": [{"type": "text", "text": "never"}]}},
			{"answer": {"content": [{"type": "text", "text": "done"}]}}]}`)
		sent := encode(t, body(bash, "go", "stream", stream))
		left := s.leave(sent, "X-Stainless-Retry-Count", "0")
		s.leaveWhen(sent, func(*session.Session) { <-s.model.Reached("never") }, "X-Stainless-Retry-Count", "1")
		m := s.ask(body(bash, "go", "stream", stream), "X-Stainless-Retry-Count", "2").msg
		s.played()
		if m.Container == nil || m.Container.ID != left.ID() || len(s.containers()) != 1 {
			t.Errorf("%+v", m)
		}
		if out := sessiontest.Bash(t, left, "cat /workspace/n"); out.Stdout != "x\n" {
			t.Errorf("the command ran more than once: %q", out.Stdout)
		}
	})
}

// An idempotency key has one turn: while it runs, after it, and under the next daemon. With another body it is a
// conflict.
func TestIdempotencyKey(t *testing.T) {
	both(t, func(t *testing.T, stream bool) {
		s := newSite(t, slowCommand)
		sent, other := encode(t, body(bash, "go", "stream", stream)), encode(t, body(bash, "stop", "stream", stream))
		refused := func(when string) {
			t.Helper()
			r := s.send(other, "Idempotency-Key", "a", "X-Stainless-Retry-Count", "1")
			if r.status != 409 || r.msg.Error == nil || r.msg.Error.Type != "conflict_error" ||
				r.header.Get("x-should-retry") != "false" {
				t.Errorf("%s: %d %s", when, r.status, r.body)
			}
		}
		answers := make(chan reply, 4)
		for range cap(answers) {
			go func() { answers <- s.send(sent, "Idempotency-Key", "a") }()
		}
		c := s.only()
		within(t, 20*time.Second, "a command", func() bool { return c.Info().RunningExecs == 1 })
		refused("while it runs")
		sessiontest.Bash(t, c, "touch /workspace/go")
		first := <-answers
		apart(t, first)
		same := func(when string, r reply) {
			t.Helper()
			if r.msg.ID != first.msg.ID || r.msg.types() != first.msg.types() ||
				r.msg.Container.ID != first.msg.Container.ID {
				t.Errorf("%s: %s", when, r.body)
			}
		}
		for range cap(answers) - 1 {
			same("at once", <-answers)
		}
		same("later", s.send(sent, "Idempotency-Key", "a"))
		refused("later")
		s.restart()
		refused("under the next daemon")
		same("under the next daemon", s.send(sent, "Idempotency-Key", "a"))
		if err := s.Sessions.Delete(t.Context(), sessiontest.Owner, c.ID(), false); err != nil {
			t.Fatal(err)
		}
		s.restart()
		same("without its container", s.send(sent, "Idempotency-Key", "a"))
		if n := len(s.containers()); n != 0 {
			t.Errorf("there are %d containers", n)
		}
	})
	s := newSite(t, slowCommand)
	for _, key := range []string{"é", fmt.Sprintf("%0256d", 0)} {
		if r := s.send(encode(t, body(bash, "go")), "Idempotency-Key", key); r.status != 400 {
			t.Errorf("%q: %d %s", key, r.status, r.body)
		}
	}
}

// A waiting context tells when something first waits for its end.
type waiting struct {
	context.Context
	once  *sync.Once
	waits chan struct{}
}

func (w waiting) Done() <-chan struct{} {
	w.once.Do(func() { close(w.waits) })
	return w.Context.Done()
}

// slowCalls are calls that wait until /workspace/go exists, and then print how often they ran.
var slowCalls = map[string]string{
	bash:   `{"type": "tool_use", "name": "bash_code_execution", "input": {"command": "echo x >>/workspace/n; until test -e /workspace/go; do sleep 0.02; done; cat /workspace/n"}}`,
	repl:   `{"type": "tool_use", "name": "code_execution", "input": {"code": ` + slowCode + `}}`,
	legacy: `{"type": "tool_use", "name": "code_execution", "input": {"code": ` + slowCode + `}}`,
}

const slowCode = `"import os, time\nprint('x', file=open('/workspace/n', 'a'))\nwhile not os.path.exists('/workspace/go'): time.sleep(0.02)\nprint(open('/workspace/n').read(), end='')"`

// If one of two requests with the same key leaves, the other one gets the results of the calls that run.
func TestOneOfTwoWithAKeyLeaves(t *testing.T) {
	for tool, call := range slowCalls {
		both(t, func(t *testing.T, stream bool) {
			s := newSite(t, `{"plain": true, "turns": [
				{"answer": {"content": [`+call+`, {"type": "tool_use", "name": "`+map[bool]string{
				true: "bash_code_execution", false: "code_execution"}[tool == bash]+`", "input": {"command": "echo 2", "code": "print(2)"}}]}},
				{"answer": {"content": [{"type": "text", "text": "done"}]}}]}`)
			sent := encode(t, body(tool, "go", "stream", stream))
			second, ended := httptest.NewRecorder(), make(chan error, 1)
			c := s.leaveWhen(sent, func(c *session.Session) {
				within(t, 20*time.Second, "a call", func() bool {
					fi, err := c.Stat(t.Context(), proto.UserDefault, "/workspace/n")
					return err == nil && fi.SizeBytes > 0
				})
				ctx := waiting{t.Context(), &sync.Once{}, make(chan struct{})}
				go func() {
					ended <- s.service.Answer(ctx, second, messages.Request{Owner: sessiontest.Owner,
						Path: "/v1/messages", Body: sent,
						Header: http.Header{"Idempotency-Key": {"k"}, "Anthropic-Version": {"2023-06-01"}}}, nil)
				}()
				<-ctx.waits // for the turn, which the first request uses
			}, "Idempotency-Key", "k")
			within(t, 20*time.Second, "the second request has the turn", func() bool {
				sessiontest.Bash(t, c, "touch /workspace/go")
				return len(ended) == 1
			})
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			s.played()
			m := s.read(second.Result()).msg
			if m.Container == nil || m.Container.ID != c.ID() || len(m.Content) != 5 ||
				m.result(t, 2)["stdout"] != "x\n" || m.result(t, 3)["stdout"] != "2\n" {
				t.Errorf("%s: %+v", tool, m)
			}
		})
	}
}

// Calls do not go on when all requests for a turn have left.
func TestAllWithAKeyLeave(t *testing.T) {
	s := newSite(t, slowCommand)
	sent := encode(t, body(bash, "go"))
	ended := make(chan error, 1)
	inner, leave := context.WithCancel(t.Context())
	defer leave()
	c := s.leaveWhen(sent, func(c *session.Session) {
		within(t, 20*time.Second, "a command", func() bool { return c.Info().RunningExecs == 1 })
		ctx := waiting{inner, &sync.Once{}, make(chan struct{})}
		go func() {
			ended <- s.service.Answer(ctx, httptest.NewRecorder(), messages.Request{Owner: sessiontest.Owner,
				Path: "/v1/messages", Body: sent,
				Header: http.Header{"Idempotency-Key": {"k"}, "Anthropic-Version": {"2023-06-01"}}}, nil)
		}()
		<-ctx.waits
	}, "Idempotency-Key", "k")
	leave()
	<-ended
	within(t, 20*time.Second, "the end of the command", func() bool { return c.Info().RunningExecs == 0 })
}

// An idempotency key whose request failed before anything was done is free again.
func TestIdempotencyKeyOfAFailure(t *testing.T) {
	s := newSite(t, fmt.Sprintf(oneCommand,
		`{"answer": {"error": {"status": 400, "type": "invalid_request_error", "message": "no"}}},`))
	if r := s.send(encode(t, body(bash, "stop")), "Idempotency-Key", "a"); r.status != 400 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	apart(t, s.send(encode(t, body(bash, "go")), "Idempotency-Key", "a"))
}

// An SDK that gets a refusal while it continues the turn of an earlier daemon continues it later.
func TestTurnOfTheDaemonBeforeIsRefusedOnce(t *testing.T) {
	s := newSite(t, slowCommand)
	key, allow := s.meter()
	allow(true)
	sent := s.withUpload()
	c := s.leave(sent, "X-Api-Key", key)
	s.restart()
	allow(false)
	for _, count := range []string{"1", "2"} {
		if r := s.send(sent, "X-Api-Key", key, "X-Stainless-Retry-Count", count); r.status != 429 {
			t.Fatalf("%d %s", r.status, r.body)
		}
	}
	allow(true)
	m := s.send(sent, "X-Api-Key", key, "X-Stainless-Retry-Count", "3").msg
	if m.Container == nil || m.Container.ID != c.ID() || len(s.containers()) != 1 {
		t.Errorf("%+v", m)
	}
}
