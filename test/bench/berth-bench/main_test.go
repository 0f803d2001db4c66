package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"berth/api"
	"berth/api/native"
	"berth/code"
	"berth/session"
	"berth/session/sessiontest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain lets scripts run this program as "berth-bench".
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"berth-bench": main})
}

// newDaemon serves the native edge over the real core, whose containers are the real guest without isolation.
func newDaemon(t testing.TB) *httptest.Server {
	t.Helper()
	st := sessiontest.New(t, session.Config{})
	runner := code.Open(code.Config{Sessions: st.Sessions})
	t.Cleanup(func() { _ = runner.Close() })
	registry := prometheus.NewRegistry()
	server, err := api.New(api.Config{
		Auth: st.Keys, Metrics: registry, Log: slog.New(slog.DiscardHandler),
		Edges: []api.Edge{api.Ops(registry, func(context.Context) error { return nil }), native.New(native.Config{
			Sessions: st.Sessions, Code: runner, Bridge: st.Bridge, Jobs: st.Jobs, Files: st.Files, Images: st.Images,
			Keys: st.Keys, Version: "v-daemon", Log: slog.New(slog.DiscardHandler),
		})},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(server)
	t.Cleanup(s.Close)
	return s
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"),
		Setup: func(env *testscript.Env) error {
			env.Setenv("BERTH_HOST", newDaemon(env.T().(testing.TB)).URL)
			env.Setenv("BERTH_API_KEY", sessiontest.Secret)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": status},
	})
}

// status N COMMAND… runs a command, which must end with the status N.
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
