// Package toolclients_test has the helpers in helpers/ serve functions of their own processes to code in real
// containers, over the real daemon.
package toolclients_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/test/clients"
	"berth/test/daemontest"
	"berth/test/needs"
)

const helpers = "../../helpers"

func TestHelpers(t *testing.T) {
	needs.Containers(t)
	py := clients.Install(t, "tools-py", clients.Python, "py/requirements.txt", "py/main.py")
	praison := clients.Install(t, "tools-praisonai", clients.Python, "praisonai/requirements.txt", "praisonai/main.py")
	d, err := daemontest.New("--stop-on-exit")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	t.Run("python", func(t *testing.T) { program(t, d, py, "venv/bin/python", "main.py") })
	t.Run("praisonai", func(t *testing.T) { program(t, d, praison, "venv/bin/python", "main.py") })
	for _, line := range d.Faults() {
		t.Errorf("the daemon had an error of its own: %s", line)
	}
}

// program runs one to its end, which it says. Where it says restart, the daemon is restarted.
func program(t *testing.T, d *daemontest.Daemon, dir string, argv ...string) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if strings.Contains(argv[0], "/") {
		argv[0] = filepath.Join(dir, argv[0])
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	paths, err := filepath.Abs(helpers)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Dir, cmd.Stderr = dir, t.Output()
	cmd.Env = append(os.Environ(), "BERTH_HOST="+d.URL, "BERTH_API_KEY="+d.Key, "PYTHONPATH="+paths+"/python:"+paths+
		"/praisonai", "PYTHONDONTWRITEBYTECODE=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	last := ""
	for sc := bufio.NewScanner(out); sc.Scan(); {
		if last = sc.Text(); last == "restart" {
			restart(t, d)
			fmt.Fprintln(in, "done")
		}
	}
	if err := cmd.Wait(); err != nil || last != "done" {
		t.Errorf("%v; the last that it said is %q", err, last)
	}
}

// restart kills the daemon and starts another one where it was.
func restart(t *testing.T, d *daemontest.Daemon) {
	flags, listen := d.Flags, strings.TrimPrefix(d.URL, "http://")
	d.Stop(syscall.SIGKILL)
	d.Flags = append([]string{"--listen", listen}, flags...)
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	d.Flags = flags
}
