// Package librechatclients_test has @librechat/agents, unmodified, use the real daemon and real containers.
package librechatclients_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"berth/test/clients"
	"berth/test/daemontest"
	"berth/test/needs"
)

// TestAgents runs a new version, which sends no key, and an old one, which does.
func TestAgents(t *testing.T) {
	needs.Containers(t)
	dir := clients.Install(t, "librechat-ts", clients.Node, "ts/package.json", "ts/package-lock.json", "ts/main.mjs")
	d, err := daemontest.New("--stop-on-exit")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, version := range []string{"new", "old"} {
		t.Run(version, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, "node", "main.mjs", version)
			cmd.Dir, cmd.Stderr = dir, t.Output()
			cmd.Env = append(os.Environ(), "LIBRECHAT_CODE_BASEURL="+d.URL+"/librechat/"+d.Key+"/v1",
				"LIBRECHAT_CODE_API_KEY="+d.Key)
			if version == "old" { // its header has to be enough
				cmd.Env = append(cmd.Env, "LIBRECHAT_CODE_BASEURL="+d.URL+"/librechat/v1")
			}
			out, err := cmd.Output()
			if err != nil || !strings.HasSuffix(strings.TrimSpace(string(out)), "done") {
				t.Errorf("%v; it said %q", err, out)
			}
		})
	}
	for _, line := range d.Faults() {
		t.Errorf("the daemon had an error of its own: %s", line)
	}
	if strings.Contains(d.Log(), d.Key) {
		t.Errorf("the log has the API key")
	}
}
