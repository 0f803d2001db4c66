// Package browser_test visits what listens in containers with Chromium: development servers, notebooks, websockets,
// events, downloads, and pages that attack others. `make test-browser` runs it.
package browser_test

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

// chromium returns the browser. Without it, the test is left out.
func chromium(t *testing.T) string {
	t.Helper()
	path := os.Getenv("BERTH_CHROMIUM")
	if path == "" {
		t.Skip("BERTH_CHROMIUM is not set: `make test-browser` installs the browser and runs this")
	}
	return path
}

// pythonPackages installs what requirements.txt names for the Python of the base image.
const pythonPackages = "python3 -m pip install --quiet --disable-pip-version-check --target packages " +
	"--python-version 3.11 --platform manylinux2014_$(uname -m) --platform manylinux_2_28_$(uname -m) " +
	"--only-binary=:all: -r requirements.txt"

// TestPorts runs the cases of main.mjs, over HTTP with all applications, and over TLS of the daemon's own authority.
func TestPorts(t *testing.T) {
	browser := chromium(t)
	node := clients.Install(t, "browser", clients.Node, "package.json", "package-lock.json", "main.mjs")
	python := clients.Install(t, "browser-python", pythonPackages, "requirements.txt")
	for name, kind := range map[string]struct {
		flags, cases []string
		least        int
	}{
		"http": {nil, nil, 14},
		"tls": {[]string{"--tls-self-signed", "--domain", "ports.localhost"},
			[]string{"signed", "wakes", "public", "path", "cookies", "neighbour", "worker", "vite"}, 8},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := daemontest.New(append([]string{"--stop-on-exit", "--ports-max", "public"}, kind.flags...)...)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			home := t.TempDir()
			if name == "tls" {
				trust(t, home, d.CAFile())
			}
			apps, err := os.Getwd()
			if err != nil {
				t.Fatal(err)
			}
			bin, _ := daemontest.Binary() // daemontest.New has failed without one
			visit(t, kind.least, append([]string{filepath.Join(node, "main.mjs")}, kind.cases...), append(os.Environ(),
				"HOME="+home, "BERTH_URL="+d.URL, "BERTH_HOST="+d.URL, "BERTH_API_KEY="+d.Key, "BERTH_BINARY="+bin,
				"BERTH_CA="+d.CAFile(), "NODE_EXTRA_CA_CERTS="+d.CAFile(), "BERTH_CHROMIUM="+browser, "BERTH_APPS="+apps,
				"BERTH_MODULES="+filepath.Join(node, "node_modules"), "BERTH_PACKAGES="+filepath.Join(python, "packages")))
			for _, line := range d.Faults() {
				t.Errorf("the daemon had an error of its own: %s", line)
			}
		})
	}
}

// trust has Chromium trust an authority, as a person does who uses the daemon's own.
func trust(t *testing.T, home, ca string) {
	t.Helper()
	db := filepath.Join(home, ".pki", "nssdb")
	if err := os.MkdirAll(db, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"-N", "--empty-password"}, {"-A", "-t", "C,,", "-n", "berth", "-i", ca}} {
		if out, err := exec.Command("certutil", append([]string{"-d", "sql:" + db}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("certutil %q: %v %s", args, err, out)
		}
	}
}

// visit runs the program and makes a subtest of each line that it reports. There must be at least that many.
func visit(t *testing.T, least int, args, env []string) {
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", args...)
	cmd.Env = env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%v\n%s\n%s", err, out, stderr.String())
	}
	clients.Report(t, out, least)
}
