// Package consoletest_test works in the web console with Chromium: every page, uploads, terminals, approvals, and hostile
// names and contents. `make test-console` runs it.
package consoletest_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"berth/test/clients"
	"berth/test/daemontest"
)

// TestConsole runs the cases of main.mjs. With BERTH_SHOTS it writes the pictures of docs/console.md into that directory.
func TestConsole(t *testing.T) {
	browser := os.Getenv("BERTH_CHROMIUM")
	if browser == "" {
		t.Skip("BERTH_CHROMIUM is not set: `make test-console` installs the browser and runs this")
	}
	node := clients.Install(t, "console", clients.Node, "package.json", "package-lock.json", "main.mjs")
	d, err := daemontest.New("--stop-on-exit", "--network-max", "allowlist")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", filepath.Join(node, "main.mjs"))
	cmd.Env = append(os.Environ(), "BERTH_URL="+d.URL, "BERTH_API_KEY="+d.Key)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	t.Log(stderr.String()) // what was measured
	clients.Report(t, out, 16)
	for _, line := range d.Faults() {
		t.Errorf("the daemon had an error of its own: %s", line)
	}
}
