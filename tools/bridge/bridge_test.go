package bridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"berth/proto"
	"berth/session"
	"berth/test/sessiontest"
	"berth/tools/bridge"
	"berth/tools/bridge/provider"
)

const owner = sessiontest.Owner

// A bench is a stack with a bridge.
type bench struct {
	*bridge.Bridge
	st      *sessiontest.Stack
	cfg     bridge.Config
	entries chan proto.AuditEntry
}

func newBench(t *testing.T, cfg bridge.Config) *bench {
	t.Helper()
	b := &bench{cfg: cfg, entries: make(chan proto.AuditEntry, 10_000)}
	b.st = sessiontest.OverWith(t, sessiontest.NewRuntime(t), sessiontest.Images{}, session.Config{},
		func(st *sessiontest.Stack, sc *session.Config) {
			cfg := b.cfg
			cfg.Ledger = st.Ledger
			b.Bridge = bridge.Open(cfg)
			sc.Tools = b.Bridge
			sc.Audit = func(e proto.AuditEntry) {
				if e.Call != nil {
					b.entries <- e
				}
			}
		})
	b.Attach(b.st.Sessions)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// restart replaces the daemon by a new one.
func (b *bench) restart(t *testing.T) {
	t.Helper()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	b.st.Reopen(t)
	b.Attach(b.st.Sessions)
}

// create creates a container whose code may call these tools.
func (b *bench) create(t *testing.T, tools proto.CodeTools) *session.Session {
	t.Helper()
	return b.st.Create(t, proto.CreateContainer{CodeTools: tools})
}

// caller is a program in the container that makes one request, repeats it if the connection breaks, and prints each
// line of the answer as it comes.
const caller = `
import http.client, json, os, sys, time
def post(calls, path="/v1/calls", token=None, again=True):
    while True:
        try:
            c = http.client.HTTPConnection("127.0.0.1", 3129, timeout=120)
            c.request("POST", path, json.dumps({"calls": calls}), {"Authorization": "Bearer " + (token or os.environ["BERTH_TOOLS_TOKEN"])})
            r = c.getresponse()
            if r.status != 200:
                return [{"status": r.status, **json.loads(r.read())}]
            lines = []
            for line in r:
                lines.append(json.loads(line))
            if len(lines) == len(calls):
                return lines
        except OSError as e:
            if not again:
                raise
        except http.client.HTTPException:
            pass
        time.sleep(0.05)
def listed():
    c = http.client.HTTPConnection("127.0.0.1", 3129, timeout=30)
    c.request("GET", "/v1/tools", None, {"Authorization": "Bearer " + os.environ["BERTH_TOOLS_TOKEN"]})
    return json.loads(c.getresponse().read())
n = 0
def call(tool, **input):
    global n
    n += 1
    return post([{"id": f"{os.getpid()}-{n}", "tool": tool, "input": input}])[0]
`

// python runs a program and returns its output.
func python(t *testing.T, s *session.Session, text string) string {
	t.Helper()
	res := start(t, s, text)
	return finish(t, res)
}

func start(t *testing.T, s *session.Session, text string) *session.Exec {
	t.Helper()
	e, err := s.Exec(context.Background(), proto.Cmd{Argv: []string{"python3", "-c", caller + text}, Background: true})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func finish(t *testing.T, e *session.Exec) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	res, err := e.Wait(ctx)
	if err != nil || res.Result.Result == nil || res.Result.Result.ReturnCode != 0 {
		t.Fatalf("%v %+v %+v", err, res.Exec.End, res.Result.Result)
	}
	return res.Result.Result.Stdout
}

// next returns the session's next batch.
func next(t *testing.T, o *bridge.ProviderSession) []provider.Call {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	batch, err := o.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return batch
}

// answerAll answers the calls of a session with the sum of a and b.
func answerAll(t *testing.T, o *bridge.ProviderSession) {
	t.Helper()
	go func() {
		for {
			batch, err := o.Next(context.Background())
			if err != nil {
				return
			}
			for _, c := range batch {
				var in struct{ A, B int }
				_ = json.Unmarshal(c.Input, &in)
				_ = o.Answer(c.ID, json.RawMessage(fmt.Sprint(in.A+in.B)), nil)
			}
		}
	}()
}

var add = provider.Tool{Name: "add", Description: "adds", InputSchema: json.RawMessage(
	`{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"required":["a","b"]}`)}

func (b *bench) offer(t *testing.T, s *session.Session, holder string, wait time.Duration,
	tools ...provider.Tool) *bridge.ProviderSession {
	t.Helper()
	o, err := b.Provide(owner, s.ID(), holder, tools, wait)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// A container without tools has neither the variable nor the port.
func TestContainerWithoutTools(t *testing.T) {
	b := newBench(t, bridge.Config{})
	s := b.create(t, proto.CodeTools{Provider: proto.ToolProvider{Type: proto.ProviderClient}})
	out := sessiontest.Bash(
		t, s, `env | grep -c BERTH_TOOLS; (exec 3<>/dev/tcp/127.0.0.1/3129) 2>&1 | grep -c refused`).Stdout
	if out != "0\n2\n" {
		t.Errorf("%q", out)
	}
	o := b.offer(t, s, "gateway", time.Minute, add)
	answerAll(t, o)
	if out := python(t, s, `print(listed()["tools"][0]["name"], call("add", a=1, b=2)["result"])`); out != "add 3\n" {
		t.Errorf("%q", out)
	}
	e := <-b.entries
	if e.Outcome != proto.AuditOK || e.Call.Tool != "add" || e.Call.ID == "" || e.ContainerID != s.ID() ||
		e.ExecID == "" || e.Owner != owner {
		t.Errorf("%+v %+v", e, e.Call)
	}
}

// All calls of one request come to the holder at once, and are answered in any order.
func TestOneBatch(t *testing.T) {
	b := newBench(t, bridge.Config{})
	s := b.create(t, proto.CodeTools{})
	o := b.offer(t, s, "gateway", time.Minute, add)
	e := start(
		t, s,
		`print([l["result"] for l in sorted(post([{"id": f"x{i}", "tool": "add", "input": {"a": i, "b": 0}} for i in range(50)]), key=lambda l: int(l["id"][1:]))])`)
	batch := next(t, o)
	if len(batch) != 50 {
		t.Fatalf("%d calls", len(batch))
	}
	want := []string{}
	for i := range batch {
		c := batch[len(batch)-1-i]
		if c.ContainerID != s.ID() || c.ExecID != e.ID() || c.Tool != "add" {
			t.Errorf("%+v", c)
		}
		if err := o.Answer(c.ID, json.RawMessage(fmt.Sprint(i)), nil); err != nil {
			t.Error(err)
		}
		want = append(want, fmt.Sprint(len(batch)-1-i))
	}
	if out := finish(t, e); strings.TrimSpace(out) != "["+strings.Join(want, ", ")+"]" {
		t.Error(out)
	}
	if err := o.Answer(batch[0].ID, json.RawMessage("1"), nil); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("answered twice: %v", err)
	}
}

// Calls that are not made fail with the type that code knows.
func TestRefusals(t *testing.T) {
	b := newBench(t, bridge.Config{})
	s := b.create(t, proto.CodeTools{Allow: []proto.AllowedTool{{Name: "fetch"}}})
	o := b.offer(t, s, "gateway", time.Second, add)
	for text, want := range map[string]string{
		`call("other")["error"]["type"]`:                                                    "PermissionError",
		`call("Add", a=1, b=2)["error"]["type"]`:                                            "PermissionError",
		`call("add ", a=1, b=2)["error"]["type"]`:                                           "PermissionError",
		`call("tools")["error"]["type"]`:                                                    "ValueError",
		`call("fetch")["error"]["type"]`:                                                    "NameError",
		`call("add", a="x", b=2)["error"]`:                                                  "{'type': 'ValueError', 'message': 'the input of add does not match its schema: input.a: got string, want integer'}",
		`call("add", a=1, b=2)["error"]`:                                                    "{'type': 'TimeoutError', 'message': \"Calling tool ['add'] timed out (no response after 1s).\"}",
		`post([], token="exec_x.y")[0]["status"]`:                                           "401",
		`post([], path="/v1/tools/")[0]["status"]`:                                          "404",
		`post([], path="/v1/tools")[0]["status"]`:                                           "405",
		`post([{"id": "a", "tool": "add"}] * 65)[0]["status"]`:                              "400",
		`post([{"id": "a", "tool": "add", "input": {"a": "x" * (1 << 20)}}])[0]["status"]`:  "413",
		`post([{"id": "a", "tool": "a" * 129, "input": {}}])[0]["status"]`:                  "400",
		`post([{"id": "a/b", "tool": "add", "input": {}}])[0]["error"]["type"]`:             "ValueError",
		`post([{"id": "a", "tool": "add", "input": {}, "owner": "x"}])[0]["error"]["type"]`: "ValueError",
		`post([{"id": "a", "tool": "add", "input": []}])[0]["error"]["type"]`:               "ValueError",
	} {
		if out := strings.TrimSpace(python(t, s, "print("+text+")")); out != want {
			t.Errorf("%s: %s, want %s", text, out, want)
		}
	}
	o.Close()
	if out := python(t, s, `print(call("add", a=1, b=2)["error"]["type"])`); out != "PermissionError\n" {
		t.Error(out)
	}
}

// A wrong call of a request fails alone, whatever client sends it, and its memory is released.
func TestOneWrongCallOfARequest(t *testing.T) {
	b := newBench(t, bridge.Config{})
	s := b.create(t, proto.CodeTools{})
	answerAll(t, b.offer(t, s, "gateway", time.Minute, add))
	out := python(t, s, `
one = lambda id, tool="add", **input: {"id": id, "tool": tool, "input": input}
deep = []
for _ in range(70): deep = [deep]
wrong = {"large": one("large", a="x" * (2 << 20)), "deep": one("deep", a=deep), "name": one("name", "a" * 129), "unicode": one("unicode", a=chr(0xd800))}
lines = {l["id"]: l.get("result") or l["error"]["type"] + ": " + l["error"]["message"] for l in post([one("first", a=1, b=1), *wrong.values(), one("last", a=2, b=2)])}
for id in ("first", *wrong, "last"):
    print(id, lines[id], sep="|")
for i in range(17): # of 2 MiB each, where 16 have room
    lines = post([wrong["large"], one(f"again{i}", a=i, b=1)])
print(len(lines))`)
	want := "first|2\n"
	for _, what := range []string{"large", "deep", "name", "unicode"} {
		want += what + "|ValueError: " + wrongCalls[what] + "\n"
	}
	if want += "last|4\n2\n"; out != want {
		t.Errorf("%s\nwant\n%s", out, want)
	}
	audited := map[string]int{}
	for range 6 {
		e := <-b.entries
		audited[fmt.Sprintf("%s %s %v", e.Call.Tool, e.Call.Error, e.Call.Sent > 2<<20)]++
	}
	if audited["add  false"] != 2 || audited["add ValueError false"] != 2 || audited["add ValueError true"] != 1 ||
		audited[strings.Repeat("a", 128)+"… ValueError false"] != 1 {
		t.Errorf("audited as %v", audited)
	}
}

// The end of a command cancels its calls. A later answer of the holder is refused.
func TestEndOfTheCommand(t *testing.T) {
	b := newBench(t, bridge.Config{Grace: time.Hour}) // the broken connection must not end the call
	s := b.create(t, proto.CodeTools{})
	o := b.offer(t, s, "gateway", time.Minute, add)
	e := start(t, s, `call("add", a=1, b=2)`)
	batch := next(t, o)
	e.Cancel(proto.EndKilled, "the test wants so")
	<-e.Done()
	entry := <-b.entries
	if entry.Outcome == proto.AuditOK {
		t.Errorf("%+v", entry)
	}
	if err := o.Answer(batch[0].ID, json.RawMessage("3"), nil); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("%v", err)
	}
	one, err := b.GetCall(owner, s.ID(), batch[0].ID)
	if err != nil || one.State != proto.CallCanceled {
		t.Errorf("%+v %v", one, err)
	}
}

// A new provider session replaces the earlier one of its holder, and gets its unanswered calls.
func TestReplaced(t *testing.T) {
	b := newBench(t, bridge.Config{})
	s := b.create(t, proto.CodeTools{})
	o := b.offer(t, s, "gateway", time.Minute, add)
	e := start(t, s, `print(call("add", a=1, b=2)["result"])`)
	batch := next(t, o)
	fresh := b.offer(t, s, "gateway", time.Minute, add)
	if again := next(t, fresh); again[0].ID != batch[0].ID {
		t.Errorf("%+v, %+v before", again, batch)
	}
	if err := o.Answer(batch[0].ID, json.RawMessage("1"), nil); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("the earlier offer answers still: %v", err)
	}
	if _, err := o.Next(context.Background()); proto.CodeOf(err) != proto.Canceled {
		t.Errorf("%v", err)
	}
	if err := fresh.Answer(batch[0].ID, json.RawMessage("3"), nil); err != nil {
		t.Error(err)
	}
	if out := finish(t, e); out != "3\n" {
		t.Error(out)
	}
}

// A call outlives the daemon, and so does the wait for its answer. The holder that comes back gets the call again, with
// the same ID.
func TestRestart(t *testing.T) {
	b := newBench(t, bridge.Config{})
	s := b.create(t, proto.CodeTools{})
	o := b.offer(t, s, "gateway", time.Minute, add)
	e := start(t, s, `print(call("add", a=1, b=2)["result"])
print(call("add", a=3, b=4)["result"])`)
	batch := next(t, o)
	b.restart(t)
	s, err := b.st.Sessions.Get(owner, s.ID())
	if err != nil {
		t.Fatal(err)
	}
	o = b.offer(t, s, "gateway", time.Minute, add)
	again := next(t, o)
	if len(again) != 1 || again[0].ID != batch[0].ID || string(again[0].Input) != `{"a": 1, "b": 2}` {
		t.Fatalf("%+v", again)
	}
	if err := o.Answer(again[0].ID, json.RawMessage("3"), nil); err != nil {
		t.Error(err)
	}
	answerAll(t, o)
	e, err = s.FindExec(e.ID())
	if err != nil {
		t.Fatal(err)
	}
	if out := finish(t, e); out != "3\n7\n" {
		t.Error(out)
	}
}
