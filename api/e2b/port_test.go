package e2b_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"berth/api/e2b/access"
	"berth/proto"
	"berth/test/porttest"
	"berth/test/sessiontest"
)

// application answers with the headers that it got. The answer for /endless does not end.
const application = `
import http.server, threading
class App(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"%s\n" % repr((self.path, self.headers.items())).encode())
        if self.path == "/endless":
            threading.Event().wait()
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), App).serve_forever()`

// serving makes a sandbox with the application on port 8000.
func (c client) serving(t *testing.T, body string) (b box, trafficToken *string) {
	t.Helper()
	made := c.send(t, "POST", "/v2/sandboxes", body)
	b = want[box](t, made, http.StatusCreated)
	var more struct{ TrafficAccessToken, Domain *string }
	if err := json.Unmarshal([]byte(made.body), &more); err != nil || more.Domain == nil || *more.Domain != "a.test" {
		t.Errorf("%v: %s", err, made.body)
	}
	s := c.Sessions.Any(proto.IDOfHost(b.SandboxID))
	if _, err := s.Exec(t.Context(), proto.Cmd{Argv: []string{"python3", "-c", application},
		Background: true}); err != nil {
		t.Fatal(err)
	}
	sessiontest.Bash(t, s, "until (: </dev/tcp/127.0.0.1/8000) 2>/dev/null; do sleep 0.05; done")
	return b, more.TrafficAccessToken
}

// visit requests a path of a port by the host name that getHost returns.
func (c client) visit(t *testing.T, b box, port, path string, headers ...string) *http.Response {
	t.Helper()
	return porttest.Visit(t, c.server.URL, port+"-"+b.SandboxID+".a.test", path, headers...)
}

// told checks the status of an answer and what its body says.
func told(t *testing.T, res *http.Response, status int, says string) string {
	t.Helper()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != status || !strings.Contains(string(body), says) {
		t.Errorf("%s %v: %d %v %s; want %d and %q", res.Request.Host, res.Request.Header, res.StatusCode, err, body,
			status, says)
	}
	return string(body)
}

// TestPublicTraffic checks the ports of a sandbox that everyone may use, until its owner changes that.
func TestPublicTraffic(t *testing.T) {
	c := newSiteWith(t, proto.PortsPublic).client(t, "ann")
	b, token := c.serving(t, `{"templateID":"base"}`)
	if token != nil {
		t.Errorf("a public sandbox has the traffic token %s", *token)
	}
	const traffic = "E2b-Traffic-Access-Token"
	text := told(t, c.visit(t, b, "8000", "/sandboxes?a=1", traffic, "x", "X-Access-Token", b.EnvdAccessToken,
		"X-Mine", "kept"), 200, "/sandboxes?a=1")
	if strings.Contains(text, b.EnvdAccessToken) || strings.Contains(text, "E2b-") || !strings.Contains(text, "kept") {
		t.Errorf("the program gets %s", text)
	}
	told(t, c.visit(t, b, "8001", "/"), 502, `"message":"The sandbox is running but port is not open","port":8001`)
	told(t, c.visit(t, b, "3128", "/"), 502, "port is not open")
	told(t, c.visit(t, b, "x", "/"), 400, "Invalid sandbox port")
	if a := c.send(t, "GET", "/v2/sandboxes", "", b.to("8000")...); a.status != 200 ||
		!strings.Contains(a.body, "'/v2/sandboxes'") || strings.Contains(a.body, b.EnvdAccessToken) {
		t.Errorf("by headers: %d %s", a.status, a.body)
	}
	stream := c.visit(t, b, "8000", "/endless")
	if _, err := stream.Body.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	at := "/sandboxes/" + b.SandboxID + "/network"
	want[any](t, c.send(t, "PUT", at, `{"denyOut":["0.0.0.0/0"]}`), 204)
	told(t, c.visit(t, b, "8000", "/"), 200, "")
	want[any](t, c.send(t, "PUT", at, `{"allowPublicTraffic":false}`), 204)
	if _, err := io.Copy(io.Discard, stream.Body); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the stream of a stranger ends with %v", err)
	}
	told(t, c.visit(t, b, "8000", "/"), 403, "E2b-Traffic-Access-Token")
	want[any](t, c.send(t, "PUT", at, `{}`), 204)
	told(t, c.visit(t, b, "8000", "/"), 403, "E2b-Traffic-Access-Token")
	want[any](t, c.send(t, "PUT", at, `{"allowPublicTraffic":true}`), 204)
	told(t, c.visit(t, b, "8000", "/"), 200, "")
	want[any](t, c.send(t, "DELETE", "/sandboxes/"+b.SandboxID, ""), 204)
	told(t, c.visit(t, b, "8000", "/"), 502, "The sandbox was not found")
}

// TestTrafficToken checks that the ports of a private sandbox need its token, or what opens ports elsewhere.
func TestTrafficToken(t *testing.T) {
	for most, body := range map[proto.PortAccess]string{
		proto.PortsPublic: `{"templateID":"base","network":{"allowPublicTraffic":false}}`,
		proto.PortsSigned: `{"templateID":"base"}`,
	} {
		c := newSiteWith(t, most).client(t, "ann")
		b, token := c.serving(t, body)
		if token == nil {
			t.Fatalf("%s: no traffic token", most)
		}
		const traffic = "E2b-Traffic-Access-Token"
		if text := told(t, c.visit(t, b, "8000", "/", traffic, *token), 200, ""); strings.Contains(text, *token) {
			t.Errorf("the program gets the token: %s", text)
		}
		told(t, c.visit(t, b, "8000", "/"), 403, traffic)
		told(t, c.visit(t, b, "8000", "/", traffic, "x"+*token), 403, traffic)
		told(t, c.visit(t, b, "8000", "/", "X-Api-Key", access.Key(c.key)), 200, "")
		other := c.create(t, `{"templateID":"base"}`)
		told(t, c.visit(t, other, "8000", "/", traffic, *token), map[proto.PortAccess]int{proto.PortsPublic: 502,
			proto.PortsSigned: 403}[most], "") // the other one has no program
		if a := c.send(t, "GET", "/", "", append(b.to("8000"), traffic, *token)...); a.status != 200 {
			t.Errorf("by headers: %d %s", a.status, a.body)
		}
		want[any](t, c.send(t, "POST", "/sandboxes/"+b.SandboxID+"/pause", `{}`), 204)
		told(t, c.visit(t, b, "8000", "/", traffic, *token), 502, "The sandbox was not found")
	}
	c := newSiteWith(t, proto.PortsPublic).client(t, "ann")
	a := c.send(t, "POST", "/sandboxes", `{"templateID":"base","network":{"allowPublicTraffic":false}}`)
	if a.status != 400 || !strings.Contains(a.body, "secure") {
		t.Errorf("without secure: %d %s", a.status, a.body)
	}
}
