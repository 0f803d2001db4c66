package daemon_test

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/code"
	"berth/proto"
	"berth/test/daemontest"
	"berth/test/egresstest"
	"berth/tools/toolstore"
)

// An internet is the network that containers of a test can reach: servers on this host's 127.0.0.1, which the daemon
// may reach by exception, with names. All other loopback addresses stay private.
type internet struct {
	*server
	names         *egresstest.NameServer
	plain, secure string // ports
	ca            []byte
	blob          []byte        // content at /blob
	hold          chan struct{} // /hold answers until it is closed
}

func newInternet(t *testing.T, flags ...string) *internet {
	t.Helper()
	w := &internet{names: egresstest.NewNameServer(t), blob: make([]byte, 20<<20), hold: make(chan struct{})}
	_, _ = rand.Read(w.blob)
	handler := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/blob":
			_, _ = rw.Write(w.blob)
		case "/hold":
			fmt.Fprintln(rw, "begun")
			rw.(http.Flusher).Flush()
			select {
			case <-w.hold:
			case <-r.Context().Done():
			}
		case "/to":
			http.Redirect(rw, r, r.URL.RawQuery, http.StatusFound)
		default:
			n, _ := r.Body.Read(make([]byte, 1))
			_, _ = io.Copy(io.Discard, r.Body)
			fmt.Fprintf(rw, "%s %s body=%d", r.Method, r.Host, n)
		}
	})
	plain, secure := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	t.Cleanup(func() { close(w.hold); plain.Close(); secure.Close() })
	_, w.plain, _ = net.SplitHostPort(plain.Listener.Addr().String())
	_, w.secure, _ = net.SplitHostPort(secure.Listener.Addr().String())
	w.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	d, err := daemontest.New(append([]string{"--stop-on-exit", "--warm-max", "2", "--network-max", "open", "--resolver",
		w.names.Addr, "--egress-allow-private", "127.0.0.1"}, flags...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	w.server = &server{d}
	for name, leads := range map[string]string{"web.test": "127.0.0.1", "example.com": "127.0.0.1",
		"inner.test": "127.0.0.2", "meta.test": "169.254.169.254", "six.test": "::1"} {
		w.names.Set(name, leads)
	}
	return w
}

// container creates a container with a network given as JSON.
func (w *internet) container(t *testing.T, class proto.RuntimeClass, network string) proto.Container {
	t.Helper()
	c := call[proto.Container](t, w.server, 201, "POST", "/v1/containers",
		fmt.Sprintf(`{"runtime_class":%q,"limits":{"memory_bytes":536870912},"network":%s}`, class, network))
	t.Cleanup(func() { _, _, _ = w.Do("DELETE", "/v1/containers/"+c.ID, nil) })
	if status, out, err := w.Do("PUT", "/v1/containers/"+c.ID+"/fs/content?path=/tmp/ca.pem", strings.NewReader(
		string(w.ca))); err != nil || status >= 300 {
		t.Fatalf("%d %v %s", status, err, out)
	}
	return c
}

// says runs a script and compares its output, without surrounding white space.
func (w *internet) says(t *testing.T, id, script, want string) {
	t.Helper()
	res := bash(t, w.server, id, strings.NewReplacer("PLAIN", w.plain, "SECURE", w.secure).Replace(script))
	want = strings.NewReplacer("PLAIN", w.plain, "SECURE", w.secure).Replace(want)
	if r := res.Result.Result; r == nil || strings.TrimSpace(r.Stdout) != want {
		t.Errorf("%s\nsaid %+v %+v\nwant %q", script, r, res.Exec.End, want)
	}
}

// eachClass runs a test in both runtime classes.
func eachClass(t *testing.T, fn func(*testing.T, proto.RuntimeClass)) {
	for _, class := range []proto.RuntimeClass{proto.ClassRunc, proto.ClassGVisor} {
		t.Run(string(class), func(t *testing.T) { fn(t, class) })
	}
}

// TestNetworks checks that common programs in a container reach the hosts on its allow-list and no others. The
// container has no network interface but loopback.
func TestNetworks(t *testing.T) {
	w := newInternet(t)
	t.Run("list", func(t *testing.T) { eachClass(t, w.testList) })
	t.Run("none", func(t *testing.T) { eachClass(t, w.testNone) })
	t.Run("open", func(t *testing.T) { eachClass(t, w.testOpen) })
	t.Run("ends", func(t *testing.T) { eachClass(t, w.testEnds) })
	t.Run("code", w.testCode)
	t.Run("audit", w.testAudit)
	t.Run("restart", func(t *testing.T) { eachClass(t, w.testRestart) })
	t.Run("less", w.testLess)
}

// codesOf defines a function that requests URLs, follows redirects, and prints the status codes of host and proxy. It
// sends loopback addresses to the proxy too.
const codesOf = `code() { for u in "$@"; do curl -skL -m 20 --noproxy nothing -o /dev/null -w '%{http_code}%{http_connect} ' "$u"; done; }; code `

func (w *internet) testList(t *testing.T, class proto.RuntimeClass) {
	c := w.container(t, class, fmt.Sprintf(
		`{"mode":"allowlist","allow":["web.test:%s","Example.com.:%s","*.evil.test:%s","inner.test"]}`, w.plain,
		w.secure, w.plain))
	if n := c.Network; n.Mode != proto.NetworkAllowlist || len(n.Allow) != 4 || n.Allow[1] != "example.com:"+w.secure ||
		c.Isolation.Network != proto.ThroughProxy {
		t.Errorf("%+v %+v", n, c.Isolation)
	}
	sum := sha256.Sum256(w.blob)
	devices := "lo"
	if class == proto.ClassGVisor {
		devices = "lo,eth0" // which leads to the daemon's sockets and nowhere else
	}
	for script, want := range map[string]string{
		`curl -s http://web.test:PLAIN/`:                                                                              "GET web.test:PLAIN body=0",
		`curl -s --data-binary @/usr/bin/python3 http://web.test:PLAIN/`:                                              "POST web.test:PLAIN body=1",
		`curl -s --cacert /tmp/ca.pem https://example.com:SECURE/`:                                                    "GET example.com:SECURE body=0",
		`curl -s --cacert /tmp/ca.pem https://example.com:SECURE/blob | sha256sum`:                                    hex.EncodeToString(sum[:]) + "  -",
		`curl -s http://web.test:PLAIN/blob | sha256sum`:                                                              hex.EncodeToString(sum[:]) + "  -",
		`curl -s -x socks5h://127.0.0.1:3128 --cacert /tmp/ca.pem https://example.com:SECURE/`:                        "GET example.com:SECURE body=0",
		`python3 -c 'import requests; print(requests.get("https://example.com:SECURE/", verify="/tmp/ca.pem").text)'`: "GET example.com:SECURE body=0",
		`python3 -c 'import urllib.request as u; print(u.urlopen("http://web.test:PLAIN/").read().decode())'`:         "GET web.test:PLAIN body=0",
		`for i in $(seq 60); do curl -s http://web.test:PLAIN/ -o /dev/null & done; wait; echo all`:                   "all",

		// Not on the allow-list, or another port, or not public.
		codesOf +
			`http://other.test/ https://other.test/ http://web.test/ http://inner.test/ http://127.0.0.1:PLAIN/`: "403000 000403 403000 403000 403000",
		codesOf +
			`http://web.test:PLAIN/to?http://inner.test/`: "403000",
		codesOf +
			`http://web.test:PLAIN/to?http://169.254.169.254/latest/meta-data`: "403000",
		// the TLS hello names the requested host
		`curl -sk -o /dev/null -w '%{http_code}%{http_connect}' --connect-to ::example.com:SECURE https://other.test/`:                                "000200",
		`python3 -c 'import requests; requests.get("https://other.test/")' 2>&1 | grep -o "other.test:443 is not on this container.s list" | head -1`: "other.test:443 is not on this container's list",
		`curl -s --noproxy '*' -m 5 http://127.0.0.1:PLAIN/ || echo refused`:                                                                          "refused",
		`tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' | sort -r | paste -sd,`:                                                                   devices,
		`HTTP_PROXY= env | grep -ic ^http_proxy=`:                                                                                                     "2",
	} {
		w.says(t, c.ID, script, want)
	}
	// The environment in the request wins.
	res := call[proto.ExecResult](t, w.server, 200, "POST", "/v1/containers/"+c.ID+"/exec",
		`{"command":"echo $HTTP_PROXY,$http_proxy,$HTTPS_PROXY,$all_proxy,$NO_PROXY","env":{"http_proxy":"mine"}}`)
	if got := res.Result.Result.Stdout; got != ",mine,http://127.0.0.1:3128,http://127.0.0.1:3128,localhost,127.0.0.1,::1\n" {
		t.Errorf("%q", got)
	}
	// A name that resolves to another address the second time gets no access.
	name := fmt.Sprintf("%s.evil.test", class)
	w.names.Set(name, "127.0.0.1", "127.0.0.2")
	w.says(t, c.ID, codesOf+"http://"+name+":PLAIN/", "200000")
	w.says(t, c.ID, codesOf+"http://"+name+":PLAIN/", "403000")
	// A new sandbox of the same container has the network too.
	call[proto.Container](t, w.server, 200, "POST", "/v1/containers/"+c.ID+"/stop", "")
	w.says(t, c.ID, codesOf+"http://web.test:PLAIN/", "200000")
}

func (w *internet) testNone(t *testing.T, class proto.RuntimeClass) {
	for _, network := range []string{`"none"`, `{}`, `{"mode":"none"}`} {
		c := w.container(t, class, network)
		if c.Network.Mode != proto.NetworkNone || c.Isolation.Network != string(proto.NetworkNone) {
			t.Errorf("%+v %+v", c.Network, c.Isolation)
		}
		w.says(
			t, c.ID,
			`env | grep -ic _proxy=; curl -s -m 5 http://web.test:PLAIN/ || echo no; curl -s -m 5 http://127.0.0.1:3128/ || echo nothing there`, "0\nno\nnothing there")
	}
}

func (w *internet) testOpen(t *testing.T, class proto.RuntimeClass) {
	c := w.container(t, class, `"open"`)
	w.says(t, c.ID, codesOf+`http://web.test:PLAIN/ http://127.0.0.1:PLAIN/ https://example.com:SECURE`,
		"200000 200000 200200")
	w.says(
		t, c.ID, codesOf+
			`http://inner.test/ http://meta.test/ http://six.test/ http://169.254.169.254/ http://10.0.0.1/ http://127.0.0.2/ http://2130706434/ http://0x7f.2/`,
		"403000 403000 403000 403000 403000 403000 403000 403000")
}

// testCode checks that code and stored tools have exactly the requested network.
func (w *internet) testCode(t *testing.T) {
	url := "http://web.test:" + w.plain + "/"
	const ask = "import urllib.request\nurllib.request.urlopen('%s', timeout=10).status"
	for network, want := range map[string]string{"": "", `,"network":"open"`: "200"} {
		body := fmt.Sprintf(`{"code":%q%s}`, fmt.Sprintf(ask, url), network)
		if res := call[code.Outcome](t, w.server, 200, "POST", "/v1/run_code", body); strings.Join(res.Results,
			"") != want || (want == "") != (res.Error != "") {
			t.Errorf("network %q: %+v", network, res)
		}
	}
	ends := map[bool]proto.ToolRunState{false: proto.RunFailed, true: proto.RunSucceeded}
	for allowed, want := range ends {
		name := fmt.Sprintf("fetch_%t", allowed)
		store(t, w.server, toolstore.NewTool{Name: name, Configuration: toolstore.Configuration{AllowNetwork: allowed,
			Code: fmt.Sprintf("import urllib.request\ndef run(input): return {'status': "+
				"urllib.request.urlopen('%s', timeout=10).status}", url)}})
		if run := call[toolstore.Run](t, w.server, 200, "POST", "/v1/tools/"+name+"/run", "{}"); run.State != want {
			t.Errorf("%s: %+v %+v", name, run, run.Error)
		}
	}
	// A container keeps its network. A tool with more or less network does not run there.
	for network, other := range map[string]string{`"open"`: "fetch_false", `"none"`: "fetch_true"} {
		c := w.container(t, proto.ClassRunc, network)
		call[any](t, w.server, 409, "POST", "/v1/tools/"+other+"/run", `{"container":"`+c.ID+`"}`)
	}
}

// testEnds checks that a pause and a stop end open connections, and that the next use has a network again.
func (w *internet) testEnds(t *testing.T, class proto.RuntimeClass) {
	c := w.container(t, class, fmt.Sprintf(`{"allow":["web.test:%s"]}`, w.plain))
	at := "/v1/containers/" + c.ID
	for _, end := range []string{"pause", "stop"} {
		head := auditHead(t, w.server)
		bash(t, w.server, c.ID, fmt.Sprintf("rm -f /tmp/held; curl -sN http://web.test:%s/hold >/tmp/held 2>&1 & "+
			"until grep -qs begun /tmp/held; do sleep 0.05; done", w.plain))
		call[proto.Container](t, w.server, 200, "POST", at+"/"+end, "")
		eventually(t, "the end of a request by "+end, func() bool {
			return slices.ContainsFunc(since(t, w.server, head.Seq), func(e proto.AuditEntry) bool {
				return e.Act == "egress.end" && e.ContainerID == c.ID && e.Egress.Received > 0
			})
		})
		w.says(t, c.ID, codesOf+"http://web.test:PLAIN/", "200000")
	}
}

// testAudit checks that each request, allowed or not, is audited with its container and counted.
func (w *internet) testAudit(t *testing.T) {
	head := auditHead(t, w.server)
	c := w.container(t, proto.ClassRunc, fmt.Sprintf(`{"allow":["web.test:%s"]}`, w.plain))
	w.says(t, c.ID, codesOf+"http://web.test:PLAIN/ http://other.test/", "200000 403000")
	var got []proto.AuditEntry
	eventually(t, "three entries", func() bool {
		got = slices.DeleteFunc(since(t, w.server, head.Seq), func(e proto.AuditEntry) bool { return e.Egress == nil })
		return len(got) == 3
	})
	slices.SortFunc(got, func(a, b proto.AuditEntry) int { return strings.Compare(a.Act, b.Act) })
	for i, want := range []string{"egress.begin ok", "egress.end ok", "egress.refuse permission_denied"} {
		e := got[i]
		if e.Act+" "+e.Outcome != want || e.Actor != proto.ActorContainer || e.Owner != "default" ||
			e.ContainerID != c.ID || e.Egress.Method != "GET" {
			t.Errorf("%+v %+v", e, e.Egress)
		}
	}
	if x := got[1].Egress; x.Host != "web.test" || x.Address != "127.0.0.1" || fmt.Sprint(x.Port) != w.plain ||
		x.Sent == 0 || x.Received == 0 || x.Seconds <= 0 {
		t.Errorf("%+v", x)
	}
	if e := got[2]; e.Egress.Host != "other.test" || e.Egress.Reason != "not_allowed" || e.Egress.Address != "" ||
		e.Note == "" {
		t.Errorf("%+v %+v", e, e.Egress)
	}
	if out, err := auditCLI(t, w.server, "tail", "--act", "egress.", "-n", "3"); err != nil ||
		!strings.Contains(out, "GET  web.test port "+w.plain) ||
		!strings.Contains(out, "is not on this container's list") {
		t.Errorf("%s %v", out, err)
	}
	if _, out, _ := w.Do("GET", "/metrics", nil); !strings.Contains(string(out),
		`berth_egress_requests_total{outcome="not_allowed"}`) ||
		!strings.Contains(string(out), `berth_egress_bytes_total{direction="in"}`) {
		t.Error("the metrics do not tell of it")
	}
	for body, item := range map[string]string{
		`{"network":"all"}`: "network.mode", `{"network":{"mode":"open","allow":["a.test"]}}`: "network.allow",
		`{"network":{"allow":["a.test","http://b.test"]}}`: "network.allow.1",
		`{"network":{"allow":["10.0.0.1"]}}`:               "network.allow",
		`{"network":{"modes":"open"}}`:                     "network.modes",
		`{"network":7}`:                                    "network",
		`{"network":{"allow":["a.test",5]}}`:               "network.allow.1",
	} {
		e := call[struct{ Error proto.Error }](t, w.server, 400, "POST", "/v1/containers", body)
		if e.Error.Item != item || e.Error.Code != proto.InvalidArgument || e.Error.Message == "" {
			t.Errorf("%s: %+v", body, e.Error)
		}
	}
}

// testRestart kills the daemon and checks that the next one restores the containers' network. Requests in between
// wait.
func (w *internet) testRestart(t *testing.T, class proto.RuntimeClass) {
	c := w.container(t, class, fmt.Sprintf(`{"allow":["web.test:%s"]}`, w.plain))
	cmd, _ := json.Marshal(proto.Cmd{Background: true, Command: fmt.Sprintf("until [ -e /tmp/go ]; do sleep 0.05; "+
		"done; for i in 1 2 3; do curl -s -m 60 -o /dev/null -w '%%{http_code}\n' http://web.test:%s/ && break; done",
		w.plain)})
	e := call[proto.Exec](t, w.server, 202, "POST", "/v1/containers/"+c.ID+"/exec", string(cmd))
	bash(t, w.server, c.ID, "(sleep 0.5; touch /tmp/go) >/dev/null 2>&1 &") // runs while no daemon does
	w.Stop(syscall.SIGKILL)
	time.Sleep(700 * time.Millisecond)
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	res := call[proto.ExecResult](t, w.server, 200, "GET", "/v1/containers/"+c.ID+"/execs/"+e.ID+
		"/result?wait_seconds=60", "")
	if r := res.Result.Result; r == nil || !strings.HasSuffix(r.Stdout, "200\n") {
		t.Errorf("%+v %+v", r, res.Exec.End)
	}
	if n := call[proto.Container](t, w.server, 200, "GET", "/v1/containers/"+c.ID,
		"").Network; n.Mode != proto.NetworkAllowlist || len(n.Allow) != 1 {
		t.Errorf("%+v", n)
	}
}

// testLess checks that a daemon with a smaller network maximum reduces old containers' networks too.
func (w *internet) testLess(t *testing.T) {
	c := w.container(t, proto.ClassRunc, `"open"`)
	w.says(t, c.ID, codesOf+"http://web.test:PLAIN/", "200000")
	w.Stop(syscall.SIGTERM)
	flags := w.Flags
	w.Flags = append(slices.Clone(flags), "--network-max", "allowlist")
	defer func() { w.Flags = flags }()
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	w.says(t, c.ID, "curl -s http://web.test:PLAIN/", `the daemon does not give containers the network "open" any more`)
	if e := call[struct{ Error proto.Error }](t, w.server, 403, "POST", "/v1/containers",
		`{"network":"open"}`); e.Error.Item != "network" || !strings.Contains(e.Error.Message, "--network-max open") {
		t.Errorf("%+v", e.Error)
	}
}

// TestNoNetworkUnlessTheOperatorSaysSo checks that containers have no network without a flag of the operator.
func TestNoNetworkUnlessTheOperatorSaysSo(t *testing.T) {
	for _, body := range []string{`{"network":"open"}`, `{"network":{"allow":["api.github.com"]}}`} {
		if e := call[struct{ Error proto.Error }](t, base, 403, "POST", "/v1/containers",
			body); e.Error.Code != proto.PermissionDenied || !strings.Contains(e.Error.Message, "--network-max") {
			t.Errorf("%+v", e.Error)
		}
	}
}
