package bridge_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"berth/proto"
	"berth/session"
	"berth/tools/bridge"
	"berth/tools/bridge/provider"
)

// A person is a client that answers calls by hand.
type person struct {
	*bridge.Client
	got chan bridge.DaemonMessage
}

func (b *bench) connect(t *testing.T, s *session.Session, names ...string) person {
	t.Helper()
	p := person{got: make(chan bridge.DaemonMessage, 100)}
	var err error
	if p.Client, err = b.Connect(context.Background(), owner, s.ID(), func(m bridge.DaemonMessage) error {
		p.got <- m
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	p.serve(t, names...)
	if m := p.next(t); m.Type != "serving" {
		t.Fatalf("%+v", m)
	}
	return p
}

func (p person) serve(t *testing.T, names ...string) {
	t.Helper()
	specs := []proto.ToolSpec{}
	for _, n := range names {
		specs = append(specs, proto.ToolSpec{Name: n})
	}
	if err := p.Handle(bridge.ClientMessage{Type: "serve", Tools: specs}); err != nil {
		t.Fatal(err)
	}
}

func (p person) next(t *testing.T) bridge.DaemonMessage {
	t.Helper()
	select {
	case m := <-p.got:
		return m
	case <-time.After(30 * time.Second):
		t.Fatal("nothing came")
		return bridge.DaemonMessage{}
	}
}

func (p person) result(t *testing.T, call, result string) {
	t.Helper()
	if err := p.Handle(bridge.ClientMessage{Type: "result", CallID: call, Result: json.RawMessage(
		result)}); err != nil {
		t.Error(err)
	}
}

var clientTools = proto.CodeTools{Allow: []proto.AllowedTool{{Name: "fetch"}, {Name: "parse"}}}

// Calls fail when their client is gone for good, and when it no longer serves their tool.
func TestClientLeaves(t *testing.T) {
	b := newBench(t, bridge.Config{Grace: 100 * time.Millisecond})
	s := b.create(t, clientTools)
	p := b.connect(t, s, "fetch", "parse")
	e := start(
		t, s,
		`print(call("fetch")["error"]); print(call("parse")["error"]["type"]); print(call("parse")["error"]["type"])`)
	if m := p.next(t); m.Tool != "fetch" {
		t.Fatalf("%+v", m)
	}
	p.serve(t, "parse")
	if m := p.next(t); m.Type != "serving" || len(m.Names) != 1 {
		t.Errorf("%+v", m)
	}
	if m := p.next(t); m.Tool != "parse" {
		t.Errorf("%+v", m)
	}
	p.Close()
	want := "{'type': 'RuntimeError', 'message': 'the tool fetch is no longer served: its provider has gone'}\n" +
		"RuntimeError\nNameError\n"
	if out := finish(t, e); out != want {
		t.Error(out)
	}
}

// A client that says goodbye serves nothing from then on, however long the bridge waits for clients whose connection
// broke.
func TestClientSaysGoodbye(t *testing.T) {
	b := newBench(t, bridge.Config{Grace: time.Hour})
	s := b.create(t, clientTools)
	p := b.connect(t, s, "fetch", "parse")
	e := start(t, s, `print(call("fetch")["error"]["type"]); print(call("parse")["error"])`)
	if m := p.next(t); m.Tool != "fetch" {
		t.Fatalf("%+v", m)
	}
	p.Leave()
	p.Close() // as after any connection
	want := "RuntimeError\n{'type': 'NameError', 'message': 'no client serves the tool parse now'}\n"
	if out := finish(t, e); out != want {
		t.Error(out)
	}
	// another client that serves the same has its calls
	p, other := b.connect(t, s, "fetch"), b.connect(t, s, "parse", "fetch")
	e = start(t, s, `print(call("fetch")["result"])`)
	m := other.next(t)
	other.Leave()
	if again := p.next(t); again.CallID != m.CallID {
		t.Fatalf("%+v after %+v", again, m)
	}
	p.result(t, m.CallID, `"here"`)
	if out := finish(t, e); out != "here\n" {
		t.Error(out)
	}
}

// A call that fails before its client has received it is never sent to the client.
func TestCallFailsBeforeItsClientHasIt(t *testing.T) {
	b := newBench(t, bridge.Config{})
	s := b.create(t, clientTools)
	p := person{got: make(chan bridge.DaemonMessage, 100)}
	busy, free := make(chan bool, 100), make(chan bool)
	var err error
	p.Client, err = b.Connect(context.Background(), owner, s.ID(), func(m bridge.DaemonMessage) error {
		if m.Type == "call" {
			busy <- true
			<-free
		}
		p.got <- m
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	p.serve(t, "fetch", "parse")
	e := start(t, s, `
import threading
both = [threading.Thread(target=post, args=([{"id": i, "tool": "fetch", "input": {}}],)) for i in "ab"]
for one in both: one.start()
for one in both: one.join()
print(call("parse")["result"])`)
	<-busy
	for p.Queued() == 0 {
		time.Sleep(time.Millisecond)
	}
	p.serve(t, "parse")
	close(free)
	for _, want := range []string{"serving", "serving", "fetch"} {
		if m := p.next(t); m.Type != want && m.Tool != want {
			t.Errorf("%+v, want %s", m, want)
		}
	}
	m := p.next(t)
	if m.Tool != "parse" {
		t.Fatalf("%+v", m)
	}
	p.result(t, m.CallID, "1")
	if out := finish(t, e); out != "1\n" {
		t.Error(out)
	}
}

// The newer of two clients gets the calls. It learns of a call that no request waits for any more.
func TestTwoClients(t *testing.T) {
	b := newBench(t, bridge.Config{})
	s := b.create(t, clientTools)
	first, second := b.connect(t, s, "fetch"), b.connect(t, s, "fetch", "parse")
	defer first.Close()
	e := start(t, s, `print(call("fetch")["result"]); call("parse")`)
	m := second.next(t)
	if err := first.Handle(bridge.ClientMessage{Type: "result", CallID: m.CallID, Result: json.RawMessage(
		`"forged"`)}); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("one client answered another's call: %v", err)
	}
	second.result(t, m.CallID, `"right"`)
	m = second.next(t)
	e.Cancel(proto.EndKilled, "the test wants so")
	if over := second.next(t); over.Type != "cancel" || over.CallID != m.CallID {
		t.Errorf("%+v, %+v before", over, m)
	}
	second.Close()
	if out := python(t, s, `print(listed()["tools"][0]["name"])`); out != "fetch\n" {
		t.Error(out)
	}
}

// A client that reconnects after a restart of the daemon, later than the code, gets its call again.
func TestClientUnderAnotherDaemon(t *testing.T) {
	b := newBench(t, bridge.Config{})
	s := b.create(t, clientTools)
	p := b.connect(t, s, "fetch")
	e := start(t, s, `print(call("fetch")["result"]); print(call("fetch")["result"])`)
	m := p.next(t)
	b.restart(t)
	p.Close()
	s, err := b.st.Sessions.Get(owner, s.ID())
	if err != nil {
		t.Fatal(err)
	}
	p = b.connect(t, s, "fetch")
	defer p.Close()
	again := p.next(t)
	if again.CallID != m.CallID {
		t.Errorf("%+v, %+v before", again, m)
	}
	p.result(t, again.CallID, "1")
	p.result(t, p.next(t).CallID, "2")
	if e, err = s.FindExec(e.ID()); err != nil {
		t.Fatal(err)
	}
	if out := finish(t, e); out != "1\n2\n" {
		t.Error(out)
	}
}

// A wrong message of a client is refused with the name of the wrong field.
func TestClientMessages(t *testing.T) {
	b := newBench(t, bridge.Config{})
	s := b.create(t, clientTools)
	c, err := b.Connect(context.Background(), owner, s.ID(), func(bridge.DaemonMessage) error {
		return errors.New("gone")
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, m := range []bridge.ClientMessage{
		{Type: "sing"}, {Type: "result", CallID: "x", Result: json.RawMessage("1")}, {Type: "error", CallID: "x"},
		{Type: "serve", Tools: []proto.ToolSpec{{Name: "tools"}}}, {Type: "serve", Tools: []proto.ToolSpec{{Name: "a"},
			{Name: "a"}}}, {Type: "serve", Tools: []proto.ToolSpec{
			{Name: "a", InputSchema: json.RawMessage(`{"type":1}`)}}},
	} {
		if err := c.Handle(m); proto.CodeOf(err) != proto.InvalidArgument {
			t.Errorf("%+v: %v", m, err)
		}
	}
	if _, err := b.Connect(context.Background(), "other", s.ID(), nil); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("another owner may answer: %v", err)
	}
}

// The calls of a client that goes, and later calls, go to another connected client with the same tool.
func TestAnotherClientTakesOver(t *testing.T) {
	b := newBench(t, bridge.Config{})
	s := b.create(t, clientTools)
	first, second := b.connect(t, s, "fetch"), b.connect(t, s, "fetch", "parse")
	defer first.Close()
	e := start(t, s, `print(call("fetch")["result"], call("fetch")["result"])`)
	m := second.next(t)
	second.Close()
	got := first.next(t)
	if got.CallID != m.CallID {
		t.Errorf("%+v, %+v before", got, m)
	}
	first.result(t, got.CallID, "1")
	first.result(t, first.next(t).CallID, "2")
	if out := finish(t, e); out != "1 2\n" {
		t.Error(out)
	}
}

// A client gets the calls that wait for a client that has gone, even if it serves fewer tools than that client.
func TestClientServesLess(t *testing.T) {
	b := newBench(t, bridge.Config{})
	s := b.create(t, clientTools)
	p := b.connect(t, s, "fetch", "parse")
	e := start(t, s, `print(call("fetch")["result"])`)
	m := p.next(t)
	p.Close()
	p = b.connect(t, s, "fetch")
	defer p.Close()
	if got := p.next(t); got.CallID != m.CallID {
		t.Errorf("%+v, %+v before", got, m)
	}
	p.result(t, m.CallID, "1")
	if out := finish(t, e); out != "1\n" {
		t.Error(out)
	}
}

// A later daemon knows the tools of all clients, not only those of the last one.
func TestAllClientsUnderAnotherDaemon(t *testing.T) {
	b := newBench(t, bridge.Config{})
	s := b.create(t, clientTools)
	for _, name := range []string{"fetch", "parse"} {
		defer b.connect(t, s, name).Close()
	}
	b.restart(t)
	s, err := b.st.Sessions.Get(owner, s.ID())
	if err != nil {
		t.Fatal(err)
	}
	if out := python(t, s, `print([t["name"] for t in listed()["tools"]])`); out != "['fetch', 'parse']\n" {
		t.Error(out)
	}
}

// A provider session of an earlier daemon whose holder does not return stops hiding the container's own tools.
func TestHolderThatStaysAway(t *testing.T) {
	b := newBench(t, bridge.Config{Grace: 50 * time.Millisecond})
	s := b.create(t, clientTools)
	b.offer(t, s, "gateway", 100*time.Millisecond, provider.Tool{Name: "fetch"})
	b.restart(t)
	s, err := b.st.Sessions.Get(owner, s.ID())
	if err != nil {
		t.Fatal(err)
	}
	p := b.connect(t, s, "fetch")
	defer p.Close()
	e := start(t, s, `
while "error" in (last := call("fetch")):
    time.sleep(0.05)
print(last["result"])`)
	p.result(t, p.next(t).CallID, "1")
	if out := finish(t, e); out != "1\n" {
		t.Error(out)
	}
}
