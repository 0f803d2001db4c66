package mcp

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"berth/api"
	"berth/proto"
	"berth/test/sessiontest"
)

func TestSessionHasItsOwnContainer(t *testing.T) {
	s := newSite(t, nil)
	cs := s.session(t)
	if c := s.Sessions.Counts(); len(c.ByState) != 0 {
		t.Errorf("a session that asked for nothing has a container: %+v", c)
	}
	res, _ := use(t, cs, "bash", map[string]any{"command": "cd /tmp; X=7; echo kept >/workspace/kept"})
	id := containerOf(t, res)
	if _, text := use(t, cs, "bash", map[string]any{"command": "pwd; echo $X"}); text != "/tmp\n7\n" {
		t.Errorf("the shell forgot: %q", text)
	}
	res, text := use(t, cs, "run_code", map[string]any{"code": "open('/workspace/kept').read()"})
	if containerOf(t, res) != id || text != "'kept\\n'" {
		t.Errorf("in %s: %q", containerOf(t, res), text)
	}
	if err := cs.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sessions.Get(sessiontest.Owner, id); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("the container outlived its session: %v", err)
	}
}

func TestContainerThatIsNamedStays(t *testing.T) {
	s := newSite(t, nil)
	made, err := s.Sessions.Create(t.Context(), sessiontest.Owner, proto.CreateContainer{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ query, header string }{{"?container=" + made.ID(), ""}, {"", made.ID()}} {
		cs, err := s.connect(t, sessiontest.Secret, c.query, nil, "Berth-Container", c.header)
		if err != nil {
			t.Fatal(err)
		}
		res, _ := use(t, cs, "bash", map[string]any{"command": "true"})
		if containerOf(t, res) != made.ID() {
			t.Errorf("%+v: it was done in %s", c, containerOf(t, res))
		}
		cs.Close()
	}
	cs := s.session(t)
	if res, _ := use(t, cs, "bash", map[string]any{"command": "true", "container": made.ID()}); containerOf(
		t, res) != made.ID() {
		t.Errorf("%v", res.Meta)
	}
	cs.Close()
	if _, err := s.Sessions.Get(sessiontest.Owner, made.ID()); err != nil {
		t.Errorf("a container that was named went with the session: %v", err)
	}
	for query, want := range map[string]string{"?container=container_nope": "container_nope", "?what=1": "what",
		"?image=nope&container=" + made.ID(): "image"} {
		if _, err := s.connect(t, sessiontest.Secret, query, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", query, err)
		}
	}
}

func TestContainerThatIsGoneIsReplaced(t *testing.T) {
	s := newSite(t, nil)
	cs := s.session(t)
	res, _ := use(t, cs, "bash", map[string]any{"command": "true"})
	first := containerOf(t, res)
	if err := s.Sessions.Delete(t.Context(), sessiontest.Owner, first, false); err != nil {
		t.Fatal(err)
	}
	res, text := use(t, cs, "bash", map[string]any{"command": "echo here"})
	if containerOf(t, res) == first || !strings.Contains(text, "here\n") || !strings.Contains(text, first) {
		t.Errorf("%s: %q", containerOf(t, res), text)
	}
}

func TestSessionsAreTheirOwners(t *testing.T) {
	s := newSite(t, nil)
	other, err := s.Keys.Create(proto.Caller{Owner: sessiontest.Owner, Admin: true}, proto.CreateKey{
		Owner: "somebody-else"})
	if err != nil {
		t.Fatal(err)
	}
	cs := s.session(t)
	use(t, cs, "bash", map[string]any{"command": "true"})
	foreign, err := s.Sessions.Create(t.Context(), "somebody-else", proto.CreateContainer{})
	if err != nil {
		t.Fatal(err)
	}
	if res, text := use(t, cs, "bash", map[string]any{"command": "true", "container": foreign.ID()}); !res.IsError {
		t.Errorf("a tool ran in another owner's container: %s", text)
	}
	list := `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`
	if status, body := s.post(t, sessiontest.Secret, cs.ID(), list); status != http.StatusOK ||
		!strings.Contains(body, "run_code") {
		t.Errorf("its owner: %d %s", status, body)
	}
	status, theirs := s.post(t, other.Secret, cs.ID(), list)
	unknown, never := s.post(t, other.Secret, "NEVER", list)
	if status != http.StatusNotFound || unknown != status || withoutID(t, theirs) != withoutID(t, never) {
		t.Errorf("another owner's key: %d %s; a session that never was: %d %s", status, theirs, unknown, never)
	}
	req, _ := http.NewRequestWithContext(t.Context(), "DELETE", s.URL+"/mcp", nil)
	if status, body := s.send(t, req, other.Secret, cs.ID()); status != http.StatusNotFound {
		t.Errorf("another owner's DELETE: %d %s", status, body)
	}
	if status, body := s.post(t, "", "", hello); status != http.StatusUnauthorized ||
		!strings.Contains(body, `"jsonrpc":"2.0"`) {
		t.Errorf("without a key: %d %s", status, body)
	}
}

// withoutID is an error's body without the request's ID.
func withoutID(t *testing.T, body string) string {
	t.Helper()
	var v struct {
		Error struct {
			Message string
			Data    map[string]any
		}
	}
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	delete(v.Error.Data, "request_id")
	return string(encode(v))
}

func TestOrigin(t *testing.T) {
	s := newSite(t, func(c *Config) { c.Origins = []string{"https://ok.example"} })
	host := strings.TrimPrefix(s.URL, "http://")
	for _, c := range []struct {
		origin, host string
		want         int
	}{
		{"", "", http.StatusOK}, {"http://" + host, "", http.StatusOK}, {"https://ok.example", "", http.StatusOK},
		{"http://evil.example", "", http.StatusForbidden}, {"null", "", http.StatusForbidden},
		{"http://evil.example:80", "evil.example:80", http.StatusForbidden}, // its name was made to mean this machine
		{"http://localhost:1", "localhost:1", http.StatusOK},
	} {
		req, _ := http.NewRequestWithContext(t.Context(), "POST", s.URL+"/mcp", strings.NewReader(hello))
		req.Host = c.host
		header := []string{}
		if c.origin != "" {
			header = []string{"Origin", c.origin}
		}
		if status, body := s.send(t, req, sessiontest.Secret, "", header...); status != c.want {
			t.Errorf("%+v: %d %s", c, status, body)
		}
	}
}

func TestIdleSessionGoesWithItsContainer(t *testing.T) {
	s := newSite(t, func(c *Config) { c.Idle = 300 * time.Millisecond })
	cs := s.session(t)
	res, _ := use(t, cs, "bash", map[string]any{"command": "true"})
	id := containerOf(t, res)
	waitFor(t, "the container is deleted", func() bool {
		_, err := s.Sessions.Get(sessiontest.Owner, id)
		return proto.CodeOf(err) == proto.NotFound
	})
	if status, body := s.post(t, sessiontest.Secret, cs.ID(),
		`{"jsonrpc":"2.0","id":2,"method":"ping"}`); status != http.StatusNotFound {
		t.Errorf("%d %s", status, body)
	}
}

func TestSessionsAreBounded(t *testing.T) {
	s := newSite(t, nil)
	for i := range maxSessions + 1 {
		status, body := s.post(t, sessiontest.Secret, "", hello)
		if want := i < maxSessions; (status == http.StatusOK) != want {
			t.Fatalf("session %d: %d %s", i+1, status, body)
		}
	}
	if status, _ := s.post(t, sessiontest.Secret, "", hello); status != http.StatusTooManyRequests {
		t.Errorf("%d", status)
	}
}

// Each message counts against the rate of its key, so a body of many is none.
func TestBatchesAreRefused(t *testing.T) {
	s := newSite(t, nil)
	slow, err := s.Keys.Create(proto.Caller{Owner: sessiontest.Owner, Admin: true}, proto.CreateKey{
		Owner: sessiontest.Owner, Quota: proto.Quota{RequestsPerSecond: 1, Burst: 5}})
	if err != nil {
		t.Fatal(err)
	}
	cs := s.session(t)
	res, _ := use(t, cs, "bash", map[string]any{"command": "true"})
	box, err := s.Sessions.Get(sessiontest.Owner, containerOf(t, res))
	if err != nil {
		t.Fatal(err)
	}
	batch := []any{}
	for i := range 50 {
		batch = append(batch, map[string]any{"jsonrpc": "2.0", "id": i, "method": "tools/call",
			"params": map[string]any{"name": "bash", "arguments": map[string]any{
				"command": "echo x >>/workspace/ran"}}})
	}
	for _, blank := range []string{"", " \t\r\n"} {
		status, body := s.post(t, slow.Secret, cs.ID(), blank+string(encode(batch)))
		if status != http.StatusBadRequest || !strings.Contains(body, `"code":-32600`) ||
			!strings.Contains(body, `"id":null`) || !strings.Contains(body, "request of its own") {
			t.Errorf("%d %.300s", status, body)
		}
	}
	if out := sessiontest.Bash(t, box, "cat /workspace/ran").Stdout; out != "" {
		t.Errorf("%d calls of a batch ran", strings.Count(out, "x"))
	}
}

// What is no message of the protocol, or asks for what is not there, is told so in the protocol's words, by the
// message's ID.
func TestRefusalsAreOfTheProtocol(t *testing.T) {
	s := newSite(t, nil)
	id := s.session(t).ID()
	for message, want := range map[string]struct {
		status int
		code   string
	}{
		`{"jsonrpc":"2.0","id":3,"method":"nosuch"}`:       {200, `"id":3,"error":{"code":-32601,`},
		`{"jsonrpc":"2.0","id":"a","method":"tools/call"}`: {200, `"id":"a","error":{"code":-32602,`},
		`{"jsonrpc":"2.0","id":3,`:                         {400, `"id":null,"error":{"code":-32700,`},
		`{"jsonrpc":"1.0","id":3,"method":"ping"}`:         {400, `"error":{"code":-32600,`},
		`{}`: {400, `"error":{"code":-32600,`},
		`{"jsonrpc":"2.0","method":"notifications/nosuch"}`: {202, ""},
	} {
		if status, body := s.post(t, sessiontest.Secret, id, message); status != want.status ||
			!strings.Contains(body, want.code) {
			t.Errorf("%s: %d %s", message, status, body)
		}
	}
}

// A call that the end of the daemon cuts off is told so, and not answered by nothing.
func TestCallPastTheGraceOfAShutdown(t *testing.T) {
	s := newSite(t, nil)
	cs := s.session(t)
	box := s.Create(t, proto.CreateContainer{})
	server, err := api.New(api.Config{Auth: s.Keys, Edges: []api.Edge{s.edge.Edge()}, Grace: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, l) }()
	go func() {
		if _, _, err := box.NextExecs(t.Context(), 0); err == nil {
			stop()
		}
	}()
	call := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"bash","arguments":{"container":"` +
		box.ID() + `","command":"sleep 1000"}}}`
	req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+l.Addr().String()+"/mcp", strings.NewReader(
		call))
	if err != nil {
		t.Fatal(err)
	}
	if status, body := s.send(t, req, sessiontest.Secret, cs.ID()); status != 503 ||
		!strings.Contains(body, `"id":7`) || !strings.Contains(body, "shutting down") {
		t.Errorf("%d %q", status, body)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}
