package bridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/proto"
	"berth/session"
	"berth/test/sessiontest"
	"berth/tools/bridge"
	"berth/tools/bridge/provider"
)

var pay = provider.Tool{Name: "pay", Approval: proto.ApprovalReview}

// parked waits until a call waits for approval.
func (b *bench) parked(t *testing.T, s *session.Session) bridge.ToolCall {
	t.Helper()
	return b.await(t, s, proto.CallParked)
}

func (b *bench) await(t *testing.T, s *session.Session, state proto.ToolCallState) bridge.ToolCall {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		list, _, err := b.Calls(owner, s.ID(), bridge.Filter{State: state})
		if err != nil {
			t.Fatal(err)
		}
		if len(list) > 0 {
			return list[0]
		}
	}
	t.Fatalf("no call is %s", state)
	return bridge.ToolCall{}
}

// Of several decisions about a call one counts, and it is for that call alone.
func TestOneDecision(t *testing.T) {
	b := newBench(t, bridge.Config{})
	s := b.create(t, proto.CodeTools{})
	o := b.offer(t, s, "gateway", time.Minute, pay)
	answerAll(t, o)
	e := start(t, s, `print(call("pay", a=1, b=2)); print(call("pay", a=1, b=2))`)
	one := b.parked(t, s)
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for range 8 {
		wg.Go(func() {
			_, err := b.Approve(context.Background(), owner, s.ID(), one.ID)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won++
			} else if proto.CodeOf(err) != proto.Conflict {
				t.Error(err)
			}
		})
	}
	if wg.Wait(); won != 1 {
		t.Errorf("%d decisions about one call", won)
	}
	second := b.parked(t, s)
	if second.ID == one.ID {
		t.Fatal("one approval unlocked another call")
	}
	if _, err := b.Approve(context.Background(), "other", s.ID(), second.ID); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("another owner may approve: %v", err)
	}
	if _, err := b.Refuse(context.Background(), owner, s.ID(), second.ID,
		bridge.Refusal{Reason: "once is enough"}); err != nil {
		t.Fatal(err)
	}
	want := "{'id': 'N-1', 'result': 3}\n{'id': 'N-2', 'error': {'type': 'PermissionError', 'message': 'the call of " +
		"pay was refused: once is enough'}}\n"
	if out := finish(t, e); strings.Count(out, "\n") != 2 ||
		!strings.HasSuffix(out, want[strings.LastIndex(want, "-2"):]) || !strings.Contains(out, "'result': 3") {
		t.Error(out)
	}
}

// A call may be approved while its code is disconnected. Another input with the same id is another call, which needs
// an approval of its own.
func TestApprovalUnderAnotherDaemon(t *testing.T) {
	b := newBench(t, bridge.Config{})
	s := b.create(t, proto.CodeTools{})
	b.offer(t, s, "gateway", time.Minute, pay)
	e := start(t, s, `
import urllib.request
first = {"id": "same", "tool": "pay", "input": {"a": 1, "b": 2}}
print(post([first])[0]["result"])
print(post([{**first, "input": {"a": 100, "b": 2}}])[0]["error"]["type"])
print(post([first])[0]["error"]["message"])`)
	one := b.parked(t, s)
	b.restart(t)
	s, _ = b.st.Sessions.Get(owner, s.ID())
	if _, err := b.Approve(context.Background(), owner, s.ID(), one.ID); err != nil {
		t.Fatal(err)
	}
	answerAll(t, b.offer(t, s, "gateway", time.Minute, pay))
	e, err := s.FindExec(e.ID())
	if err != nil {
		t.Fatal(err)
	}
	if out := finish(
		t, e); out != "3\nValueError\nthe call of pay has ended, and its result was discarded\n" {
		t.Error(out)
	}
}

// A call expires if it is not approved in time, and ends with its command.
func TestTooLate(t *testing.T) {
	b := newBench(t, bridge.Config{ParkTime: 200 * time.Millisecond})
	s := b.create(t, proto.CodeTools{})
	b.offer(t, s, "gateway", time.Minute, pay)
	if out := python(
		t, s, `print(call("pay")["error"]["message"])`); out != "the call of pay was not approved in time\n" {
		t.Error(out)
	}
	one := b.await(t, s, proto.CallExpired)
	if _, err := b.Approve(context.Background(), owner, s.ID(), one.ID); proto.CodeOf(err) != proto.Conflict {
		t.Errorf("%v", err)
	}
}

// The code's connection may break. If the code does not come back in time, its call ends, and the provider learns
// that.
func TestGrace(t *testing.T) {
	b := newBench(t, bridge.Config{Grace: 100 * time.Millisecond})
	s := b.create(t, proto.CodeTools{})
	o := b.offer(t, s, "gateway", time.Minute, add)
	e := start(t, s, `
pid = os.fork()
if pid == 0:
    call("add", a=1, b=2)
while not os.path.exists("/tmp/go"):
    time.sleep(0.01)
os.kill(pid, 9)
time.sleep(60)`)
	batch := next(t, o)
	sessiontest.Bash(t, s, "touch /tmp/go")
	if got := b.await(t, s, proto.CallCanceled); got.ID != batch[0].ID {
		t.Errorf("%+v", got)
	}
	e.Cancel(proto.EndKilled, "it is enough")
	if err := o.Answer(batch[0].ID, json.RawMessage("3"), nil); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("%v", err)
	}
}

// Calls that the code hung up on do not count as under way once they have ended, even if no provider answers.
func TestHungUp(t *testing.T) {
	b := newBench(t, bridge.Config{Grace: 20 * time.Millisecond})
	s := b.create(t, proto.CodeTools{})
	o := b.offer(t, s, "gateway", time.Minute, add)
	go func() {
		for batch, err := o.Next(context.Background()); err == nil; batch, err = o.Next(context.Background()) {
			for _, c := range batch {
				if string(c.Input) == `{"a": 7, "b": 2}` {
					_ = o.Answer(c.ID, json.RawMessage("9"), nil)
				}
			}
		}
	}()
	out := python(t, s, `
for i in range(260):
    c = http.client.HTTPConnection("127.0.0.1", 3129, timeout=30)
    c.request("POST", "/v1/calls", json.dumps({"calls": [{"id": f"x{i}", "tool": "add", "input": {"a": i, "b": 0}}]}), {"Authorization": "Bearer " + os.environ["BERTH_TOOLS_TOKEN"]})
    r = c.getresponse()
    r.close()
    c.close()
end = time.time() + 30
while "error" in (last := call("add", a=7, b=2)) and time.time() < end:
    time.sleep(0.1)
print(last.get("result", last.get("error")))`)
	if out != "9\n" {
		t.Error(out)
	}
}

// Code that asks for the list too often is told so.
func TestListTooOften(t *testing.T) {
	b := newBench(t, bridge.Config{PerMin: 1})
	s := b.create(t, proto.CodeTools{})
	answerAll(t, b.offer(t, s, "gateway", time.Minute, add))
	if out := python(t, s, `
for _ in range(64):
    listed()
print(listed())`); !strings.Contains(out, "asks more often than it may") {
		t.Error(out)
	}
}

// A refused call leaves nothing in the daemon's memory.
func TestRefusedCallIsOver(t *testing.T) {
	b := newBench(t, bridge.Config{})
	s := b.create(t, proto.CodeTools{})
	e := start(t, s, `time.sleep(60)`)
	defer e.Cancel(proto.EndKilled, "it is enough")
	if ctx := b.Begin(s, e, "nothing"); ctx.Err() == nil {
		t.Error("the call was refused, and its context is there still")
	}
}

// Only a running command may call tools, with its own token, in its own container.
func TestTokens(t *testing.T) {
	b := newBench(t, bridge.Config{})
	s, other := b.create(t, proto.CodeTools{}), b.create(t, proto.CodeTools{})
	for _, one := range []*session.Session{s, other} {
		answerAll(t, b.offer(t, one, "gateway", time.Minute, add))
	}
	token := strings.TrimSpace(python(t, s, `print(os.environ["BERTH_TOOLS_TOKEN"])`))
	ask := func(one *session.Session, token string) string {
		return strings.TrimSpace(python(
			t, one, `print(post([{"id": "1", "tool": "add", "input": {"a": 1, "b": 2}}], token="`+token+
				`")[0].get("status"))`))
	}
	if got := ask(s, token); got != "401" {
		t.Errorf("the token of a command that has ended: %s", got)
	}
	e := start(t, s, `print(os.environ["BERTH_TOOLS_TOKEN"], flush=True); time.sleep(60)`)
	defer e.Cancel(proto.EndKilled, "it is enough")
	token = ""
	_ = e.Follow(context.Background(), session.Cursor{}, func(ev proto.Event) error {
		if ev.Type == proto.EventStdout {
			token = strings.TrimSpace(ev.Data)
			return context.Canceled
		}
		return nil
	})
	if got := ask(s, token); got != "None" {
		t.Errorf("the token of a command that runs: %s", got)
	}
	for name, bad := range map[string]string{"longer": token + "0", "cut": token[:len(token)-1], "an ID": e.ID(),
		"none": " ", "upper": strings.ToUpper(token)} {
		if got := ask(s, bad); got != "401" {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := ask(other, token); got != "401" {
		t.Errorf("in another container: %s", got)
	}
}

// Each command has its own budget of calls.
func TestBudget(t *testing.T) {
	b := newBench(t, bridge.Config{})
	s := b.create(t, proto.CodeTools{Allow: []proto.AllowedTool{{Name: "fetch"}}, MaxCalls: 3})
	c, err := b.Connect(context.Background(), owner, s.ID(), nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	sent := make(chan bridge.DaemonMessage, 100)
	c, _ = b.Connect(context.Background(), owner, s.ID(), func(m bridge.DaemonMessage) error { sent <- m; return nil })
	defer c.Close()
	if err := c.Handle(bridge.ClientMessage{Type: "serve", Tools: []proto.ToolSpec{{Name: "fetch"},
		{Name: "rm"}}}); err != nil {
		t.Fatal(err)
	}
	if m := <-sent; m.Type != "serving" || len(m.Names) != 1 {
		t.Errorf("%+v", m)
	}
	for range 2 {
		e := start(t, s, `print([call("fetch").get("error", {}).get("message") for i in range(4)])`)
		for range 3 {
			m := <-sent
			if err := c.Handle(bridge.ClientMessage{Type: "result", CallID: m.CallID, Result: json.RawMessage(
				"null")}); err != nil {
				t.Error(err)
			}
		}
		if out := finish(t, e); out != "[None, None, None, 'this command has made 3 calls, which is its limit']\n" {
			t.Error(out)
		}
	}
}

// Schemas that recurse without end, or refer to files and servers, are refused or harmless.
func TestSchemas(t *testing.T) {
	b := newBench(t, bridge.Config{})
	s := b.create(t, proto.CodeTools{})
	file := filepath.Join(t.TempDir(), "any.json")
	if err := os.WriteFile(file, []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	for schema, ok := range map[string]bool{
		`{"$ref":"file://` + file + `"}`:     false,
		`{"$ref":"#"}`:                       false,
		`{"$ref":"http://127.0.0.1/schema"}`: false,
		`{"$ref":"file:///etc/passwd"}`:      false,
		`{"type":"nothing"}`:                 false,
		`[`:                                  false,
		`{"type":"object","properties":{"a":{"$ref":"#"}}}`:                          true,
		`{"allOf":[{"$ref":"#/$defs/x"}],"$defs":{"x":{"$ref":"#/$defs/x"}}}`:        false,
		`{"type":"object","properties":{"a":{"pattern":"(a+)+$"}}}`:                  true,
		`{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object"}`: true,
	} {
		o, err := b.Provide(owner, s.ID(), "x", []provider.Tool{{Name: "t", InputSchema: json.RawMessage(schema)}},
			time.Minute)
		if err == nil {
			answerAll(t, o)
			if out := python(t, s, `print(len(call("t", a={"a": {"a": {}}})))`); out != "2\n" {
				t.Errorf("%s: %s", schema, out)
			}
		}
		if strings.Contains(schema, "://"+file) && err == nil {
			t.Error("a schema has the daemon read files")
		}
		if ok && err != nil || err != nil && proto.CodeOf(err) != proto.InvalidArgument {
			t.Errorf("%s: %v", schema, err)
		}
	}
}

// A sweep ends calls of an earlier daemon that their code does not take up again, and later forgets them.
func TestSweep(t *testing.T) {
	now := time.Now()
	b := newBench(t, bridge.Config{Now: func() time.Time { return now }})
	s := b.create(t, proto.CodeTools{})
	o := b.offer(t, s, "gateway", time.Minute, add, pay)
	e := start(t, s, `call("pay")`)
	b.parked(t, s)
	if done, err := b.Sweep(context.Background()); err != nil || done != (bridge.Swept{}) {
		t.Errorf("%+v %v", done, err)
	}
	if err := b.Close(); err != nil { // while the command ends
		t.Error(err)
	}
	e.Cancel(proto.EndKilled, "the test wants so")
	<-e.Done()
	b.restart(t)
	if done, err := b.Sweep(context.Background()); err != nil || done.Ended != 1 {
		t.Errorf("%+v %v", done, err)
	}
	b.await(t, s, proto.CallCanceled)
	now = now.Add(8 * 24 * time.Hour)
	if done, err := b.Sweep(context.Background()); err != nil || done.Forgotten != 1 {
		t.Errorf("%+v %v", done, err)
	}
	o.Close()
}

// A decision that is made while the code reconnects reaches the call and stays recorded.
func TestDecidedWhileComingBack(t *testing.T) {
	b := newBench(t, bridge.Config{})
	s := b.create(t, proto.CodeTools{})
	b.offer(t, s, "gateway", time.Minute, pay)
	const many = 40
	e := start(t, s, `
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(40) as pool:
    print(sum(l[0]["error"]["type"] == "PermissionError" for l in pool.map(lambda i: post([{"id": f"x{i}", "tool": "pay", "input": {}}]), range(40))))`)
	var list []bridge.ToolCall
	for end := time.Now().Add(30 * time.Second); len(list) < many &&
		time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		list, _, _ = b.Calls(owner, s.ID(), bridge.Filter{State: proto.CallParked, Limit: many})
	}
	b.restart(t)
	for _, one := range list {
		if _, err := b.Refuse(context.Background(), owner, s.ID(), one.ID, bridge.Refusal{}); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Millisecond) // so that some decisions come before the code, and some after it
	}
	s, _ = b.st.Sessions.Get(owner, s.ID())
	e, err := s.FindExec(e.ID())
	if err != nil {
		t.Fatal(err)
	}
	if out := finish(t, e); out != "40\n" {
		t.Error(out)
	}
	for _, one := range list {
		if got, err := b.GetCall(owner, s.ID(), one.ID); err != nil || got.State != proto.CallRefused ||
			got.Decision == nil {
			t.Errorf("%+v %v", got, err)
		}
	}
}

// A decision at the last moment either counts or is too late, never both.
func TestDecidedAtTheLastMoment(t *testing.T) {
	b := newBench(t, bridge.Config{ParkTime: 300 * time.Millisecond})
	s := b.create(t, proto.CodeTools{})
	answerAll(t, b.offer(t, s, "gateway", time.Minute, pay))
	for i := range 8 {
		e := start(t, s, `print(call("pay", a=1, b=2).get("result"))`)
		one := b.parked(t, s)
		// the decision has to come close to the deadline
		time.Sleep(time.Until(one.ExpiresAt.Time) - time.Duration(i)*500*time.Microsecond)
		_, err := b.Approve(context.Background(), owner, s.ID(), one.ID)
		want, state := "3\n", proto.CallSucceeded
		if err != nil {
			want, state = "None\n", proto.CallExpired
		}
		if out := finish(t, e); out != want {
			t.Errorf("approving said %v, and the code got %s", err, out)
		}
		if got, _ := b.GetCall(owner, s.ID(), one.ID); got.State != state {
			t.Errorf("approving said %v, and the call is %s", err, got.State)
		}
	}
}

// Calls that a session's holder has not fetched go to the session that replaces it, and only there.
func TestOfferTakesAll(t *testing.T) {
	b := newBench(t, bridge.Config{})
	s := b.create(t, proto.CodeTools{})
	old := b.offer(t, s, "gateway", time.Minute, add)
	e := start(t, s, `print(call("add", a=1, b=2)["result"])`)
	b.await(t, s, proto.CallRunning)
	answerAll(t, b.offer(t, s, "gateway", time.Minute, add))
	if batch, err := old.Next(t.Context()); err == nil {
		t.Errorf("the offer that was replaced gave out %+v", batch)
	}
	if out := finish(t, e); out != "3\n" {
		t.Error(out)
	}
}

// Results that the code has not fetched are bounded together. Fetching them frees the memory.
func TestUntakenResults(t *testing.T) {
	b := newBench(t, bridge.Config{})
	s := b.create(t, proto.CodeTools{})
	o := b.offer(t, s, "gateway", time.Minute, add)
	large := json.RawMessage(`"` + strings.Repeat("x", 4<<20-2) + `"`)
	answer := func(batch []provider.Call) {
		for _, c := range batch {
			if err := o.Answer(c.ID, large, nil); err != nil {
				t.Error(err)
			}
		}
	}
	e := start(t, s, `
c = http.client.HTTPConnection("127.0.0.1", 3129, timeout=120)
c.request("POST", "/v1/calls", json.dumps({"calls": [{"id": f"x{i}", "tool": "add", "input": {"a": i, "b": 0}} for i in range(48)]}), {"Authorization": "Bearer " + os.environ["BERTH_TOOLS_TOKEN"]})
while not os.path.exists("go"):
    time.sleep(0.02)
lines = [json.loads(line) for line in c.getresponse()]
print(len(lines), sum("error" in l and "has not fetched" in l["error"]["message"] for l in lines) in range(10, 17))
print(sum(len(l["result"]) == (4 << 20) - 2 for l in post([{"id": f"y{i}", "tool": "add", "input": {"a": i, "b": 0}} for i in range(24)])))`)
	answer(next(t, o))
	for over := 0; over < 48; time.Sleep(10 * time.Millisecond) {
		over = 0
		list, _, err := b.Calls(owner, s.ID(), bridge.Filter{Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range list {
			if one.State.Over() {
				over++
			}
		}
	}
	sessiontest.Bash(t, s, "touch go") // in the same job
	answer(next(t, o))
	if out := finish(t, e); out != "48 True\n24\n" {
		t.Error(out)
	}
}

// The bound for results counts the received part of answers that are not complete yet.
func TestResultsOnTheirWay(t *testing.T) {
	goOn := make(chan struct{})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"result":"`+strings.Repeat("x", 4<<20-100))
		_ = http.NewResponseController(w).Flush()
		<-goOn
		_, _ = io.WriteString(w, `"}`)
	}))
	defer web.Close()
	dialer := &net.Dialer{}
	b := newBench(t, bridge.Config{Reach: func(string) error { return nil }, Dial: dialer.DialContext})
	s := b.create(t, proto.CodeTools{Allow: []proto.AllowedTool{{Name: "fetch"}}, Provider: proto.ToolProvider{
		Type: proto.ProviderHTTP, URL: web.URL, Secret: strings.Repeat("s", 16), Tools: []proto.ToolSpec{
			{Name: "fetch"}},
	}})
	e := start(t, s, `
lines = post([{"id": f"x{i}", "tool": "fetch", "input": {}} for i in range(40)], again=False)
print(len(lines), any("result" in l for l in lines), all("result" in l or "has not fetched" in l["error"]["message"] for l in lines))`)
	one := b.await(t, s, proto.CallFailed)
	close(goOn)
	if one.Error == nil || !strings.Contains(one.Error.Message, "has not fetched") {
		t.Errorf("%+v", one)
	}
	if out := finish(t, e); out != "40 True True\n" {
		t.Error(out)
	}
}

// When one of two clients goes for good, the next daemon knows the other's tools before that client reconnects.
func TestOneOfTwoClientsGoes(t *testing.T) {
	b := newBench(t, bridge.Config{Grace: 50 * time.Millisecond})
	s := b.create(t, proto.CodeTools{Allow: []proto.AllowedTool{{Name: "first"}, {Name: "second"}}})
	connect := func(name string, sent chan bridge.DaemonMessage) *bridge.Client {
		t.Helper()
		c, err := b.Connect(t.Context(), owner, s.ID(), func(m bridge.DaemonMessage) error { sent <- m; return nil })
		if err == nil {
			err = c.Handle(bridge.ClientMessage{Type: "serve", Tools: []proto.ToolSpec{{Name: name}}})
		}
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	sent := make(chan bridge.DaemonMessage, 10)
	first := connect("first", sent)
	connect("second", sent)
	first.Close()
	list := `print([t["name"] for t in listed()["tools"]])`
	for end := time.Now().Add(30 * time.Second); python(t, s, list) != "['second']\n"; {
		if time.Now().After(end) {
			t.Fatal("what the client that has gone served is still listed")
		}
	}
	b.cfg.Grace = 30 * time.Second
	b.restart(t)
	s, _ = b.st.Sessions.Get(owner, s.ID())
	if out := python(t, s, list); out != "['second']\n" {
		t.Errorf("%s", out)
	}
}

// The audit log has that a call waits before anybody has decided about it, however fast the decision is.
func TestParkedIsToldBeforeTheDecision(t *testing.T) {
	b := newBench(t, bridge.Config{})
	s := b.create(t, proto.CodeTools{})
	answerAll(t, b.offer(t, s, "gateway", time.Minute, pay))
	const calls = 100
	e := start(t, s, fmt.Sprintf("from concurrent.futures import ThreadPoolExecutor\n"+
		"list(ThreadPoolExecutor(20).map(lambda i: call('pay', a=i, b=2), range(%d)))", calls))
	told := map[string]bool{}
	for decided := 0; decided < calls; {
		list, _, err := b.Calls(owner, s.ID(), bridge.Filter{State: proto.CallParked})
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range list { // asked for without a pause, to be faster than the call itself
			if _, err := b.Approve(context.Background(), owner, s.ID(), one.ID); err != nil {
				t.Fatal(err)
			}
			for len(b.entries) > 0 {
				if entry := <-b.entries; entry.Act == "tool_call.park" {
					told[entry.Item] = true
				}
			}
			if decided++; !told[one.ID] {
				t.Fatalf("call %d was decided, and nothing says that it waited", decided)
			}
		}
	}
	finish(t, e)
}
