package daemon_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/client"
	"berth/proto"

	"github.com/gorilla/websocket"
)

//go:embed testdata/app.py
var application string

// An app is a web application in a container.
type app struct {
	*server
	t    *testing.T
	id   string
	base string // URL of the port, without a slash at its end
}

// newApp starts the application of testdata/app.py on port 8000 of a new container.
func newApp(t *testing.T, s *server, class proto.RuntimeClass) *app {
	t.Helper()
	c := call[proto.Container](t, s, 201, "POST", "/v1/containers",
		fmt.Sprintf(`{"runtime_class":%q,"limits":{"memory_bytes":268435456,"disk_bytes":268435456}}`, class))
	t.Cleanup(func() { _, _, _ = s.Do("DELETE", "/v1/containers/"+c.ID, nil) })
	a := &app{server: s, t: t, id: c.ID, base: s.URL + "/v1/containers/" + c.ID + "/ports/8000"}
	status, out, err := s.Do("PUT", "/v1/containers/"+c.ID+"/fs/content?path=app.py", bytes.NewBufferString(application))
	if err != nil || status >= 300 {
		t.Fatalf("%d %v %s", status, err, out)
	}
	a.start()
	return a
}

// start starts the application and returns when it listens.
func (a *app) start() {
	a.t.Helper()
	cmd, _ := json.Marshal(proto.Cmd{Argv: []string{"python3", "/workspace/app.py", "8000"}, Background: true})
	call[proto.Exec](a.t, a.server, 202, "POST", "/v1/containers/"+a.id+"/exec", string(cmd))
	until(a.t, "the application listens", func() bool {
		return slices.ContainsFunc(a.ports(), func(p proto.Port) bool { return p.Port == 8000 })
	})
}

func (a *app) ports() []proto.Port {
	a.t.Helper()
	return call[struct{ Data []proto.Port }](a.t, a.server, 200, "GET", "/v1/containers/"+a.id+"/ports", "").Data
}

func (a *app) state() proto.Container {
	a.t.Helper()
	return call[proto.Container](a.t, a.server, 200, "GET", "/v1/containers/"+a.id, "")
}

// send makes a request to the application, with the key.
func (a *app) send(method, path string, body io.Reader) *http.Response {
	a.t.Helper()
	req, err := http.NewRequest(method, a.base+path, body)
	if err != nil {
		a.t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", a.Key)
	res, err := http.DefaultTransport.RoundTrip(req) // which follows no redirect
	if err != nil {
		a.t.Fatalf("%s %s: %v", method, path, err)
	}
	a.t.Cleanup(func() { res.Body.Close() })
	return res
}

// text makes a request that has to be answered with this status, and returns the body.
func (a *app) text(want int, method, path string, body io.Reader) string {
	a.t.Helper()
	res := a.send(method, path, body)
	data, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != want {
		a.t.Fatalf("%s %s: %s %v %.500s", method, path, res.Status, err, data)
	}
	return string(data)
}

// until waits until a condition holds.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// piece is one MiB of the data that the application sends.
var piece = func() []byte {
	one := make([]byte, 256)
	for i := range one {
		one[i] = byte(i)
	}
	return bytes.Repeat(one, 4096)
}()

// TestPorts checks that an application in a container is reached with all that HTTP can carry, in both classes.
func TestPorts(t *testing.T) {
	for _, class := range []proto.RuntimeClass{proto.ClassRunc, proto.ClassGVisor} {
		t.Run(string(class), func(t *testing.T) {
			a := newApp(t, base, class)
			l := a.ports()[0]
			known := l.PID > 1 && strings.HasPrefix(l.Program, "python3")
			if l.Address != "127.0.0.1" || !known && class != proto.ClassGVisor { // which hides descriptors from root
				t.Errorf("it is listed as %+v", l)
			}
			for name, check := range map[string]func(*testing.T, *app){"headers": portHeaders, "bulk": portBulk,
				"events": portEvents, "websocket": portWebsocket, "many": portMany, "closed": portClosed,
				"tunnel": portTunnel, "host": portHost, "signed": portSigned} {
				t.Run(name, func(t *testing.T) { b := *a; b.t = t; check(t, &b) })
			}
			portWakes(t, a) // last: it ends the application
		})
	}
}

// portHeaders checks what the application gets and what the client gets.
func portHeaders(t *testing.T, a *app) {
	text := a.text(200, "GET", "/a//b/../c%2Fd?q=1;2&x=%zz", nil)
	for _, want := range []string{`"path": "/a//b/../c%2Fd?q=1;2&x=%zz"`, `["X-Forwarded-For", "127.0.0.1"]`,
		`["X-Forwarded-Prefix", "/v1/containers/` + a.id + `/ports/8000"]`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if strings.Contains(text, a.Key) {
		t.Errorf("the application gets the key: %s", text)
	}
	h := a.send("GET", "/away", nil).Header
	prefix := "/v1/containers/" + a.id + "/ports/8000"
	if got := h.Get("Location"); got != prefix+"/there" {
		t.Errorf("it is sent to %q", got)
	}
	if got := h.Get("Set-Cookie"); got != "a=b; Path="+prefix+"/x" {
		t.Errorf("the cookie is %q", got)
	}
	if h.Get("Clear-Site-Data") != "" || !strings.Contains(h.Get("Content-Security-Policy"), "sandbox") {
		t.Errorf("the answer has %v", h)
	}
}

// portBulk checks 100 MiB in both directions, with and without a length.
func portBulk(t *testing.T, a *app) {
	digest, want := sha256.New(), sha256.New()
	for range 100 {
		want.Write(piece)
	}
	n, err := io.Copy(digest, a.send("GET", "/blob", nil).Body)
	if err != nil || n != 100<<20 || !bytes.Equal(digest.Sum(nil), want.Sum(nil)) {
		t.Errorf("%d bytes came, %v", n, err)
	}
	whole := bytes.Repeat(piece, 100)
	sum := fmt.Sprintf("%d %x", len(whole), want.Sum(nil))
	if got := a.text(200, "POST", "/sum", bytes.NewReader(whole)); got != sum {
		t.Errorf("with a length it got %s, not %s", got, sum)
	}
	if got := a.text(200, "POST", "/sum", io.MultiReader(bytes.NewReader(whole))); got != sum {
		t.Errorf("in chunks it got %s, not %s", got, sum)
	}
}

// portEvents checks that an event arrives before the next one is sent.
func portEvents(t *testing.T, a *app) {
	lines := bufio.NewReader(a.send("GET", "/events", nil).Body)
	for _, want := range []string{"one", "two"} {
		line, err := lines.ReadString('\n')
		if err != nil || line != "data: "+want+"\n" {
			t.Fatalf("%q, %v", line, err)
		}
		_, _ = lines.ReadString('\n')
		a.text(200, "POST", "/go", nil)
	}
}

// portWebsocket checks that messages go through a websocket.
func portWebsocket(t *testing.T, a *app) {
	conn, res, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(a.base, "http")+"/ws",
		http.Header{"X-Api-Key": {a.Key}})
	if err != nil {
		t.Fatalf("%v %+v", err, res)
	}
	defer conn.Close()
	for _, text := range []string{"hello", strings.Repeat("long ", 5000)} {
		if err := conn.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if _, got, err := conn.ReadMessage(); err != nil || string(got) != text {
			t.Fatalf("%.20q came back, %v", got, err)
		}
	}
}

// portMany checks that 200 connections are open at the same time.
func portMany(t *testing.T, a *app) {
	var wg sync.WaitGroup
	conns := make([]*websocket.Conn, 200)
	for i := range conns {
		wg.Go(func() {
			var err error
			conns[i], _, err = websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(a.base, "http")+"/ws",
				http.Header{"X-Api-Key": {a.Key}})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i, c := range conns {
		if c == nil {
			continue
		}
		defer c.Close()
		_ = c.WriteMessage(websocket.TextMessage, []byte(fmt.Sprint(i)))
		if _, got, err := c.ReadMessage(); err != nil || string(got) != fmt.Sprint(i) {
			t.Errorf("%q came back, %v", got, err)
		}
	}
}

// portTunnel checks a connection of another protocol: the end of one direction leaves the other open.
func portTunnel(t *testing.T, a *app) {
	cmd, _ := json.Marshal(proto.Cmd{Argv: []string{"python3", "-c", `
import socket
with socket.create_server(("127.0.0.1", 9000)) as s:
    c, _ = s.accept()
    n = 0
    while piece := c.recv(65536):
        n += len(piece)
    c.sendall(b"%d bytes" % n)`}, Background: true})
	call[proto.Exec](t, a.server, 202, "POST", "/v1/containers/"+a.id+"/exec", string(cmd))
	until(t, "the program listens", func() bool {
		return slices.ContainsFunc(a.ports(), func(p proto.Port) bool { return p.Port == 9000 })
	})
	c, err := client.New(client.Config{Host: a.URL, Key: a.Key})
	if err != nil {
		t.Fatal(err)
	}
	tunnel, err := c.Tunnel(t.Context(), a.id, 9000)
	if err != nil {
		t.Fatal(err)
	}
	defer tunnel.Close()
	if _, err := tunnel.Write(piece); err != nil {
		t.Fatal(err)
	}
	if err := tunnel.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(tunnel); err != nil || string(got) != fmt.Sprintf("%d bytes", len(piece)) {
		t.Errorf("after the end of the input it sends %q, %v", got, err)
	}
	if _, err := c.Tunnel(t.Context(), a.id, 3128); proto.CodeOf(err) != proto.PermissionDenied {
		t.Errorf("a tunnel to the proxy: %v", err)
	}
	if _, err := c.Tunnel(t.Context(), a.id, 9001); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("a tunnel to a port where nothing listens: %v", err)
	}
}

// portClosed checks the errors for ports that cannot be reached.
func portClosed(t *testing.T, a *app) {
	for port, want := range map[string]int{"8001": 502, "3128": 403, "3129": 403, "0": 400, "x": 400, "65536": 400} {
		b := *a
		b.base = strings.TrimSuffix(a.base, "8000") + port
		if text := b.text(want, "GET", "/", nil); !strings.Contains(text, "error") {
			t.Errorf("port %s: %s", port, text)
		}
	}
}

// portWakes checks that a request wakes a paused container, in which the application goes on, and a stopped one, in
// which it has ended. A pause on request ends open connections.
func portWakes(t *testing.T, a *app) {
	conn, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(a.base, "http")+"/ws",
		http.Header{"X-Api-Key": {a.Key}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	until(t, "it is paused", func() bool { // what portTunnel's command made may still be recorded, which uses it
		status, out, err := a.Do("POST", "/v1/containers/"+a.id+"/pause", nil)
		if err != nil || status != 200 && status != 409 {
			t.Fatalf("pause: %d %v %s", status, err, out)
		}
		return status == 200
	})
	if _, _, err := conn.ReadMessage(); err == nil {
		t.Error("a connection outlives the pause")
	}
	if list := a.ports(); len(list) != 0 || a.state().State != proto.StatePaused {
		t.Errorf("a paused container lists %v and is %s", list, a.state().State)
	}
	a.text(200, "GET", "/", nil)
	if now := a.state(); now.State != proto.StateRunning || now.Generation != 1 {
		t.Errorf("after a request it is %s in generation %d", now.State, now.Generation)
	}
	call[proto.Container](t, a.server, 200, "POST", "/v1/containers/"+a.id+"/stop", "")
	a.text(502, "GET", "/", nil)
	if now := a.state(); now.State != proto.StateRunning || now.Generation != 2 {
		t.Errorf("after a request it is %s in generation %d", now.State, now.Generation)
	}
	a.start()
	a.text(200, "GET", "/", nil)
}
