// Package sdkpython_test runs the tests of sdk/python against the real daemon. They are in pytest; what they cannot do
// themselves, to kill the daemon and to start it again, they ask a server of this package for.
package sdkpython_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"berth/test/clients"
	"berth/test/daemontest"
	"berth/test/needs"
)

func TestSDK(t *testing.T) {
	needs.Containers(t)
	dir := clients.Install(t, "sdk-python", clients.Python, sdk(t)+"/tests/requirements.txt")
	d := start(t)
	control := httptest.NewServer(controller(d))
	defer control.Close()
	document := filepath.Join(t.TempDir(), "openapi.json")
	if _, body, err := d.Do("GET", "/openapi.json", nil); err != nil || os.WriteFile(document, body, 0o600) != nil {
		t.Fatalf("reading the document: %v", err)
	}
	runPytest(t, d, dir, sdk(t), "BERTH_TEST_CONTROL="+control.URL, "BERTH_TEST_OPENAPI="+document,
		"PYTHONPATH="+sdk(t)+"/src:"+sdk(t)+"/tests")
}

// sdk returns the path of the SDK.
func sdk(t *testing.T) string {
	path, err := filepath.Abs("../../sdk/python")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// start runs a daemon until the end of the test, which fails if the daemon had an error of its own.
func start(t *testing.T) *daemontest.Daemon {
	d, err := daemontest.New("--stop-on-exit", "--ports-max", "public", "--network-max", "allowlist")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, line := range d.Faults() {
			t.Errorf("the daemon had an error of its own: %s", line)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// runPytest runs the tests below a directory with the interpreter of an installation.
func runPytest(t *testing.T, d *daemontest.Daemon, installed, dir string, env ...string) {
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	args := append([]string{"-m", "pytest", "-q", "--no-header", "--durations=5", "-p", "no:cacheprovider", "tests"},
		strings.Fields(os.Getenv("BERTH_PYTEST"))...)
	cmd := exec.CommandContext(ctx, filepath.Join(installed, "venv/bin/python"), args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, t.Output(), t.Output()
	cmd.Env = append(append(os.Environ(), "BERTH_URL="+d.URL, "BERTH_API_KEY="+d.Key, "PYTHONDONTWRITEBYTECODE=1"),
		env...)
	if err := cmd.Run(); err != nil {
		t.Error(err)
	}
}

// controller kills the daemon and starts it where it was.
func controller(d *daemontest.Daemon) http.Handler {
	var mu sync.Mutex
	flags := d.Flags
	mux := http.NewServeMux()
	mux.HandleFunc("POST /kill", func(http.ResponseWriter, *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		d.Stop(syscall.SIGKILL)
	})
	mux.HandleFunc("POST /start", func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		d.Flags = append([]string{"--listen", strings.TrimPrefix(d.URL, "http://")}, flags...)
		if err := d.Start(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	return mux
}
