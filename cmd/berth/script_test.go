package main

import (
	"archive/tar"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/api"
	"berth/api/anthropic"
	"berth/api/native"
	"berth/code"
	"berth/daemon/certs"
	"berth/proto"
	"berth/session"
	"berth/session/sessiontest"
	"berth/state/audit"
	"berth/state/vault"
	"berth/tools/skills"
	"berth/tools/toolstore"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rogpeppe/go-internal/testscript"
)

const testKey = sessiontest.Secret

// TestMain runs this program as "berth" for scripts and for tests that start processes.
func TestMain(m *testing.M) {
	// the race detector makes each program wait 1 s at exit, and there are hundreds
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	testscript.Main(m, map[string]func(){"berth": main})
}

// newDaemon serves the real edges and the real core. Its containers are the real guest without isolation.
func newDaemon(t testing.TB) *httptest.Server {
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
	kept, err := skills.Open(skills.Config{Dir: filepath.Join(st.Dir, "skills"), Ledger: st.Ledger})
	if err != nil {
		t.Fatal(err)
	}
	server, err := api.New(api.Config{
		Auth: st.Keys, Audit: log, Metrics: registry, Log: slog.New(slog.DiscardHandler),
		Edges: []api.Edge{
			api.Ops(registry, func(context.Context) error { return nil }),
			anthropic.New(anthropic.Config{Files: st.Files, Skills: kept}),
			native.New(native.Config{
				Sessions: st.Sessions, Code: runner, Tools: stored, Bridge: st.Bridge, Jobs: st.Jobs, Files: st.Files,
				Images: st.Images, Keys: st.Keys, Audit: log, Version: "v-daemon", Log: slog.New(slog.DiscardHandler),
				Sweep: func(ctx context.Context) (map[string]map[string]int, error) {
					done, err := st.Sessions.Sweep(ctx)
					return map[string]map[string]int{"sessions": {"stopped": done.Stopped, "expired": done.Expired}},
						err
				},
			}),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(server)
	t.Cleanup(s.Close)
	return s
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

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"),
		Setup: func(env *testscript.Env) error {
			daemon := newDaemon(env.T().(testing.TB))
			env.Setenv("BERTH_HOST", daemon.URL)
			env.Setenv("BERTH_API_KEY", testKey)
			env.Setenv("KEY", testKey)
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("GORACE", os.Getenv("GORACE"))
			if err := serveTLS(env, daemon.Config.Handler); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(env.WorkDir, "key"), []byte(testKey+"\n"), 0o600)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"status": status, "grab": grab,
		},
	})
}

// serveTLS serves the same daemon with its own certificate.
func serveTLS(env *testscript.Env, h http.Handler) error {
	source, err := certs.Open(certs.Config{Dir: filepath.Join(env.WorkDir, "tls")})
	if err != nil {
		return err
	}
	s := httptest.NewUnstartedServer(h)
	s.Listener = tls.NewListener(s.Listener, source.TLS())
	s.Start()
	env.Defer(s.Close)
	env.Setenv("TLS_ADDR", s.Listener.Addr().String())
	env.Setenv("TLS_HOST", "https://"+s.Listener.Addr().String())
	env.Setenv("TLS_CA", source.CAFile())
	return nil
}

// status N COMMAND… runs a command that must end with status N.
func status(ts *testscript.TestScript, neg bool, args []string) {
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

// grab NAME [stderr] sets an environment variable to the first line of the last output.
func grab(ts *testscript.TestScript, neg bool, args []string) {
	from := "stdout"
	if len(args) == 2 {
		from = args[1]
	}
	line, _, _ := strings.Cut(ts.ReadFile(from), "\n")
	if neg || line == "" {
		ts.Fatalf("there is no %s to grab", from)
	}
	ts.Setenv(args[0], line)
}
