// Package netclients_test runs common programs in containers that have a network, without a variable that names a
// proxy, against real servers on this machine's loopback.
package netclients_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"berth/proto"
	"berth/test/clients"
	"berth/test/daemontest"
	"berth/test/needs"
)

// A site is a daemon and the servers that its containers may reach.
type site struct {
	*internet
	*daemontest.Daemon
}

func flags(w *internet) []string {
	return []string{"--stop-on-exit", "--network-max", "open", "--resolver", w.names.Addr, "--egress-allow-private",
		serverAddress + "/32"}
}

// TestClients tries the clients that the image base has.
func TestClients(t *testing.T) {
	needs.Containers(t)
	w := newInternet(t)
	d, err := daemontest.New(flags(w)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	(&site{w, d}).try(t, "base", ofBase)
}

// TestAllClients tries all clients, in an image that takes long to build: `make test-network` runs this. The variable
// names a directory that keeps the image for the next run.
func TestAllClients(t *testing.T) {
	dir := os.Getenv("BERTH_NETWORK_DIR")
	if dir == "" {
		t.Skip("BERTH_NETWORK_DIR is not set: `make test-network` installs the servers and runs this")
	}
	_, base := needs.Containers(t)
	w := newInternet(t)
	w.startServers(t)
	d := &daemontest.Daemon{Dir: dir, Flags: flags(w)}
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Stop(syscall.SIGTERM) })
	if err := d.ImportImage("base", base); err != nil {
		t.Fatal(err)
	}
	s := &site{w, d}
	s.try(t, s.image(t), slices.Concat(ofBase, ofImage))
}

// image returns the name of the image of clients, which it builds unless an earlier run did.
func (s *site) image(t *testing.T) string {
	t.Helper()
	context := clients.Install(t, "network-image", clients.Node, "image/Dockerfile", "image/package.json",
		"image/package-lock.json")
	name := filepath.Base(context)
	for _, image := range call[struct{ Data []proto.Image }](t, s, 200, "GET", "/v1/images", nil).Data {
		if image.Name == name {
			return name
		}
	}
	// From the mirror of Debian that the image base names.
	s.names.Set("deb.debian.org", serverAddress)
	bin, err := daemontest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "--host", s.URL, "--api-key-file", filepath.Join(s.Dir, "api-key"), "image", "build",
		"--quiet", "--tag", name, "--allow", "deb.debian.org", "--memory-bytes", "3000000000", context)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	return name
}

// call makes a request and decodes the answer. A status other than want fails the test.
func call[T any](t *testing.T, s *site, want int, method, path string, body any) (v T) {
	t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	status, out, err := s.Do(method, path, strings.NewReader(string(b)))
	if err == nil && status != want {
		err = fmt.Errorf("status %d", status)
	}
	if err == nil {
		err = json.Unmarshal(out, &v)
	}
	if err != nil {
		t.Fatalf("%s %s: %v %s", method, path, err, out)
	}
	return v
}

// modes are the networks of containers.
var modes = []proto.Network{
	{Mode: proto.NetworkAllowlist, Allow: append([]string{"git.test:22", "db.test:5432", "cache.test:6379"}, hosts[:7]...)},
	{Mode: proto.NetworkOpen},
}

// try runs clients in both classes and modes.
func (s *site) try(t *testing.T, image string, all []client) {
	for _, class := range []proto.RuntimeClass{proto.ClassRunc, proto.ClassGVisor} {
		for _, network := range modes {
			t.Run(fmt.Sprint(class, "/", network.Mode), func(t *testing.T) {
				c := s.container(t, image, class, network)
				for _, one := range all {
					t.Run(one.name, func(t *testing.T) { s.use(t, c, one) })
				}
				t.Run("questions", func(t *testing.T) { s.ask(t, c) })
			})
		}
	}
}

// container creates a container that trusts the authority of the servers.
func (s *site) container(t *testing.T, image string, class proto.RuntimeClass, network proto.Network) proto.Container {
	t.Helper()
	c := call[proto.Container](t, s, 201, "POST", "/v1/containers", proto.CreateContainer{Image: image,
		RuntimeClass: class, Network: network, Limits: proto.Limits{MemoryBytes: 2 << 30}})
	t.Cleanup(func() { _, _, _ = s.Do("DELETE", "/v1/containers/"+c.ID, nil) })
	files := map[string][]byte{"ca.pem": s.ca, "key": s.key, "gofetch": goFetch(t)}
	for _, name := range []string{"Fetch.java", "fetch.py", "visit.js", "crate.sh"} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = b
	}
	for name, content := range files {
		status, out, err := s.Do("PUT", "/v1/containers/"+c.ID+"/fs/content?path=/tmp/"+name, bytes.NewReader(content))
		if err != nil || status >= 300 {
			t.Fatalf("%s: %d %v %s", name, status, err, out)
		}
	}
	s.exec(t, c, proto.Cmd{User: "root", Command: "chmod 755 /tmp/gofetch && cp /tmp/ca.pem " +
		"/usr/local/share/ca-certificates/test.crt && update-ca-certificates >/dev/null 2>&1"})
	return c
}

// goFetch returns a program of Go that prints what is at a URL. It is one file, so it has Go's own resolver.
func goFetch(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gofetch")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "./gofetch")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (s *site) exec(t *testing.T, c proto.Container, cmd proto.Cmd) proto.ExecResult {
	t.Helper()
	return call[proto.ExecResult](t, s, 200, "POST", "/v1/containers/"+c.ID+"/exec", cmd)
}

// begin unsets what names a proxy, and has Node read the certificates that the container trusts.
const begin = `unset ${!HTTP_*} ${!http_*} ${!HTTPS_*} ${!https_*} ${!ALL_*} ${!all_*} ${!NO_*} ${!no_*}
export NODE_EXTRA_CA_CERTS=/tmp/ca.pem T=$(mktemp -d)
`

// patience is how long a client may take, in seconds. One that waits for an answer of the network in vain takes longer.
const patience = 100

// use has a client do its work, and be refused.
func (s *site) use(t *testing.T, c proto.Container, one client) {
	cmd := proto.Cmd{Command: begin + "REPOSITORY=" + gitRoot() + "/greeting.git\n" + one.script,
		TimeoutSeconds: patience}
	if one.asRoot {
		cmd.User = "root"
	}
	head := call[proto.AuditHead](t, s, 200, "GET", "/v1/audit/head", nil)
	res := s.exec(t, c, cmd)
	if r := res.Result.Result; r == nil || strings.TrimSpace(r.Stdout) != one.want || r.ReturnCode != 0 {
		t.Errorf("it said %+v %+v", r, res.Exec.End)
	}
	if len(res.Notes) > 0 && one.name != "Playwright" { // Chromium looks for services of its maker
		t.Errorf("notes of what works: %q", res.Notes)
	}
	cmd.Command = begin + one.refused
	res = s.exec(t, c, cmd)
	if r := res.Result.Result; r == nil || r.ReturnCode == 0 {
		t.Errorf("of a host that is refused, it said %+v %+v", r, res.Exec.End)
	}
	why := `denied.test is not on this container's list; add "denied.test" to its network.allow`
	if c.Network.Mode == proto.NetworkOpen {
		why = "denied.test leads to an address that is refused: 127.0.0.2 is not a public address"
	}
	if !slices.ContainsFunc(res.Notes, func(n string) bool {
		return strings.HasPrefix(n, "the network refused a connection: "+why)
	}) {
		t.Errorf("the notes are %q, not %q", res.Notes, why)
	}
	s.audited(t, c, one, head.Seq)
}

// ask asks for records of several kinds by Node's own resolver, and has it say what it gets.
func (s *site) ask(t *testing.T, c proto.Container) {
	const program = `const dns = require("dns").promises;
const say = p => p.then(r => JSON.stringify(r), e => e.code).then(console.log);
(async () => {
	await say(dns.resolveSrv("_greeting._tcp.web.test").then(l => l.map(r => r.name + ":" + r.port)));
	await say(dns.resolveTxt("web.test"));
	await say(dns.resolve6("web.test"));
	await say(dns.resolveMx("web.test"));
	await say(dns.resolve4("web.test").then(l => dns.reverse(l[0])));
	await say(dns.reverse("8.8.8.8"));
	await say(dns.resolve4("_greeting._tcp.web.test"));
	await say(dns.resolveTxt("denied.test"));
})()`
	const want = `["web.test:5222"] [["greeting"]] ENODATA ENODATA ["web.test"] ENOTFOUND ENOTFOUND ENOTFOUND`
	res := s.exec(t, c, proto.Cmd{Command: "node -e '" + program + "'", TimeoutSeconds: patience})
	if r := res.Result.Result; r == nil || strings.Join(strings.Fields(r.Stdout), " ") != want {
		t.Errorf("it said %+v %+v\nwant %s", r, res.Exec.End, want)
	}
	if len(res.Notes) != 1 || !strings.Contains(res.Notes[0], refusedHost) {
		t.Errorf("the notes are %q", res.Notes)
	}
}

// audited checks that the audit log tells of what a client did, from a number on.
func (s *site) audited(t *testing.T, c proto.Container, one client, from int64) {
	t.Helper()
	status, out, err := s.Do("GET", "/v1/audit", nil)
	if err != nil || status != 200 {
		t.Fatalf("%d %v %s", status, err, out)
	}
	found := map[string]bool{}
	for line := range bytes.SplitSeq(bytes.TrimSpace(out), []byte("\n")) {
		var e proto.AuditEntry
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		if e.Seq > from && e.ContainerID == c.ID && e.Egress != nil {
			found[fmt.Sprintf("%s %s %s:%d %s", e.Act, e.Egress.Method, e.Egress.Host, e.Egress.Port, e.Outcome)] = true
		}
	}
	host := one.host
	if c.Network.Mode == proto.NetworkOpen {
		host = cmp.Or(one.open, host)
	}
	for _, want := range []string{fmt.Sprintf("egress.begin TCP %s:%d ok", host, one.port),
		fmt.Sprintf("egress.end TCP %s:%d ok", host, one.port),
		"egress.refuse DNS " + refusedHost + ":53 permission_denied"} {
		if !found[want] {
			t.Errorf("the audit log lacks %q; it has %v", want, found)
		}
	}
}
