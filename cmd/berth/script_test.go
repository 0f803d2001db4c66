package main

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/api"
	"berth/api/anthropic"
	"berth/daemon/certs"
	"berth/test/apitest"
	"berth/test/sessiontest"
	"berth/tools/skills"

	"github.com/rogpeppe/go-internal/testscript"
)

const testKey = apitest.Key

// TestMain runs this program as "berth" for scripts and for tests that start processes.
func TestMain(m *testing.M) {
	// the race detector makes each program wait 1 s at exit, and there are hundreds
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	testscript.Main(m, map[string]func(){"berth": main})
}

// newDaemon serves the native edge and the one of the Files and Skills APIs.
func newDaemon(t testing.TB) *httptest.Server {
	t.Helper()
	return apitest.Serve(t, func(st *sessiontest.Stack) []api.Edge {
		store, err := skills.Open(skills.Config{Dir: filepath.Join(st.Dir, "skills"), Ledger: st.Ledger})
		if err != nil {
			t.Fatal(err)
		}
		return []api.Edge{anthropic.New(anthropic.Config{Files: st.Files,
			MaxFileBytes: st.Files.MaxFileBytes(), Skills: store, SkillChanges: store, MaxSkillBytes: store.MaxBytes()})}
	})
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
			"status": apitest.Status, "grab": grab,
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
