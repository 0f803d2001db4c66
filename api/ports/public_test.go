package ports_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/api"
	"berth/api/ports"
	"berth/api/ports/address"
	"berth/api/ports/signed"
	"berth/proto"
	"berth/session"
	"berth/session/inbound"
	"berth/state/audit"
	"berth/state/vault"
	"berth/test/porttest"
	"berth/test/sessiontest"
)

// A site is the edge over the real core. Its containers are the real guest without isolation.
type site struct {
	*sessiontest.Stack
	edge   *ports.Edge
	server *httptest.Server

	mu   sync.Mutex
	acts map[string]int // audited, by action and actor
}

func newSite(t *testing.T, most proto.PortAccess) *site {
	t.Helper()
	st := &site{acts: map[string]int{}}
	st.Stack = sessiontest.New(t, session.Config{PortsMax: most})
	log, err := audit.Open(audit.Config{Dir: t.TempDir(), Ledger: st.Ledger})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	secrets, err := vault.Open(filepath.Join(st.Dir, "secret-key"), st.Ledger)
	if err != nil {
		t.Fatal(err)
	}
	st.edge = ports.New(ports.Config{Sessions: st.Sessions, Ports: inbound.New(), Max: most, Life: st.Keys.Life,
		Knows: func(key string) bool { return st.Keys.Knows(key) }, Audit: st.count,
		Domain: address.Domain{Scheme: "http", Name: "a.test"}, Tokens: signed.New(st.Ledger, secrets)})
	server, err := api.New(api.Config{Auth: st.Keys, Audit: log, Raws: []api.Raw{st.edge.Match},
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	st.server = httptest.NewServer(server)
	t.Cleanup(st.server.Close)
	return st
}

func (st *site) count(e proto.AuditEntry) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.acts[e.Act+" "+e.Actor]++
}

// port is where the application listens.
const port = "8000"

// application answers with the headers that it got. The answer for /endless does not end.
const application = `
import http.server, threading
class App(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"%s\n" % repr(self.headers.items()).encode())
        if self.path == "/endless":
            threading.Event().wait()
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), App).serve_forever()`

// create makes a container with the application.
func (st *site) create(t *testing.T, req proto.CreateContainer) *session.Session {
	t.Helper()
	s := st.Create(t, req)
	if _, err := s.Exec(t.Context(), proto.Cmd{Argv: []string{"python3", "-c", application},
		Background: true}); err != nil {
		t.Fatal(err)
	}
	sessiontest.Bash(t, s, "until (: </dev/tcp/127.0.0.1/"+port+") 2>/dev/null; do sleep 0.05; done")
	return s
}

// visit requests a path of a port. Headers are pairs of name and value.
func (st *site) visit(t *testing.T, s *session.Session, port, path string, headers ...string) *http.Response {
	t.Helper()
	return porttest.Visit(t, st.server.URL, port+"-"+proto.HostID(s.ID())+".a.test", path, headers...)
}

// want checks the status of an answer and returns its body.
func want(t *testing.T, res *http.Response, status int) string {
	t.Helper()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != status {
		t.Fatalf("%s %s: %d, want %d: %v %s", res.Request.Host, res.Request.URL, res.StatusCode, status, err, body)
	}
	return string(body)
}

// TestPublicPorts checks that strangers reach what is public and nothing else, until it is withdrawn.
func TestPublicPorts(t *testing.T) {
	st := newSite(t, proto.PortsPublic)
	ctx := t.Context()
	s := st.create(t, proto.CreateContainer{})
	want(t, st.visit(t, s, port, "/"), 401)
	done, err := st.edge.Publish(ctx, s, port)
	if err != nil || done.URL != "http://"+port+"-"+proto.HostID(s.ID())+".a.test" || len(done.Ports) != 1 {
		t.Fatalf("%+v, %v", done, err)
	}
	text := want(t, st.visit(t, s, port, "/?berth_token=x", "X-Api-Key", "the application's", "Authorization",
		"Bearer the-application's", "Cookie",
		"berth-port=x; berth-console-7117=x; mine=1; __Host-berth-console=x"), 200)
	for _, kept := range []string{"the application's", "Bearer the-application's", "('Cookie', 'mine=1')"} {
		if !strings.Contains(text, kept) {
			t.Errorf("no %s in %s", kept, text)
		}
	}
	if text := want(t, st.visit(t, s, port, "/", "X-Api-Key", sessiontest.Secret), 200); strings.Contains(text,
		sessiontest.Secret) {
		t.Errorf("the application gets the API key: %s", text)
	}
	want(t, st.visit(t, s, "9", "/"), 401)
	want(t, st.visit(t, st.Create(t, proto.CreateContainer{}), port, "/"), 401)

	stream, hers := st.visit(t, s, port, "/endless"), st.visit(t, s, port, "/endless", "X-Api-Key",
		sessiontest.Secret)
	for _, res := range []*http.Response{stream, hers} {
		if line, err := bufio.NewReader(res.Body).ReadString('\n'); err != nil {
			t.Fatalf("%d %q, %v", res.StatusCode, line, err)
		}
	}
	if now, err := st.edge.Withdraw(ctx, s, port); err != nil || now.All || len(now.Ports) != 0 {
		t.Fatalf("%+v, %v", now, err)
	}
	if _, err := io.Copy(io.Discard, stream.Body); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the stream of a stranger ends with %v", err)
	}
	want(t, st.visit(t, s, port, "/"), 401)
	ended := make(chan error, 1)
	go func() { _, err := io.Copy(io.Discard, hers.Body); ended <- err }()
	select {
	case err := <-ended:
		t.Errorf("the owner's stream ended: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.acts["port.use "+proto.ActorPublic] != 1 {
		t.Errorf("audited: %v", st.acts)
	}
}

// TestAllPublic checks that all is a set of its own, survives a restart, and never has the ports of the daemon.
func TestAllPublic(t *testing.T) {
	st := newSite(t, proto.PortsPublic)
	ctx := context.Background()
	s := st.create(t, proto.CreateContainer{PublicPorts: proto.PublicPorts{All: true}})
	want(t, st.visit(t, s, port, "/"), 200)
	want(t, st.visit(t, s, "9", "/"), 502)
	want(t, st.visit(t, s, "3128", "/"), 403)
	want(t, st.visit(t, s, "x", "/"), 400)
	if _, err := st.edge.Withdraw(ctx, s, port); proto.CodeOf(err) != proto.Conflict {
		t.Errorf("one of all: %v", err)
	}
	if _, err := st.edge.Publish(ctx, s, "80"); err != nil {
		t.Fatal(err)
	}
	for port, code := range map[string]proto.Code{"0": proto.InvalidArgument, "ALL": proto.InvalidArgument,
		"3129": proto.PermissionDenied} {
		if _, err := st.edge.Publish(ctx, s, port); proto.CodeOf(err) != code {
			t.Errorf("%s: %v", port, err)
		}
	}
	st.Reopen(t)
	s, err := st.Sessions.Get(s.Owner(), s.ID())
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Info().PublicPorts; !got.All || len(got.Ports) != 1 {
		t.Errorf("after a restart: %+v", got)
	}
}

// TestPortsMax checks that no port is public, and no signed URL made, beyond what the operator allows.
func TestPortsMax(t *testing.T) {
	for _, most := range []proto.PortAccess{proto.PortsPrivate, proto.PortsSigned, ""} {
		st := newSite(t, most)
		s := st.Create(t, proto.CreateContainer{})
		ctx := proto.WithCaller(t.Context(), proto.Caller{Owner: s.Owner(), KeyID: "key_0000000000000000000000"})
		_, err := st.edge.Publish(ctx, s, port)
		_, changed := st.edge.Change(ctx, s, proto.ChangeContainer{PublicPorts: &proto.PublicPorts{All: true}})
		_, created := st.Sessions.Create(ctx, s.Owner(), proto.CreateContainer{
			PublicPorts: proto.PublicPorts{All: true}})
		for _, err := range []error{err, changed, created} {
			if proto.CodeOf(err) != proto.PermissionDenied {
				t.Errorf("%s: %v", most, err)
			}
		}
		if _, err := st.edge.Withdraw(ctx, s, "all"); err != nil {
			t.Errorf("%s: %v", most, err)
		}
		_, err = st.edge.Sign(ctx, s.ID(), port, proto.SignPort{})
		if ok := err == nil; ok != (most != proto.PortsPrivate) {
			t.Errorf("%s: a signed URL: %v", most, err)
		}
		want(t, st.visit(t, s, port, "/"), 401)
	}
}
