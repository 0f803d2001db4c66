// Package e2bclients_test runs the SDKs of E2B, unmodified, against the real daemon and real containers.
package e2bclients_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/api/e2b/access"
	"berth/test/clients"
	"berth/test/daemontest"
	"berth/test/needs"
)

func TestSDKs(t *testing.T) {
	needs.Containers(t)
	py := clients.Install(t, "e2b-py", clients.Python, "py/requirements.txt", "py/main.py")
	old := clients.Install(t, "e2b-py-old", clients.Python, "old/requirements.txt", "old/main.py")
	ts := clients.Install(t, "e2b-ts", clients.Node, "ts/package.json", "ts/package-lock.json", "ts/main.mjs")
	d, err := daemontest.New("--stop-on-exit", "--ports-max", "public")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	t.Run("python", func(t *testing.T) { program(t, d, py, "venv/bin/python", "main.py") })
	t.Run("old python", func(t *testing.T) { program(t, d, old, "venv/bin/python", "main.py") })
	t.Run("typescript", func(t *testing.T) { program(t, d, ts, "node", "main.mjs") })
	for _, line := range d.Faults() {
		t.Errorf("the daemon had an error of its own: %s", line)
	}
	for line := range strings.SplitSeq(d.Log(), "\n") {
		if strings.Contains(line, d.Key) || strings.Contains(line, access.SpellKey(d.Key)) {
			t.Errorf("the log has the API key: %s", line)
		}
	}
}

// program runs one to its end, which it says. Only its environment differs from that at the hosted service.
func program(t *testing.T, d *daemontest.Daemon, dir string, argv ...string) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if strings.Contains(argv[0], "/") {
		argv[0] = filepath.Join(dir, argv[0])
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Stderr = dir, t.Output()
	cmd.Env = append(os.Environ(), "E2B_API_KEY="+access.SpellKey(d.Key), "E2B_API_URL="+d.URL, "E2B_SANDBOX_URL="+d.URL,
		"PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.Output()
	if err != nil || strings.TrimSpace(string(out)) != "done" {
		t.Errorf("%v; it said %q", err, out)
	}
}
