package native

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/proto"
	"berth/tools/bridge"

	"github.com/gorilla/websocket"
)

// A server is a client of the API that answers calls.
type server struct {
	t *testing.T
	*websocket.Conn
}

// serve connects to a container and says what it answers.
func (s *site) serve(t *testing.T, at string, names ...string) *server {
	t.Helper()
	w, res := s.dial(t, at+"/tools")
	if w == nil {
		t.Fatalf("status %d", res.StatusCode)
	}
	v := &server{t, w.Conn}
	specs := []proto.ToolSpec{}
	for _, n := range names {
		specs = append(specs, proto.ToolSpec{Name: n, InputSchema: json.RawMessage(`{"type":"object"}`)})
	}
	v.send(bridge.ClientMessage{Type: "serve", Tools: specs})
	return v
}

func (v *server) send(m any) {
	v.t.Helper()
	if err := v.WriteJSON(m); err != nil {
		v.t.Fatal(err)
	}
}

// next is the next message, of the type that is wanted.
func (v *server) next(kind string) (m bridge.DaemonMessage) {
	v.t.Helper()
	_ = v.SetReadDeadline(time.Now().Add(time.Minute))
	if err := v.ReadJSON(&m); err != nil || m.Type != kind {
		v.t.Fatalf("%+v %v, want %s", m, err, kind)
	}
	return m
}

// callTool is a command that calls one tool and prints the answer.
func callTool(id, name, input string) string {
	return fmt.Sprintf(`exec 3<>/dev/tcp/127.0.0.1/3129; body='{"calls":[{"id":"%s","tool":"%s","input":%s}]}'
printf 'POST /v1/calls HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer %%s\r\nContent-Length: %%d\r\n\r\n%%s' "$BERTH_TOOLS_TOKEN" "${#body}" "$body" >&3
grep -a '"id"' <&3`, id, name, input)
}

// want makes a request, wants a status and reads the answer into out, unless that is nil.
func (s *site) want(t *testing.T, method, path string, body any, status int, out any) {
	t.Helper()
	res, text := s.do(t, method, path, body)
	if res.StatusCode != status {
		t.Fatalf("%s %s: %d, want %d: %s", method, path, res.StatusCode, status, text)
	}
	if out != nil {
		if err := json.Unmarshal([]byte(text), out); err != nil {
			t.Fatal(err)
		}
	}
}

// begin runs it in the background.
func (s *site) begin(t *testing.T, at, command string) proto.Exec {
	t.Helper()
	var x proto.Exec
	s.want(t, "POST", at+"/exec", proto.Cmd{Command: command, Background: true}, http.StatusAccepted, &x)
	return x
}

func (s *site) output(t *testing.T, at string, x proto.Exec) string {
	t.Helper()
	var res proto.ExecResult
	s.want(t, "GET", at+"/execs/"+x.ID+"/result?wait_seconds=60", nil, http.StatusOK, &res)
	if res.Result.Result == nil {
		t.Fatalf("%+v", res)
	}
	return strings.TrimSpace(res.Result.Result.Stdout)
}

func TestClientAnswersCalls(t *testing.T) {
	s := eventSite(t)
	var c proto.Container
	s.want(t, "POST", "/v1/containers",
		`{"code_tools":{"allow":["fetch",{"name":"pay","approval":"review"}],"provider":{"type":"client"}},"secrets":{"TOKEN":"secret-value-1"}}`, http.StatusCreated, &c)
	if c.CodeTools == nil || len(c.CodeTools.Allow) != 2 || c.CodeTools.MaxCalls != 1000 ||
		c.CodeTools.Allow[0].Approval != "allow" {
		t.Fatalf("%+v", c.CodeTools)
	}
	at := "/v1/containers/" + c.ID
	if out := s.output(t, at, s.begin(t, at, callTool("0", "fetch", "{}"))); !strings.Contains(out, `"NameError"`) {
		t.Errorf("nobody serves it: %s", out)
	}
	v := s.serve(t, at, "fetch", "pay", "format_disk")
	if m := v.next("serving"); strings.Join(m.Names, " ") != "fetch pay" {
		t.Errorf("%+v", m)
	}
	x := s.begin(t, at, callTool("1", "fetch", `{"u":1}`))
	m := v.next("call")
	if m.Tool != "fetch" || string(m.Input) != `{"u":1}` || m.ExecID != x.ID {
		t.Errorf("%+v", m)
	}
	v.send(bridge.ClientMessage{Type: "result", CallID: m.CallID, Result: json.RawMessage(`{"ok":true}`)})
	if out := s.output(t, at, x); out != `{"id":"1","result":{"ok":true}}` {
		t.Error(out)
	}
	v.send(bridge.ClientMessage{Type: "result", CallID: m.CallID, Result: json.RawMessage(`1`)})
	if bad := v.next("error"); bad.Error.Code != proto.NotFound || bad.CallID != m.CallID {
		t.Errorf("%+v", bad)
	}
	x = s.begin(t, at, callTool("2", "format_disk", `{}`))
	if out := s.output(t, at, x); !strings.Contains(out, `"PermissionError"`) {
		t.Error(out)
	}
	s.reviewed(t, at, v)
	s.comesBack(t, at, v)
	var page page[proto.FeedEvent]
	s.want(t, "GET", "/v1/events?type=approval.", nil, http.StatusOK, &page)
	var told []string
	for _, e := range page.Data {
		told = append(told, string(e.Type)+" "+e.Decision)
		if !strings.HasPrefix(e.Item, "call_") || e.ContainerID != c.ID {
			t.Errorf("%+v", e)
		}
	}
	if !slices.Equal(told, []string{"approval.parked ", "approval.decided approve", "approval.parked ",
		"approval.decided refuse"}) {
		t.Errorf("events: %q", told)
	}
}

// A client that closes its connection properly has gone for good: no call waits for it.
func TestClientSaysGoodbye(t *testing.T) {
	s := newSite(t)
	var c proto.Container
	s.want(t, "POST", "/v1/containers", `{"code_tools":{"allow":["fetch"],"provider":{"type":"client"}}}`,
		http.StatusCreated, &c)
	at := "/v1/containers/" + c.ID
	for _, code := range []int{websocket.CloseNormalClosure, websocket.CloseGoingAway,
		websocket.CloseNoStatusReceived} {
		v := s.serve(t, at, "fetch")
		v.next("serving")
		frame := websocket.FormatCloseMessage(code, "")
		if err := v.WriteControl(websocket.CloseMessage, frame, time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := v.ReadMessage(); err == nil {
			t.Fatal("the daemon does not close")
		}
		x := s.begin(t, at, callTool(fmt.Sprint("goodbye-", code), "fetch", "{}"))
		if out := s.output(t, at, x); !strings.Contains(out, `"NameError"`) {
			t.Errorf("%d: %s", code, out)
		}
	}
}

// reviewed has one call approved and another refused.
func (s *site) reviewed(t *testing.T, at string, v *server) {
	t.Helper()
	x := s.begin(t, at, callTool("3", "pay", `{"to":"secret-value-1"}`))
	one := s.parked(t, at)
	if one.Tool != "pay" || string(one.Input) != `{"to":"[redacted]"}` || one.ExecID != x.ID || one.ExpiresAt == nil {
		t.Fatalf("%+v", one)
	}
	path := at + "/tool_calls/" + one.ID
	s.want(t, "POST", path+"/approve", nil, http.StatusOK, &one)
	if one.Decision == nil {
		t.Errorf("%+v", one)
	}
	m := v.next("call")
	if m.CallID != one.ID || string(m.Input) != `{"to":"secret-value-1"}` {
		t.Errorf("%+v", m)
	}
	v.send(bridge.ClientMessage{Type: "error", CallID: m.CallID, Error: &bridge.CallError{Type: "KeyError",
		Message: "no such account"}})
	if out := s.output(t, at, x); out != `{"id":"3","error":{"type":"RuntimeError","message":"no such account"}}` {
		t.Error(out)
	}
	for _, verb := range []string{"/approve", "/refuse"} {
		s.want(t, "POST", path+verb, nil, http.StatusConflict, nil)
	}
	x = s.begin(t, at, callTool("4", "pay", `{}`))
	s.want(t, "POST", at+"/tool_calls/"+s.parked(t, at).ID+"/refuse", `{"reason":"not today"}`, http.StatusOK, nil)
	if out := s.output(
		t, at,
		x); out != `{"id":"4","error":{"type":"PermissionError","message":"the call of pay was refused: not today"}}` {
		t.Error(out)
	}
}

// parked waits for a call that waits for approval.
func (s *site) parked(t *testing.T, at string) bridge.ToolCall {
	t.Helper()
	var p page[proto.ToolCall]
	for deadline := time.Now().Add(30 * time.Second); len(p.Data) == 0; {
		if time.Now().After(deadline) {
			t.Fatal("no call is parked")
		}
		s.want(t, "GET", at+"/tool_calls?state=parked", nil, http.StatusOK, &p)
	}
	return p.Data[0]
}

// comesBack has the client go away under a call and come back for it.
func (s *site) comesBack(t *testing.T, at string, v *server) {
	t.Helper()
	x := s.begin(t, at, callTool("5", "fetch", `{}`))
	m := v.next("call")
	v.Close()
	again := s.serve(t, at, "fetch", "pay")
	again.next("serving")
	if now := again.next("call"); now.CallID != m.CallID {
		t.Errorf("%+v, %+v before", now, m)
	}
	again.send(bridge.ClientMessage{Type: "result", CallID: m.CallID, Result: json.RawMessage(`"late"`)})
	if out := s.output(t, at, x); out != `{"id":"5","result":"late"}` {
		t.Error(out)
	}
	var p page[proto.ToolCall]
	s.want(t, "GET", at+"/tool_calls?limit=2", nil, http.StatusOK, &p)
	if len(p.Data) != 2 || !p.HasMore || p.Data[0].State != proto.CallSucceeded ||
		p.Data[1].State != proto.CallRefused {
		t.Errorf("%+v", p)
	}
	s.want(t, "GET", at+"/tool_calls/"+p.Data[0].ID, nil, http.StatusOK, nil)
}

func TestGrants(t *testing.T) {
	s := newSite(t)
	for body, status := range map[string]int{
		`{"allow":["tools"]}`:                          400,
		`{"allow":["a b"]}`:                            400,
		`{"allow":["a","a"]}`:                          400,
		`{"allow":["a"],"max_calls":-1}`:               400,
		`{"allow":["a"],"provider":{"type":"telnet"}}`: 400,
		`{"allow":[{"name":"a","approval":"never"}]}`:  400,
		`{"allow":["a"],"provider":{"type":"http","url":"http://example.com","secret":"0123456789abcdef","tools":[{"name":"a"}]}}`: 403,
		`{"allow":[]}`: 201,
	} {
		var c proto.Container
		s.want(t, "POST", "/v1/containers", `{"code_tools":`+body+`}`, status, &c)
		if status == 201 && c.CodeTools != nil {
			t.Errorf("%+v", c.CodeTools)
		}
	}
	var c proto.Container
	s.want(t, "POST", "/v1/containers", `{}`, 201, &c)
	if w, res := s.dial(t, "/v1/containers/"+c.ID+"/tools"); w != nil || res.StatusCode != 409 {
		t.Errorf("a container without tools: %v", res.StatusCode)
	}
}
