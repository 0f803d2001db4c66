// Package e2bclients_test runs the SDKs of E2B, unmodified, against the real daemon and real containers.
package e2bclients_test

import (
	"cmp"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/api/e2b/access"
	"berth/test/clients"
	"berth/test/daemontest"
	"berth/test/egresstest"
	"berth/test/needs"
)

// The domain of the daemon, and the address of the name server that has the names below it. Programs ask name servers
// at port 53 alone.
const (
	domain     = "e2b.test"
	nameServer = "127.0.83.53"
)

// programs are the programs of this test by their directory, with the ways in that their SDKs have.
var programs = []struct {
	dir         string
	file        string // default main.py or main.mjs
	python      bool
	urls, names bool
}{
	{dir: "py", python: true, urls: true, names: true}, {dir: "ts", urls: true, names: true},
	{dir: "py", file: "main.templates.py", python: true, urls: true, names: true},
	{dir: "ts", file: "main.templates.mjs", urls: true, names: true},
	{dir: "old", python: true, urls: true}, {dir: "first", python: true, names: true}, {dir: "firstts", names: true},
}

func TestSDKs(t *testing.T) {
	needs.Containers(t)
	installed := map[string]string{}
	for _, p := range programs {
		if installed[p.dir] == "" {
			installed[p.dir] = install(t, p.dir, p.python)
		}
	}
	urls := start(t)
	byURLs := []string{"E2B_API_URL=" + urls.URL, "E2B_SANDBOX_URL=" + urls.URL}
	names := start(t, "--tls-self-signed", "--domain", domain)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(names.URL, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	byName := []string{"E2B_DOMAIN=" + domain + ":" + port, "SSL_CERT_FILE=" + names.CAFile(),
		"NODE_EXTRA_CA_CERTS=" + names.CAFile()}
	resolve := resolver(t)
	for _, p := range programs {
		argv := []string{"node", cmp.Or(p.file, "main.mjs")}
		if p.python {
			argv = []string{filepath.Join(installed[p.dir], "venv/bin/python"), cmp.Or(p.file, "main.py")}
		}
		if p.urls {
			t.Run(p.dir+p.file+" by URLs", func(t *testing.T) { program(t, urls, installed[p.dir], byURLs, argv...) })
		}
		if p.names {
			t.Run(p.dir+p.file+" by names", func(t *testing.T) {
				program(t, names, installed[p.dir], byName, append(resolve, argv...)...)
			})
		}
	}
	checkLog(t, urls)
	checkLog(t, names)
}

// install installs the SDKs of a program, once on a machine.
func install(t *testing.T, dir string, python bool) string {
	files, err := filepath.Glob(dir + "/*")
	if err != nil {
		t.Fatal(err)
	}
	how := clients.Node
	if python {
		how = clients.Python
	}
	return clients.Install(t, "e2b-"+dir, how, files...)
}

// start starts a daemon.
func start(t *testing.T, flags ...string) *daemontest.Daemon {
	t.Helper()
	d, err := daemontest.New(append([]string{"--stop-on-exit", "--ports-max", "public"}, flags...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// resolver starts a name server where all names below the domain lead to this machine, and returns the beginning of a
// command that asks it.
func resolver(t *testing.T) (argv []string) {
	t.Helper()
	server, err := egresstest.StartAt(net.JoinHostPort(nameServer, "53"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	server.Set("*."+domain, "127.0.0.1")
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(conf, []byte("nameserver "+nameServer+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return []string{"unshare", "--mount", "sh", "-c", `mount --bind "$0" /etc/resolv.conf && exec "$@"`, conf}
}

// checkLog checks that a daemon made no error of its own, and logged no key.
func checkLog(t *testing.T, d *daemontest.Daemon) {
	t.Helper()
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
func program(t *testing.T, d *daemontest.Daemon, dir string, env []string, argv ...string) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Stderr = dir, t.Output()
	cmd.Env = append(append(os.Environ(), "E2B_API_KEY="+access.SpellKey(d.Key), "PYTHONDONTWRITEBYTECODE=1"), env...)
	out, err := cmd.Output()
	if err != nil || strings.TrimSpace(string(out)) != "done" {
		t.Errorf("%v; it said %q", err, out)
	}
}
