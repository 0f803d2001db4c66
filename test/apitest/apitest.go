// Package apitest serves the API of a whole daemon for tests of programs that talk to one.
package apitest

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"berth/api"
	"berth/api/approvals"
	"berth/api/native"
	"berth/code"
	"berth/console"
	"berth/events"
	"berth/events/webhook"
	"berth/proto"
	"berth/session"
	"berth/session/stats"
	"berth/state/audit"
	"berth/state/logins"
	"berth/state/registries"
	"berth/state/vault"
	"berth/test/sessiontest"
	"berth/tools/toolstore"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rogpeppe/go-internal/testscript"
)

// Key is the API key that the daemon takes. It is an admin's.
const Key = sessiontest.Secret

// Serve serves the native edge, and those that more makes if it is not nil, over the real core. Its containers are the
// real guest without isolation.
func Serve(t testing.TB, more func(*sessiontest.Stack) []api.Edge) *httptest.Server {
	t.Helper()
	var log *audit.Log
	st := sessiontest.Over(t, sessiontest.NewRuntime(t), &archives{}, session.Config{Audit: func(e proto.AuditEntry) {
		log.Append(e)
	}})
	registry := prometheus.NewRegistry()
	var err error
	log, err = audit.Open(audit.Config{Dir: t.TempDir(), Ledger: st.Ledger})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	runner := code.Open(code.Config{Sessions: st.Sessions})
	t.Cleanup(func() { _ = runner.Close() })
	secrets, err := vault.Open(filepath.Join(st.Dir, "secret-key"), st.Ledger)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := toolstore.Open(toolstore.Config{Ledger: st.Ledger, Sessions: st.Sessions, Code: runner,
		Vault: secrets, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stored.Close() })
	measured := stats.Open(stats.Config{List: st.Sessions.Infos, Limits: session.DefaultLimits})
	t.Cleanup(func() { _ = measured.Close() })
	feed := events.New(log)
	hooks, err := webhook.Open(webhook.Config{Feed: feed, Ledger: st.Ledger, Vault: secrets,
		Dial: (&net.Dialer{}).DialContext})
	if err != nil {
		t.Fatal(err)
	}
	hooks.Start()
	known, err := registries.Open(st.Ledger, secrets)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hooks.Close() })
	decided := approvals.New(approvals.Config{Desk: st.Desk, Bridge: st.Bridge, Tools: stored})
	browsers, err := logins.Open(logins.Config{Ledger: st.Ledger, Keys: st.Keys})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = browsers.Close() })
	page, err := console.New(console.Config{Logins: browsers, Audit: log.Append})
	if err != nil {
		t.Fatal(err)
	}
	edges := []api.Edge{
		decided, page,
		api.Ops(api.OpsConfig{Metrics: registry, OpenLocally: true,
			Ready: func(context.Context) error { return nil }}),
		native.New(native.Config{
			Sessions: st.Sessions, Code: runner, Tools: stored, Bridge: st.Bridge, Jobs: st.Jobs, Files: st.Files,
			Images: st.Images, Keys: st.Keys, Quotas: st.Keys, Audit: log,
			Events: feed, Stats: measured, Webhooks: hooks, Registries: offline{known}, Version: "v-daemon",
			Log: slog.New(slog.DiscardHandler),
			Sweep: func(ctx context.Context) (map[string]map[string]int, error) {
				done, err := st.Sessions.Sweep(ctx)
				return map[string]map[string]int{"sessions": {"stopped": done.Stopped, "expired": done.Expired}}, err
			},
		}, decided),
	}
	if more != nil {
		edges = append(edges, more(st)...)
	}
	server, err := api.New(api.Config{
		Auth: st.Keys, Logins: browsers, Audit: log, ContainerID: st.Sessions.IDOf, Metrics: registry, Log: slog.New(slog.DiscardHandler),
		Edges: edges,
	})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(server)
	t.Cleanup(s.Close)
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

// archives are the images of a runtime without containers: "base" and the imported ones. It reads an imported archive
// and keeps only its name.
type archives struct {
	sessiontest.Images

	mu   sync.Mutex
	list []session.Image
}

func (as *archives) List(ctx context.Context) ([]session.Image, error) {
	as.mu.Lock()
	defer as.mu.Unlock()
	base, err := as.Images.List(ctx)
	return append(base, as.list...), err
}

func (as *archives) Import(_ context.Context, name string, r io.Reader, progress func(session.ImageProgress)) (
	session.Image, error) {
	n, tr := int64(0), tar.NewReader(r)
	for {
		_, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return session.Image{}, proto.Errorf(proto.InvalidArgument, "", name, "this is no image archive")
		}
		n++
		progress(session.ImageProgress{Stage: "importing", Done: n})
	}
	img := session.Image{Name: name, Digest: "sha256:1234", SizeBytes: n, CreatedAt: time.Now(),
		Platform: "linux/amd64"}
	as.mu.Lock()
	defer as.mu.Unlock()
	as.list = append(as.list, img)
	return img, nil
}

func (as *archives) Remove(_ context.Context, ref string) error {
	as.mu.Lock()
	defer as.mu.Unlock()
	for i, img := range as.list {
		if img.Name == ref {
			as.list = append(as.list[:i], as.list[i+1:]...)
			return nil
		}
	}
	return proto.Errorf(proto.NotFound, "", ref, "image %q is not here", ref)
}

// Status is the script command "status N COMMAND…". It runs a command that must end with status N.
func Status(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N COMMAND…")
	}
	got := 0
	err := ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if strconv.Itoa(got) != args[0] {
		ts.Fatalf("the status is %d, not %s\nstdout: %s\nstderr: %s", got, args[0], ts.ReadFile("stdout"),
			ts.ReadFile("stderr"))
	}
}
