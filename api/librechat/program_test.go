package librechat_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"berth/session"
)

// tools are those of most programs here.
var tools = []map[string]any{
	{"name": "add", "parameters": map[string]any{"type": "object", "properties": map[string]any{"b": map[string]any{},
		"a": map[string]any{}}, "required": []string{"a"}}},
	{"name": "get-it.now", "description": "x"}, {"name": "import"},
}

// A result is the client's answer to a call.
type result struct {
	CallID  string `json:"call_id"`
	Result  any    `json:"result"`
	IsError bool   `json:"is_error"`
	Message string `json:"error_message,omitempty"`
}

// start starts a program.
func (c client) start(t *testing.T, lang, code string, more ...any) ran {
	t.Helper()
	return want[ran](t, c.send(t, "POST", "/exec/programmatic", request(t, lang, code, append(more, "tools",
		tools)...)), http.StatusOK)
}

// proceed goes on with a program that waits.
func (c client) proceed(t *testing.T, r ran, results ...result) ran {
	t.Helper()
	return want[ran](t, c.send(t, "POST", "/exec/programmatic", proceeding(t, r, results...)), http.StatusOK)
}

func proceeding(t *testing.T, r ran, results ...result) string {
	t.Helper()
	data, err := json.Marshal(map[string]any{"continuation_token": r.Token, "tool_results": results})
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// calls are the names and inputs of the calls of a program that waits.
func (r ran) calls() (text string) {
	for _, c := range r.Calls {
		text += c.Name + string(c.Input) + " "
	}
	return text
}

func TestPrograms(t *testing.T) {
	st := newSite(t)
	c, bob := st.client(t, "ann"), st.client(t, "bob")
	t.Run("python", func(t *testing.T) {
		r := c.start(t, "", `
print("begun")
both = await asyncio.gather(add(1, 2), add(a="x"))
print(both)
try:
    await get_itnow()
except ToolExecutionError as e:
    print("failed:", e)
print(repr(await import_tool(none=None)))
open("made.txt", "w").write("made")
`)
		if r.Status != "tool_call_required" || r.calls() != `add{"a":1,"b":2} add{"a":"x"} ` {
			t.Fatalf("%+v", r)
		}
		// one that is answered is over, and the other still waits
		r = c.proceed(t, r, result{CallID: r.Calls[0].ID, Result: map[string]any{"sum": 3}})
		if r.Status != "tool_call_required" || len(r.Calls) != 1 {
			t.Fatalf("%+v", r)
		}
		want[failure](t, bob.send(t, "POST", "/exec/programmatic", proceeding(t, r, result{CallID: r.Calls[0].ID})), 404)
		want[failure](t, c.send(t, "POST", "/exec/programmatic", proceeding(t, r, result{CallID: "call_1"})), 400)
		want[failure](t, c.send(t, "POST", "/exec/programmatic", proceeding(t, r)), 400)
		r = c.proceed(t, r, result{CallID: r.Calls[0].ID, Result: "text"})
		if r.calls() != "get-it.now{} " {
			t.Fatalf("%+v", r)
		}
		r = c.proceed(t, r, result{CallID: r.Calls[0].ID, IsError: true, Message: "no such thing"})
		if r.calls() != "import{} " {
			t.Fatalf("%+v", r)
		}
		token := r
		r = c.proceed(t, r, result{CallID: r.Calls[0].ID, Result: nil})
		if r.Status != "completed" || r.Stdout != "begun\n[{'sum': 3}, 'text']\nfailed: no such thing\nNone\n" ||
			r.named(t, "made.txt").Storage != r.SessionID {
			t.Errorf("%+v", r)
		}
		want[failure](t, c.send(t, "POST", "/exec/programmatic", proceeding(t, token, result{CallID: "x"})), 404)
	})
	t.Run("bash", func(t *testing.T) {
		r := c.start(t, "bash", `
one=$(add '{"a": 1}')
echo "$one" | tr -d '\n'; echo " $(get_it_now)"
import || echo "failed with $?"
`)
		for _, step := range []struct {
			calls string
			result
		}{{`add{"a":1} `, result{Result: []int{1, 2}}}, {"get-it.now{} ", result{Result: "text"}},
			{"import{} ", result{IsError: true}}} {
			if r.calls() != step.calls {
				t.Fatalf("%+v", r)
			}
			step.CallID = r.Calls[0].ID
			r = c.proceed(t, r, step.result)
		}
		if r.Status != "completed" || r.Stdout != "[1,2] \"text\"\nfailed with 1\n" || !strings.Contains(r.Stderr,
			"Tool execution failed") {
			t.Errorf("%+v", r)
		}
	})
	t.Run("ends", func(t *testing.T) {
		shared := []any{"runtime_session_hint", "these runs"} // so that they need one container
		for _, p := range []struct{ code, status, says string }{
			{"print(1)", "completed", ""},
			{"print(1)\nif True:\n    return\nprint(2)", "completed", ""},
			{"print(1)\nraise SystemExit(3)", "error", "Sandbox exited with code 3"},
		} {
			if r := c.start(t, "python", p.code, shared...); r.Status != p.status || r.Error != p.says ||
				r.Stdout != "1\n" {
				t.Errorf("%s: %+v", p.code, r)
			}
		}
		r := c.start(t, "python", "import time; time.sleep(1000)", append(shared, "timeout", 300)...)
		if r.Status != "error" || r.Error != "Time limit exceeded" {
			t.Errorf("%+v", r)
		}
	})
	t.Run("refused", func(t *testing.T) {
		for _, p := range []struct {
			body string
			says string
		}{
			{request(t, "py", "1"), "tools"}, {request(t, "js", "1", "tools", tools), "python or bash"},
			{request(t, "py", "1", "tools", []map[string]any{{"name": "a-b"}, {"name": "a_b"}}), "rename"},
			{request(t, "py", "", "tools", tools), "code"},
		} {
			got := want[failure](t, c.send(t, "POST", "/exec/programmatic", p.body), 400)
			if !strings.Contains(got.Error, p.says) {
				t.Errorf("%s: %+v", p.body, got)
			}
		}
	})
	t.Run("nothing stays", func(t *testing.T) { c.left(t, 1) })
}

// left waits until the owner has that many containers: those of ended programs are removed beside the answer.
func (c client) left(t *testing.T, n int) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		list, _, err := c.Sessions.List("ann", session.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("containers: %v", list)
		}
	}
}

// TestCanceledPrograms checks that a program ends with a cancellation, with its client, and with the edge.
func TestCanceledPrograms(t *testing.T) {
	c := newSite(t).client(t, "ann")
	const endless = "import time\nawait add(1)\nopen('begun', 'w').close()\ntime.sleep(1000)"
	if got := c.send(t, "POST", "/exec/programmatic/cancel", `{"request_id": "never"}`); got.status != 200 {
		t.Errorf("%+v", got)
	}
	want[failure](t, c.send(t, "POST", "/exec/programmatic/cancel", `{"request_id": "no/id"}`), 400)
	r := c.start(t, "py", endless)
	answers := make(chan answered, 1)
	go func() {
		answers <- c.send(t, "POST", "/exec/programmatic", proceeding(t, r, result{CallID: r.Calls[0].ID}),
			"X-LibreChat-Code-Request-ID", "me")
	}()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		got := c.send(t, "POST", "/exec/programmatic/cancel", `{"request_id": "me"}`)
		if got.status == 202 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%+v", got)
		}
	}
	if got := <-answers; !strings.Contains(got.body, `"error"`) {
		t.Errorf("%+v", got)
	}
	c.left(t, 0)
	r = c.start(t, "py", endless)
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "POST", c.server.URL+"/librechat/"+c.key+"/v1/exec/programmatic",
		strings.NewReader(proceeding(t, r, result{CallID: r.Calls[0].ID})))
	if err != nil {
		t.Fatal(err)
	}
	go func() { // once the request is being served
		defer cancel()
		for t.Context().Err() == nil {
			got := c.send(t, "POST", "/exec/programmatic", proceeding(t, r, result{CallID: "no"}))
			if got.status == 409 {
				return
			}
		}
	}()
	if res, err := http.DefaultClient.Do(req); err == nil {
		res.Body.Close()
		t.Errorf("status %d", res.StatusCode)
	}
	c.left(t, 0)
	c.start(t, "py", endless) // ends with the edge, which waits for it
}
