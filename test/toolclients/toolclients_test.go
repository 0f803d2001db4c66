// Package toolclients_test has libraries serve functions of their own processes to code in real containers, over the
// real daemon.
package toolclients_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/test/clients"
	"berth/test/daemontest"
	"berth/test/needs"
)

func TestPraisonAI(t *testing.T) {
	needs.Containers(t)
	praison := clients.Install(t, "tools-praisonai", clients.Python, "praisonai/requirements.txt", "praisonai/main.py")
	d, err := daemontest.New("--stop-on-exit")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	program(t, d, praison, "venv/bin/python", "main.py")
	for _, line := range d.Faults() {
		t.Errorf("the daemon had an error of its own: %s", line)
	}
}

// program runs one to its end, which it says.
func program(t *testing.T, d *daemontest.Daemon, dir string, argv ...string) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	sdk, err := filepath.Abs("../../sdk/python")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(dir, argv[0]), argv[1:]...)
	cmd.Dir, cmd.Stderr = dir, t.Output()
	cmd.Env = append(os.Environ(), "BERTH_URL="+d.URL, "BERTH_API_KEY="+d.Key, "PYTHONPATH="+sdk+"/src:"+sdk+
		"/adapters/praisonai", "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.Output()
	if lines := strings.Fields(string(out)); err != nil || len(lines) == 0 || lines[len(lines)-1] != "done" {
		t.Errorf("%v; it said %q", err, out)
	}
}
