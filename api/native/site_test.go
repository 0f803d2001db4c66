package native

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/api"
	"berth/api/anthropic"
	"berth/api/approvals"
	"berth/code"
	"berth/events"
	"berth/events/webhook"
	"berth/files"
	"berth/gateway/messages"
	"berth/gateway/messages/batches"
	"berth/proto"
	"berth/session"
	"berth/session/stats"
	"berth/state/audit"
	"berth/state/registries"
	"berth/state/vault"
	"berth/test/sessiontest"
	"berth/tools/skills"

	"github.com/prometheus/client_golang/prometheus"
)

const testKey = sessiontest.Secret

// A site is the edge over the whole core, served over HTTP. Every answer that its client receives is held
// against the OpenAPI document.
type site struct {
	*httptest.Server
	*sessiontest.Stack
	server *api.Server
	client *http.Client
	done   *handled
}

// handled counts requests that are being handled, so that a test can wait until none is.
type handled struct {
	http.Handler
	mu     sync.Mutex
	active int
	idle   sync.Cond
}

func (h *handled) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.count(1)
	defer h.count(-1)
	h.Handler.ServeHTTP(w, r)
}

func (h *handled) count(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.active += n
	h.idle.Broadcast()
}

func (h *handled) wait() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.active > 0 {
		h.idle.Wait()
	}
}

func newSite(t *testing.T) *site { return siteWith(t, session.Config{}, func(*Config) {}) }

// siteWith serves a core of these settings; adjust may change the edge's.
func siteWith(t *testing.T, core session.Config, adjust func(*Config)) *site {
	t.Helper()
	return siteOver(t, sessiontest.New(t, core), core, adjust)
}

// siteOver is siteWith for a stack of the test's own.
func siteOver(t *testing.T, stack *sessiontest.Stack, core session.Config, adjust func(*Config),
	more ...func(*api.Config)) *site {
	t.Helper()
	s := &site{Stack: stack}
	cfg := Config{
		Keys:     s.Keys,
		Quotas:   s.Keys,
		Bridge:   s.Bridge,
		Sessions: s.Sessions, Jobs: s.Jobs, Files: s.Files, Images: s.Images, Version: "1.2.3",
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Sweep: func(ctx context.Context) (map[string]map[string]int, error) {
			done, err := s.Sessions.Sweep(ctx)
			return map[string]map[string]int{"sessions": {"stopped": done.Stopped, "expired": done.Expired}}, err
		},
	}
	cfg.Code = code.Open(code.Config{Sessions: s.Sessions, Timeout: core.ExecTimeout})
	t.Cleanup(func() { cfg.Code.Close() })
	cfg.Tools = storedTools(t, s.Stack, cfg.Code)
	adjust(&cfg)
	cfg.Stats = stats.Open(stats.Config{List: s.Sessions.Infos, Limits: session.DefaultLimits})
	t.Cleanup(func() { cfg.Stats.Close() })
	if cfg.Events == nil {
		cfg.Events = events.New(auditLog(t, s.Stack))
	}
	secrets, err := vault.Open(filepath.Join(s.Dir, "secret-key"), s.Ledger)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Webhooks, err = webhook.Open(webhook.Config{Feed: cfg.Events, Ledger: s.Ledger, Vault: secrets,
		Dial: (&net.Dialer{}).DialContext}); err != nil {
		t.Fatal(err)
	}
	known, err := registries.Open(s.Ledger, secrets)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Registries = offline{known}
	cfg.Webhooks.Start()
	t.Cleanup(func() { cfg.Webhooks.Close() })
	decided := approvals.New(approvals.Config{Desk: s.Desk, Bridge: s.Bridge, Tools: cfg.Tools})
	others := []api.Edge{operations(), decided, hosted(s.Files)}
	serve := api.Config{
		Grace: 50 * time.Millisecond, // for those that shut it down
		Auth:  s.Keys, ContainerID: s.Sessions.IDOf,
		Edges: append(others, New(cfg, others...)),
		Log:   slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError})),
	}
	for _, change := range more {
		change(&serve)
	}
	s.server, err = api.New(serve)
	if err != nil {
		t.Fatal(err)
	}
	s.done = &handled{Handler: s.server}
	s.done.idle.L = &s.done.mu
	s.Server = httptest.NewServer(s.done)
	t.Cleanup(func() { s.Server.Close() })
	s.client = &http.Client{Transport: &judge{t: t, doc: readDocument(t, s.URL), next: &http.Transport{}}}
	t.Cleanup(s.client.CloseIdleConnections)
	return s
}

// offline has credentials, and reaches no registry.
type offline struct{ *registries.Store }

// Login keeps credentials without asking their registry.
func (o offline) Login(_ context.Context, host string, req proto.SetRegistry) (proto.Registry, error) {
	return o.Set(host, req)
}

// Push refuses, as a runtime without images does.
func (offline) Push(_ context.Context, name, _ string, _ func(proto.ImageProgress)) (proto.Image, error) {
	return proto.Image{}, proto.Errorf(proto.Unsupported, "push image", name, "there are no registries here")
}

// auditLog opens an audit log beside the stack.
func auditLog(t *testing.T, stack *sessiontest.Stack) *audit.Log {
	t.Helper()
	log, err := audit.Open(audit.Config{Dir: t.TempDir(), Ledger: stack.Ledger})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	return log
}

// operations is the edge for those who run the daemon.
func operations() api.Edge {
	return api.Ops(api.OpsConfig{Metrics: prometheus.NewRegistry(),
		Ready: func(context.Context) error { return nil }})
}

// hosted is the edge of hosted APIs. Its files work; skills and models are there for the document alone.
func hosted(store *files.Store) api.Edge {
	return anthropic.New(anthropic.Config{Files: store, MaxFileBytes: 1 << 20, Skills: &skills.Store{},
		SkillChanges: &skills.Store{}, Messages: &messages.Service{}, Batches: &batches.Service{}})
}

// listen answers on one more address, as the daemon does, until shutdown is called, which returns once all requests
// are over.
func (s *site) listen(t *testing.T) (url string, shutdown func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.server.Serve(ctx, l) }()
	return "http://" + l.Addr().String(), func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}

// CloseIdleConnections lets http.Client reach the transport below.
func (j *judge) CloseIdleConnections() { j.next.(*http.Transport).CloseIdleConnections() }

// request makes one with the right key. A body that is neither a reader nor a string is sent as JSON.
func (s *site) request(t *testing.T, ctx context.Context, method, path string, body any,
	header ...string) *http.Request {
	t.Helper()
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		r = strings.NewReader(b)
	case io.Reader:
		r = b
	default:
		data, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		r = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.URL+path, r)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", testKey)
	for i := 0; i < len(header); i += 2 {
		if req.Header.Del(header[i]); header[i+1] != "" {
			req.Header.Set(header[i], header[i+1])
		}
	}
	return req
}

// do sends a request and returns the answer and its whole body.
func (s *site) do(t *testing.T, method, path string, body any, header ...string) (*http.Response, string) {
	t.Helper()
	res, err := s.client.Do(s.request(t, t.Context(), method, path, body, header...))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(data)
}

// must sends a request that has to succeed and decodes its JSON answer.
func must[T any](t *testing.T, s *site, method, path string, body any, header ...string) (v T) {
	t.Helper()
	res, text := s.do(t, method, path, body, header...)
	if res.StatusCode >= 300 {
		t.Fatalf("%s %s: %d %s", method, path, res.StatusCode, text)
	}
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%s %s: %v in %s", method, path, err, text)
	}
	return v
}

// container makes one through the API and returns its path.
func (s *site) container(t *testing.T) string {
	t.Helper()
	return "/v1/containers/" + must[proto.Container](t, s, "POST", "/v1/containers", nil).ID
}

// run runs text in a container to its end.
func (s *site) run(t *testing.T, at, text string) proto.ExecResult {
	t.Helper()
	return must[proto.ExecResult](t, s, "POST", at+"/exec", proto.Cmd{Command: text})
}

// launch starts a background command.
func (s *site) launch(t *testing.T, at string, cmd proto.Cmd) proto.Exec {
	t.Helper()
	cmd.Background = true
	return must[proto.Exec](t, s, "POST", at+"/exec", cmd)
}

// ended waits for a command's end and returns its result.
func (s *site) ended(t *testing.T, at, exec string) proto.ExecResult {
	t.Helper()
	res := must[proto.ExecResult](t, s, "GET", at+"/execs/"+exec+"/result?wait_seconds=60", nil)
	if res.Exec.State != proto.ExecEnded {
		t.Fatalf("exec %s still runs", exec)
	}
	return res
}
